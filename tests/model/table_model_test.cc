// SPDX-License-Identifier: Apache-2.0
//
// The agent's bucket tables against readers: collisions, overflow, replacement, growth.
#include <bit>
#include <string_view>

#include "agent/pool/index/bucket_table.h"
#include "shm/index_reader.h"
#include "tests/model/scenario.h"

namespace mc::model {
namespace {

constexpr std::uint64_t kTableBytes = 4096;
constexpr std::uint32_t kEntries = 32;

// Key number n has home bucket 0 in every table and a unique tag.
std::uint64_t hash_of(std::uint64_t n) { return ((n + 1) << 48) | 1; }

struct TableWorld {
  TableWorld(Machine& machine, std::uint64_t buckets) {
    const std::uint64_t bytes =
        shm::kPageBytes + 2 * kTableBytes + kEntries * sizeof(shm::Entry) + 4096;
    std::byte* base = arena_allocate(bytes);
    file = MemoryFile(base, bytes);
    header = reinterpret_cast<shm::IndexHeader*>(base);
    header->file = shm::make_header(shm::FileKind::kIndex, bytes, 1, 1);
    header->table_offset[0] = shm::kPageBytes;
    header->table_offset[1] = shm::kPageBytes + kTableBytes;
    header->table_max_bytes = buckets * sizeof(shm::Bucket);
    header->entries_offset = shm::kPageBytes + 2 * kTableBytes;
    header->max_entries = kEntries;
    header->keys_offset = header->entries_offset + kEntries * sizeof(shm::Entry);
    header->max_keys_bytes = 4096;
    entries = reinterpret_cast<shm::Entry*>(base + header->entries_offset);
    table = std::make_unique<agent::BucketTable>(base, &file);
    static_cast<void>(table->reset(0));
    table->publish_reset();
    header->table_max_bytes = kTableBytes;  // the table may grow from here on
    reader = *shm::IndexReader::open(base, bytes);
    machine.name(&header->generation, 8, "generation");
    machine.name(header->tables, sizeof header->tables, "descriptor");
    machine.name(base + shm::kPageBytes, kTableBytes, "table 0");
    machine.name(base + shm::kPageBytes + kTableBytes, kTableBytes, "table 1");
    machine.name(entries, kEntries * sizeof(shm::Entry), "entry");
  }

  // Like ObjectStore::publish_new: a live entry; the upper half of the checksum is the key's
  // number.
  void make_entry(std::uint32_t id, std::uint64_t key, std::uint64_t put) {
    char text[8];
    std::snprintf(text, sizeof text, "key%03u", static_cast<unsigned>(key));
    const shm::KeyField field{0, 6, 1, 0};
    shm::Entry& entry = entries[id];
    std::memcpy(entry.short_key, text, 6);
    entry.checksum.store_relaxed((key << 32) | put);
    entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
    entry.hash.store_relaxed(hash_of(key));
    entry.version.store_release(shm::make_version(++sequence, shm::EntryState::kLive));
    if (header->entry_count.load_relaxed() <= id) header->entry_count.store_relaxed(id + 1);
  }
  void leave(std::uint32_t id) {
    shm::Entry& entry = entries[id];
    entry.version.store_release(
        shm::make_version(shm::sequence_of(entry.version.load_relaxed()), shm::EntryState::kLimbo));
  }
  bool put(std::uint32_t id, std::uint64_t key) {
    const bool room = table->prepare_insert();
    make_entry(id, key, 1);
    return table->insert(hash_of(key), id) && room;
  }
  void remove(std::uint32_t id, std::uint64_t key) {
    table->erase(hash_of(key), id);
    leave(id);
  }
  // The number of the put found; 0 for a miss.
  std::uint64_t get(std::uint64_t key) {
    char text[8];
    std::snprintf(text, sizeof text, "key%03u", static_cast<unsigned>(key));
    shm::FoundObject found;
    forget_reads();
    if (!reader.find(text, 6, hash_of(key), nullptr, found)) return 0;
    expect(found.checksum >> 32 == key, "a hit is of the key that was looked for");
    return found.checksum & 0xffffffff;
  }

