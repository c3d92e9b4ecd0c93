// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/transport_options.h"

#include "ctl/bench/transport_node.h"
#include "ctl/text/size.h"

namespace mc::ctl {

void add_transport_options(CLI::App& verb, TransportOptions& options) {
  verb.add_option("--transport", options.transport,
                  "Without an agent: read or write another process's memory over tcp, rdma or "
                  "fabric (libfabric), beside bare TCP connections, or memcpy for the provider shm")
      ->check(CLI::IsMember({"tcp", "rdma", "fabric"}));
  verb.add_option(
          "--block-size", options.block_sizes,
          "With --transport: bytes of an operation, such as 4KiB,1MiB (those two unless told)")
      ->delimiter(',');
  verb.add_option("--batch", options.batch, "With --transport: operations submitted together")
      ->check(CLI::Range(std::uint64_t{1}, kMaxBatch))
      ->capture_default_str();
  verb.add_option("--threads", options.threads,
                  "With --transport: askers, each a thread with a transport of its own")
      ->check(CLI::Range(1u, kMaxBenchThreads))
      ->capture_default_str();
  verb.add_option("--op", options.operation, "With --transport: read or write")
      ->check(CLI::IsMember({"read", "write"}))
      ->capture_default_str();
  verb.add_option("--memory", options.memory, "With --transport: host or device")
      ->check(CLI::IsMember({"host", "device"}))
      ->capture_default_str();
  verb.add_option("--provider", options.provider,
                  "With --transport fabric: of libfabric, such as efa, tcp;ofi_rxm, shm");
  verb.add_option("--device", options.devices,
                  "With --transport: RDMA devices, or domains of the provider")
      ->delimiter(',');
  verb.add_option("--address", options.address,
                  "With --transport fabric: of this host, for providers that speak IP");
  auto* listen = verb.add_option(
      "--listen", options.listen,
      "With --transport, HOST:PORT: be the target, until interrupted; without a key, so "
      "whoever reaches the port can read and write this memory");
  verb.add_option("--connect", options.connect,
                  "With --transport, HOST:PORT of a target; without it one is started on this host")
      ->excludes(listen);
  verb.add_option("--target-bytes", options.target_bytes, "With --transport: memory of the target")
      ->capture_default_str();
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
