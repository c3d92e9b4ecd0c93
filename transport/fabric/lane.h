// SPDX-License-Identifier: Apache-2.0
//
// An endpoint that asks a peer over a domain, and the posted requests. Each lane
//   has an endpoint of its own, because only closing the endpoint ends a request that does not
//   complete. After the close, no byte of the request lands, and other peers are not disturbed.
//   The completion queue is closed with the endpoint, so a late completion cannot be taken for
//   another request.
// Threads: the transport's.
// Owns: the endpoint.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "transport/fabric/domain.h"
#include "transport/flow/operations.h"

namespace mc::transport::fabric {

inline constexpr std::size_t kLaneDepth = 64;

struct Slice {
  OperationId operation = kNoOperation;  // none: a look at the beacon
  std::uint64_t offset_bytes = 0;        // in the operation
  std::uint32_t size_bytes = 0;
  std::uint32_t tries = 0;  // failed tries
  Cursor start;
};

// A place in a peer's memory.
struct RemotePlace {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
};

class Lane {
 public:
  // Errors: MC_NO_MEMORY; MC_INVALID_ARGUMENT: the provider refuses the address.
  static Result<std::unique_ptr<Lane>> open(Domain& domain, const DomainEntry& remote);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() { close(); }

  Domain& domain() const { return domain_; }
  bool has_room() const { return !free_.empty(); }
  std::size_t posted() const { return kLaneDepth - free_.size(); }

  enum class Posted { kYes, kLater, kFailed };
  // kLater: the provider has no room now. REQUIRES: has_room().
  Posted post(const Slice& slice, Verb verb, std::span<const iovec> places,
              std::span<void* const> descriptors, const RemotePlace& remote);
  // Reads the peer's beacon.
  Posted look(const DomainEntry& remote);
  // After look() has completed: the epoch that the beacon holds.
  std::uint64_t beacon() const { return beacon_->epoch; }

  Endpoint& endpoint() { return endpoint_; }
  // The slice that the completion ends. REQUIRES: the completion is of endpoint().
  std::optional<Slice> take(const Completion& completion);
  // The slices of requests that have not completed.
  std::vector<Slice> outstanding() const;
  bool carries(OperationId operation) const;
  // Closes the endpoint. outstanding() still returns the slices.
  void close();

 private:
  struct Request {
    fi_context2 context;  // the provider's while the request is out; first: identifies the request
    Slice slice;
    bool is_out = false;
  };
  struct Beacon {
    alignas(64) std::uint64_t epoch = 0;
  };
  Lane(Domain& domain, Endpoint endpoint, const DomainEntry& remote);

  Domain& domain_;
  std::array<Request, kLaneDepth> requests_;
  std::vector<Request*> free_;
  std::unique_ptr<Beacon> beacon_ = std::make_unique<Beacon>();
  Owned<fid_mr> beacon_memory_;
  Endpoint endpoint_;
  const std::vector<std::uint8_t> remote_;  // the peer's address, as bytes
  fi_addr_t address_ = FI_ADDR_UNSPEC;
};

}  // namespace mc::transport::fabric
