// SPDX-License-Identifier: Apache-2.0
//
// Request bodies for etcd's JSON gateway (etcd's api/etcdserverpb/rpc.proto in the JSON
//   form of proto3: 64-bit numbers as strings, bytes in base64).
// Threads: any; pure functions.
// Trusts: callers have checked keys and values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

std::string etcd_authenticate(std::string_view user, std::string_view password);
std::string etcd_get(std::string_view key);
std::string etcd_list(std::string_view prefix, std::size_t max_entries);
std::string etcd_put(std::string_view key, std::string_view value, LeaseId lease);
std::string etcd_compare_and_put(std::string_view key, Revision expected, std::string_view value,
                                 LeaseId lease);
// value: nullopt removes the key.
std::string etcd_write_guarded(std::string_view guard, Revision revision, std::string_view key,
                               const std::optional<std::string>& value);
std::string etcd_delete(std::string_view key);
std::string etcd_grant(std::uint64_t ttl_s);
std::string etcd_lease(LeaseId lease);

}  // namespace mc::metadata
