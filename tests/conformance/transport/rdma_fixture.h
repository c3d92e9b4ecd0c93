// SPDX-License-Identifier: Apache-2.0
//
// Two hosts with two devices each on a fabric, memory with a pattern at b, and time
//   that the test owns.
// Threads: a single thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "conformance/transport/rdma_pair.h"
#include "conformance/transport/transport_fixture.h"
#include "conformance/transport/verbs_fabric.h"
#include "libmc/base/clock.h"

namespace mc::transport::testing {

class RdmaTransportTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kRegionBytes = 16u << 20;

  RdmaTransportTest() {
    for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) {
      fabric_.add({.name = "a" + std::to_string(subnet), .subnet = subnet, .host = 1});
      fabric_.add({.name = "b" + std::to_string(subnet), .subnet = subnet, .host = 2});
    }
  }
  void SetUp() override { start(); }
  void start() {
    // The fabric is single-threaded.
    options_a_.opening_threads = options_b_.opening_threads = 0;
    pair_ = std::make_unique<RdmaPair>(VerbsFabric::verbs(), options_a_, options_b_);
    register_at(pair_->a(), memory_arena().data(), memory_arena().size(), 0);
    peer_ = pair_->a().connect({kNodeB, 1}).value();
    region_ = register_at(pair_->b(), memory_.data(), memory_.size(), kRemoteRead);
    remote_ = import(region_);
  }
  static RegionId register_at(rdma::RdmaTransport& at, std::byte* data, std::uint64_t size,
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
  Operation read(std::uint64_t offset, const Piece& piece) const {
    Operation operation;
    operation.peer = peer_;
    operation.region = remote_;
    operation.offset_bytes = offset;
    operation.pieces = {&piece, 1};
    operation.deadline_ns = now_ns_ + 3'600'000 * kMs;
    return operation;
  }
  Operation write(RemoteRegionId region, const Piece& piece) const {
    Operation operation = read(0, piece);
    operation.verb = Verb::kWrite;
    operation.region = region;
    return operation;
  }
  OperationId submit(Operation operation) {
    EXPECT_EQ(pair_->a().submit({&operation, 1}, now_ns_), 1u);
    return operation.id;
  }
  void step(std::uint64_t by_ns = kMs / 10) {
    now_ns_ += by_ns;
    const std::size_t before = at_b_.size();
    pair_->step(now_ns_, at_a_, at_b_);
    for (std::size_t i = before; i < at_b_.size(); ++i) {
      notified_.emplace_back(at_b_[i].payload.begin(), at_b_[i].payload.end());
    }
  }
  // False: the condition did not become true within the given time of the test.
  bool wait_for(const std::function<bool()>& holds, std::uint64_t within_ms = 10'000) {
    const std::uint64_t until_ns = now_ns_ + within_ms * kMs;
    while (!holds()) {
      if (now_ns_ > until_ns) return false;
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
  Outcome run(const Operation& operation) {
    const OperationId id = submit(operation);
    EXPECT_TRUE(wait_for([&] { return event_of(id) != nullptr; })) << rails();
    return event_of(id) != nullptr ? event_of(id)->outcome : Outcome::kBusy;
  }
  std::string rails() const { return pair_->a().describe_rails(peer_); }
  bool all_up() const { return count(rails(), ": up") == 4; }
  static int count(const std::string& text, const std::string& what) {
    int found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++found;
    }
    return found;
  }
  // The first operation opens the lanes.
  void warm_up() {
    Memory to(64);
    const Piece piece{to.data(), to.size(), kNoRegion};
    ASSERT_EQ(run(read(0, piece)), Outcome::kDone);
    ASSERT_TRUE(wait_for([&] { return all_up(); })) << rails();
  }
  bool holds_bytes(const Memory& to, std::uint64_t offset = 0) const {
    return std::equal(to.begin(), to.end(), memory_.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  Memory memory_ = pattern(kRegionBytes, 3);
  VerbsFabric fabric_;
  rdma::RdmaOptions options_a_ = RdmaPair::options(kNodeA, {"a0", "a1"});
  rdma::RdmaOptions options_b_ = RdmaPair::options(kNodeB, {"b0", "b1"});
  std::uint64_t now_ns_ = 1'000 * kMs;
  std::unique_ptr<RdmaPair> pair_;
  PeerId peer_ = kNoPeer;
  RegionId region_ = kNoRegion;
  RemoteRegionId remote_ = 0;
  std::vector<Event> at_a_;
  std::vector<Event> at_b_;
  std::vector<Memory> notified_;
};

}  // namespace mc::transport::testing
