// SPDX-License-Identifier: Apache-2.0
#include "agent/server/work.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kDefaultSoftPinS = 3600;

}  // namespace

[[gnu::hot]] PutOrder Work::order_of(const shm::ArgumentReader::Item& item,
                                     const shm::Request& request) {
  PutOrder order;
  order.key = {reinterpret_cast<const char*>(item.key), item.fields.key_bytes};
  order.entry = item.fields.entry;
  order.length = item.fields.length;
  order.checksum = item.fields.checksum;
  order.parent_hash = item.fields.parent_hash;
  order.pin = item.fields.pin <= MC_PIN_HARD ? static_cast<mc_pin>(item.fields.pin) : MC_PIN_NONE;
  order.pin_ttl_s = item.fields.pin_ttl_s != 0 ? item.fields.pin_ttl_s : kDefaultSoftPinS;
  order.upsert = (request.flags & shm::kFlagUpsert) != 0;
  order.replicas = static_cast<std::uint8_t>(std::clamp(item.fields.replicas, 1u, 8u));
  return order;
}

[[gnu::hot]] bool Work::next_item() {
  if (has_item) return true;
  has_item = reader.next(item);
  const std::string_view key{reinterpret_cast<const char*>(item.key),
                             has_item ? item.fields.key_bytes : 0u};
  if (key.starts_with(shm::kStripePrefix)) has_item = false;
  return has_item;
}

[[gnu::hot]] void Work::finish_item(mc_status status, shm::ItemResult result) {
  result.status = status;
  if (status != MC_OK && first_failure == MC_OK) first_failure = status;
  last = result;
  if (request.item_count > 1) {
    auto* arguments = session->channels[channel].shared->arguments;
    std::memcpy(arguments + request.argument_offset + next * sizeof result, &result, sizeof result);
  }
  ++next;
  has_item = false;
  begun_ns = 0;
  elsewhere = {};
}

void Work::override_result(const RemoteRequest::Item& changed) {
  if (first_failure == MC_OK) first_failure = changed.status;
  if (request.item_count == 1) {
    last.status = changed.status;
    return;
  }
  const std::int32_t status = changed.status;
  auto* arguments = session->channels[channel].shared->arguments;
  std::memcpy(arguments + request.argument_offset + changed.number * sizeof(shm::ItemResult) +
                  offsetof(shm::ItemResult, status),
              &status, sizeof status);
}

bool Work::is_late() const { return now_ns() >= request.deadline_ns; }

bool Work::item_is_sound() const {
  const std::uint64_t staging_bytes = session->staging_bytes();
  const shm::PutItem& fields = item.fields;
  return fields.length > 0 && fields.length <= staging_bytes && fields.key_bytes > 0 &&
         fields.staging_offset <= staging_bytes - fields.length;
}

}  // namespace mc::agent
