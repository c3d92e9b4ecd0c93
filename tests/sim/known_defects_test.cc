// SPDX-License-Identifier: Apache-2.0
//
// Invariants that the cluster breaks today. Each test expects the wrong result and names the right one; a
// change that repairs the defect turns the expectation around and moves the test.
#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

using KnownDefects = FleetTest;

// A leader that cannot reach the store for longer than its lease forgets the directory.
TEST_F(KnownDefects, AStoreThatIsSilentForASecondMakesObjectsOfOthersUnknown) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  fleet_.store().set_reachable(fleet_.master().host(), false);
  turn_for(1'500 * kMs);
  EXPECT_NE(read(third(), "key"), MC_OK) << "wanted: MC_OK";
  fleet_.store().set_reachable(fleet_.master().host(), true);
  turn_for(2'500 * kMs);
  EXPECT_EQ(read(third(), "key"), MC_OK);
}

}  // namespace
}  // namespace mc::sim
