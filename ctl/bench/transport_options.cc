// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/transport_options.h"

#include "ctl/bench/transport_node.h"
#include "ctl/text/size.h"

namespace mc::ctl {

std::vector<Option> transport_options(TransportOptions& options) {
  return {
      {.name = "--transport",
       .value = &options.transport,
       .help = "Use no agent: read or write the memory of another process over tcp, rdma or "
               "fabric (libfabric), beside bare TCP connections (provider shm: beside memcpy)",
       .choices = {"tcp", "rdma", "fabric"}},
      {"--block-size", &options.block_sizes,
       "With --transport: bytes of an operation (default: 4KiB,1MiB)", "SIZE,..."},
      {"--batch",
       &options.batch,
       "With --transport: number of operations submitted together",
       "COUNT",
       {{1, kMaxBatch}}},
      {"--threads",
       &options.threads,
       "With --transport: number of requesting threads, each with its own transport",
       "COUNT",
       {{1, kMaxBenchThreads}}},
      {.name = "--op",
       .value = &options.operation,
       .help = "With --transport: the operation",
       .choices = {"read", "write"}},
      {.name = "--memory",
       .value = &options.memory,
       .help = "With --transport: the kind of memory",
       .choices = {"host", "device"}},
      {.name = "--fabric-provider",
       .value = &options.provider,
       .help = "With --transport fabric: a provider of libfabric, such as efa, tcp;ofi_rxm, shm",
       .type = "NAME",
       .earlier_name = "--provider"},
      {"--device", &options.devices, "With --transport: RDMA devices, or domains of the provider",
       "NAME,..."},
      {"--address", &options.address,
       "With --transport fabric: address of this host, for providers that use IP"},
      {"--listen", &options.listen,
       "With --transport: serve as the target until interrupted. There is no key: each "
       "process that reaches the port can read and write this memory",
       "HOST:PORT"},
      {.name = "--connect",
       .value = &options.connect,
       .help = "With --transport: address of a target; without it, mcctl starts a target on "
               "this host",
       .type = "HOST:PORT",
       .excludes = {"--listen"}},
      {"--target-bytes", &options.target_bytes, "With --transport: memory of the target", "SIZE"}};
}

Result<TransportPlan> plan_transport(const TransportOptions& options, const SamplePlan& sample) {
  if (options.memory == "device") {
    return fail(MC_UNSUPPORTED,
                "--memory device: mcctl is built without a GPU runtime that could allocate device "
                "memory; measure --memory host");
  }
  if (options.transport != "fabric" && (!options.provider.empty() || !options.address.empty())) {
    return fail(MC_INVALID_ARGUMENT, "--fabric-provider and --address need --transport fabric");
  }
  TransportPlan plan;
  plan.transport = options.transport;
  plan.batch = options.batch;
  plan.threads = options.threads;
  plan.write = options.operation == "write";
  plan.provider = options.provider;
  plan.devices = options.devices;
  plan.address = options.address;
  plan.connect = options.connect;
  plan.sample = sample;
  const auto sizes =
      options.block_sizes.empty() ? std::vector<std::string>{"4KiB", "1MiB"} : options.block_sizes;
  for (const std::string& text : sizes) {
    const auto bytes = parse_bytes(text);
    if (!bytes || *bytes == 0 || *bytes > kMaxBatchBytes / plan.batch) {
      return fail(MC_INVALID_ARGUMENT,
                  "--block-size: \"" + text + "\" is not a size of which a batch is 1 GiB at most");
    }
    plan.block_bytes.push_back(*bytes);
  }
  const auto target = parse_bytes(options.target_bytes);
  if (!target || *target == 0) return fail(MC_INVALID_ARGUMENT, "--target-bytes is not a size");
  plan.target_bytes = *target;
  for (const std::string* text : {&options.listen, &options.connect}) {
    if (!text->empty() && !parse_host_port(*text)) {
      return fail(MC_INVALID_ARGUMENT, "\"" + *text + "\" is not HOST:PORT");
    }
  }
  return plan;
}

}  // namespace mc::ctl
