// SPDX-License-Identifier: Apache-2.0
//
// The contract of EvictionPolicy, tested with every policy.
#include "agent/pool/policy/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace mc::agent {
namespace {

std::uint64_t hash_of(std::uint64_t key) { return (key + 1) * 0x9e3779b97f4a7c15; }

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

class PolicyContract : public ::testing::TestWithParam<std::string> {
 protected:
  void insert(EntryId id, EntryId parent = kNoEntry, PinLevel pin = PinLevel::kNone) {
    policy_->insert(
        {.id = id, .parent = parent, .key_hash = hash_of(next_key_++), .bytes = 1, .pin = pin});
  }
  std::vector<EntryId> evict_all() {
    std::vector<EntryId> victims;
    for (EntryId id = policy_->evict(); id != kNoEntry; id = policy_->evict()) {
      victims.push_back(id);
    }
    return victims;
  }

  std::unique_ptr<EvictionPolicy> policy_ = make_policy(GetParam());
  std::uint64_t next_key_ = 0;
};

TEST_P(PolicyContract, TellsItsOwnName) { EXPECT_EQ(policy_->name(), GetParam()); }

TEST_P(PolicyContract, AnEmptyPoolHasNoVictim) {
  EXPECT_EQ(policy_->evict(), kNoEntry);
  EXPECT_EQ(policy_->resident_count(), 0U);
}

TEST_P(PolicyContract, EveryObjectIsEvictedOnce) {
  for (EntryId id = 0; id < 5'000; ++id) insert(id);
  auto victims = evict_all();
  std::sort(victims.begin(), victims.end());
  ASSERT_EQ(victims.size(), 5'000U);
  for (EntryId id = 0; id < 5'000; ++id) ASSERT_EQ(victims[id], id);
  EXPECT_EQ(policy_->resident_count(), 0U);
}

TEST_P(PolicyContract, AChainIsEvictedFromItsEnd) {
  for (EntryId id = 0; id < 1'000; ++id) insert(id, id == 0 ? kNoEntry : id - 1);
  const auto victims = evict_all();
  ASSERT_EQ(victims.size(), 1'000U);
  for (EntryId i = 0; i < 1'000; ++i) ASSERT_EQ(victims[i], 999 - i);
}

TEST_P(PolicyContract, ATouchedChildDoesNotCostItsParent) {
  insert(0);
  insert(1, 0);
  for (EntryId id = 2; id < 200; ++id) {
    policy_->touch(1);
    insert(id);
  }
  std::set<EntryId> gone;
  for (const EntryId id : evict_all()) {
    EXPECT_TRUE(id != 0 || gone.count(1) == 1);
    gone.insert(id);
  }
}

TEST_P(PolicyContract, TheObjectJustPutIsNotTheNextVictim) {
  for (EntryId id = 0; id < 500; ++id) insert(id);
  for (EntryId id = 500; id < 2'000; ++id) {
    ASSERT_NE(policy_->evict(), id - 1);
    insert(id);
  }
}

TEST_P(PolicyContract, AChainBeingPutKeepsTogether) {
  for (EntryId id = 0; id < 1'000; ++id) insert(id);
  EntryId free = kNoEntry;
  EntryId last = kNoEntry;
  std::set<EntryId> chain;
  for (int i = 0; i < 200; ++i) {
    free = policy_->evict();
    ASSERT_FALSE(chain.count(free)) << "after " << i << " blocks";
    insert(free, last);
    chain.insert(free);
    last = free;
  }
}

TEST_P(PolicyContract, SoftPinnedObjectsGoLast) {
  for (EntryId id = 0; id < 100; ++id) {
    insert(id, kNoEntry, id < 50 ? PinLevel::kSoft : PinLevel::kNone);
  }
  for (EntryId id = 0; id < 100; ++id) policy_->touch(id);
  const auto victims = evict_all();
  ASSERT_EQ(victims.size(), 100U);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(victims[i] < 50, i >= 50);
}

TEST_P(PolicyContract, HardPinnedObjectsNeverGo) {
  insert(0);
  insert(1, 0, PinLevel::kHard);
  insert(2, kNoEntry, PinLevel::kHard);
  insert(3, 1);
  EXPECT_EQ(evict_all(), std::vector<EntryId>{3});
  EXPECT_EQ(policy_->resident_count(), 3U);
  policy_->set_pin(1, PinLevel::kNone);
  EXPECT_EQ(evict_all(), (std::vector<EntryId>{1, 0}));
  policy_->set_pin(2, PinLevel::kSoft);
  EXPECT_EQ(evict_all(), std::vector<EntryId>{2});
}

TEST_P(PolicyContract, APinMayComeAndGoWhileAnObjectHasChildren) {
  insert(0);
  insert(1, 0);
  policy_->set_pin(0, PinLevel::kHard);
  EXPECT_EQ(evict_all(), std::vector<EntryId>{1});
  policy_->set_pin(0, PinLevel::kSoft);
  insert(2);
  EXPECT_EQ(evict_all(), (std::vector<EntryId>{2, 0}));
}

TEST_P(PolicyContract, PinningAnUnknownObjectDoesNothing) {
  policy_->set_pin(77, PinLevel::kHard);
  insert(77);
  EXPECT_EQ(policy_->evict(), 77U);
}

TEST_P(PolicyContract, UnknownIdsAreIgnored) {
  insert(3);
  for (const EntryId id : {EntryId{0}, EntryId{4}, EntryId{1'000'000}, kNoEntry}) {
    policy_->touch(id);
    policy_->erase(id);
    policy_->set_pin(id, PinLevel::kSoft);
  }
  EXPECT_EQ(policy_->resident_count(), 1U);
  EXPECT_LT(policy_->memory_bytes(), 100'000U);
  EXPECT_EQ(policy_->evict(), 3U);
}

TEST_P(PolicyContract, ChildrenOfAnErasedObjectBecomeRoots) {
  insert(0);
  insert(1, 0);
  insert(2, 1);
  insert(3, 1);
  policy_->erase(1);
  EXPECT_EQ(policy_->resident_count(), 3U);
  insert(1);  // same id, another object: 2 and 3 are not its children
  policy_->set_pin(2, PinLevel::kHard);
  policy_->set_pin(3, PinLevel::kHard);
  auto victims = evict_all();
  std::sort(victims.begin(), victims.end());
  EXPECT_EQ(victims, (std::vector<EntryId>{0, 1}));
}

TEST_P(PolicyContract, AParentThatIsNotResidentCountsAsNone) {
  insert(5, 4);
  insert(4);
  policy_->set_pin(5, PinLevel::kHard);
  EXPECT_EQ(policy_->evict(), 4U);
}

TEST_P(PolicyContract, AnIdThatLosesItsChildrenOverAndOverStaysCorrect) {
  insert(0);
  insert(1, 0);
  policy_->set_pin(1, PinLevel::kHard);
  for (int i = 0; i < 140'000; ++i) {  // more than a 16-bit counter can count
    policy_->erase(0);
    insert(0);
    insert(2, 0);
    if (i % 2 == 0) {
      policy_->erase(2);
    } else {
      ASSERT_EQ(policy_->evict(), 2U);
    }
    insert(3, 0);
    policy_->erase(0);
    insert(0);
    insert(4, 0);
    policy_->erase(3);
    policy_->erase(4);
    insert(2, 0);
    policy_->erase(0);
    policy_->erase(2);
    insert(0);
  }
  EXPECT_EQ(evict_all(), std::vector<EntryId>{0});
}

// Eviction must not scan hard-pinned objects: with a scan, this test takes hours.
TEST_P(PolicyContract, ManyHardPinnedObjectsDoNotSlowEviction) {
  for (EntryId id = 0; id < 200'000; ++id) insert(id, kNoEntry, PinLevel::kHard);
  for (EntryId i = 0; i < 500'000; ++i) {
    insert(200'000 + i % 2);
    ASSERT_EQ(policy_->evict(), 200'000 + i % 2);
  }
  EXPECT_EQ(policy_->evict(), kNoEntry);
}

TEST_P(PolicyContract, EqualCallsGiveEqualVictims) {
  const auto other = make_policy(GetParam());
  Random random(7);
  for (EntryId id = 0; id < 3'000; ++id) {
    const Arrival arrival{.id = id,
                          .parent = random() % 2 == 0 || id == 0 ? kNoEntry : id - 1,
                          .key_hash = hash_of(random() % 4'000),
                          .bytes = 1};
    policy_->insert(arrival);
    other->insert(arrival);
    const EntryId touched = random() % (id + 1);
    policy_->touch(touched);
    other->touch(touched);
    if (id < 1'000) continue;
    ASSERT_EQ(policy_->evict(), other->evict());
  }
}

// A model that the policy must agree with after every call.
class Model {
 public:
  explicit Model(EntryId ids) : objects_(ids) {}

  [[nodiscard]] bool holds(EntryId id) const { return objects_[id].resident; }
  [[nodiscard]] std::size_t count() const { return count_; }

  void insert(EntryId id, EntryId parent, PinLevel pin) {
    objects_[id].resident = true;
    objects_[id].parent = parent;
    objects_[id].pin = pin;
    ++count_;
    list(id);
    if (parent == kNoEntry) return;
    objects_[parent].children.insert(id);
    list(parent);
  }
  void erase(EntryId id) {
    const EntryId parent = objects_[id].parent;
    for (const EntryId child : objects_[id].children) objects_[child].parent = kNoEntry;
    objects_[id] = Object{};
    --count_;
    list(id);
    if (parent == kNoEntry) return;
    objects_[parent].children.erase(id);
    list(parent);
  }
  void set_pin(EntryId id, PinLevel pin) {
    objects_[id].pin = pin;
    list(id);
  }
  // The reason why the victim is wrong, or an empty string.
  [[nodiscard]] std::string objection(EntryId id) const {
    if (id == kNoEntry) return unpinned_.empty() && soft_.empty() ? "" : "there were candidates";
    if (id >= objects_.size() || !objects_[id].resident) return "not resident";
    if (!objects_[id].children.empty()) return "has children";
    if (objects_[id].pin == PinLevel::kHard) return "hard-pinned";
    if (objects_[id].pin == PinLevel::kSoft && !unpinned_.empty()) return "soft-pinned too early";
    return "";
  }

 private:
  struct Object {
    bool resident = false;
    EntryId parent = kNoEntry;
    std::unordered_set<EntryId> children;
    PinLevel pin = PinLevel::kNone;
  };

  void list(EntryId id) {
    const Object& object = objects_[id];
    const bool childless = object.resident && object.children.empty();
    soft_.erase(id);
    unpinned_.erase(id);
    if (childless && object.pin == PinLevel::kSoft) soft_.insert(id);
    if (childless && object.pin == PinLevel::kNone) unpinned_.insert(id);
  }

  std::vector<Object> objects_;
  std::unordered_set<EntryId> soft_;  // objects without children
  std::unordered_set<EntryId> unpinned_;
  std::size_t count_ = 0;
};

TEST_P(PolicyContract, AMillionRandomCallsAgreeWithAModel) {
  constexpr EntryId kIds = 700;
  Model model(kIds);
  Random random(42);
  const auto random_pin = [&] {
    const auto draw = random() % 16;
    return draw == 0 ? PinLevel::kHard : draw < 3 ? PinLevel::kSoft : PinLevel::kNone;
  };
  for (int i = 0; i < 1'000'000; ++i) {
    const EntryId id = random() % kIds;
    const bool resident = model.holds(id);
    const auto action = random() % 16;
    if (action < 7) {
      if (resident) continue;
      EntryId parent = random() % 4 == 0 ? kNoEntry : random() % kIds;
      if (parent != kNoEntry && (!model.holds(parent) || parent == id)) parent = kNoEntry;
      const PinLevel pin = random_pin();
      model.insert(id, parent, pin);
      insert(id, parent, pin);
    } else if (action < 11) {
      policy_->touch(id);
    } else if (action == 11) {
      if (resident && random() % 2 == 0) {
        model.erase(id);
        policy_->erase(id);
      }
    } else if (action == 12) {
      if (resident) {
        const PinLevel pin = random_pin();
        model.set_pin(id, pin);
        policy_->set_pin(id, pin);
      }
    } else {
      const EntryId victim = policy_->evict();
      ASSERT_EQ(model.objection(victim), "") << "victim " << victim << ", call " << i;
      if (victim != kNoEntry) model.erase(victim);
    }
    ASSERT_EQ(policy_->resident_count(), model.count());
  }
}

TEST_P(PolicyContract, BookkeepingStaysBoundedUnderChurn) {
  constexpr EntryId kObjects = 200'000;
  Random random(3);
  for (EntryId id = 0; id < kObjects; ++id) insert(id, id % 16 == 0 ? kNoEntry : id - 1);
  const auto churn = [&] {
    for (int i = 0; i < 1'000'000; ++i) {
      EntryId id = static_cast<EntryId>(random() % kObjects);
      if (i % 4 == 0) {
        policy_->erase(id);
      } else {
        id = policy_->evict();
      }
      EntryId parent = random() % kObjects;
      insert(id, parent == id || i % 3 == 0 ? kNoEntry : parent);
      policy_->touch(static_cast<EntryId>(random() % kObjects));
    }
  };
  churn();
  const std::size_t once = policy_->memory_bytes();
  churn();
  EXPECT_EQ(policy_->resident_count(), kObjects);
  EXPECT_LE(policy_->memory_bytes(), once + once / 50);
  const double per_object = static_cast<double>(once) / kObjects;
  EXPECT_LE(per_object, GetParam() == policy_names().front() ? 24 : 64);
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyContract, ::testing::ValuesIn([] {
                           const auto names = policy_names();
                           return std::vector<std::string>(names.begin(), names.end());
                         }()),
                         [](const auto& each) { return each.param; });

TEST(PolicyRegistry, AnUnknownNameHasNoPolicy) {
  EXPECT_EQ(make_policy("clock"), nullptr);
  EXPECT_EQ(make_policy(""), nullptr);
  ASSERT_FALSE(policy_names().empty());
  EXPECT_EQ(policy_names().front(), "prefix");
}

}  // namespace
}  // namespace mc::agent
