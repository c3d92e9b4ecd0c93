// SPDX-License-Identifier: Apache-2.0
//
// What it is: a peer of the fabric transport: its domains, the lanes to them, and what waits for
//   the lanes or for the link.
//
//     a lane:  down ─► looking (reads the peer's beacon) ─► up ─► down …
//
// Threads: the transport's. Owns the lanes.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/fabric/lane.h"
#include "transport/fabric/message.h"
#include "transport/flow/queue.h"
#include "transport/one_sided/peer.h"
#include "transport/rails/rails.h"

namespace mc::transport::fabric {

enum class LaneState : std::uint8_t { kDown, kLooking, kUp };

// The place of a lane, open or not: a rail.
struct Place {
  std::uint8_t ours = 0;
  std::uint8_t theirs = 0;
  LaneState state = LaneState::kDown;
  std::unique_ptr<Lane> lane;
  std::unique_ptr<Watched> events;  // of its completion queue
  std::uint64_t remote_epoch = 0;
  std::uint64_t since_ns = 0;     // when the state began; while up: the last completion
  std::uint64_t measured_ns = 0;  // when the count of measured_bytes began
  std::uint64_t measured_bytes = 0;
  std::uint32_t failures = 0;  // of requests, since the last success
  bool full = false;           // the provider had no room
  std::string why;             // the lane is down
};

// A write that may still land, until the peer has closed the endpoint to which it went.
struct HeldWrite {
  std::uint8_t slot = 0;  // of the peer
  std::uint64_t epoch = 0;
  Slice slice;
};

struct Peer final : public one_sided::Peer {
  using one_sided::Peer::Peer;
  bool is_up() const override { return rails.up_count() > 0; }
  std::uint64_t remote_slots() const override {
    std::uint64_t slots = 0;
    for (const Place& place : places) slots |= std::uint64_t{1} << place.theirs;
    return slots;
  }

  std::map<std::uint8_t, DomainEntry> remote;
  std::vector<Place> places;
  Rails rails{0};
  std::uint64_t attend_again_ns = 0;
  Queue<OperationId> small_waiting;
  Queue<OperationId> bulk_waiting;
  Queue<OperationId> notices_waiting;
  std::set<OperationId> notices_sent;  // and not answered
  Queue<Slice> resend;
  std::vector<HeldWrite> held;
  bool active = false;  // Lanes polls it
};

inline Peer& of(one_sided::Peer& peer) { return static_cast<Peer&>(peer); }

}  // namespace mc::transport::fabric
