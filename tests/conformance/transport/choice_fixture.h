// SPDX-License-Identifier: Apache-2.0
//
// Two hosts that reach each other by TCP and by a one-sided transport, memory with a
//   pattern at b, and helpers for tests.
// Threads: a single thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "conformance/transport/choice_node.h"
#include "conformance/transport/transport_fixture.h"
#include "libmc/base/clock.h"
#include "patience.h"

namespace mc::transport::testing {

class ChoiceTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kRegionBytes = 8u << 20;
  static constexpr std::uint64_t kLargeBytes = 1u << 20;

  void start_a(const MakeOneSided& make) {
    a_ = std::make_unique<ChoiceNode>(book_, kNodeA, make, direct_bytes_);
    RegionSpec arena;
    arena.data = memory_arena().data();
    arena.size_bytes = memory_arena().size();
    static_cast<void>(a().register_region(arena).value());
  }
  void start_b(const MakeOneSided& make) {
    b_ = std::make_unique<ChoiceNode>(book_, kNodeB, make);
    share(b(), false);
  }
  void start_b_with_tcp() {
    tcp::TcpOptions options;
    options.node = kNodeB;
    options.incarnation = 1;
    only_tcp_ = std::make_unique<TcpNode>(book_, options);
    share(only_tcp_->transport(), false);
  }
  void share(Transport& at, bool sparse) {
    RegionSpec spec;
    spec.data = memory_.data();
    spec.size_bytes = memory_.size();
    spec.rights = rights_;
    spec.guard = guarded_ ? &guard_ : nullptr;
    spec.sparse = sparse;
    region_ = at.register_region(spec).value();
    if (peer_ == kNoPeer) peer_ = a().connect({kNodeB, 1}).value();
    remote_ = a().import_region(peer_, at.describe(region_).value()).value();
  }
  choice::ChoiceTransport& a() { return a_->transport(); }
  choice::ChoiceTransport& b() { return b_->transport(); }
  void step() {
    const std::uint64_t now = mc::now_ns();
    a_->step(now, at_a_);
    if (b_) b_->step(now, at_b_);
    if (only_tcp_) {
      only_tcp_->step(now);
      only_tcp_->transport().poll(now, at_b_);
    }
  }
  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = mc::now_ns() + kWatchdogNs;
    while (!holds()) {
      if (mc::now_ns() > until_ns) return false;
      step();
    }
    return true;
  }
  OperationId submit(std::uint64_t offset, std::uint64_t bytes) {
    to_.assign(bytes, std::byte{0xee});
    piece_ = {to_.data(), to_.size(), kNoRegion};
    Operation operation;
    operation.peer = peer_;
    operation.region = remote_;
    operation.generation = 1;
    operation.offset_bytes = offset;
    operation.cookie = 77;
    operation.pieces = {&piece_, 1};
    operation.deadline_ns = mc::now_ns() + kWatchdogNs;
    EXPECT_EQ(a().submit({&operation, 1}, mc::now_ns()), 1u);
    return operation.id;
  }
  const Event* event_of(OperationId id) const {
    const auto at = std::ranges::find_if(at_a_, [&](const Event& event) {
      return event.kind == Event::Kind::kCompleted && event.id == id;
    });
    return at == at_a_.end() ? nullptr : &*at;
  }
  Outcome read(std::uint64_t offset, std::uint64_t bytes) {
    at_a_.clear();
    const OperationId id = submit(offset, bytes);
    EXPECT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    const Event* event = event_of(id);
    if (event == nullptr) return Outcome::kBusy;
    EXPECT_EQ(event->cookie, 77u);
    EXPECT_EQ(event->peer, peer_);
    if (event->outcome == Outcome::kDone) {
      EXPECT_EQ(event->bytes, bytes);
      EXPECT_TRUE(std::equal(to_.begin(), to_.end(),
                             memory_.begin() + static_cast<std::ptrdiff_t>(offset)));
    }
    return event->outcome;
  }
  std::uint64_t one_sided() { return a().choices().begun; }
  // Reads until a read is one-sided.
  bool takes_one_sided() {
    const std::uint64_t before = one_sided();
    return wait_for([&] { return read(0, kLargeBytes) == Outcome::kDone && one_sided() > before; });
  }

  std::uint64_t direct_bytes_ = choice::kProbedBytes;
  bool guarded_ = true;
  std::uint32_t rights_ = kRemoteRead;
  Memory memory_ = pattern(kRegionBytes, 9);
  CountingGuard guard_;
  PortBook book_;
  std::unique_ptr<ChoiceNode> a_;
  std::unique_ptr<ChoiceNode> b_;
  std::unique_ptr<TcpNode> only_tcp_;
  PeerId peer_ = kNoPeer;
  RegionId region_ = kNoRegion;
  RemoteRegionId remote_ = 0;
  Memory to_;
  Piece piece_;
  std::vector<Event> at_a_;
  std::vector<Event> at_b_;
};

// RDMA devices of a fabric in this process: a0 and a1, b0 and b1.
class ChoiceRdmaTest : public ChoiceTest {
 protected:
  ChoiceRdmaTest() {
    for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) {
      fabric_.add({.name = "a" + std::to_string(subnet), .subnet = subnet, .host = 1});
      fabric_.add({.name = "b" + std::to_string(subnet), .subnet = subnet, .host = 2});
    }
  }
  // The nodes use the devices of the fabric.
  ~ChoiceRdmaTest() override {
    a_.reset();
    b_.reset();
  }
  void start_both() {
    start_a(by_rdma({"a0", "a1"}));
    start_b(by_rdma({"b0", "b1"}));
  }

  VerbsFabric fabric_;
};

}  // namespace mc::transport::testing
