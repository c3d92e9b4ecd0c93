// SPDX-License-Identifier: Apache-2.0
//
// Two hosts of a libfabric network over loopback, memory with a pattern at b, and
//   helpers for tests.
// Threads: a single thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "conformance/transport/fabric_pair.h"
#include "conformance/transport/transport_fixture.h"
#include "libmc/base/clock.h"
#include "patience.h"

namespace mc::transport::testing {

class FabricTransportTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kRegionBytes = 8u << 20;

  void SetUp() override {
    const auto library = fabric::load_libfabric();
    if (!library) GTEST_SKIP() << library.error().to_string();
    library_ = *library;
    start(FabricPair::options(kNodeB, "tcp;ofi_rxm", "127.0.0.1"));
  }
  void start(const fabric::FabricOptions& b) {
    start(FabricPair::options(kNodeA, "tcp;ofi_rxm", "127.0.0.1"), b);
  }
  void start(const fabric::FabricOptions& a, const fabric::FabricOptions& b) {
    pair_ = std::make_unique<FabricPair>(*library_, a, b);
    static_cast<void>(register_at(pair_->a(), memory_arena().data(), memory_arena().size(), 0));
    peer_ = pair_->a().connect({kNodeB, 1}).value();
    region_ = register_at(pair_->b(), memory_.data(), memory_.size(), kRemoteRead);
    remote_ = import(region_);
  }
  static RegionId register_at(Transport& at, std::byte* data, std::uint64_t size,
                              std::uint32_t rights) {
    RegionSpec spec;
    spec.data = data;
    spec.size_bytes = size;
    spec.rights = rights;
    return at.register_region(spec).value();
  }
  RemoteRegionId import(RegionId region) {
    return pair_->a().import_region(peer_, pair_->b().describe(region).value()).value();
  }
  Operation operation(Verb verb, RemoteRegionId region, const Piece& piece) const {
    Operation operation;
    operation.verb = verb;
    operation.peer = peer_;
    operation.region = region;
    operation.pieces = {&piece, 1};
    operation.deadline_ns = mc::now_ns() + kWatchdogNs;
    return operation;
  }
  OperationId submit(Operation operation) {
    EXPECT_EQ(pair_->a().submit({&operation, 1}, mc::now_ns()), 1u);
    return operation.id;
  }
  void step() { pair_->step(mc::now_ns(), at_a_, at_b_); }
  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = mc::now_ns() + kWatchdogNs;
    while (!holds()) {
      if (mc::now_ns() > until_ns) return false;
      step();
    }
    return true;
  }
  const Event* event_of(OperationId id) const {
    for (const Event& event : at_a_) {
      if (event.kind == Event::Kind::kCompleted && event.id == id) return &event;
    }
    return nullptr;
  }
  bool has(Event::Kind kind) const {
    return std::ranges::any_of(at_a_, [&](const Event& event) { return event.kind == kind; });
  }
  Outcome outcome_of(OperationId id) {
    EXPECT_TRUE(wait_for([&] { return event_of(id) != nullptr; })) << rails();
    return event_of(id) != nullptr ? event_of(id)->outcome : Outcome::kBusy;
  }
  Outcome run(const Operation& operation) { return outcome_of(submit(operation)); }
  std::string rails() const { return pair_->a().describe_rails(peer_); }

  Memory memory_ = pattern(kRegionBytes, 3);
  std::optional<fabric::Library> library_;
  std::unique_ptr<FabricPair> pair_;
  PeerId peer_ = kNoPeer;
  RegionId region_ = kNoRegion;
  RemoteRegionId remote_ = 0;
  std::vector<Event> at_a_;
  std::vector<Event> at_b_;
};

}  // namespace mc::transport::testing
