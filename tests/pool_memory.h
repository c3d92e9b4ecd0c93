// SPDX-License-Identifier: Apache-2.0
//
// The memory of pools. An agent opens its socket first and takes memory for its pools afterwards,
// so an early put may find no space. A test waits for the memory before the test puts objects.
// Trusts: the answer is an agent's answer to {"verb":"segments"}.
#pragma once

#include <json/value.h>

#include <algorithm>

namespace mc {

inline Json::Value pool_memory_question() {
  Json::Value question;
  question["verb"] = "segments";
  return question;
}

// True if each pool has its memory, or says why the pool takes no more memory.
inline bool pools_have_memory(const Json::Value& answer) {
  const Json::Value& pools = answer["segments"];
  return !pools.empty() && std::all_of(pools.begin(), pools.end(), [](const Json::Value& pool) {
    return pool["reserved_bytes"].asUInt64() >= pool["pool_bytes"].asUInt64() ||
           pool.isMember("problem");
  });
}

}  // namespace mc
