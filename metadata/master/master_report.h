// SPDX-License-Identifier: Apache-2.0
//
// A master's report for its HTTP ports: the role, the members, sums over the led partitions, and
//   counters since the start of the process.
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metadata/wire/messages.h"

namespace mc::metadata {

// Since the start of the process. Counted by the master's loop.
struct MasterCounters {
  struct Batches {
    std::uint64_t requests = 0;
    std::uint64_t items = 0;
    std::uint64_t failed_items = 0;

    void add(std::uint64_t all, std::uint64_t failed) {
      ++requests;
      items += all;
      failed_items += failed;
    }
  };
  Batches publish;                    // failed: the directory did not accept the change
  Batches locate;                     // failed: no holder
  Batches place;                      // failed: no host with room
  Batches remove;                     // failed: no such key
  std::uint64_t removals_of_all = 0;  // by a prefix
  std::uint64_t removals_by_regex = 0;
  std::uint64_t joins = 0;
  std::uint64_t leaves = 0;
  std::uint64_t heartbeats = 0;
  std::uint64_t reports = 0;            // complete ones
  std::uint64_t leaderships = 0;        // of partitions, begun
  std::uint64_t ended_leaderships = 0;  // lost or resigned
  std::uint64_t copies = 0;             // ordered from agents
  std::uint64_t failed_copies = 0;
};

struct MasterReport {
  bool leads = false;       // partition 0
  std::string leader;       // address of partition 0's leader; empty: unknown
  std::uint64_t epoch = 0;  // of partition 0, while this master leads it
  std::uint32_t partitions_led = 0;
  std::uint32_t partitions_without_store = 0;
  wire::StatsAnswer stats;                // sums over the led partitions; links are the process's
  std::vector<wire::MemberInfo> members;  // as partition 0 knows them; empty: not led
  MasterCounters counters;
};

}  // namespace mc::metadata
