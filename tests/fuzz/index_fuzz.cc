// SPDX-License-Identifier: Apache-2.0
//
// A reader of a damaged index: a valid index with some words replaced. The reader may miss. The
// reader must not read outside the file, return ranges outside the file, or loop for ever.
#include <memory>

#include "agent/pool/object_store.h"
#include "bytes.h"
#include "shm/index_reader.h"

namespace {

constexpr std::uint64_t kObjects = 64;

// Short keys are in their entries, long keys in separate records.
std::string key_of(std::uint64_t i) {
  return "key-" + std::to_string(i) + std::string(i % 3 == 0 ? mc::shm::kShortKeyBytes : 0, '.');
}

// A small index with objects, copied from an agent into memory of exactly the same size.
struct Image {
  Image() {
    mc::agent::ObjectStore::Config config;
    config.pool_bytes = config.max_pool_bytes = 1 << 20;
    store = std::move(*mc::agent::ObjectStore::create(config, [](std::vector<std::uint64_t>&) {}));
    while (store->pool().growing()) store->pool().on_chunk();
    for (std::uint64_t i = 0; i < kObjects; ++i) {
      std::uint32_t entry = 0;
      mc::fuzz::require(store->reserve(1, 256 + i * 16, true, entry) ==
                        mc::agent::ObjectStore::Reserve::kOk);
      mc::agent::PutOrder order;
      const std::string key = key_of(i);
      order.key = key;
      order.entry = entry;
      order.length = 200 + i * 16;
      mc::fuzz::require(store->publish(1, order) == mc::agent::ObjectStore::Put::kStored);
    }
    const auto& file = store->index().file();
    bytes = file.size_bytes();
    mc::fuzz::require(file.reserve(0, bytes).ok());  // all of it is copied below
    mapping = *mc::Mapping::map_all(file, mc::Mapping::Access::kRead);
    const auto reader = mc::shm::IndexReader::open(mapping.data(), bytes);
    mc::fuzz::require(reader.has_value());
    const auto& header = reader->header();
    seed = header.hash_seed;
    table = header.tables[header.generation.load_relaxed() & 1].offset_bytes.load_relaxed();
    entries = header.entries_offset;
    keys = header.keys_offset;
    constexpr std::uintptr_t kAlign = alignof(mc::shm::Entry);
    copy = std::make_unique<std::byte[]>(bytes + kAlign);
    base = copy.get() + (kAlign - reinterpret_cast<std::uintptr_t>(copy.get()) % kAlign) % kAlign;
    std::memcpy(base, mapping.data(), bytes);
  }
  std::unique_ptr<mc::agent::ObjectStore> store;
  mc::Mapping mapping;
  std::uint64_t bytes = 0, seed = 0, table = 0, entries = 0, keys = 0;
  std::unique_ptr<std::byte[]> copy;
  std::byte* base = nullptr;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Image* const image = new Image;
  mc::fuzz::Bytes bytes(data, size);
  std::uint64_t touched[32];
  std::size_t count = 0;
  while (!bytes.empty() && count < std::size(touched)) {
    const std::uint64_t bases[] = {0, image->table, image->entries, image->keys};
    const std::uint64_t spans[] = {4096, 4096, kObjects * sizeof(mc::shm::Entry), 4096};
    const std::uint32_t part = bytes.below(4);
    const std::uint64_t at =
        bases[part] + bytes.below(static_cast<std::uint32_t>(spans[part])) / 8 * 8;
    if (at + 8 > image->bytes) continue;
    std::uint64_t word = bytes.take<std::uint64_t>();
    // Small changes reach deeper code than random values.
    if (bytes.take<std::uint8_t>() % 2 == 0) {
      std::uint64_t now = 0;
      std::memcpy(&now, image->base + at, 8);
      word = now + (word % 65) - 32;
    }
    std::memcpy(image->base + at, &word, 8);
    touched[count++] = at;
  }
  auto reader = mc::shm::IndexReader::open(image->base, image->bytes);
  if (reader) {
    reader->set_pool(image->base, image->bytes);  // any memory will do: the reader does not read it
    for (std::uint64_t i = 0; i < kObjects; i += 7) {
      const std::string key = key_of(i);
      mc::shm::FoundObject found;
      mc::shm::Word64 pin;
      const std::uint64_t hash = image->store->index().hash(key);
      reader->prefetch(hash);
      if (!reader->find(key.data(), key.size(), hash, &pin, found, 256)) {
        mc::fuzz::require(pin.load_relaxed() == 0);
        continue;
      }
      mc::shm::ExtentRecord extents[MC_MAX_EXTENTS];
      mc::fuzz::require(reader->extents(found, extents) <= MC_MAX_EXTENTS);
      static_cast<void>(reader->holds(found.entry, mc::shm::sequence_of(found.version)));
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(image->base + touched[i], image->mapping.data() + touched[i], 8);
  }
  return 0;
}
