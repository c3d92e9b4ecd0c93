// SPDX-License-Identifier: Apache-2.0
//
// The plan of one run of `mcctl bench --transport`.
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctl/bench/sampler.h"

namespace mc::ctl {

struct TransportPlan {
  std::string transport;  // tcp rdma fabric
  std::vector<std::uint64_t> block_bytes;
  std::uint64_t batch = 1;
  unsigned threads = 1;
  bool write = false;
  std::string provider;              // fabric: provider of libfabric
  std::vector<std::string> devices;  // rdma: devices; fabric: domains
  std::string address;               // of this host, for providers that use IP
  std::string connect;               // HOST:PORT of a target; empty: start a target
  std::uint64_t target_bytes = 0;    // memory of the target
  SamplePlan sample;
};

inline constexpr std::uint64_t kMaxBatch = 1024;
inline constexpr unsigned kMaxBenchThreads = 64;
inline constexpr std::uint64_t kMaxBatchBytes = std::uint64_t{1} << 30;

}  // namespace mc::ctl
