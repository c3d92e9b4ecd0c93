// SPDX-License-Identifier: Apache-2.0
//
// Hosts with disks: courses of events at the edge of a power cut. The time is simulated.
#include <vector>

#include "agent/pool/evictor.h"
#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

class Disks : public FleetTest {
 protected:
  static constexpr unsigned kObjects = 8;

  Disks() : FleetTest({.disk_bytes = 4u << 20}) {}
  static std::string key_of(unsigned number) { return "key-" + std::to_string(number); }
  // The pool's objects go to the disk of their host.
  void evict_all(SimNode& node) {
    node.store().set_capacity(1);
    ASSERT_TRUE(fleet_.turn_until(
        [&] { return node.store().live_bytes() == 0 && node.store().limbo_count() == 0; },
        kSoonNs));
    node.store().set_capacity(agent::Evictor::kUnlimited);
    turn_for(200 * kMs);  // until the verdicts have come
  }
  void put_on_the_disk_of(SimNode& node) {
    for (unsigned i = 0; i < kObjects; ++i) {
      ASSERT_EQ(end_of(fleet_.put(node, key_of(i), kBytes)), MC_OK);
    }
    evict_all(node);
    ASSERT_EQ(node.disk_objects(), kObjects);
  }
  void power_cut(SimNode& node) {
    node.kill(false);
    turn_for(2'000 * kMs);
    node.start();
    ASSERT_TRUE(fleet_.turn_until([&] { return node.ready(); }, kSoonNs));
    turn_for(1'000 * kMs);
  }
};

TEST_F(Disks, HaveNoObjectThatAHeldUpsertHasReplaced) {
  put_on_the_disk_of(other());
  other().disk().set_slowness(100);
  std::vector<Fleet::RemoteRequestPointer> puts;
  for (unsigned i = 0; i < kObjects; ++i) {
    puts.push_back(fleet_.put_at(writer(), other(), key_of(i), 2 * kBytes, true));
  }
  for (const auto& put : puts) ASSERT_EQ(end_of(put), MC_OK);
  ASSERT_EQ(length_read(third(), key_of(0)), 2 * kBytes);
  power_cut(other());
  for (unsigned i = 0; i < kObjects; ++i) EXPECT_NE(length_read(writer(), key_of(i)), kBytes) << i;
}

}  // namespace
}  // namespace mc::sim
