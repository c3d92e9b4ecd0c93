// SPDX-License-Identifier: Apache-2.0
//
// What it is: the lanes (queue pairs) to all peers: opened, probed, watched, failed.
//
//   A lane that fails takes its queue pair down first. After that no slice of the lane lands any
//   more, and its slices go to other lanes: reads at once, writes when the peer has closed its end.
// Threads: the transport's. Owns the table of lanes, and the credit of each device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/flow/credits.h"
#include "transport/one_sided/requester.h"
#include "transport/rdma/device_registrar.h"
#include "transport/rdma/opener.h"
#include "transport/rdma/peer.h"

namespace mc::transport::rdma {

class Lanes {
 public:
  Lanes(const RdmaOptions& options, const DeviceSlots& devices, Opener& opener,
        one_sided::Requester& requester)
      : options_(options), devices_(devices), opener_(opener), requester_(requester) {}

  void on_completion(const ibv_wc& completion, std::uint64_t now_ns);
  // The peer's answers.
  void on_devices(Peer& peer, const std::vector<DeviceEntry>& devices, std::uint64_t now_ns);
  void on_opened(Peer& peer, const OpenedBody& opened, std::uint64_t now_ns);
  // The peer has closed its end of a lane, or of all lanes: writes that waited for it go out again.
  void release_held(Peer& peer, std::optional<std::uint32_t> serial);

  // Devices of this host were opened.
  void on_devices_changed();
  // Before a device is closed.
  void on_closing(const Device& device, std::uint64_t now_ns);

  void look_after(Peer& peer, std::uint64_t now_ns, bool was_away);
  // error: the completion that failed the lane, if one did.
  void fail(Peer& peer, std::size_t place, std::string why, std::uint64_t now_ns,
            const ibv_wc* error = nullptr);
  void fail_all(Peer& peer, const std::string& why, std::uint64_t now_ns);
  // Replaces the lanes by closed ones, for these paths.
  void rebuild(Peer& peer, std::vector<Path> paths, std::uint64_t now_ns);

  // The names of the devices by slot; empty: never open.
  const std::vector<std::string>& device_names() const { return own_names_; }
  void report(std::vector<RailReport>& reports) const;
  // For operators: each lane of a peer with its state and its last failure.
  std::string describe(const Peer& peer) const;

 private:
  // The use of an entry of the table of lanes.
  struct LaneOwner {
    Peer* peer = nullptr;
    std::uint32_t place = 0;
    std::uint32_t generation = 0;
  };

  void find_paths(Peer& peer, std::uint64_t now_ns);
  void open(Peer& peer, std::size_t place, std::uint64_t now_ns);
  void on_ready(std::uint32_t index, std::uint32_t generation, QueuePair pair,
                const Status& status);
  // Probes the idle lanes of a path on which a lane has failed.
  void suspect(Peer& peer, const Path& path, std::uint64_t now_ns);
  void take_back(Peer& peer, const Place& place, const Slice& slice);

  const RdmaOptions& options_;
  const DeviceSlots& devices_;
  Opener& opener_;
  one_sided::Requester& requester_;
  std::array<std::optional<PortAddress>, kMaxDevices> own_addresses_;
  std::vector<std::string> own_names_ = std::vector<std::string>(kMaxDevices);
  Credits credits_{kMaxDevices, options_.max_asked_bytes};  // of bulk lanes, by slot
  std::vector<LaneOwner> lanes_;
  std::vector<std::uint32_t> free_lanes_;
  std::uint32_t next_serial_ = 1;
};

}  // namespace mc::transport::rdma
