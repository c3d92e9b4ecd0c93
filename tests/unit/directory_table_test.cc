// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "metadata/directory/replica_table.h"

namespace mc::metadata {
namespace {

KeyHash random_key(std::mt19937_64& random) { return {random(), random()}; }

// A slow model of the table of sessions' slots. A version names a slot.
class Twin {
 public:
  explicit Twin(std::uint64_t max_slots, std::uint64_t seed)
      : random_(seed), table_(max_slots, &sessions_), session_(*sessions_.open(1)) {}

  void insert(std::uint64_t count) {
    table_.prepare(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      // Now and then another replica of an existing key.
      const KeyHash hash = live_.empty() || random_() % 4 != 0
                               ? random_key(random_)
                               : live_[random_() % live_.size()].hash;
      const Slot slot = Slot::make(hash, ++version_, 1, 0, session_);
      ASSERT_NE(table_.insert(slot), nullptr);
      live_.push_back(slot);
    }
  }

  void erase(std::uint64_t count) {
    for (; count > 0 && !live_.empty(); --count) {
      std::swap(live_[random_() % live_.size()], live_.back());
      const Slot gone = live_.back();
      live_.pop_back();
      bool found = false;
      table_.for_key(gone.hash, [&](Slot& slot) {
        if (slot.version != gone.version) return;
        table_.erase(slot);
        found = true;
      });
      ASSERT_TRUE(found);
    }
  }

  // A new session takes over some slots; the other slots die with the old session.
  void die() {
    const auto next = sessions_.open(1);
    ASSERT_TRUE(next.has_value());
    const std::size_t kept = live_.size() / 3;
    for (std::size_t i = 0; i < kept; ++i) {
      table_.for_key(live_[i].hash, [&](Slot& slot) {
        if (slot.version != live_[i].version) return;
        sessions_.dropped(slot);
        slot = Slot::make(slot.hash, slot.version, 1, 0, *next);
        sessions_.added(slot);
      });
    }
    sessions_.close(session_);
    live_.resize(kept);
    session_ = *next;
  }

  void compare() {
    ASSERT_EQ(table_.count() - sessions_.dead_slots(), live_.size());
    for (const Slot& wanted : live_) {
      unsigned found = 0;
      table_.for_key(wanted.hash, [&](Slot& slot) { found += slot.version == wanted.version; });
      ASSERT_EQ(found, 1u);
    }
  }

  // Visits all slots while the table changes size during the walk. The walk sees each slot once
  // that exists from the beginning to the end.
  void walk_while_growing(std::uint64_t insertions_a_visit) {
    std::unordered_map<std::uint64_t, unsigned> seen;
    const std::vector<Slot> before = live_;
    std::optional<std::uint64_t> at = 0;
    for (std::uint64_t step = 0; at.has_value(); ++step) {
      at = table_.visit(*at, [&](const Slot& slot) {
        if (!sessions_.dead(slot.session())) ++seen[slot.version];
      });
      if (step % 64 == 0) insert(insertions_a_visit);
    }
    for (const Slot& slot : before) ASSERT_EQ(seen[slot.version], 1u);
  }

  ReplicaTable& table() { return table_; }
  Sessions& sessions() { return sessions_; }

 private:
  std::mt19937_64 random_;
  Sessions sessions_;
  ReplicaTable table_;
  SessionId session_;
  std::uint64_t version_ = 0;
  std::vector<Slot> live_;
};

TEST(ReplicaTable, KeepsEverySlotWhileItGrowsAndShrinks) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Twin twin(10'000'000, seed);
    for (int i = 0; i < 300; ++i) twin.insert(700);
    twin.compare();
    const std::uint64_t grown = twin.table().bucket_count();
    EXPECT_GT(grown, 4096u);
    twin.erase(180'000);
    for (int i = 0; i < 1000; ++i) twin.table().sweep(64);
    twin.compare();
    EXPECT_LT(twin.table().bucket_count(), grown / 2);
    for (int i = 0; i < 100; ++i) {
      twin.insert(500);
      twin.erase(200);
      if (i % 40 == 20) twin.die();
      twin.table().sweep(100);
    }
    twin.compare();
    EXPECT_EQ(twin.table().lost(), 0u);
  }
}

TEST(ReplicaTable, WalkSeesEachSlotOnceThroughResizes) {
  Twin twin(10'000'000, 7);
  for (int i = 0; i < 100; ++i) twin.insert(500);
  twin.walk_while_growing(1000);
  twin.compare();
  twin.die();
  for (int i = 0; i < 40; ++i) twin.table().sweep(64);
  twin.walk_while_growing(10);
}

TEST(ReplicaTable, SweepingFreesTheSessionsOfTheDead) {
  Twin twin(1'000'000, 3);
  twin.insert(1000);
  twin.die();
  EXPECT_EQ(twin.sessions().dead_slots(), 667u);
  while (twin.sessions().dead_slots() != 0) twin.table().sweep(1000);
  twin.compare();
  // The id is reused, so sessions can open and close for ever.
  for (int i = 0; i < 200'000; ++i) {
    const auto session = twin.sessions().open(2);
    ASSERT_TRUE(session.has_value());
    twin.sessions().close(*session);
  }
}

TEST(ReplicaTable, SessionsRunOutOnlyWhileTheirSlotsAreUnswept) {
  Sessions sessions;
  ReplicaTable table(1'000'000, &sessions);
  std::mt19937_64 random(1);
  std::uint64_t opened = 0;
  // Reserve the room first: a resize would sweep.
  for (int i = 0; i < 4; ++i) table.prepare(UINT16_MAX);
  ASSERT_FALSE(table.resizing());
  while (const auto session = sessions.open(3)) {
    ASSERT_NE(table.insert(Slot::make(random_key(random), 1, 1, 0, *session)), nullptr);
    sessions.close(*session);
    ++opened;
  }
  EXPECT_EQ(opened, 65'535u);
  while (sessions.dead_slots() != 0) table.sweep(1000);
  EXPECT_TRUE(sessions.open(3).has_value());
}

TEST(ReplicaTable, RefusesASlotThatDoesNotFitWithinReachAndKeepsTheRest) {
  Sessions sessions;
  ReplicaTable table(1'000'000, &sessions);
  const SessionId session = *sessions.open(1);
  std::uint64_t taken = 0;
  // All hashes are forged to have the same home bucket.
  for (std::uint64_t i = 0; i < 4000; ++i) {
    table.prepare(1);
    taken += table.insert(Slot::make({i + 1, 42}, i, 1, 0, session)) != nullptr;
  }
  EXPECT_EQ(taken, ReplicaTable::kMaxInsertProbe * Bucket::kSlots);
  for (std::uint64_t i = 0; i < taken; ++i) {
    unsigned found = 0;
    table.for_key({i + 1, 42}, [&](Slot& slot) { found += slot.version == i; });
    ASSERT_EQ(found, 1u);
  }
}

TEST(Slot, KeepsEveryFieldAtItsLimits) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{1} << 40}) {
    for (const SessionId session : {SessionId{0}, SessionId{0xffff}}) {
      for (const unsigned attributes : {0u, 0xffu}) {
        const Slot slot =
            Slot::make({1, 2}, UINT64_MAX, bytes, static_cast<std::uint8_t>(attributes), session);
        EXPECT_EQ(slot.bytes(), bytes);
        EXPECT_EQ(slot.session(), session);
        EXPECT_EQ(slot.attributes(), attributes);
        EXPECT_EQ(slot.version, UINT64_MAX);
      }
    }
  }
}

