// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/checks.h"

#include <algorithm>

namespace mc::metadata {
namespace {

constexpr std::size_t kMaxQuotedBytes = 200;

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

bool id_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

Status check_cluster_id(std::string_view cluster_id) {
  if (cluster_id.empty() || cluster_id.size() > kMaxClusterIdBytes ||
      !std::all_of(cluster_id.begin(), cluster_id.end(), id_letter)) {
    return {MC_INVALID_ARGUMENT, "a cluster id is 1 to " + std::to_string(kMaxClusterIdBytes) +
                                     " letters, digits, '.', '_' or '-'"};
  }
  return {};
}

std::string cluster_prefix(std::string_view cluster_id) {
  return "mc/" + std::string(cluster_id) + "/";
}

Status check_prefix(std::string_view prefix) {
  if (prefix.size() > kMaxStoreKeyBytes || !printable(prefix)) {
    return {MC_INVALID_ARGUMENT, "a prefix is at most " + std::to_string(kMaxStoreKeyBytes) +
                                     " bytes of printable ASCII without blanks"};
  }
  return {};
}

Status check_key(std::string_view key) {
  if (key.empty() || key.size() > kMaxStoreKeyBytes || !printable(key)) {
    return {MC_INVALID_ARGUMENT, "a key of a cluster store is 1 to " +
                                     std::to_string(kMaxStoreKeyBytes) +
                                     " bytes of printable ASCII without blanks"};
  }
  return {};
}

Status check_write(std::string_view key, std::string_view value) {
  if (Status status = check_key(key); !status.ok()) return status;
  if (value.size() > kMaxStoreValueBytes) {
    return {MC_INVALID_ARGUMENT, "the value has " + std::to_string(value.size()) +
                                     " bytes; a cluster store takes " +
                                     std::to_string(kMaxStoreValueBytes) + " at most"};
  }
  return {};
}

Status check_guarded(const Guard& guard, std::string_view key,
                     const std::optional<std::string>& value) {
  if (Status status = check_key(guard.key); !status.ok()) return status;
  return value ? check_write(key, *value) : check_key(key);
}

Status check_ttl(std::uint32_t ttl_ms) {
  if (ttl_ms < kMinLeaseTtlMs || ttl_ms > kMaxLeaseTtlMs) {
    return {MC_INVALID_ARGUMENT, "a lease lives " + std::to_string(kMinLeaseTtlMs) + " to " +
                                     std::to_string(kMaxLeaseTtlMs) + " ms, not " +
                                     std::to_string(ttl_ms)};
  }
  return {};
}

std::string no_such_key(std::string_view key) {
  return "the cluster store has no key '" + std::string(key) + "'";
}

std::string no_such_lease(LeaseId lease) {
  return "lease " + std::to_string(lease) + " has ended or was never granted; grant another";
}

Status list_too_large(std::string_view prefix) {
  return {MC_TOO_LARGE, "more than " + std::to_string(kMaxListEntries) + " keys or " +
                            std::to_string(kMaxListBytes >> 20) + " MiB begin with '" +
                            std::string(prefix) + "'; list a longer prefix"};
}

std::string quoted(std::string_view text) {
  std::string result(text.substr(0, kMaxQuotedBytes));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < 0x20 || c == 0x7f; }, '?');
  return "'" + result + "'";
}

}  // namespace mc::metadata
