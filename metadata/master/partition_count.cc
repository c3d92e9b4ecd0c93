// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/partition_count.h"

#include <string>

namespace mc::metadata {

namespace {

constexpr std::string_view kCountKey = "share_count";

}  // namespace

Status check_partition_count(ClusterStore& store, std::uint32_t partitions,
                             std::uint64_t deadline_ns) {
  const auto found = store.get(kCountKey, deadline_ns);
  if (!found) return found.error().code() == MC_NOT_FOUND ? Status() : found.error();
  if (found->value == std::to_string(partitions)) return {};
  return {MC_INVALID_ARGUMENT,
          "this cluster has " + found->value.substr(0, 20) +
              " partitions, and this master is configured for " + std::to_string(partitions) +
              "; set partitions = " + found->value.substr(0, 20) +
              ", or stop all masters of the cluster, remove its key share_count from " +
              store.name() + ", and start them with the new number"};
}

Status fix_partition_count(ClusterStore& store, std::uint32_t partitions,
                           std::uint64_t deadline_ns) {
  const auto made =
      store.compare_and_set(kCountKey, 0, std::to_string(partitions), kNoLease, deadline_ns);
  if (made && made->applied) return {};
  // Another master was first, or this master was and the answer was lost.
  if (!made && made.error().code() != kOutcomeUnknown) return made.error();
  return check_partition_count(store, partitions, deadline_ns);
}

}  // namespace mc::metadata
