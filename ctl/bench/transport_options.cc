// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/transport_options.h"

#include "ctl/bench/transport_node.h"
#include "ctl/size.h"

namespace mc::ctl {

void add_transport_options(CLI::App& verb, TransportOptions& options) {
  constexpr const char* kGroup = "Transports (no agent takes part)";
  verb.add_option("--transport", options.transport,
                  "Read or write another process's memory over tcp, rdma or fabric (libfabric), "
                  "beside bare TCP connections, or memcpy for the provider shm")
      ->check(CLI::IsMember({"tcp", "rdma", "fabric"}))
      ->group(kGroup);
  verb.add_option("--block-size", options.block_sizes,
                  "Bytes of an operation, such as 4KiB,1MiB (those two unless told)")
      ->delimiter(',')
      ->group(kGroup);
  verb.add_option("--batch", options.batch, "Operations submitted together")
      ->check(CLI::Range(std::uint64_t{1}, kMaxBatch))
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--threads", options.threads, "Askers, each a thread with a transport of its own")
      ->check(CLI::Range(1u, kMaxBenchThreads))
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--op", options.operation, "read or write")
      ->check(CLI::IsMember({"read", "write"}))
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--memory", options.memory, "host or device")
      ->check(CLI::IsMember({"host", "device"}))
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--provider", options.provider,
                  "fabric: of libfabric, such as efa, tcp;ofi_rxm, shm")
      ->group(kGroup);
  verb.add_option("--device", options.devices, "rdma: devices; fabric: domains of the provider")
      ->delimiter(',')
      ->group(kGroup);
  verb.add_option("--address", options.address, "fabric: of this host, for providers that speak IP")
      ->group(kGroup);
  auto* listen = verb.add_option("--listen", options.listen,
                                 "HOST:PORT: be the target, until interrupted; without a key, so "
                                 "whoever reaches the port can read and write this memory")
                     ->group(kGroup);
  verb.add_option("--connect", options.connect,
                  "HOST:PORT of a target; without it one is started on this host")
      ->excludes(listen)
      ->group(kGroup);
  verb.add_option("--target-bytes", options.target_bytes, "Memory of the target")
      ->capture_default_str()
      ->group(kGroup);
}

Result<TransportPlan> plan_transport(const TransportOptions& options, const SamplePlan& sample) {
  if (options.memory == "device") {
    return fail(MC_UNSUPPORTED,
                "--memory device: mcctl is built without a GPU runtime that could allocate device "
                "memory; measure --memory host");
  }
  if (options.transport != "fabric" && (!options.provider.empty() || !options.address.empty())) {
    return fail(MC_INVALID_ARGUMENT, "--provider and --address are of --transport fabric");
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
