// SPDX-License-Identifier: Apache-2.0
//
// The cases of `mcctl bench`. Each case measures an operation of libmc beside the
//   limit of the machine.
// Threads: a single thread.
// Owns: the data set between the cases that share objects.
// Trusts: nothing of the pool except sizes and addresses of views, while their objects stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/bench/dataset.h"
#include "ctl/bench/limits.h"
#include "ctl/bench/put_peer.h"
#include "ctl/bench/sampler.h"
#include "mc/status.h"

namespace mc::ctl {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kBatch = 32;  // objects of a batch
inline constexpr std::uint64_t kGroup = 64;  // calls of a sample, at most
inline constexpr std::uint64_t kGroupBytes = 8 * kMiB;

struct TransportPlan;

struct BenchPlan {
  std::uint64_t keys = 1000;
  SamplePlan sample;
};

// The resources of the cases. bench.cc owns the resources.
struct BenchRig {
  mc_client* client = nullptr;
  std::uint64_t pool_bytes = 0;
  PingPeer* ping = nullptr;
  const SharedRegion* region = nullptr;
  PutPeer* second = nullptr;  // null: the second client is a thread of this process
  BenchPlan plan;
  std::optional<Dataset> dataset;

  // The objects of this size; stores them unless the last case left them. Null after an error.
  const Dataset* objects(std::size_t object_bytes, std::string* error);
};

struct CaseResult {
  std::string name;
  std::size_t size = 0;             // of an object; 0: the case moves no objects
  std::uint64_t keys = 0;           // objects stored
  std::uint64_t measured_keys = 0;  // keys of objects of that size
  std::uint64_t batch = 1;
  unsigned clients = 1;
  Sample ours;  // of one call: a batch counts as one
  std::string limit = "none";
  Sample of_limit;
  double bytes_per_s = 0;  // 0: the case moves no bytes
  double limit_bytes_per_s = 0;
  double copy_p50_ns = 0;  // large puts: memcpy alone
  double target_ns = 0;    // the limit of a case that has a fixed target
  std::string error;       // not empty: the case could not be measured
};

inline CaseResult case_named(const char* name, std::size_t size) {
  CaseResult result;
  result.name = name;
  result.size = size;
  return result;
}

struct BenchCase {
  const char* name;
  const char* what;
  std::vector<std::size_t> sizes;  // default sizes; {0}: the case has no sizes
  CaseResult (*run)(BenchRig&, std::size_t size);
};

// Cases that share objects are neighbours in the list.
std::vector<BenchCase> get_cases();
std::vector<BenchCase> put_cases();
// put_batch by a single client or by two clients at once; the result is the sum.
CaseResult run_put_batch(BenchRig& rig, std::size_t size, unsigned clients);

// The gets of `mcctl bench --remote`: a client of one host reads objects of another host, beside a
// bare TCP connection over the same path. The hosts are agents of a cluster that is made for the
// run (replay/stage.h). Calls take with each result. Errors: the cluster could not be started.
Status run_remote_cases(const SamplePlan& plan, std::uint64_t timeout_ns,
                        const std::function<void(const CaseResult&)>& take);

// The cases of `mcctl bench --transport`: batches of blocks read from, or written to, a target's
// memory. Beside them run the same bytes over bare TCP connections, or memcpy if the bytes stay in
// this host's memory (libfabric's shm). Each thread of the plan has a separate transport. Calls
// take with each result. Errors: the plan needs something that is not there (with the remedy); the
// bytes that arrived were wrong.
Status run_transport_cases(const TransportPlan& plan, std::uint64_t timeout_ns,
                           const std::function<void(const CaseResult&)>& take);

// Sets ours and the limit from the samples in that order, and the rates from the bytes of a call.
void set_samples(CaseResult& result, const SampleRun& run, double bytes);

}  // namespace mc::ctl
