// SPDX-License-Identifier: Apache-2.0
//
// Walks over all objects of a log with their keys: each object that stays is visited, also while the cleaner
// moves objects, and damage of a footer costs nothing.
#include "agent/tier/log/key_walk.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <set>
#include <string>

#include "tier/log_rig.h"

namespace mc::tier::testing {
namespace {

struct VisitedKeys {
  std::map<std::string, std::uint64_t> versions;  // by key
  std::uint64_t without_key = 0;
};

// One step of each walk. Returns false if all are over.
bool step_walks(std::deque<KeyWalk>& walks, VisitedKeys& visited) {
  const auto visit = [&](const KeyWalk::Object& object) {
    if (object.key.empty()) {
      ++visited.without_key;
      return;
    }
    EXPECT_EQ(object.namespace_id, LogRig::kNamespace);
    EXPECT_EQ(object.entry.length, 9'000u);
    visited.versions[std::string(object.key)] = object.entry.version;
  };
  for (std::size_t left = walks.size(); left > 0; --left) {
    KeyWalk walk = std::move(walks.front());
    walks.pop_front();
    if (walk.go_on(visit) != KeyWalk::Next::kOver) walks.push_back(std::move(walk));
  }
  return !walks.empty();
}

VisitedKeys walk_over(LogRig& rig) {
  VisitedKeys visited;
  std::deque<KeyWalk> walks = rig.log().walk_keys();
  EXPECT_TRUE(rig.turn_until([&] { return !step_walks(walks, visited); }));
  return visited;
}

// Whether just the objects of fill() are there.
void expect_all(const VisitedKeys& visited, int count) {
  EXPECT_EQ(visited.without_key, 0u);
  EXPECT_EQ(visited.versions.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) EXPECT_TRUE(visited.versions.contains(key_of(i))) << i;
}

TEST(TierKeyWalk, AllObjectsOfSealedAndOpenSegmentsAreVisited) {
  for (const std::size_t disks : {1u, 3u}) {
    for (const int count : {3, 200}) {
      LogRig rig({.disks = disks});
      rig.settle();
      EXPECT_TRUE(walk_over(rig).versions.empty());
      fill(rig, count);
      expect_all(walk_over(rig), count);
      rig.kill();
      rig.recover();
      rig.settle();
      expect_all(walk_over(rig), count);
    }
  }
}

TEST(TierKeyWalk, RemovedAndReplacedObjectsAreNotVisited) {
  LogRig rig({});
  rig.settle();
  const int count = fill(rig, 60);
  ASSERT_TRUE(rig.remove(key_of(1)));
  ASSERT_TRUE(rig.put(key_of(2), 2, 9'000));
  const VisitedKeys visited = walk_over(rig);
  EXPECT_EQ(visited.versions.size(), static_cast<std::size_t>(count) - 1);
  EXPECT_FALSE(visited.versions.contains(key_of(1)));
  EXPECT_EQ(visited.versions.at(key_of(2)), 2u);
}

TEST(TierKeyWalk, AnObjectThatTheCleanerMovesIsVisited) {
  std::uint64_t moved = 0;
  for (int pause = 0; pause < 8; ++pause) {
    LogRig rig({.disk_bytes = kFirstSegmentOffset + 24 * kSmallestSegmentBytes});
    rig.settle();
    const int kept = fill(rig, 100);
    std::deque<KeyWalk> walks;
    std::set<std::string> at_start;
    VisitedKeys visited;
    const std::uint64_t before = rig.log().report()[0].cleaner.copied_bytes;
    bool begun = false, over = false;
    for (int i = 0; i < 2'000 && !over; ++i) {
      // The kept objects are read, so that they are copied.
      static_cast<void>(rig.get(key_of(i % kept)));
      rig.put("other/" + std::to_string(i), 1, 9'000);
      if (i == 400) {
        for (int key = 0; key < kept; ++key) {
          if (rig.has(key_of(key), 1)) at_start.insert(key_of(key));
        }
        walks = rig.log().walk_keys();
        begun = true;
      }
      if (begun && i % (pause + 1) == 0) over = !step_walks(walks, visited);
    }
    EXPECT_TRUE(over);
    moved += rig.log().report()[0].cleaner.copied_bytes - before;
    EXPECT_FALSE(at_start.empty());
    for (const std::string& key : at_start) {
      EXPECT_TRUE(visited.versions.contains(key) || !rig.has(key, 1)) << key << " " << pause;
    }
  }
  EXPECT_GT(moved, 0u);
}

TEST(TierKeyWalk, ADamagedFooterCostsNothing) {
  for (const std::uint64_t offset :
       {kSmallestSegmentBytes - 2 * kBlockBytes, kSmallestSegmentBytes - kBlockBytes}) {
    for (const bool unreadable : {false, true}) {
      LogRig rig({});
      rig.settle();
      const int count = fill(rig, 200);
      const std::uint64_t at = kFirstSegmentOffset + offset;
      if (unreadable) {
        rig.disk().fail_range(ModelDisk::Kind::kRead, at, kBlockBytes, EIO);
      } else {
        rig.disk().flip_bit(at + 20, 2);
      }
      expect_all(walk_over(rig), count);
    }
  }
}

TEST(TierKeyWalk, AnObjectWhoseKeyCannotBeReadIsVisitedWithoutKey) {
  LogRig rig({});
  rig.settle();
  const int count = fill(rig, 200);
  const Place place = rig.log().find({key_of(0), LogRig::kNamespace})->place;
  ASSERT_EQ(number_of(place.segment), 0u);
  rig.disk().flip_bit(kFirstSegmentOffset + kSmallestSegmentBytes - kBlockBytes + 20, 2);
  rig.disk().fail_range(ModelDisk::Kind::kRead,
                        kFirstSegmentOffset + place.unit * kUnitBytes / kBlockBytes * kBlockBytes,
                        kBlockBytes, EIO);
  const VisitedKeys visited = walk_over(rig);
  EXPECT_EQ(visited.without_key, 1u);
  EXPECT_EQ(visited.versions.size(), static_cast<std::size_t>(count) - 1);
  EXPECT_FALSE(visited.versions.contains(key_of(0)));
}

TEST(TierKeyWalk, AWalkEndsWithItsDisk) {
  LogRig rig({.disks = 2});
  rig.settle();
  fill(rig, 200);
  std::deque<KeyWalk> walks = rig.log().walk_keys();
  VisitedKeys visited;
  for (int i = 0; i < 4; ++i) step_walks(walks, visited);
  rig.disk(0).vanish();
  ASSERT_FALSE(rig.put("a", 1, 9'000) && rig.put("b", 1, 9'000) && rig.put("c", 1, 9'000));
  EXPECT_TRUE(rig.turn_until([&] { return !step_walks(walks, visited); }));
  for (const auto& [key, version] : walk_over(rig).versions) {
    EXPECT_TRUE(visited.versions.contains(key) || key.size() == 1) << key;
  }
}

TEST(TierKeyWalk, WalksOverADiskTakeTurnsAndOneThatIsGivenUpMakesRoom) {
  LogRig rig({});
  rig.settle();
  const int count = fill(rig, 200);
  std::deque<KeyWalk> given_up = rig.log().walk_keys(), first = rig.log().walk_keys();
  VisitedKeys nothing, visited;
  for (int i = 0; i < 3; ++i) step_walks(given_up, nothing);
  EXPECT_TRUE(nothing.versions.empty());
  for (int i = 0; i < 100; ++i) step_walks(first, visited);
  EXPECT_TRUE(visited.versions.empty()) << "a single footer at a time";
  given_up.clear();
  std::deque<KeyWalk> second = rig.log().walk_keys();
  VisitedKeys other;
  EXPECT_TRUE(rig.turn_until([&] {
    const bool is_first = step_walks(first, visited), is_second = step_walks(second, other);
    return !is_first && !is_second;
  }));
  expect_all(visited, count);
  expect_all(other, count);
}

}  // namespace
}  // namespace mc::tier::testing
