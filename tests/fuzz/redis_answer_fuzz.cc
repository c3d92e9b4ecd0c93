// SPDX-License-Identifier: Apache-2.0
//
// Replies of a Redis server or a sentinel: any bytes, in any pieces, through hiredis' reader and
// every decoder. A reply is bounded, and decoded values are within the contract.
#include "bytes.h"
#include "metadata/store/checks.h"
#include "metadata/store/redis/redis_answer.h"

namespace {

using mc::fuzz::require;
using mc::metadata::Entry;
using mc::metadata::Reply;

std::size_t count_of(const Reply& reply) {
  std::size_t count = 1;
  for (const Reply& item : reply.items) count += count_of(item);
  return count;
}

void check_entry(const Entry& entry) {
  require(entry.value.size() <= mc::metadata::kMaxStoreValueBytes && entry.revision != 0);
}

void decode(const Reply& reply) {
  require(count_of(reply) <= mc::metadata::kMaxReplyItems);
  require(!mc::metadata::decode_redis_error(reply).ok());
  static_cast<void>(mc::metadata::is_no_script(reply));
  static_cast<void>(mc::metadata::decode_redis_ok(reply).ok());
  static_cast<void>(mc::metadata::decode_redis_number(reply));
  if (const auto entry = mc::metadata::decode_redis_entry(reply)) check_entry(*entry);
  if (const auto swap = mc::metadata::decode_redis_swap(reply)) {
    require(!swap->applied || swap->revision != 0);
  }
  if (const auto listing = mc::metadata::decode_redis_listing(reply)) {
    for (const Entry& entry : *listing) {
      check_entry(entry);
      require(mc::metadata::check_key(entry.key).ok());
    }
  }
  static_cast<void>(mc::metadata::decode_redis_replication(reply));
  if (const auto master = mc::metadata::decode_redis_master(reply)) require(!master->host.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mc::fuzz::Bytes input(data, size);
  const std::size_t piece = 1 + input.below(4096);
  mc::metadata::ReplyReader reader;
  while (!input.empty()) {
    if (!reader.feed(input.text(piece)).ok()) return 0;
    for (;;) {
      const auto reply = reader.next();
      if (!reply) return 0;
      if (!*reply) break;
      decode(**reply);
    }
  }
  return 0;
}
