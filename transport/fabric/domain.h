// SPDX-License-Identifier: Apache-2.0
//
// What it is: an opened domain of libfabric (a NIC): its completion queue, and the endpoint by
//   which peers reach this agent's memory. Beside regions that memory has a beacon: eight bytes
//   with the epoch, by which a peer sees that its way leads here.
// Threads: the transport's; register_memory() and what it returns: any.
// Owns: all of the above. Lanes and memory registered with it must go first.
// Trusts: the provider.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "transport/fabric/message.h"
#include "transport/fabric/provider.h"

namespace mc::transport::fabric {

struct CloseFid {
  template <typename Fid>
  void operator()(Fid* fid) const {
    static_cast<void>(fi_close(&fid->fid));
  }
};
template <typename Fid>
using Owned = std::unique_ptr<Fid, CloseFid>;

struct Completion {
  void* context = nullptr;
  int error = 0;  // 0: it succeeded
};

inline constexpr std::size_t kMaxRequestPieces = 16;

class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(Endpoint&&) = default;
  Endpoint& operator=(Endpoint&&) = delete;
  ~Endpoint() { close(); }

  // No completion of it comes any more, and nothing lands by what was posted to it.
  void close();
  fid_ep* get() const { return endpoint_.get(); }
  fid_av* addresses() const { return addresses_.get(); }
  // Takes completions, and lets the provider work.
  std::size_t poll(std::span<Completion> completions);
  int wait_fd() const { return wait_fd_; }  // -1: the provider has none
  // Nothing has come meanwhile, so the descriptor will tell. REQUIRES: there is one.
  bool may_sleep(fid_fabric* fabric);

 private:
  friend class Domain;
  Owned<fid_av> addresses_;
  Owned<fid_cq> completions_;
  Owned<fid_ep> endpoint_;
  int wait_fd_ = -1;
};

class Domain {
 public:
  // epoch: differs from that of any endpoint before. Errors: MC_UNSUPPORTED, MC_NO_MEMORY, each
  // with domain and cause.
  static Result<std::unique_ptr<Domain>> open(const Library& library, Info info,
                                              std::uint64_t epoch);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();

  const std::string& name() const { return name_; }
  std::uint64_t epoch() const { return beacon_->epoch; }
  const fi_info& info() const { return *info_; }
  const Library& library() const { return library_; }
  fid_domain* get() const { return domain_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  // Pieces of one request, and its bytes.
  std::size_t max_pieces() const;
  std::uint64_t max_request_bytes() const { return info_->ep_attr->max_msg_size; }
  double line_bytes_per_ns() const;  // of its NIC; 0: not known
  // The provider works on peers' requests only while this process calls it.
  bool is_software() const { return info_->domain_attr->data_progress != FI_PROGRESS_AUTO; }
  // A peer's request that the provider has begun goes on after the memory was deregistered. (shm
  // moves what a request asks for within one call.)
  bool requests_linger() const { return is_software() && info_->ep_attr->protocol != FI_PROTO_SHM; }

  // An endpoint with reads that are being answered must not be closed (tcp_connections.h).
  bool breaks_when_closed() const;

  // It works for peers while it is called, and has nothing that tells when that is needed.
  bool wants_attention() const { return is_software() && serving_.wait_fd() < 0; }

  DomainEntry entry(std::size_t slot) const;
  Endpoint& serving() { return serving_; }
  // Serves at a new endpoint; nothing that came to the one before lands any more. After an error it
  // serves nobody: it is to be closed.
  Status renew(std::uint64_t epoch);

  // access: FI_READ … for our requests, FI_REMOTE_READ … for those of peers.
  Result<Owned<fid_mr>> register_memory(std::byte* data, std::uint64_t bytes, std::uint64_t access);
  // An endpoint could not be made because the device or its address is gone: it will not come back
  // to this domain, but may to another one that is opened anew.
  bool is_broken() const { return broken_; }
  // The address by which peers name the first byte of memory registered here.
  std::uint64_t base_of(const std::byte* data) const;

  // For completions entries. Errors: MC_NO_MEMORY, MC_UNSUPPORTED.
  Result<Endpoint> make_endpoint(std::size_t entries);

 private:
  struct Beacon {
    alignas(64) std::uint64_t epoch = 0;
  };
  Domain(const Library& library, Info info);
  Status start(std::uint64_t epoch);
  Status cannot(const std::string& what, long error) const;
  Status cannot_make(const std::string& what, long error);

  const Library& library_;
  const Info info_;
  const std::string name_;
  std::uint64_t key_seed_ = 0;
  bool broken_ = false;
  std::atomic<std::uint64_t> next_key_ = 0;
  std::unique_ptr<Beacon> beacon_;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_mr> beacon_memory_;
  Endpoint serving_;
};

}  // namespace mc::transport::fabric
