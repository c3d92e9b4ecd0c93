// SPDX-License-Identifier: Apache-2.0
//
// Copies that the master orders. The time is simulated, so these tests assert times.
#include <algorithm>

#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

using Copies = FleetTest;

TEST_F(Copies, OfAThousandNewObjectsTakeAFifthOfASecond) {
  constexpr unsigned kObjects = 1000;
  const auto key_of = [](unsigned number) { return "key-" + std::to_string(number); };
  for (unsigned first = 0; first < kObjects; first += 50) {
    std::vector<Fleet::RemoteRequestPointer> puts;
    for (unsigned i = first; i < first + 50; ++i)
      puts.push_back(fleet_.put(writer(), key_of(i), 64, 2));
    ASSERT_TRUE(fleet_.turn_until(
        [&] { return std::ranges::all_of(puts, [](const auto& put) { return put->over(); }); },
        kSoonNs));
  }
  turn_for(200 * kMs);
  unsigned copied = 0;
  for (unsigned i = 0; i < kObjects; ++i)
    copied += holds(other(), key_of(i)) || holds(third(), key_of(i));
  EXPECT_EQ(copied, kObjects);
}

}  // namespace
}  // namespace mc::sim
