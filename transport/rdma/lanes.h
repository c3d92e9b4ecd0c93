// SPDX-License-Identifier: Apache-2.0
//
// The lanes (queue pairs) to all peers: opened, probed, watched, failed. A peer has
//   places for lanes, and the queues of operations and slices that wait for lanes.
//
//     a lane:  down ─► opening (kOpen) ─► getting ready ─► probing (an empty write) ─► up ─► down …
//
//   A lane that fails takes the queue pair down first. After that no slice of the lane lands any
//   more. The slices go to other lanes: reads at once, writes when the peer has closed its end.
// Threads: the transport's. Owns the table of lanes, and the credit of each device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/flow/credits.h"
#include "transport/flow/queue.h"
#include "transport/one_sided/requester.h"
#include "transport/rails/rails.h"
#include "transport/rdma/device_registrar.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/message.h"
#include "transport/rdma/opener.h"

namespace mc::transport::rdma {

enum class LaneState : std::uint8_t { kDown, kOpening, kReadying, kProbing, kUp };

// The place of a lane, open or not.
struct LaneRecord {
  Path path;
  LaneRole role = LaneRole::kBulk;
  Rails* rails = nullptr;  // of the peer
  std::uint32_t rail = 0;  // index in rails
  LaneState state = LaneState::kDown;
  std::unique_ptr<Lane> lane;
  std::uint32_t serial = 0;
  std::uint32_t packet_number = 0;
  std::uint64_t remote_epoch = 0;
  std::uint64_t since_ns = 0;  // when the state began; while up: the last completion
  bool must_flush = false;
  std::string why;  // the lane is down
};

// A write that waits until the peer has closed the serving end of the lane, on which the write may
// still arrive.
struct HeldWrite {
  std::uint32_t serial = 0;
  Slice slice;
};

struct RdmaPeer final : public one_sided::OneSidedPeer {
  using one_sided::OneSidedPeer::OneSidedPeer;
  bool is_up() const override { return small.up_count() + bulk.up_count() > 0; }
  std::uint64_t remote_slots() const override {
    std::uint64_t slots = 0;
    for (const Path& path : paths) slots |= std::uint64_t{1} << path.theirs;
    return slots;
  }

  std::array<std::optional<PortAddress>, kMaxDevices> remote;
  std::vector<Path> paths;
  std::vector<LaneRecord> places;  // a small lane for each path, then the bulk lanes
  Rails small{0};
  Rails bulk{0};
  Queue<OperationId> small_waiting;
  std::array<Queue<OperationId>, kPriorityCount> bulk_waiting;
  Turns turns;
  Queue<Slice> resend;
  std::vector<HeldWrite> held;
};

inline RdmaPeer& of(one_sided::OneSidedPeer& peer) { return static_cast<RdmaPeer&>(peer); }

class Lanes {
 public:
  Lanes(const RdmaOptions& options, const DeviceSlots& devices, Opener& opener,
        one_sided::Requester& requester)
      : options_(options), devices_(devices), opener_(opener), requester_(requester) {}

  void on_completion(const ibv_wc& completion, std::uint64_t now_ns);
  // The peer's answers.
  void on_devices(RdmaPeer& peer, const std::vector<DeviceEntry>& devices, std::uint64_t now_ns);
  void on_opened(RdmaPeer& peer, const OpenedBody& opened, std::uint64_t now_ns);
  // The peer has closed the serving end of a lane, or of all lanes: held writes go out again.
  void release_held(RdmaPeer& peer, std::optional<std::uint32_t> serial);

  // Devices of this host were opened.
  void on_devices_changed();
  // Before a device is closed.
  void on_closing(const Device& device, std::uint64_t now_ns);

  void look_after(RdmaPeer& peer, std::uint64_t now_ns, bool was_away);
  // error: the completion that failed the lane, or null.
  void fail(RdmaPeer& peer, std::size_t place, std::string why, std::uint64_t now_ns,
            const ibv_wc* error = nullptr);
  void fail_all(RdmaPeer& peer, const std::string& why, std::uint64_t now_ns);
  // Closes the lanes, and makes new places for these paths.
  void rebuild(RdmaPeer& peer, std::vector<Path> paths, std::uint64_t now_ns);

  // The names of the devices by slot; empty: never open.
  const std::vector<std::string>& device_names() const { return own_names_; }
  void report(std::vector<RailReport>& reports) const;
  RailCounts count_rails() const;
  // For operators: each lane of a peer with the state and the last failure.
  std::string describe(const RdmaPeer& peer) const;

 private:
  // The use of an entry of the table of lanes.
  struct LaneOwner {
    RdmaPeer* peer = nullptr;
    std::uint32_t place = 0;
    std::uint32_t generation = 0;
  };

  void find_paths(RdmaPeer& peer, std::uint64_t now_ns);
  void open(RdmaPeer& peer, std::size_t place, std::uint64_t now_ns);
  void on_ready(std::uint32_t index, std::uint32_t generation, QueuePair pair,
                const Status& status);
  // Probes the idle lanes of a path on which a lane has failed.
  void suspect(RdmaPeer& peer, const Path& path, std::uint64_t now_ns);
  void take_back(RdmaPeer& peer, const LaneRecord& place, const Slice& slice);

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
