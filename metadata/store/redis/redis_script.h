// SPDX-License-Identifier: Apache-2.0
//
// What it is: the Lua script that is the cluster store inside Redis: each call of the contract is
//   one run of it, atomic. What it keeps below KEYS[1], "mc/<cluster id>/":
//
//     meta            hash     revision, floor (of the log), lease (last granted)
//     keys            zset     every key, for listing by prefix
//     entry/<key>     hash     v value, r revision, l lease (0: none)
//     leases          zset     lease → end, in µs of the server's clock
//     ttl             hash     lease → ms
//     lease/<id>      set      its keys
//     log             stream   id = revision; p or d, key; the last 4096 changes
//
//   Revisions and leases count on, but never below the server's clock in µs: after a restart
//   without its data, or a failover that lost the last writes, none is given out twice.
// Threads: constants.
#pragma once

#include <string>
#include <string_view>

namespace mc::metadata {

extern const std::string_view kRedisScript;
// Its SHA-1 in hex, the name by which EVALSHA knows it.
const std::string& redis_script_sha();

}  // namespace mc::metadata
