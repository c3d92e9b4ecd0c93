// SPDX-License-Identifier: Apache-2.0
//
// What it is: a transport whose devices reach peers' memory by themselves, as one that carries
//   large reads beside TCP has to be (choice/): regions go by names that TCP's descriptions give,
//   and it can be asked whether a read would leave at once.
// Threads, Owns, Trusts: as Transport.
#pragma once

#include <string>

#include "transport/transport.h"

namespace mc::transport {

class OneSidedTransport : public Transport {
 public:
  // What is spoken on its links.
  virtual LinkProtocol protocol() const = 0;
  // A region by the name that the peer registered it under (RegionSpec::name), if it has such a
  // one. Errors: MC_INVALID_ARGUMENT, MC_BUSY.
  virtual Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name) = 0;
  // Whether a read would leave at once: lanes are up and its keys are known. What is missing is
  // brought about, if it can be; without asking for it, lanes that were closed stay so.
  virtual bool ready_to_read(RemoteRegionId region, std::uint64_t offset_bytes,
                             std::uint64_t size_bytes, std::uint64_t now_ns) = 0;
  // The keys of a region did not hold: others are asked for before it is ready again.
  virtual void doubt(RemoteRegionId region) = 0;
  // Whether any lane to the peer is up.
  virtual bool is_up(PeerId peer) const = 0;
  // Why a part of a region could not be registered; ok() if all was.
  virtual Status backing(RegionId region) const = 0;
  // For operators: which devices are used; what is not used of this host, and why, empty: all is.
  virtual std::string describe_devices() const = 0;
  virtual std::string obstacles() const = 0;
};

}  // namespace mc::transport