TEST(Slot, PacksEveryValidSetOfAttributesIntoAByteOfItsOwn) {
  std::set<std::uint8_t> bytes;
  const auto check = [&](const Attributes& attributes) {
    ASSERT_TRUE(valid(attributes));
    EXPECT_EQ(unpack(pack(attributes)), attributes);
    EXPECT_TRUE(bytes.insert(pack(attributes)).second);
  };
  for (unsigned pin = 0; pin <= 2; ++pin) {
    for (const bool grouped : {false, true}) {
      for (std::uint8_t replicas = 1; replicas <= kMaxReplicas; ++replicas) {
        check({.pin = static_cast<Pin>(pin), .grouped = grouped, .replicas = replicas});
      }
    }
  }
  for (std::uint8_t replicas = 1; replicas <= kMaxReplicas; ++replicas) {
    for (std::uint8_t parts = 1; parts <= most_parts(replicas); ++parts) {
      for (std::uint8_t part = 0; part < parts; ++part) {
        check({.striped = true, .replicas = replicas, .parts = parts, .part = part});
      }
    }
  }
  // A byte that no valid attributes pack into is invalid.
  for (unsigned byte = 0; byte <= 0xff; ++byte) {
    EXPECT_EQ(valid(unpack(static_cast<std::uint8_t>(byte))),
              bytes.contains(static_cast<std::uint8_t>(byte)))
        << byte;
  }
}

// Agents and masters exchange these bytes.
TEST(Slot, TheBytesOfAttributesDoNotChange) {
  EXPECT_EQ(pack({}), 0);
  EXPECT_EQ(pack({.pin = Pin::kHard, .grouped = true, .replicas = 8}), 0x76);
  const auto striped = [](std::uint8_t replicas, std::uint8_t parts, std::uint8_t part) {
    return pack({.striped = true, .replicas = replicas, .parts = parts, .part = part});
  };
  EXPECT_EQ(striped(1, 1, 0), 120);
  EXPECT_EQ(striped(1, 2, 1), 122);
  EXPECT_EQ(striped(1, 16, 15), 255);
  EXPECT_EQ(striped(2, 1, 0), 3);
  EXPECT_EQ(striped(2, 8, 7), 59);
  EXPECT_EQ(striped(3, 1, 0), 60);
  EXPECT_EQ(striped(4, 4, 3), 91);
  EXPECT_EQ(striped(8, 2, 1), 109);
}

TEST(Slot, AnObjectInStripesHasNoMoreThan16HoldersOfItsParts) {
  EXPECT_EQ(most_parts(1), kMaxParts);
  for (std::uint8_t replicas = 1; replicas <= kMaxReplicas; ++replicas) {
    EXPECT_GE(most_parts(replicas), 2);
    EXPECT_LE(replicas * most_parts(replicas), 16);
  }
}

TEST(Slot, AttributesThatCannotBeAreNotValid) {
  EXPECT_FALSE(valid({.replicas = 0}));
  EXPECT_FALSE(valid({.replicas = kMaxReplicas + 1}));
  EXPECT_FALSE(valid({.part = 1}));
  EXPECT_FALSE(valid({.parts = 1}));
  EXPECT_FALSE(valid({.striped = true}));
  EXPECT_FALSE(valid({.striped = true, .parts = kMaxParts + 1}));
  EXPECT_FALSE(valid({.striped = true, .parts = 2, .part = 2}));
  EXPECT_FALSE(valid({.striped = true, .replicas = 0, .parts = 2}));
  EXPECT_FALSE(valid({.striped = true, .replicas = 2, .parts = 9}));
  EXPECT_FALSE(valid({.striped = true, .replicas = kMaxReplicas + 1, .parts = 1}));
  EXPECT_FALSE(valid({.pin = Pin::kSoft, .striped = true, .parts = 2}));
}

}  // namespace
}  // namespace mc::metadata
