// SPDX-License-Identifier: Apache-2.0
#include "agent/server/durations.h"

#include <json/value.h>

namespace mc::agent {

Json::Value durations_json(const DurationCounts& durations) {
  Json::Value value;
  for (const std::uint64_t count : durations.counts) value["counts"].append(Json::UInt64{count});
  value["sum_ns"] = Json::UInt64{durations.sum_ns};
  return value;
}

}  // namespace mc::agent
