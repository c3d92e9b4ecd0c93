// SPDX-License-Identifier: Apache-2.0
//
// The agent's ObjectStore against readers in place: pins, limbo, reuse of extents, entries and key
// records, replacement, eviction, moves. The ObjectStore, the index, the tables, the key heap and
// the policy are the product's; only the extent allocator is simpler.
#include <string>

#include "agent/pool/object_store.h"
#include "libmc/base/hash.h"
#include "shm/index_reader.h"
#include "shm/pins.h"
#include "tests/model/scenario.h"

namespace mc::model {
namespace {

constexpr std::uint64_t kSession = 5;
constexpr std::uint64_t kObjectBytes = 16;  // two words, so that a torn object is possible
constexpr unsigned kReaders = 2;

// The words of an object: number of the put, and key.
std::uint64_t content(char key, std::uint64_t put) {
  return (put << 8) | static_cast<unsigned char>(key);
}

struct StoreWorld {
  StoreWorld(Machine& machine, std::uint64_t extents) {
    pins = shared<shm::Word64>(kReaders);
    agent::ObjectStore::Config config;
    config.pool_bytes = extents * agent::kGranuleBytes;
    config.policy = "lru";
    store = std::move(*agent::ObjectStore::create(
        config, [this](std::vector<std::uint64_t>& found) { collect_pins(found); }));
    const MemoryFile& file = store->index().file();
    reader = *shm::IndexReader::open(file.base(), file.size_bytes());
    const shm::IndexHeader& header = store->index().header();
    machine.name(&header.generation, 8, "generation");
    machine.name(header.tables, sizeof header.tables, "descriptor");
    for (unsigned i = 0; i < 2; ++i) {
      machine.name(file.base() + header.table_offset[i], header.table_max_bytes,
                   "table " + std::to_string(i));
    }
    static const char* const kFields[] = {"version",  "hash", "extent", "length",
                                          "checksum", "key",  "parent", "attributes"};
    for (std::uint32_t id = 0; id < 4; ++id) {
      auto* word = reinterpret_cast<const std::byte*>(&store->index().entry(id));
      for (const char* field : kFields) {
        machine.name(word, 8, "entry " + std::to_string(id) + " " + field);
        word += 8;
      }
    }
    machine.name(file.base() + header.keys_offset, 4096, "key heap");
    machine.name(store->pool().data(), config.pool_bytes, "pool");
    for (unsigned i = 0; i < kReaders; ++i) machine.name(pins + i, 8, "pin " + std::to_string(i));
  }

  // Session::collect_pins.
  void collect_pins(std::vector<std::uint64_t>& found) const {
    for (unsigned i = 0; i < kReaders; ++i) {
      const std::uint64_t pin = pins[i].load_relaxed();
      if (pin != 0) found.push_back(pin);
    }
  }

  // Reserves, writes and commits. False: no room.
  bool put(char key, bool upsert = false, bool evict = false) {
    std::uint32_t entry = 0;
    if (store->reserve(kSession, kObjectBytes, evict, entry) != agent::ObjectStore::Reserve::kOk) {
      return false;
    }
    const std::uint64_t word = content(key, ++puts);
    const std::uint64_t bytes[2] = {word, word};
    model_memcpy(store->pool().data() + store->extents(entry).at[0].offset_bytes, bytes,
                 sizeof bytes);
    agent::PutOrder order;
    order.key = std::string_view(&key, 1);
    order.entry = entry;
    order.length = kObjectBytes;
    order.checksum = word;
    order.upsert = upsert;
    return store->publish(kSession, order) == agent::ObjectStore::Put::kStored;
  }

  // Like read_object: finds, pins, copies, releases. Returns the number of the put; 0 for a miss.
  std::uint64_t get(unsigned number, char key) {
    shm::FoundObject found;
    forget_reads();
    const std::uint64_t hash = hash_key(&key, 1, reader.hash_seed());
    if (!reader.find(&key, 1, hash, &pins[number], found)) return 0;
    std::uint64_t bytes[2] = {};
    model_memcpy(bytes, store->pool().data() + found.extent, sizeof bytes);
    shm::clear_pin(pins[number]);
    expect(found.length == kObjectBytes, "the length is that of the object");
    expect((found.checksum & 0xff) == static_cast<unsigned char>(key),
           "a hit is of the key that was looked for");
    expect(bytes[0] == found.checksum && bytes[1] == found.checksum,
           "a reader reads the bytes of the object it found");
    return found.checksum >> 8;
  }

