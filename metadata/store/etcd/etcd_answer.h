// SPDX-License-Identifier: Apache-2.0
//
// The decoder for answers of etcd's JSON gateway.
// Threads: any; pure functions.
// Trusts: nothing. Any bytes become a value or an error. Nesting is limited, numbers must fit, and
//   keys must begin with the cluster's prefix, which is removed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "metadata/store/cluster_store.h"
#include "metadata/store/http/http_client.h"

namespace mc::metadata {

// A listing at the contract's limits: base64 and 256 bytes around each entry.
inline constexpr std::size_t kMaxEtcdBodyBytes =
    kMaxListBytes / 3 * 4 + (256 + kMaxStoreKeyBytes / 3) * kMaxListEntries;

// etcd's errors that require a new token, not another password.
bool is_stale_token(const HttpAnswer& answer);

// Every decoder below returns the error of an answer whose status is not 200: MC_NOT_FOUND for a
// lease, otherwise the contract's codes.
Status decode_etcd_ok(const HttpAnswer& answer);
Result<std::string> decode_etcd_token(const HttpAnswer& answer);
// At most kMaxListEntries entries. More: MC_TOO_LARGE, without text.
Result<std::vector<Entry>> decode_etcd_range(const HttpAnswer& answer, std::string_view prefix);
Result<Revision> decode_etcd_put(const HttpAnswer& answer);
Result<Swap> decode_etcd_swap(const HttpAnswer& answer);
// Whether the comparison of a transaction held.
Result<bool> decode_etcd_succeeded(const HttpAnswer& answer);
Result<bool> decode_etcd_deleted(const HttpAnswer& answer);
Result<Lease> decode_etcd_grant(const HttpAnswer& answer);
// False: the lease has ended.
Result<bool> decode_etcd_keep_alive(const HttpAnswer& answer);

}  // namespace mc::metadata
