// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/transport_fixture.h"

#include <algorithm>

namespace mc::transport::testing {

Memory pattern(std::size_t size, std::uint64_t seed) {
  Memory bytes(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

Outcome CountingGuard::pin(const Access& access, std::uint64_t* ticket) {
  if (answer != Outcome::kDone) return answer;
  if (access.generation != generation) return Outcome::kStale;
  *ticket = next_++;
  held[*ticket] = access.size_bytes;
  held_bytes += access.size_bytes;
  most_held_bytes = std::max(most_held_bytes, held_bytes);
  ++pins;
  return Outcome::kDone;
}

Outcome CountingGuard::settle(std::uint64_t ticket) {
  const auto at = held.find(ticket);
  EXPECT_NE(at, held.end()) << "settled after it was given back";
  if (at != held.end()) settled_bytes += at->second;
  return settling;
}

void CountingGuard::unpin(std::uint64_t ticket) {
  const auto at = held.find(ticket);
  ASSERT_NE(at, held.end()) << "given back twice";
  held_bytes -= at->second;
  held.erase(at);
}

void TransportTest::SetUp() {
  world_ = GetParam().make();
  if (!world_) GTEST_SKIP() << "no library for " << GetParam().name << " on this host";
  memory_ = pattern(kRegionBytes, 1);
  auto peer = world_->a().connect({kNodeB, 4});
  ASSERT_TRUE(peer) << peer.error().to_string();
  peer_ = *peer;
  remote_ = share(memory_, kRemoteRead, &guard_);
}

RemoteRegionId TransportTest::share(Memory& memory, std::uint32_t rights, RegionGuard* guard) {
  RegionSpec spec;
  spec.data = memory.data();
  spec.size_bytes = memory.size();
  spec.rights = rights;
  spec.guard = guard;
  region_ = world_->b().register_region(spec).value();
  const auto text = world_->b().describe(region_).value();
  EXPECT_LE(text.size(), kMaxDescriptorBytes);
  return world_->a().import_region(peer_, text).value();
}

Operation TransportTest::read(std::uint64_t offset, std::span<const Piece> pieces) const {
  Operation operation;
  operation.peer = peer_;
  operation.region = remote_;
  operation.generation = 1;
  operation.offset_bytes = offset;
  operation.pieces = pieces;
  operation.deadline_ns = world_->now_ns() + kWatchdogNs;
  return operation;
}

OperationId TransportTest::submit(Operation operation) {
  EXPECT_EQ(world_->a().submit({&operation, 1}, world_->now_ns()), 1u);
  return operation.id;
}

void TransportTest::step() {
  const std::size_t before = at_b_.size();
  world_->step(at_a_, at_b_);
  for (std::size_t i = before; i < at_b_.size(); ++i) {
    if (at_b_[i].kind != Event::Kind::kNotified) continue;
    notified_.emplace_back(at_b_[i].payload.begin(), at_b_[i].payload.end());
  }
}

bool TransportTest::wait_for(const std::function<bool()>& holds) {
  const std::uint64_t until_ns = mc::now_ns() + kWatchdogNs;
  while (!holds()) {
    if (mc::now_ns() > until_ns) return false;
    step();
  }
  return true;
}

const Event* TransportTest::event_of(OperationId id) const {
  for (const Event& event : at_a_) {
    if (event.kind == Event::Kind::kCompleted && event.id == id) return &event;
  }
  return nullptr;
}

std::size_t TransportTest::completed() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      at_a_, [](const Event& event) { return event.kind == Event::Kind::kCompleted; }));
}

Event TransportTest::run(const Operation& operation) {
  const OperationId id = submit(operation);
  EXPECT_TRUE(wait_for([&] { return event_of(id) != nullptr; })) << "no event";
  const Event* event = event_of(id);
  return event != nullptr ? *event : Event{};
}

}  // namespace mc::transport::testing
