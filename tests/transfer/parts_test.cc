// SPDX-License-Identifier: Apache-2.0
//
// Parts of the transfer engine alone: the table of numbers, and an injected name store.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "transport/engine/engine.h"
#include "transport/engine/slot_table.h"

namespace mc::transfer {
namespace {

struct Entry {
  std::uint64_t id = 0;
};

TEST(SlotTable, ANumberIsNeverUsedAgain) {
  SlotTable<Entry> table(2);
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 100; ++i) {
    Entry* const entry = table.add(std::make_unique<Entry>());
    ASSERT_NE(entry, nullptr);
    const std::uint64_t id = entry->id;
    EXPECT_TRUE(numbers.insert(id).second);
    EXPECT_EQ(table.find(id), entry);
    table.remove(*entry);
    EXPECT_EQ(table.find(id), nullptr);
  }
}

TEST(SlotTable, AFullTableTakesNoEntryUntilOneIsRemoved) {
  SlotTable<Entry> table(2);
  Entry* const first = table.add(std::make_unique<Entry>());
  ASSERT_NE(table.add(std::make_unique<Entry>()), nullptr);
  EXPECT_TRUE(table.full());
  EXPECT_EQ(table.add(std::make_unique<Entry>()), nullptr);
  table.remove(*first);
  EXPECT_NE(table.add(std::make_unique<Entry>()), nullptr);
}

TEST(SlotTable, UnknownNumbersFindNoEntry) {
  SlotTable<Entry> table(2);
  ASSERT_NE(table.add(std::make_unique<Entry>()), nullptr);
  for (const std::uint64_t id : {0ull, 1ull, 2ull, ~0ull}) EXPECT_EQ(table.find(id), nullptr);
}

// Names in a map that the test owns.
class MapNames final : public NameStore {
 public:
  explicit MapNames(std::map<std::string, Address>& names) : names_(names) {}
  ~MapNames() override { names_.erase(published_); }
  Status publish(const std::string& name, const Address& address, std::uint64_t) override {
    published_ = name;
    names_[name] = address;
    return {};
  }
  Result<Address> find(const std::string& name, std::uint64_t) override {
    const auto at = names_.find(name);
    if (at == names_.end()) return fail(MC_NOT_FOUND, "no such name");
    return at->second;
  }

 private:
  std::map<std::string, Address>& names_;
  std::string published_;
};

TEST(EngineNames, AreThoseOfTheInjectedStore) {
  std::map<std::string, Address> names;
  EngineOptions options;
  options.name = "one";
  auto one = Engine::open(options, std::make_unique<MapNames>(names));
  options.name = "two";
  auto two = Engine::open(options, std::make_unique<MapNames>(names));
  ASSERT_TRUE(one && two);
  EXPECT_TRUE((*two)->open_segment("one", MC_DEFAULT_TIMEOUT_NS));
  EXPECT_EQ((*two)->open_segment("three", MC_DEFAULT_TIMEOUT_NS).error().code(), MC_NOT_FOUND);
  one->reset();
  EXPECT_EQ((*two)->open_segment("one", MC_DEFAULT_TIMEOUT_NS).error().code(), MC_NOT_FOUND);
}

}  // namespace
}  // namespace mc::transfer
