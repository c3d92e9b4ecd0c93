// SPDX-License-Identifier: Apache-2.0
//
// A ring record and its arguments, both arbitrary. An accepted request keeps the promises that the
// server relies on, and the reader stays inside the arena.
#include <memory>

#include "bytes.h"
#include "shm/messages.h"

using mc::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mc::shm;
  mc::fuzz::Bytes bytes(data, size);
  RecordWords words{};
  bytes.fill(words.data(), sizeof words);
  const auto request = decode_request(words);
  static_cast<void>(decode_completion(words));
  if (!request) return 0;
  require(request->op <= kLastOp && request->item_count <= MC_MAX_BATCH_ITEMS);
  require(std::uint64_t{request->argument_offset} + request->argument_bytes <= kArgumentBytes);
  const auto op = static_cast<Op>(request->op);
  if (!has_items(op) || op == Op::kReserve) return 0;
  // Exactly the memory that the request names, so that the sanitizer sees a step beyond.
  const std::size_t arena_bytes = request->argument_offset + request->argument_bytes;
  auto arena = std::make_unique<unsigned char[]>(arena_bytes);
  const std::size_t begin = request->argument_offset + result_bytes(request->item_count);
  require(begin <= arena_bytes);
  bytes.fill(arena.get() + begin, arena_bytes - begin);
  ArgumentReader reader(arena.get(), *request);
  ArgumentReader::Item item;
  std::size_t walked = 0;
  while (reader.next(item)) {
    require(item.fields.key_bytes <= MC_MAX_KEY_BYTES);
    walked += sizeof(PutItem) + padded_key_bytes(item.fields.key_bytes);
    require(walked <= arena_bytes - begin);
  }
  return 0;
}
