// SPDX-License-Identifier: Apache-2.0
#include "shm/messages.h"

namespace mc::shm {

[[gnu::hot]] std::optional<Request> decode_request(const RecordWords& words) {
  const auto request = std::bit_cast<Request>(words);
  if (request.op > kLastOp || (request.flags & ~kKnownFlags) != 0 ||
      request.item_count > MC_MAX_BATCH_ITEMS || request.argument_offset % 8 != 0 ||
      request.argument_offset > kArgumentBytes ||
      request.argument_bytes > kArgumentBytes - request.argument_offset) {
    return std::nullopt;
  }
  const auto op = static_cast<Op>(request.op);
  if (!has_items(op)) return request;
  if (request.item_count == 0) return std::nullopt;
  const std::uint64_t least =
      op == Op::kReserve
          ? std::uint64_t{request.item_count} * sizeof(ReservedItem)
          : result_bytes(request.item_count) + std::uint64_t{request.item_count} * sizeof(PutItem);
  if (request.argument_bytes < least) return std::nullopt;
  return request;
}

std::optional<Completion> decode_completion(const RecordWords& words) {
  auto completion = std::bit_cast<Completion>(words);
  if (completion.item_count > MC_MAX_BATCH_ITEMS) return std::nullopt;
  completion.status = known_status(completion.status);
  completion.first.status = known_status(completion.first.status);
  return completion;
}

[[gnu::hot]] bool ArgumentReader::next(Item& item) {
  const auto left = static_cast<std::size_t>(end_ - at_);
  if (left < sizeof(PutItem)) return false;
  std::memcpy(&item.fields, at_, sizeof(PutItem));
  const std::size_t key_bytes = item.fields.key_bytes;
  const std::size_t stride = sizeof(PutItem) + padded_key_bytes(item.fields.key_bytes);
  if (key_bytes > MC_MAX_KEY_BYTES || left < stride) return false;
  std::memcpy(item.key, at_ + sizeof(PutItem), key_bytes);
  at_ += stride;
  return true;
}

}  // namespace mc::shm