  MemoryFile file;
  shm::IndexHeader* header;
  shm::Entry* entries;
  std::unique_ptr<agent::BucketTable> table;
  shm::IndexReader reader;
  std::uint64_t sequence = 0;
};

using TableAct = std::function<void(TableWorld&)>;

Build table(std::uint64_t buckets, std::uint64_t keys, TableAct agent,
            std::vector<TableAct> readers) {
  return [=](Machine& machine) {
    auto world = std::make_shared<TableWorld>(machine, buckets);
    for (std::uint32_t id = 0; id < keys; ++id) world->put(id, id);
    for (const TableAct& act : readers) machine.thread("reader", [=] { act(*world); });
    machine.thread("agent", [=] { agent(*world); });
  };
}

TableAct finds(std::uint64_t key) {
  return [key](TableWorld& world) { expect(world.get(key) != 0, "a present key is never missed"); };
}
TableAct misses(std::uint64_t key) {
  return [key](TableWorld& world) { expect(world.get(key) == 0, "an absent key is a miss"); };
}

// Eight keys of one home bucket: two of them overflow into the next.
void churn_overflow(TableWorld& world) {
  world.remove(7, 7);
  world.put(9, 9);
  world.remove(9, 9);
}

TEST(TableModel, AKeyInAnOverflowBucketIsNeverMissedWhileOthersComeAndGo) {
  expect_holds(table(4, 8, churn_overflow, {finds(6)}));
  expect_holds(table(4, 8,
                     [](TableWorld& world) {
                       world.remove(3, 3);  // in the home bucket
                       world.put(9, 9);
                     },
                     {finds(6)}));
  expect_holds(Memory::kTotalStoreOrder, table(4, 8, churn_overflow, {finds(6), finds(2)}));
}

// Like ObjectStore: a full fence separates the end of an object from the reuse of the entry.
void reuse_entry(TableWorld& world) {
  world.remove(1, 1);
  shm::full_fence();
  world.put(1, 20);
}

TEST(TableModel, AnEntryReusedUnderAReaderIsNotTakenForItsOldKey) {
  for (const std::uint64_t key : {std::uint64_t{1}, std::uint64_t{20}}) {
    expect_holds(table(4, 3, reuse_entry, {[key](TableWorld& world) { world.get(key); }}));
  }
  expect_holds(table(4, 3, reuse_entry, {misses(21)}));
}

void replace_key_one(TableWorld& world) {
  world.make_entry(5, 1, 2);
  world.table->replace(hash_of(1), 1, 5);
  world.leave(1);
}

TEST(TableModel, AReplacedKeyIsFoundOldOrNewAndNeverOldAfterNew) {
  expect_holds(table(4, 3, replace_key_one, {[](TableWorld& world) {
                       const std::uint64_t first = world.get(1);
                       const std::uint64_t second = world.get(1);
                       expect(first != 0 && second != 0, "a replaced key is never missed");
                       expect(first <= second, "the new object does not become the old one again");
                     }}));
}

// A bucket with four keys is full by the table's rule: prepare_insert() starts a larger table.
void grow_once(TableWorld& world) {
  while (world.header->generation.load_relaxed() < 2) world.table->prepare_insert();
}

TEST(TableModel, APresentKeyIsFoundWhileTheTableGrows) {
  expect_holds(table(1, 4, grow_once, {finds(3)}));
  expect_holds(table(1, 4, grow_once, {misses(30)}));
}

TEST(TableModel, AKeyPutOrReplacedWhileTheTableGrowsIsFound) {
  expect_holds(Memory::kTotalStoreOrder, table(1, 4,
                                               [](TableWorld& world) {
                                                 world.put(5, 5);
                                                 world.remove(0, 0);
                                                 world.table->prepare_insert();
                                                 replace_key_one(world);
                                               },
                                               {finds(1)}));
}

TEST(TableModel, AReaderThatSleepsThroughTwoGrowthsStillFindsItsKey) {
  const auto grow_twice = [](TableWorld& world) {
    while (world.header->generation.load_relaxed() < 2) world.table->prepare_insert();
    while (world.header->generation.load_relaxed() < 3) world.table->prepare_insert();
  };
  // Also full for a second growth: twelve keys in the middle table.
  expect_holds(Memory::kTotalStoreOrder, [&](Machine& machine) {
    auto world = std::make_shared<TableWorld>(machine, 1);
    for (std::uint32_t id = 0; id < 4; ++id) world->put(id, id);
    for (std::uint32_t i = 0; i < 8; ++i) world->table->insert(hash_of(40 + i), 20 + i);
    machine.thread("reader", [=] { expect(world->get(0) != 0, "a present key is never missed"); });
    machine.thread("agent", [=] { grow_twice(*world); });
  });
}

TEST(TableMutant, AnOverflowThatIsNotCountedIsFound) {
  expect_found(Memory::kTotalStoreOrder, table(4, 8, churn_overflow, {finds(6)}),
               {{"insert_into", Kind::kStore, Action::kSkip, Mutation::Of::kRelaxed}});
}

TEST(TableMutant, AReplacementByEraseAndInsertIsFound) {
  expect_found(Memory::kTotalStoreOrder, table(4, 3,
                                               [](TableWorld& world) {
                                                 world.make_entry(5, 1, 2);
                                                 world.remove(1, 1);
                                                 world.table->insert(hash_of(1), 5);
                                               },
                                               {finds(1)}));
}

TEST(TableMutant, ALiveEntryWithoutItsFieldsIsFound) {
  const auto look_twice = [](TableWorld& world) {
    world.get(1);
    world.get(20);
  };
  expect_found(Memory::kPartialStoreOrder, table(4, 3, reuse_entry, {look_twice}),
               {{"make_entry", Kind::kStore, Action::kRelax}});
}

TEST(TableMutant, AnEntryReusedWithoutFenceIsFound) {
  expect_found(Memory::kPartialStoreOrder,
               table(4, 3, reuse_entry, {[](TableWorld& world) { world.get(1); }}),
               {{"reuse_entry", Kind::kFence, Action::kSkip}});
}

TEST(TableMutant, AMissWithoutLookingAtTheGenerationAgainIsFound) {
  expect_found(Memory::kTotalStoreOrder, table(1, 4, grow_once, {finds(3)}),
               {{"find", Kind::kLoad, Action::kStale, Mutation::Of::kRelaxed}});
}

TEST(TableMutant, AGenerationVisibleBeforeItsTableIsFound) {
  expect_found(Memory::kPartialStoreOrder, table(1, 4, grow_once, {finds(3)}),
               {{"publish", Kind::kStore, Action::kRelax}});
}

TEST(TableMutant, AGenerationThatStaysIsFound) {
  expect_found(Memory::kTotalStoreOrder,
               table(1, 4,
                     [](TableWorld& world) {
                       for (int i = 0; i < 4; ++i) world.table->prepare_insert();
                     },
                     {finds(3)}),
               {{"publish", Kind::kStore, Action::kSkip, Mutation::Of::kOrdered}});
}

}  // namespace
}  // namespace mc::model
