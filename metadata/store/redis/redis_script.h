// SPDX-License-Identifier: Apache-2.0
//
// The Lua script that implements the cluster store inside Redis. Each call of the
//   contract is one atomic run of the script. The script keeps these keys below KEYS[1],
//   "mc/<cluster id>/":
//
//     meta            hash     revision, lease (last granted)
//     keys            zset     every key, for listing by prefix
//     entry/<key>     hash     v value, r revision, l lease (0: none)
//     leases          zset     lease → end, in µs of the server's clock
//     ttl             hash     lease → ms
//     lease/<id>      set      its keys
//
// Revisions and lease ids count on, but never fall below the server's clock in µs. So no number is
// given twice after a restart without data, or after a failover that lost the last writes.
// Threads: constants.
#pragma once

#include <string>
#include <string_view>

namespace mc::metadata {

extern const std::string_view kRedisScript;
// The script's SHA-1 in hex, by which EVALSHA names the script.
const std::string& redis_script_sha();

}  // namespace mc::metadata
