// SPDX-License-Identifier: Apache-2.0
//
// Random puts, removals and reads, cut off again and again. After each cut, every object must have the
// bytes of a put that no acknowledged removal or later put has replaced.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "tier/log_rig.h"

namespace mc::tier::testing {
namespace {

using Outcome = LogEnd::Outcome;

int rounds() {
  const char* const text = std::getenv("MC_TIER_CUTS");
  return text == nullptr ? 10 : std::atoi(text);
}

// The history of a key: the versions that a get may return, and whether it has to return one.
struct KeyHistory {
  std::vector<std::uint64_t> possible;
  bool must_exist = false;
  std::uint64_t next_version = 1;
  std::size_t size = 0;
};

class Hammer {
 public:
  Hammer(LogRig& rig, std::uint64_t seed, bool fills, std::size_t size)
      : rig_(rig), random_(seed), fills_(fills), size_(size) {}

  void step() {
    const std::string key = "key/" + std::to_string(random_() % kKeys);
    KeyHistory& history = keys_[key];
    const std::uint64_t dice = random_() % 100;
    if (dice < 55) {
      put(key, history);
    } else if (dice < 75) {
      remove(key, history);
    } else {
      rig_.turn();
    }
    take_ends();
  }

  // After a restart: compares every key, and forgets the operations that were cut off.
  void check() {
    tickets_.clear();
    for (auto& [key, history] : keys_) {
      const TierEntry* const entry = rig_.log().find({key, LogRig::kNamespace});
      if (entry != nullptr) names_[entry->hash] = key;
      const auto got = rig_.get(key);
      if (!got) {
        ASSERT_FALSE(history.must_exist && !fills_) << key;
        history.possible.clear();
        history.must_exist = false;
        continue;
      }
      ASSERT_EQ(got->end.outcome, Outcome::kDone) << key;
      const std::uint64_t version = got->end.header.version;
      ASSERT_NE(std::find(history.possible.begin(), history.possible.end(), version),
                history.possible.end())
          << key << " came back with version " << version;
      ASSERT_EQ(got->bytes, value_of(key, version, got->bytes.size())) << key;
      history.possible = {version};
      history.must_exist = true;
    }
  }
  std::uint64_t random(std::uint64_t below) { return random_() % below; }

 private:
  static constexpr std::uint64_t kKeys = 400;
  struct Asked {
    std::string key;
    std::uint64_t version = 0;  // 0: a removal
  };

  void put(const std::string& key, KeyHistory& history) {
    const std::uint64_t version = history.next_version;
    const std::size_t size = size_ != 0 ? size_ : 200 + random_() % 30'000;
    const auto ticket = rig_.begin_put(key, version, size);
    if (!ticket) return;
    ++history.next_version;
    history.possible.push_back(version);
    // The earlier version may be gone from now on.
    history.must_exist = false;
    tickets_[*ticket] = {.key = key, .version = version};
  }
  void remove(const std::string& key, KeyHistory& history) {
    const auto ticket = rig_.log().remove({key, LogRig::kNamespace}).value();
    history.must_exist = false;
    if (!ticket) {
      history.possible.clear();
      return;
    }
    tickets_[*ticket] = {.key = key};
    removed_before_[*ticket] = history.next_version;
  }
  void take_ends() {
    for (; seen_ < rig_.ends().size(); ++seen_) {
      const LogEnd& end = rig_.ends()[seen_];
      const auto asked = tickets_.find(end.ticket);
      if (asked == tickets_.end()) continue;
      KeyHistory& history = keys_[asked->second.key];
      const std::uint64_t version = asked->second.version;
      if (version == 0) {
        ASSERT_EQ(end.outcome, Outcome::kDone);
        const std::uint64_t before = removed_before_[end.ticket];
        std::erase_if(history.possible, [before](std::uint64_t other) { return other < before; });
      } else if (end.outcome == Outcome::kDone) {
        std::erase_if(history.possible, [version](std::uint64_t other) { return other < version; });
        history.must_exist = history.possible == std::vector{version} &&
                             history.next_version == version + 1 &&
                             !removal_under_way(asked->second.key);
      }
      tickets_.erase(asked);
    }
    // An object that left to make room must not come back either.
    for (; seen_dropped_ < rig_.dropped().size(); ++seen_dropped_) {
      const Dropped& dropped = rig_.dropped()[seen_dropped_];
      const auto name = names_.find(dropped.key.hash);
      if (name != names_.end()) std::erase(keys_[name->second].possible, dropped.version);
    }
  }
  bool removal_under_way(const std::string& key) const {
    return std::any_of(tickets_.begin(), tickets_.end(), [&key](const auto& asked) {
      return asked.second.version == 0 && asked.second.key == key;
    });
  }

