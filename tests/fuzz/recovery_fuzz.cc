// SPDX-License-Identifier: Apache-2.0
//
// Recovery of a dead agent's files: valid files with some words replaced. For every input the new
// store's ledger is right and the store goes on working.
#include <fcntl.h>

#include "agent/pool/object_store.h"
#include "bytes.h"
#include "ledger.h"
#include "shm/atomic.h"

namespace {

using mc::fuzz::require;
using ObjectStore = mc::agent::ObjectStore;

constexpr std::uint64_t kPoolBytes = 256 * 1024;
constexpr std::uint64_t kPart = 4096;

ObjectStore::Config config_of() {
  ObjectStore::Config config;
  config.pool_bytes = config.max_pool_bytes = kPoolBytes;
  return config;
}

void no_pins(std::vector<std::uint64_t>&) {}

// Short keys are in their entries, long keys in separate records.
std::string key_of(std::uint32_t number) {
  const std::size_t more = number % 3 == 0 ? mc::shm::kShortKeyBytes : 0;
  return "key-" + std::to_string(number) + std::string(more, '.');
}

void put(ObjectStore& store, std::uint32_t number, std::uint32_t group) {
  std::uint32_t entry = 0;
  if (store.reserve(7, 256 + number % 8 * 300, true, entry) != ObjectStore::Reserve::kOk) return;
  if (number % 9 == 8) return;  // leaves the reservation open
  const std::string key = key_of(number % 14);
  mc::agent::PutOrder order;
  order.key = key;
  order.entry = entry;
  order.length = 100 + number % 8 * 300;
  order.upsert = number % 2 == 0;
  order.group = group;
  order.pin = static_cast<mc_pin>(number % 3);
  order.pin_ttl_s = 60;
  order.parent_hash = number % 4 == 0 ? 0 : store.index().hash(key_of(number % 5));
  if (store.publish(7, order) != ObjectStore::Put::kStored) store.abandon(7, entry);
}

// The files of a store with many sizes, pins, groups and reservations. The fuzzer creates the files
// once and restores the content before every input.
class Image {
 public:
  Image() {
    auto store = std::move(*ObjectStore::create(config_of(), no_pins));
    while (store->pool().growing()) store->pool().on_chunk();
    for (std::uint32_t i = 0; i < 36; ++i) put(*store, i, i % 8 == 0 ? 1 + i / 8 : 0);
    const auto& file = store->index().file();
    const auto reader = mc::Mapping::map_all(file, mc::Mapping::Access::kReadWrite);
    // The fuzzer reads and writes where the store has reserved nothing.
    for (std::uint64_t at :
         {store->index().header().table_offset[0], store->index().header().table_offset[1],
          store->index().header().entries_offset, store->index().header().keys_offset}) {
      require(file.reserve(at, 2 * kPart).ok());
    }
    const auto& header = store->index().header();
    const std::uint64_t table =
        header.tables[header.generation.load_relaxed() & 1].offset_bytes.load_relaxed();
    tables_ = header.table_offset[0];
    entries_ = header.entries_offset;
    keys_ = header.keys_offset;
    max_entries_ = header.max_entries;
    const std::uint64_t offsets[] = {0, table, entries_, entries_ + kPart, keys_};
    for (const std::uint64_t offset : offsets) {
      parts_.push_back({offset, std::vector<std::byte>(reader->data() + offset,
                                                       reader->data() + offset + kPart)});
    }
    index_ = std::move(
        *mc::MemoryFile::create_growing("fuzz-index", mc::agent::ObjectIndex::part_bytes(header)));
    pool_ = std::move(
        *mc::MemoryFile::create_growing("fuzz-pool", mc::agent::ExtentPool::part_bytes(header)));
    mapping_ = std::move(*mc::Mapping::map_all(index_, mc::Mapping::Access::kReadWrite));
    for (const Part& part : parts_) require(index_.reserve(part.offset, kPart).ok());
    require(index_.reserve(entries_, max_entries_ * sizeof(mc::shm::Entry)).ok());
  }

  // The pool's bytes stay unchanged: recovery does not read them.
  void restore() {
    require(index_.punch(tables_, entries_ - tables_).ok());
    require(index_.punch(keys_ + kPart, index_.size_bytes() - keys_ - kPart).ok());
    const auto& header = *reinterpret_cast<const mc::shm::IndexHeader*>(mapping_.data());
    const std::uint64_t touched =
        std::min(header.entry_count.load_relaxed(), max_entries_) * sizeof(mc::shm::Entry);
    if (touched > 2 * kPart) {
      std::memset(mapping_.data() + entries_ + 2 * kPart, 0, touched - 2 * kPart);
    }
    for (const Part& part : parts_) {
      std::memcpy(mapping_.data() + part.offset, part.bytes.data(), kPart);
    }
  }

  // Replaces some words.
  void damage(mc::fuzz::Bytes& bytes) {
    for (int i = 0; i < 24 && !bytes.empty(); ++i) {
      std::byte* const part = mapping_.data() + parts_[bytes.below(5)].offset;
      std::byte* const at = part + bytes.below(kPart) / 8 * 8;
      std::uint64_t word = 0;
      std::memcpy(&word, at, 8);
      switch (bytes.below(4)) {
        case 0:
          word = bytes.take<std::uint64_t>();
          break;
        case 1:
          word ^= std::uint64_t{1} << bytes.below(64);
          break;
        case 2:
          word += bytes.below(512) - 256ull;
          break;
        default:  // a plausible word of the same part, in the wrong place
          std::memcpy(&word, part + bytes.below(kPart) / 8 * 8, 8);
      }
      std::memcpy(at, &word, 8);
    }
  }

  mc::MemoryFile index() const { return another(index_); }
  mc::MemoryFile pool() const { return another(pool_); }

 private:
  struct Part {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };
  static mc::MemoryFile another(const mc::MemoryFile& file) { return std::move(*file.duplicate()); }

  std::uint64_t tables_ = 0, entries_ = 0, keys_ = 0, max_entries_ = 0;
  std::vector<Part> parts_;
  mc::MemoryFile index_, pool_;
  mc::Mapping mapping_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Image* const image = new Image;
  mc::fuzz::Bytes bytes(data, size);
  image->restore();
  image->damage(bytes);
  auto store = ObjectStore::recover(config_of(), no_pins, image->index(), image->pool(),
                                    [](std::uint64_t session) { return session == 7; });
  if (!store) return 0;
  mc::fuzz::check_ledger(**store);
  for (std::uint32_t i = 0; i < 16 && !bytes.empty(); ++i) put(**store, bytes.below(200), 0);
  static_cast<void>((*store)->remove("key-3"));
  (*store)->tick(1);
  mc::fuzz::check_ledger(**store);
  return 0;
}
