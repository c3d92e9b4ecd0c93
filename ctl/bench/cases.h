// SPDX-License-Identifier: Apache-2.0
//
// What it is: the cases of `mcctl bench`: each measures one thing libmc does beside the machine's
// limit. Threads: one. Owns: the data set between the cases that share one. Trusts: nothing of the
// pool but sizes and addresses of views, and those only while their objects stay.
#pragma once

#include <cstddef>
#include <cstdint>
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

struct BenchPlan {
  std::uint64_t keys = 1000;
  SamplePlan sample;
};

// What the cases work with. The owner is bench.cc.
struct BenchRig {
  mc_client* client = nullptr;
  std::uint64_t pool_bytes = 0;
  PingPeer* ping = nullptr;
  const SharedRegion* region = nullptr;
  PutPeer* second = nullptr;  // null: the second client is a thread of this one
  BenchPlan plan;
  std::optional<Dataset> dataset;

  // The objects of this size, stored unless the last case left them. Null: error says why.
  const Dataset* objects(std::size_t object_bytes, std::string* error);
};

struct CaseResult {
  std::string name;
  std::size_t size = 0;             // of an object; 0: the case moves none
  std::uint64_t keys = 0;           // objects stored
  std::uint64_t measured_keys = 0;  // of them, those of the size
  std::uint64_t batch = 1;
  unsigned clients = 1;
  Sample ours;  // of one call: a batch counts as one
  std::string limit = "none";
  Sample of_limit;
  double bytes_per_s = 0;  // 0: the case moves no bytes
  double limit_bytes_per_s = 0;
  double copy_p50_ns = 0;  // large puts: memcpy alone
  double target_ns = 0;    // where a number stands in for a limit
  std::string error;       // not empty: the case could not be measured
};

struct BenchCase {
  const char* name;
  const char* what;
  std::vector<std::size_t> sizes;  // default ones; {0}: the case has none
  CaseResult (*run)(BenchRig&, std::size_t size);
};

// In an order that lets neighbours share their objects.
std::vector<BenchCase> get_cases();
std::vector<BenchCase> put_cases();
// put_batch as one of two clients at once, the sum of both.
CaseResult run_put_batch(BenchRig& rig, std::size_t size, unsigned clients);

// ours and the limit from samples in that order; rates from bytes a call.
void set_samples(CaseResult& result, const SampleRun& run, double bytes);

}  // namespace mc::ctl