  LogRig& rig_;
  std::mt19937_64 random_;
  bool fills_;
  std::size_t size_;  // of each object; 0: random
  std::map<std::string, KeyHistory> keys_;
  std::map<std::uint64_t, Asked> tickets_;
  std::map<std::uint64_t, std::uint64_t> removed_before_;
  std::map<std::uint64_t, std::string> names_;  // by TierKey::hash
  std::size_t seen_ = 0, seen_dropped_ = 0;

 public:
  void restarted() { seen_ = 0; }
};

void hammer(const LogRig::Plan& plan, bool fills, int cuts, int steps, std::size_t size = 0) {
  LogRig rig(plan);
  Hammer hammer(rig, plan.seed, fills, size);
  for (int round = 0; round < cuts; ++round) {
    SCOPED_TRACE("seed " + std::to_string(plan.seed) + ", cut " + std::to_string(round));
    for (std::uint64_t left = 1 + hammer.random(static_cast<std::uint64_t>(steps)); left > 0;
         --left) {
      hammer.step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    if (hammer.random(3) == 0) {
      rig.kill();
    } else {
      rig.power_cut();
    }
    hammer.restarted();
    rig.recover();
    hammer.check();
    if (::testing::Test::HasFatalFailure()) return;
    // Nothing waits for ever.
    if (hammer.random(4) == 0) rig.settle();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void hammer_seeds(LogRig::Plan plan, bool fills, std::uint64_t seeds, std::size_t size = 0) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    plan.seed = seed * 100'000;
    hammer(plan, fills, rounds(), 1'500, size);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(PowerCut, NoObjectIsLostOrComesBackOnADiskWithRoom) {
  hammer_seeds({.disk_bytes = 64 << 20}, false, 2);
}

TEST(PowerCut, NoObjectIsLostOrComesBackOnDisksWithRoom) {
  hammer_seeds({.disks = 3, .disk_bytes = 64 << 20, .sector_bytes = kBlockBytes}, false, 2);
}

TEST(PowerCut, NoObjectIsLostOrComesBackInLargeSegmentsWithSmallBatches) {
  hammer_seeds({.disk_bytes = 64 << 20, .segment_bytes = 4 << 20, .batch_bytes = 16 << 10}, false,
               2);
}

TEST(PowerCut, NoObjectComesBackOnADiskThatIsCleanedAllTheTime) {
  hammer_seeds({.disk_bytes = 4 << 20}, true, 3);
}

// Records of an earlier use of a segment stand at the same places as those of the next use.
TEST(PowerCut, NoObjectComesBackIfAllHaveTheSameSize) {
  hammer_seeds({.disk_bytes = 4 << 20, .sector_bytes = kBlockBytes}, true, 3, 9'000);
}

TEST(PowerCut, NoObjectComesBackOnTheSmallestDisk) {
  hammer_seeds({.disk_bytes = kFirstSegmentOffset + 8 * kSmallestSegmentBytes}, true, 2);
}

TEST(PowerCut, NoObjectComesBackOnThreeDisks) {
  hammer_seeds({.disks = 3, .disk_bytes = 3 << 20}, true, 2);
}

}  // namespace
}  // namespace mc::tier::testing
