// SPDX-License-Identifier: Apache-2.0
//
// Reads for which an agent asks the holder of the last objects together with the master.
#include <json/reader.h>

#include <sstream>

#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

class Guesses : public FleetTest {
 protected:
  Guesses() : FleetTest({.partitions = 2, .masters = 2}) {}

  // From now on the third host asks this host together with the master.
  void let_third_read_five_objects_of(SimNode& holder) {
    for (unsigned number = 0; number < 5; ++number) {
      const std::string key = "of the holder, " + std::to_string(number);
      ASSERT_EQ(end_of(fleet_.put(holder, key, kBytes)), MC_OK);
      ASSERT_EQ(length_read(third(), key), kBytes);
    }
  }
  std::uint64_t counter(const char* name) {
    Json::Value status;
    std::istringstream(third().cluster().status_text()) >> status;
    return status["counters"][name].asUInt64();
  }
};

TEST_F(Guesses, AnObjectOfTheGuessedHolderNeedsOneQuestion) {
  let_third_read_five_objects_of(writer());
  EXPECT_EQ(counter("guesses"), 1u);
  EXPECT_EQ(counter("right_guesses"), 1u);
  EXPECT_EQ(counter("asked"), 5u);
}

// The guessed holder has not heard of the replacement, and answers with the replaced object.
TEST_F(Guesses, AReplacedObjectOfTheGuessedHolderIsNotRead) {
  let_both_masters_lead();
  const std::string key = key_of_partition(1);
  ASSERT_EQ(end_of(fleet_.put(writer(), key, kBytes)), MC_OK);
  let_third_read_five_objects_of(writer());
  fleet_.cut(writer(), fleet_.master(fleet_.leader_of(1)), true);
  turn_for(1'500 * kMs);
  ASSERT_EQ(end_of(fleet_.put(other(), key, 2 * kBytes)), MC_OK);
  turn_for(500 * kMs);
  ASSERT_TRUE(holds(writer(), key));
  const std::uint64_t guesses = counter("guesses");
  EXPECT_EQ(length_read(third(), key), 2 * kBytes);
  EXPECT_EQ(counter("guesses"), guesses + 1);
}

}  // namespace
}  // namespace mc::sim
