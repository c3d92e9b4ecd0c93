// SPDX-License-Identifier: Apache-2.0
//
// An open domain of libfabric (a NIC): a completion queue, and the endpoint by which
//   peers reach this agent's memory. The memory includes a beacon: eight bytes with the epoch, by
//   which a peer sees that a lane leads to this agent.
// Threads: the transport's; any for register_memory() and the result.
// Owns: all of these. Lanes and registrations of the domain must be destroyed first.
// Trusts: the provider.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/fabric/fabric_options.h"
#include "transport/fabric/library.h"
#include "transport/fabric/message.h"

namespace mc::transport::fabric {

using Info = std::unique_ptr<fi_info, void (*)(fi_info*)>;

// The domains that a transport uses, in libfabric's order: domains of the provider with reliable
// datagram endpoints that read and write remote memory. Errors: MC_UNSUPPORTED, with the search.
Result<std::vector<Info>> find_domains(const Library& library, const FabricOptions& options);

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
  int error = 0;  // 0: success
};

inline constexpr std::size_t kMaxRequestPieces = 16;

class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(Endpoint&&) = default;
  Endpoint& operator=(Endpoint&&) = delete;
  ~Endpoint() { close(); }

  // Closes the endpoint. Afterwards no completion comes, and no posted request lands.
  void close();
  fid_ep* get() const { return endpoint_.get(); }
  fid_av* addresses() const { return addresses_.get(); }
  // Takes completions, and lets the provider work.
  std::size_t poll(std::span<Completion> completions);
  int wait_fd() const { return wait_fd_; }  // -1: the provider has no descriptor
  // True: no completion has come meanwhile, so the descriptor will tell. REQUIRES: wait_fd() >= 0.
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
  // epoch: differs from the epoch of any earlier endpoint. Errors: MC_UNSUPPORTED, MC_NO_MEMORY,
  // each with domain and cause.
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
  // The largest number of pieces and of bytes of a request.
  std::size_t max_pieces() const;
  std::uint64_t max_request_bytes() const { return info_->ep_attr->max_msg_size; }
  double line_bytes_per_ns() const;  // of the NIC; 0: unknown
  // Whether the provider works on peers' requests only while this process calls libfabric.
  bool is_software() const { return info_->domain_attr->data_progress != FI_PROGRESS_AUTO; }
  // Whether a peer's request that has begun goes on after the memory was deregistered. (shm moves
  // the bytes of a request within one call.)
  bool requests_linger() const { return is_software() && info_->ep_attr->protocol != FI_PROTO_SHM; }

  // Whether an endpoint that is answering reads must not be closed (lane.cc).
  bool breaks_when_closed() const;

  // Whether the provider works only while called, and has no descriptor that tells when.
  bool wants_attention() const { return is_software() && serving_.wait_fd() < 0; }

  DomainEntry entry(std::size_t slot) const;
  Endpoint& serving() { return serving_; }
  // Serves at a new endpoint. No request to the former endpoint lands any more. After an error the
  // domain serves no peer, and must be closed.
  Status renew(std::uint64_t epoch);

  // access: FI_READ … for requests of this side, FI_REMOTE_READ … for requests of peers.
  Result<Owned<fid_mr>> register_memory(std::byte* data, std::uint64_t bytes, std::uint64_t access);
  // Whether an endpoint could not be made because the device or the address is gone. The address
  // may come back to a new domain, but not to this domain.
  bool is_broken() const { return broken_; }
  // The address by which peers name the first byte of memory that is registered here.
  std::uint64_t base_of(const std::byte* data) const;

  // entries: size of the completion queue. Errors: MC_NO_MEMORY, MC_UNSUPPORTED.
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
