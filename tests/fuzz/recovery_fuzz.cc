// SPDX-License-Identifier: Apache-2.0
//
// Taking over the files of an agent that died: true ones with some words replaced. Whatever is in
// them, the new store's ledger is right and it goes on working.
#include "agent/pool/store.h"
#include "bytes.h"
#include "ledger.h"
#include "shm/atomic.h"

namespace {

using mc::fuzz::require;
using Store = mc::agent::Store;

constexpr std::uint64_t kPoolBytes = 256 * 1024;
constexpr std::uint64_t kPart = 4096;

Store::Config config_of() {
  Store::Config config;
  config.pool_bytes = config.max_pool_bytes = kPoolBytes;
  return config;
}

void no_pins(std::vector<std::uint64_t>&) {}

void put(Store& store, std::uint32_t number, std::uint32_t group) {
  std::uint32_t entry = 0;
  if (store.reserve(7, 256 + number % 8 * 300, true, entry) != Store::Reserve::kOk) return;
  if (number % 9 == 8) return;  // stays reserved
  const std::string key = "key-" + std::to_string(number % 48);
  mc::agent::PutOrder order;
  order.key = key;
  order.entry = entry;
  order.length = 100 + number % 8 * 300;
  order.upsert = number % 2 == 0;
  order.group = group;
  order.pin = static_cast<mc_pin>(number % 3);
  order.pin_ttl_s = 60;
  order.parent_hash = number % 4 == 0 ? 0 : store.index().hash("key-" + std::to_string(number % 5));
  if (store.publish(7, order) != Store::Put::kStored) store.abandon(7, entry);
}

// What a store of many sizes, pins, groups and reservations leaves, as bytes.
struct Image {
  Image() {
    require(mc::shm::register_for_heavy_fences());
    auto store = std::move(*Store::create(config_of(), no_pins));
    while (store->pool().growing()) store->pool().on_chunk();
    for (std::uint32_t i = 0; i < 120; ++i) put(*store, i, i % 16 == 0 ? 1 + i / 16 : 0);
    auto& index = store->index();
    auto reader =
        mc::Mapping::map(index.file().fd(), index.file().size_bytes(), mc::Mapping::Access::kRead);
    size = index.file().size_bytes();
    pool_size = store->pool().file().size_bytes();
    const auto& header = index.header();
    const std::uint64_t table =
        header.tables[header.generation.load_relaxed() & 1].offset_bytes.load_relaxed();
    const std::uint64_t offsets[] = {0, table, header.entries_offset, header.entries_offset + kPart,
                                     header.keys_offset};
    for (const std::uint64_t offset : offsets) {
      parts.push_back({offset, std::vector<std::byte>(reader->data() + offset,
                                                      reader->data() + offset + kPart)});
    }
  }
  struct Part {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };
  std::uint64_t size = 0;
  std::uint64_t pool_size = 0;
  std::vector<Part> parts;
};

void damage(mc::Mapping& mapping, const Image& image, mc::fuzz::Bytes& bytes) {
  for (int i = 0; i < 24 && !bytes.empty(); ++i) {
    const auto& part = image.parts[bytes.below(5)];
    const std::uint64_t at = part.offset + bytes.below(kPart) / 8 * 8;
    std::uint64_t word = 0;
    std::memcpy(&word, mapping.data() + at, 8);
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
      default:  // another word of the same part: plausible, and in the wrong place
        std::memcpy(&word, mapping.data() + part.offset + bytes.below(kPart) / 8 * 8, 8);
    }
    std::memcpy(mapping.data() + at, &word, 8);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Image* const image = new Image;
  mc::fuzz::Bytes bytes(data, size);
  auto index = mc::MemoryFile::create("fuzz-index", image->size);
  auto pool = mc::MemoryFile::create("fuzz-pool", image->pool_size);
  require(index && pool);
  {
    auto mapping = *mc::Mapping::map(index->fd(), image->size, mc::Mapping::Access::kReadWrite);
    for (const auto& part : image->parts) {
      std::memcpy(mapping.data() + part.offset, part.bytes.data(), kPart);
    }
    damage(mapping, *image, bytes);
  }
  auto store = Store::recover(config_of(), no_pins, std::move(*index), std::move(*pool),
                              [](std::uint64_t session) { return session == 7; });
  if (!store) return 0;
  mc::fuzz::check_ledger(**store);
  for (std::uint32_t i = 0; i < 16 && !bytes.empty(); ++i) put(**store, bytes.below(200), 0);
  static_cast<void>((*store)->remove("key-3"));
  (*store)->tick(1);
  mc::fuzz::check_ledger(**store);
  return 0;
}
