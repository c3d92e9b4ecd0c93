// SPDX-License-Identifier: Apache-2.0
//
// Answers of etcd's JSON gateway: any status with any body. Decoded values are within the contract.
#include "bytes.h"
#include "metadata/store/checks.h"
#include "metadata/store/etcd/base64.h"
#include "metadata/store/etcd/etcd_answer.h"

namespace {

using mc::fuzz::require;

void check_entry(const mc::metadata::Entry& entry) {
  require(mc::metadata::check_write(entry.key, entry.value).ok() && entry.revision != 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mc::fuzz::Bytes input(data, size);
  constexpr long kStatuses[] = {200, 200, 400, 401, 404, 503};
  mc::metadata::HttpAnswer answer;
  answer.status = kStatuses[input.take<std::uint8_t>() % std::size(kStatuses)];
  answer.body = input.text(input.left());
  static_cast<void>(mc::metadata::is_stale_token(answer));
  static_cast<void>(mc::metadata::decode_etcd_ok(answer).ok());
  if (const auto token = mc::metadata::decode_etcd_token(answer)) {
    require(token->find('\n') == std::string::npos);
  }
  if (const auto listing = mc::metadata::decode_etcd_range(answer, "mc/c/")) {
    for (const auto& entry : *listing) check_entry(entry);
  }
  if (const auto revision = mc::metadata::decode_etcd_put(answer)) require(*revision != 0);
  if (const auto swap = mc::metadata::decode_etcd_swap(answer)) {
    require(!swap->applied || swap->revision != 0);
  }
  static_cast<void>(mc::metadata::decode_etcd_deleted(answer));
  static_cast<void>(mc::metadata::decode_etcd_succeeded(answer));
  if (const auto lease = mc::metadata::decode_etcd_grant(answer)) {
    require(lease->id != 0 && lease->ttl_ms != 0);
  }
  static_cast<void>(mc::metadata::decode_etcd_keep_alive(answer));
  if (const auto bytes = mc::metadata::from_base64(answer.body)) {
    require(mc::metadata::from_base64(mc::metadata::base64(*bytes)) == bytes);
  }
  require(mc::metadata::from_base64(mc::metadata::base64(answer.body)) == answer.body);
  return 0;
}
