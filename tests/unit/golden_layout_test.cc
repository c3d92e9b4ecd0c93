// SPDX-License-Identifier: Apache-2.0
//
// The index file of layout version 2, byte by byte. Today's structs make these bytes, and today's
// reader and agent understand these bytes. If one of these tests fails, a layout has changed: give
// the layout a new kLayoutVersion and a new golden file (tests/golden/README.md), and keep the old
// file unchanged.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "agent/pool/object_store.h"
#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"
#include "libmc/base/hash.h"
#include "shm/index_reader.h"
#include "shm/layout.h"
#include "unit/golden_file.h"

namespace mc {
namespace {

static_assert(shm::kLayoutVersion == 2, "a new version: add its golden file and its tests");

// The file: a header, two tables of 2 MiB, room for 8 entries, then keys; all at multiples of 2
// MiB.
constexpr std::uint64_t kTwoMiB = 2u << 20;
constexpr std::uint64_t kMaxEntries = 8, kBuckets = 2, kEntryCount = 4;
constexpr std::uint64_t kEntriesAt = 3 * kTwoMiB, kKeysAt = 4 * kTwoMiB;
constexpr std::uint64_t kKeysBytes = kMaxEntries * 2048 + (16u << 20);
constexpr std::uint64_t kFileBytes = kKeysAt + kKeysBytes;
constexpr std::uint64_t kPartBytes[] = {kTwoMiB, kTwoMiB, kTwoMiB, kTwoMiB, kKeysBytes};
constexpr std::uint64_t kSlabBytes = 64 * 1024;  // of records of one size, in the key heap
constexpr std::uint64_t kSeed = 0x0123456789abcdef, kSession = 0x77;
constexpr std::uint64_t kPoolBytes = 1u << 20, kPoolMaxBytes = 2u << 20;
constexpr std::string_view
    kParent = "golden/parent",
    kGone = "golden/gone",
    kChild = "golden/child, with a key that is longer than the line beside its entry";
static_assert(kChild.size() > shm::kShortKeyBytes);
constexpr shm::ExtentRecord kChildExtents[2] = {{0x1000, 512}, {0x2000, 256}};

struct Section {
  const char* name;
  std::uint64_t offset, bytes;
};
constexpr Section kSections[] = {{"header", 0, sizeof(shm::IndexHeader)},
                                 {"table", kTwoMiB, kBuckets * sizeof(shm::Bucket)},
                                 {"entries", kEntriesAt, kMaxEntries * sizeof(shm::Entry)},
                                 {"keys", kKeysAt, 80},
                                 {"extents", kKeysAt + kSlabBytes, 32}};

std::uint64_t hash_of(std::string_view key) { return hash_key(key.data(), key.size(), kSeed); }

// A memory file with room for the sections.
struct IndexFile {
  IndexFile() {
    auto made = MemoryFile::create_growing("golden-index", kPartBytes);
    file = std::move(made.value());
    for (const Section& section : kSections) {
      EXPECT_TRUE(file.reserve(section.offset, shm::kPageBytes).ok());
    }
    mapping = std::move(Mapping::map_all(file, Mapping::Access::kReadWrite).value());
  }
  std::span<std::byte> section(const Section& part) const {
    return {mapping.data() + part.offset, part.bytes};
  }
  MemoryFile file;
  Mapping mapping;
};

IndexFile golden_index() {
  IndexFile index;
  const golden::Sections sections = golden::read("index-v2.txt");
  EXPECT_EQ(sections.size(), std::size(kSections));
  for (const Section& part : kSections) {
    const auto found = sections.find(part.name);
    if (found == sections.end() || found->second.size() != part.bytes) {
      ADD_FAILURE() << "no section [" << part.name << "] of " << part.bytes << " bytes";
      continue;
    }
    std::memcpy(index.section(part).data(), found->second.data(), part.bytes);
  }
  return index;
}

void write_header(shm::IndexHeader& header) {
  header.file = shm::make_header(shm::FileKind::kIndex, kFileBytes, 0x1111, 0x2222);
  header.hash_seed = kSeed;
  header.table_offset[0] = kTwoMiB;
  header.table_offset[1] = 2 * kTwoMiB;
  header.table_max_bytes = kTwoMiB;
  header.entries_offset = kEntriesAt;
  header.max_entries = kMaxEntries;
  header.keys_offset = kKeysAt;
  header.max_keys_bytes = kKeysBytes;
  header.capacity_bytes = 0x80000;
  header.isolated = 1;
  std::strcpy(header.policy, "prefix");
  header.generation.store_relaxed(6);
  header.tables[0].offset_bytes.store_relaxed(kTwoMiB);
  header.tables[0].bucket_count.store_relaxed(kBuckets);
  header.pool_bytes.store_relaxed(kPoolBytes);
  header.pool_max_bytes.store_relaxed(kPoolMaxBytes);
  header.arena_count.store_relaxed(1);
  header.next_sequence.store_relaxed(0x50);
  header.committing_group.store_relaxed(0x61);
  header.entry_count.store_relaxed(kEntryCount);
  header.agent_incarnation.store_relaxed(0x2223);
  header.keys_reserved_bytes.store_relaxed(2 * kSlabBytes);
  header.arena_bytes[0].store_relaxed(kPoolBytes);
  header.publishing_entry.store_relaxed(3);
  header.publishing_session.store_relaxed(kSession);
}

void write_entry(const IndexFile& index, std::uint32_t id, std::uint64_t version,
                 std::string_view key, shm::KeyField field, std::uint64_t extent,
                 std::uint64_t length) {
  auto& entry = reinterpret_cast<shm::Entry*>(index.mapping.data() + kEntriesAt)[id];
  entry.version.store_relaxed(version);
  entry.extent.store_relaxed(extent);
  entry.length.store_relaxed(length);
  entry.hash.store_relaxed(key.empty() ? kSession : hash_of(key));
  field.key_bytes = static_cast<std::uint16_t>(key.size());
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  if (key.empty()) return;
  entry.checksum.store_relaxed(checksum(hash_of(key), "golden", 6));
  std::byte* record = index.mapping.data() + kKeysAt + field.record * shm::kRecordUnitBytes;
  std::memcpy(key.size() <= shm::kShortKeyBytes ? static_cast<void*>(entry.short_key) : record,
              key.data(), key.size());
}

// The child's extents are in the key heap, the parent's extents in the parent's entry. Entry 2 is a
// reservation whose publication has begun. Entry 3 is a removed object.
IndexFile written_index() {
  using shm::EntryState;
  IndexFile index;
  write_header(*reinterpret_cast<shm::IndexHeader*>(index.mapping.data()));
  write_entry(index, 0, shm::make_version(0x41, EntryState::kLive), kParent, {0, 0, 1, MC_PIN_SOFT},
              0x4000, 300);
  write_entry(index, 1, shm::make_version(0x42, EntryState::kLive), kChild, {0, 0, 2, MC_PIN_HARD},
              kSlabBytes / shm::kRecordUnitBytes, 700);
  write_entry(index, 2, shm::make_version(0x43, EntryState::kReserved), "", {0, 0, 1, MC_PIN_NONE},
              0x8000, 256);
  write_entry(index, 3, shm::make_version(0x44, EntryState::kLimbo), kGone, {0, 0, 1, MC_PIN_NONE},
              0xc000, 100);
  auto* entries = reinterpret_cast<shm::Entry*>(index.mapping.data() + kEntriesAt);
  entries[0].attributes.store_relaxed(
      std::bit_cast<std::uint64_t>(shm::AttributeField{90000, 0x31}));
  entries[1].parent_hash.store_relaxed(hash_of(kParent));
  std::memcpy(index.mapping.data() + kKeysAt + kSlabBytes, kChildExtents, sizeof kChildExtents);
  auto* buckets = reinterpret_cast<shm::Bucket*>(index.mapping.data() + kTwoMiB);
  std::uint32_t id = 0;
  for (const std::string_view key : {kParent, kChild}) {
    shm::Bucket& bucket = buckets[shm::home_bucket(hash_of(key), kBuckets)];
    const std::uint32_t hint = id == 0 ? 0x4000 / shm::kHintUnitBytes : 0xffffffff;
    bucket.slots[id].store_relaxed(shm::slot_value(hash_of(key), id, hint));
    bucket.granules[id].store_relaxed(static_cast<std::uint16_t>(hint >> 16));
    ++id;
  }
  return index;
}

TEST(GoldenIndex, TodaysStructsMakeTheBytesOfVersionTwo) {
  const IndexFile wanted = golden_index(), made = written_index();
  for (const Section& part : kSections) {
    EXPECT_EQ(golden::to_text(wanted.section(part)), golden::to_text(made.section(part)))
        << "made today:\n"
        << golden::section_text(part.name, made.section(part));
  }
}

TEST(GoldenIndex, AReaderFindsTheObjectsOfAFileOfVersionTwo) {
  const IndexFile index = golden_index();
  const auto reader = shm::IndexReader::open(index.mapping.data(), kFileBytes);
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->hash_seed(), 0x0123456789abcdefu);
  shm::FoundObject found;
  shm::ExtentRecord extents[MC_MAX_EXTENTS];
  ASSERT_TRUE(reader->find(kParent.data(), kParent.size(), hash_of(kParent), nullptr, found));
  EXPECT_EQ(found.entry, 0u);
  EXPECT_EQ(found.version, 0x4102u);
  EXPECT_EQ(found.length, 300u);
  EXPECT_EQ(found.checksum, checksum(hash_of(kParent), "golden", 6));
  EXPECT_EQ(found.key.pin, MC_PIN_SOFT);
  ASSERT_EQ(reader->extents(found, extents), 1u);
  EXPECT_EQ(extents[0].offset_bytes, 0x4000u);
  ASSERT_TRUE(reader->find(kChild.data(), kChild.size(), hash_of(kChild), nullptr, found));
  EXPECT_EQ(found.entry, 1u);
  EXPECT_EQ(reader->entry(1).parent_hash.load_relaxed(), hash_of(kParent));
  ASSERT_EQ(reader->extents(found, extents), 2u);
  EXPECT_EQ(extents[1].offset_bytes, 0x2000u);
  EXPECT_EQ(extents[1].length_bytes, 188u) << "what is left of 700 bytes";
  EXPECT_FALSE(reader->find(kGone.data(), kGone.size(), hash_of(kGone), nullptr, found));
}

// Files of earlier agents have 0 here.
TEST(GoldenIndex, AReaderFindsNothingAfterTheEndOfTheLease) {
  const IndexFile index = golden_index();
  const auto reader = shm::IndexReader::open(index.mapping.data(), kFileBytes);
  ASSERT_TRUE(reader);
  auto& until_ns = reinterpret_cast<shm::IndexHeader*>(index.mapping.data())->readable_until_ns;
  const auto finds = [&] {
    shm::FoundObject found;
    return reader->find(kParent.data(), kParent.size(), hash_of(kParent), nullptr, found);
  };
  EXPECT_EQ(until_ns.load_relaxed(), shm::kNoLeaseNeeded);
  EXPECT_TRUE(finds());
  until_ns.store_relaxed(now_ns() + 3600 * 1'000'000'000ull);
  EXPECT_TRUE(finds());
  until_ns.store_relaxed(now_ns());
  EXPECT_FALSE(finds());
  until_ns.store_relaxed(shm::kLeaseIsOver);
  EXPECT_FALSE(finds());
}

// The slot's hint at the place of the bytes is only used to prefetch, and decides nothing.
TEST(GoldenIndex, AReaderFindsAnObjectWhateverItsSlotSaysOfItsPlace) {
  const IndexFile index = golden_index();
  auto reader = shm::IndexReader::open(index.mapping.data(), kFileBytes);
  ASSERT_TRUE(reader);
  auto* buckets = reinterpret_cast<shm::Bucket*>(index.mapping.data() + kTwoMiB);
  shm::Bucket& bucket = buckets[shm::home_bucket(hash_of(kParent), kBuckets)];
  const std::vector<std::byte> pool(kPoolBytes);
  reader->set_pool(pool.data(), pool.size());
  for (const std::uint32_t hint : {0u, 1u, 0xfffu, 0x1000u, 0x80000000u, 0xffffffffu}) {
    bucket.granules[0].store_relaxed(static_cast<std::uint16_t>(hint >> 16));
    bucket.slots[0].store_relaxed(shm::slot_value(hash_of(kParent), 0, hint));
    for (const std::uint64_t ahead_bytes : {0u, 1u, 64u, 512u, 4096u}) {
      shm::FoundObject found;
      ASSERT_TRUE(reader->find(kParent.data(), kParent.size(), hash_of(kParent), nullptr, found,
                               ahead_bytes));
      EXPECT_EQ(found.extent, 0x4000u);
    }
  }
}

TEST(GoldenIndex, AnAgentRecoversTheObjectsOfAFileOfVersionTwo) {
  IndexFile index = golden_index();
  auto pool = MemoryFile::create_growing("golden-pool", {&kPoolMaxBytes, 1});
  ASSERT_TRUE(pool);
  agent::ObjectStore::Config config;
  config.pool_bytes = kPoolBytes;
  config.max_pool_bytes = kPoolMaxBytes;
  config.policy = "prefix";
  auto store = agent::ObjectStore::recover(
      config, [](std::vector<std::uint64_t>&) {}, std::move(index.file), std::move(*pool),
      [](std::uint64_t session) { return session == kSession; });
  ASSERT_TRUE(store) << store.error().to_string();
  std::uint64_t cursor = 0;
  const std::vector<agent::ListedObject> objects = (*store)->list("golden/", 10, cursor);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].key, kParent);
  EXPECT_EQ(objects[0].version, 0x41u);
  EXPECT_EQ(objects[0].group, 0x31u);
  EXPECT_EQ(objects[0].pin, MC_PIN_SOFT);
  EXPECT_EQ(objects[1].key, kChild);
  EXPECT_EQ(objects[1].length, 700u);
  EXPECT_EQ(objects[1].extent_count, 2u);
  EXPECT_EQ(objects[1].pin, MC_PIN_HARD);
  EXPECT_EQ((*store)->counters().set_aside, 0u);
  EXPECT_EQ((*store)->limbo_count(), 1u);
  const auto reservations = (*store)->take_recovered_reservations();
  ASSERT_EQ(reservations.size(), 1u);
  EXPECT_EQ(reservations[0].session_id, kSession);
  EXPECT_EQ(reservations[0].entry, 2u);
  EXPECT_GE((*store)->index().next_sequence(), 0x50u);
}

TEST(GoldenIndex, AFileOfAnotherVersionIsRefused) {
  const IndexFile index = golden_index();
  auto* header = reinterpret_cast<shm::FileHeader*>(index.mapping.data());
  header->layout_version = 1;
  EXPECT_FALSE(shm::IndexReader::open(index.mapping.data(), kFileBytes));
}

}  // namespace
}  // namespace mc
