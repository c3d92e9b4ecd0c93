// SPDX-License-Identifier: Apache-2.0
//
// A transport whose devices reach peers' memory by themselves. choice/ carries large
//   reads over this transport, beside TCP, and accesses to memory that no guard moves. Regions have names that
//   TCP's descriptions give. The transport says whether an access would leave at once.
// Threads, Owns, Trusts: as Transport.
#pragma once

#include <string>

#include "transport/transport.h"

namespace mc::transport {

class OneSidedTransport : public Transport {
 public:
  // The protocol of the transport's links.
  virtual LinkProtocol protocol() const = 0;
  // Imports a region by the name under which the peer registered it (RegionSpec::name). The peer
  // may have no region of that name. Errors: MC_INVALID_ARGUMENT, MC_BUSY.
  virtual Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name) = 0;
  // Whether an access would leave at once: lanes are up and the keys are known. The call requests
  // missing lanes and keys. Without the call, closed lanes stay closed.
  virtual bool is_reachable(RemoteRegionId region, std::uint64_t offset_bytes,
                            std::uint64_t size_bytes, std::uint64_t now_ns) = 0;
  // Whether each piece lies in memory that is registered with this transport.
  virtual bool holds(std::span<const Piece> pieces) const = 0;
  // Whether the peer's guard must be asked beside each access. True until the region is known.
  virtual bool is_guarded(RemoteRegionId region) const = 0;
  // The keys of a region did not hold: the region is not ready until the peer has sent others.
  virtual void doubt(RemoteRegionId region) = 0;
  // Whether any lane to the peer is up.
  virtual bool is_up(PeerId peer) const = 0;
  // From now on wait_fd() is also readable while this descriptor is. Errors: MC_NO_MEMORY.
  virtual Status also_wait_for(int fd) = 0;
  // For operators: the used devices; the unused devices with the cause, empty if all are used.
  virtual std::string describe_devices() const = 0;
  virtual std::string obstacles() const = 0;
};

}  // namespace mc::transport
