// SPDX-License-Identifier: Apache-2.0
//
// A world, memory with a pattern at b, and helpers for the transport tests.
// Threads: a single thread.
// Owns: the memory.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "conformance/transport/memory_arena.h"
#include "conformance/transport/transport_world.h"
#include "libmc/base/clock.h"
#include "patience.h"

namespace mc::transport::testing {

// Memory of the arena. A transport that needs registered pieces registers the whole arena.
using Memory = std::vector<std::byte, ArenaAllocator<std::byte>>;

// Bytes that differ from place to place and from seed to seed.
Memory pattern(std::size_t size, std::uint64_t seed);

// A guard that pins every access of a generation, and counts the calls.
class CountingGuard : public RegionGuard {
 public:
  Outcome pin(const Access& access, std::uint64_t* ticket) override;
  Outcome settle(std::uint64_t ticket) override;
  void unpin(std::uint64_t ticket) override;

  std::uint64_t generation = 1;
  Outcome answer = Outcome::kDone;
  Outcome settling = Outcome::kDone;
  std::uint64_t settled_bytes = 0;
  std::map<std::uint64_t, std::uint64_t> held;  // ticket to bytes
  std::uint64_t held_bytes = 0;
  std::uint64_t most_held_bytes = 0;
  std::uint64_t pins = 0;

 private:
  std::uint64_t next_ = 1;
};

class TransportTest : public ::testing::TestWithParam<WorldKind> {
 protected:
  static constexpr std::uint64_t kRegionBytes = 8u << 20;

  void SetUp() override;
  RemoteRegionId share(Memory& memory, std::uint32_t rights, RegionGuard* guard = nullptr);
  Operation read(std::uint64_t offset, std::span<const Piece> pieces) const;
  // Submits an operation; the cookie is the operation's number.
  OperationId submit(Operation operation);
  void step();
  // Steps until the condition holds. False: the watchdog's time is over.
  bool wait_for(const std::function<bool()>& holds);
  // Submits an operation and waits for the event.
  Event run(const Operation& operation);
  const Event* event_of(OperationId id) const;
  std::size_t completed() const;

  // Declared before the world, which still reads and unpins the memory as the world ends.
  Memory memory_;
  CountingGuard guard_;
  std::unique_ptr<World> world_;
  PeerId peer_ = kNoPeer;
  RegionId region_ = kNoRegion;
  RemoteRegionId remote_ = 0;
  std::vector<Event> at_a_;
  std::vector<Event> at_b_;
  std::vector<Memory> notified_;  // payloads that arrived at b
};

}  // namespace mc::transport::testing
