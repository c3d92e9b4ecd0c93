// SPDX-License-Identifier: Apache-2.0
//
// The fixture of tests that script the course of events in a simulated cluster of three agents.
// Threads: The simulator's.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <string>

#include "libmc/base/clock.h"
#include "shm/pins.h"
#include "sim/fleet.h"

namespace mc::sim {

class FleetTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSoonNs = 3'000 * kMs;
  static constexpr std::uint64_t kBytes = 1000;

  explicit FleetTest(const Fleet::Options& options = {}) : fleet_(options) {}

  SimNode& writer() { return fleet_.node(0); }
  SimNode& other() { return fleet_.node(1); }
  SimNode& third() { return fleet_.node(2); }

  static bool holds(SimNode& node, const std::string& key) {
    return node.store().index().find(key, node.store().index().hash(key)).has_value();
  }
  mc_status end_of(const Fleet::RemoteRequestPointer& remote_request) {
    EXPECT_TRUE(fleet_.turn_until([&] { return remote_request->over(); }, kSoonNs));
    return remote_request->items[0].status;
  }
  void put_on_all(const std::string& key) {
    ASSERT_EQ(end_of(fleet_.put(writer(), key, kBytes, 3)), MC_OK);
    ASSERT_TRUE(
        fleet_.turn_until([&] { return holds(other(), key) && holds(third(), key); }, kSoonNs));
    turn_for(200 * kMs);  // until the verdict has come
  }
  // The other host stands still until the master no longer counts the host as a member.
  void let_other_be_away() {
    other().paused_until_ns = UINT64_MAX;
    turn_for(1'500 * kMs);
  }
  void let_other_come_back() {
    other().paused_until_ns = 0;
    turn_for(4'000 * kMs);
    ASSERT_TRUE(other().ready());
  }
  void change_leader(bool keeps_store = true) {
    fleet_.master().stop();
    turn_for(300 * kMs);
    if (!keeps_store) fleet_.store().lose();
    fleet_.master().start();
    turn_for(2'000 * kMs);
  }
  void turn_for(std::uint64_t ns) {
    fleet_.turn_until([] { return false; }, ns);
  }
  // A question to the agent of writer(), as mcctl asks it.
  std::string ask(std::string_view verb, const std::string& request) {
    std::string said;
    writer().cluster().ask(verb, request, [&](std::string answer) { said = std::move(answer); });
    EXPECT_TRUE(fleet_.turn_until([&] { return !said.empty(); }, kSoonNs));
    return said;
  }
  mc_status read(SimNode& node, const std::string& key) {
    shm::Word64 pin{};
    const mc_status status = end_of(fleet_.get(node, key, pin));
    shm::clear_pin(pin);
    return status;
  }
  // With two masters: each leads one of two partitions.
  void let_both_masters_lead() {
    ASSERT_TRUE(fleet_.turn_until([&] { return fleet_.leader_of(0) != fleet_.leader_of(1); },
                                  10'000 * kMs));
    turn_for(3'000 * kMs);
  }
  // The length of the object that the host reads; 0: none.
  std::uint64_t length_read(SimNode& node, const std::string& key) {
    shm::Word64 pin{};
    const auto request = fleet_.get(node, key, pin);
    const bool found = end_of(request) == MC_OK;
    auto& index = node.store().index();
    const std::uint64_t length =
        found ? index.entry(request->items[0].entry).length.load_relaxed() : 0;
    shm::clear_pin(pin);
    return length;
  }
  // which: 0 for the partition's first key, 1 for the second.
  std::string key_of_partition(std::uint32_t partition, unsigned which = 0) const {
    for (unsigned number = 0;; ++number) {
      const std::string key = "key-" + std::to_string(number);
      if (fleet_.partition_of(key) == partition && which-- == 0) return key;
    }
  }

 private:
  struct Quiet {
    Quiet() { spdlog::set_level(spdlog::level::off); }
  };
  const Quiet quiet_;  // before the fleet

 protected:
  Fleet fleet_;
};

}  // namespace mc::sim