  shm::Word64* pins;
  std::unique_ptr<agent::ObjectStore> store;
  shm::IndexReader reader;
  std::uint64_t puts = 0;
};

using Act = std::function<void(StoreWorld&)>;
using ReaderAct = std::function<void(StoreWorld&, unsigned)>;

// keys: the initial objects.
Build store(std::uint64_t extents, std::string keys, Act agent, std::vector<ReaderAct> readers,
            bool readers_die = false) {
  return [=](Machine& machine) {
    auto world = std::make_shared<StoreWorld>(machine, extents);
    for (const char key : keys) world->put(key);
    for (unsigned i = 0; i < readers.size(); ++i) {
      machine.thread("reader " + std::to_string(i), [=] { readers[i](*world, i); });
      if (readers_die) machine.may_die(i);
    }
    machine.thread("agent", [=] { agent(*world); });
  };
}

ReaderAct gets(char key) {
  return [key](StoreWorld& world, unsigned number) { world.get(number, key); };
}
ReaderAct always_gets(char key) {
  return [key](StoreWorld& world, unsigned number) {
    expect(world.get(number, key) != 0, "a present key is never missed");
  };
}

// One object after the other uses the only extent, entry and key record.
void remove_and_reuse(StoreWorld& world) {
  world.store->remove("a");
  world.put('b');
}
void evict_and_reuse(StoreWorld& world) { world.put('b', false, true); }
void replace_and_reuse(StoreWorld& world) {
  world.put('a', true);
  world.put('b');
}

TEST(StoreModel, AReaderNeverSeesTheBytesOfWhatCameAfter) {
  expect_holds(store(1, "a", remove_and_reuse, {gets('a')}));
  expect_holds(store(1, "a", remove_and_reuse, {gets('b')}));
  expect_holds(store(1, "a", evict_and_reuse, {gets('a')}));
}

TEST(StoreModel, AnExtentThatIsReusedTwiceIsNeverMistaken) {
  expect_holds(store(1, "a",
                     [](StoreWorld& world) {
                       if (!world.put('b', false, true)) return;
                       world.store->remove("b");
                       world.put('a');
                     },
                     {gets('a')}));
}

TEST(StoreModel, TwoReadersOfOneObjectAreBothWaitedFor) {
  // Takes half a minute: the explorer combines all views of two readers.
  if (long_form()) {
    expect_holds(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a'), gets('a')}));
  }
  expect_holds(Memory::kTotalStoreOrder, store(1, "a",
                                               [](StoreWorld& world) {
                                                 world.store->remove("a");
                                                 world.store->reclaim();
                                               },
                                               {gets('a'), gets('a')}));
  expect_holds(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a'), gets('b')}));
}

TEST(StoreModel, AReaderThatDiesAtAnyStepHarmsNobody) {
  expect_holds(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a')}, true));
  if (!long_form()) return;
  expect_holds(Memory::kPartialStoreOrder, store(1, "a", remove_and_reuse, {gets('a')}, true));
}

TEST(StoreModel, AReplacedObjectIsReadOldOrNewAndNeverMissed) {
  expect_holds(store(2, "a", replace_and_reuse, {always_gets('a')}));
  expect_holds(Memory::kTotalStoreOrder,
               store(2, "a", replace_and_reuse, {always_gets('a'), gets('b')}));
}

TEST(StoreModel, AReplacementIsNeverUndoneForAReader) {
  expect_holds(store(2, "a", [](StoreWorld& world) { world.put('a', true); },
                     {[](StoreWorld& world, unsigned number) {
                       const std::uint64_t first = world.get(number, 'a');
                       const std::uint64_t second = world.get(number, 'a');
                       expect(first != 0 && first <= second, "the old object does not come back");
                     }}));
}

TEST(StoreModel, AnObjectThatIsMovedIsReadAtEitherPlace) {
  expect_holds(store(2, "a",
                     [](StoreWorld& world) {
                       world.store->pool().let_leave(0);
                       world.store->resize(0);
                       world.store->tick(0);
                       world.put('b');
                     },
                     {always_gets('a')}));
}

TEST(StoreMutant, AReclaimWithoutFenceIsFound) {
  expect_found(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a')}),
               {{"check", Kind::kFence, Action::kSkip}});
}

TEST(StoreMutant, APinWithoutFenceIsFound) {
  expect_found(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a')}),
               {{"set_pin", Kind::kFence, Action::kSkip}});
}

TEST(StoreMutant, AReclaimThatDoesNotLookAtPinsIsFound) {
  expect_found(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a')}),
               {{"collect_pins", Kind::kLoad, Action::kZero}});
}

TEST(StoreMutant, AReaderThatDoesNotPinIsFound) {
  expect_found(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a')}),
               {{"set_pin", Kind::kStore, Action::kSkip}});
}

TEST(StoreMutant, AReaderThatDoesNotCheckTheVersionAgainIsFound) {
  expect_found(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a')}),
               {{"probe_entry", Kind::kLoad, Action::kStale, Mutation::Of::kRelaxed}});
}

TEST(StoreMutant, AnEndThatDoesNotChangeTheVersionIsFound) {
  expect_found(Memory::kTotalStoreOrder, store(1, "a", remove_and_reuse, {gets('a')}),
               {{"set_state", Kind::kStore, Action::kSkip}});
}

TEST(StoreMutant, AnObjectPublishedBeforeItsFieldsIsFound) {
  // The reader uses a slot that named the entry's previous object, of the same key.
  expect_found(Memory::kPartialStoreOrder,
               store(1, "a",
                     [](StoreWorld& world) {
                       world.store->remove("a");
                       world.put('a');
                     },
                     {gets('a')}),
               {{"publish_new", Kind::kStore, Action::kRelax}});
}

TEST(StoreMutant, AMissInAnEntryThatWasReusedIsFound) {
  expect_found(Memory::kTotalStoreOrder,
               store(2, "a", replace_and_reuse, {[](StoreWorld& world, unsigned) {
                       // A reader that treats an entry of another key as a mismatch.
                       const std::uint64_t hash = hash_key("a", 1, world.reader.hash_seed());
                       const auto& header = world.reader.header();
                       const auto& table = header.tables[header.generation.load_relaxed() & 1];
                       const auto* buckets = reinterpret_cast<const shm::Bucket*>(
                           world.store->index().file().base() + table.offset_bytes.load_relaxed());
                       const auto& home =
                           buckets[shm::home_bucket(hash, table.bucket_count.load_relaxed())];
                       const std::uint64_t slot = home.slots[0].load_acquire();
                       const shm::Entry& entry =
                           world.reader.entry(static_cast<std::uint32_t>(slot & 0xffffffffu) - 1);
                       const std::uint64_t version = entry.version.load_acquire();
                       if (shm::state_of(version) != shm::EntryState::kLive) return;
                       const bool match = entry.hash.load_relaxed() == hash;
                       const bool unchanged = entry.version.load_relaxed() == version;
                       expect(match || !unchanged, "a present key is never missed");
                     }}));
}

TEST(StoreMutant, AReplacementThatEndsTheOldObjectFirstIsFound) {
  expect_found(Memory::kTotalStoreOrder, store(2, "a",
                                               [](StoreWorld& world) {
                                                 world.store->remove("a");
                                                 world.put('a');
                                               },
                                               {always_gets('a')}));
}

TEST(StoreMutant, APinReleasedBeforeTheCopyIsFound) {
  expect_found(Memory::kTotalStoreOrder,
               store(1, "a", remove_and_reuse, {[](StoreWorld& world, unsigned number) {
                       shm::FoundObject found;
                       const std::uint64_t hash = hash_key("a", 1, world.reader.hash_seed());
                       if (!world.reader.find("a", 1, hash, &world.pins[number], found)) return;
                       shm::clear_pin(world.pins[number]);
                       std::uint64_t word = 0;
                       model_memcpy(&word, world.store->pool().data() + found.extent, sizeof word);
                       expect(word == found.checksum,
                              "a reader reads the bytes of the object it found");
                     }}));
}

}  // namespace
}  // namespace mc::model
