// SPDX-License-Identifier: Apache-2.0
//
// What it is: a peer of the rdma transport: its devices, the lanes to them, and what waits for the
//   lanes.
//
//     a lane:  down ─► opening (kOpen) ─► getting ready ─► probing (an empty write) ─► up ─► down …
//
// Threads: the transport's. Owns the lanes.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/flow/queue.h"
#include "transport/one_sided/peer.h"
#include "transport/rails/rails.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/message.h"

namespace mc::transport::rdma {

enum class LaneState : std::uint8_t { kDown, kOpening, kReadying, kProbing, kUp };

// The place of a lane, open or not.
struct Place {
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

// A write that waits until the peer has closed its end of the lane, on which the write may still
// arrive.
struct HeldWrite {
  std::uint32_t serial = 0;
  Slice slice;
};

struct Peer final : public one_sided::Peer {
  using one_sided::Peer::Peer;
  bool is_up() const override { return small.up_count() + bulk.up_count() > 0; }
  std::uint64_t remote_slots() const override {
    std::uint64_t slots = 0;
    for (const Path& path : paths) slots |= std::uint64_t{1} << path.theirs;
    return slots;
  }

  std::array<std::optional<PortAddress>, kMaxDevices> remote;
  std::vector<Path> paths;
  std::vector<Place> places;  // one small lane for each path, then the bulk lanes
  Rails small{0};
  Rails bulk{0};
  Queue<OperationId> small_waiting;
  std::array<Queue<OperationId>, kPriorityCount> bulk_waiting;
  Turns turns;
  Queue<Slice> resend;
  std::vector<HeldWrite> held;
};

inline Peer& of(one_sided::Peer& peer) { return static_cast<Peer&>(peer); }

}  // namespace mc::transport::rdma
