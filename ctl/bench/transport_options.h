// SPDX-License-Identifier: Apache-2.0
//
// The options of `mcctl bench --transport`.
// Threads: the main thread.
#pragma once

#include <string>
#include <vector>

#include "ctl/bench/transport_plan.h"
#include "ctl/command.h"
#include "mc/status.h"

namespace mc::ctl {

struct TransportOptions {
  std::string transport;  // empty: the bench measures no transport
  std::vector<std::string> block_sizes;
  std::uint64_t batch = 1;
  unsigned threads = 1;
  std::string operation = "read";
  std::string memory = "host";
  std::string provider;
  std::vector<std::string> devices;
  std::string address;
  std::string listen;
  std::string connect;
  std::string target_bytes = "256MiB";
};

std::vector<Option> transport_options(TransportOptions& options);
// Errors: MC_INVALID_ARGUMENT names the option and the allowed values. MC_UNSUPPORTED stands for
// device memory.
Result<TransportPlan> plan_transport(const TransportOptions& options, const SamplePlan& sample);

}  // namespace mc::ctl
