// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/one_sided_way.h"

#include <linux/mempolicy.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "transport/fabric/fabric_transport.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/topology/device_tree.h"
#include "transport/topology/nic_choice.h"
#include "transport/topology/sysfs_reader.h"

namespace mc::agent {

namespace {

// A unit with PrivateDevices hides the devices that the host has.
std::string hidden_devices() {
  std::error_code ignored;
  const bool has = std::filesystem::exists("/sys/class/infiniband", ignored) &&
                   !std::filesystem::is_empty("/sys/class/infiniband", ignored);
  const bool sees = std::filesystem::exists("/dev/infiniband", ignored);
  return has && !sees ? "; this process may not see the host's devices: the unit mc-agent.service "
                        "needs its drop-in rdma.conf"
                      : "";
}

using Opened = Result<std::unique_ptr<transport::OneSidedTransport>>;

template <typename T>
Opened as_one_sided(Result<std::unique_ptr<T>> made) {
  if (!made) return fail(made.error());
  return std::unique_ptr<transport::OneSidedTransport>(std::move(*made));
}

Opened open_rdma(const Options& options, transport::NodeId node, std::uint64_t incarnation,
                 transport::Dialer& dialer) {
  const auto verbs = transport::rdma::load_verbs();
  if (!verbs) return fail(verbs.error());
  transport::rdma::RdmaOptions rdma;
  rdma.node = node;
  rdma.incarnation = incarnation;
  rdma.devices = split_list(options.rdma_devices);
  rdma.ack_timeout = static_cast<std::uint8_t>(options.rdma_ack_timeout);
  rdma.near = near_devices_of_host();
  rdma.gid_index = transport::rdma::gid_index_from_environment();
  return as_one_sided(transport::rdma::RdmaTransport::create(rdma, *verbs, dialer));
}

Opened open_fabric(const Options& options, transport::NodeId node, std::uint64_t incarnation,
                   const std::string& address, transport::Dialer& dialer) {
  for (const char* const memory : {"shm", "sm2"}) {
    if (options.fabric_provider.find(memory) == std::string::npos) continue;
    return fail(MC_UNSUPPORTED,
                "fabric_provider = \"" + options.fabric_provider +
                    "\" locks memory that agents share: one that is killed while it holds the lock "
                    "would hang the others; say \"tcp;ofi_rxm\", or transports = \"tcp\", which is "
                    "as fast on one host");
  }
  // libfabric is large and probes much. Hosts without an EFA do not load the library.
  if (options.transports == "auto" && options.fabric_provider == kEfaProvider &&
      !has_efa(transport::read_topology(transport::DirectoryTree()))) {
    return fail(MC_UNSUPPORTED, "no EFA: this host has no such device");
  }
  const auto library = transport::fabric::load_libfabric();
  if (!library) return fail(library.error());
  transport::fabric::FabricOptions fabric;
  fabric.node = node;
  fabric.incarnation = incarnation;
  fabric.provider = options.fabric_provider;
  // Other providers find the devices themselves.
  if (fabric.provider.starts_with("tcp")) fabric.address = address;
  return as_one_sided(transport::fabric::FabricTransport::create(fabric, *library, dialer));
}

}  // namespace

int memory_node_of(const std::byte* data) {
  int node = -1;
  const long failed =
      ::syscall(SYS_get_mempolicy, &node, nullptr, 0, data, MPOL_F_NODE | MPOL_F_ADDR);
  return failed == 0 ? node : -1;
}

NearDevices near_devices(transport::PriorityMatrix matrix,
                         std::function<int(const std::byte*)> node_of) {
  return [matrix = std::move(matrix), node_of = std::move(node_of)](
             const std::byte* data, std::span<const std::string> devices) {
    return matrix.near_bits("cpu:" + std::to_string(node_of(data)), devices);
  };
}

NearDevices near_devices_of_host() {
  transport::Topology topology = transport::read_topology(transport::DirectoryTree());
  if (topology.nodes.size() < 2) return nullptr;
  transport::choose_nics(topology, {});
  return near_devices(transport::make_priority_matrix(topology), memory_node_of);
}

Result<OneSidedWay> open_one_sided_way(const Options& options, transport::NodeId node,
                                       std::uint64_t incarnation, const std::string& address,
                                       transport::Dialer& dialer) {
  const std::string& wanted = options.transports;
  OneSidedWay way;
  if (wanted == "tcp") return way;
  if (!options.peer_tls_cert.empty()) {
    if (wanted == "auto") {
      way.why_not = "peer_tls_cert: what goes by RDMA or libfabric would go in the clear";
      return way;
    }
    return fail(MC_INVALID_ARGUMENT,
                "transports = \"" + wanted +
                    "\" and peer_tls_cert: what goes that way would go in the clear; take "
                    "peer_tls_cert, peer_tls_key and peer_tls_ca away, or say transports = "
                    "\"auto\", which is TCP then");
  }
  for (const char* const name : {"rdma", "fabric"}) {
    if (wanted != "auto" && wanted != name) continue;
    Opened opened = std::string_view(name) == "rdma"
                        ? open_rdma(options, node, incarnation, dialer)
                        : open_fabric(options, node, incarnation, address, dialer);
    if (opened) {
      way.transport = std::move(*opened);
      spdlog::info("event=with_{} devices=\"{}\"", name, way.transport->describe_devices());
      return way;
    }
    const std::string why(opened.error().text());
    if (wanted == name) {
      return fail(opened.error().code(), "transports = \"" + wanted + "\": " + why +
                                             hidden_devices() + "; or say transports = \"auto\"");
    }
    way.why_not += (way.why_not.empty() ? "" : "; ") + why;
  }
  way.why_not += hidden_devices();
  spdlog::info("event=tcp_alone cause=\"{}\"", way.why_not);
  return way;
}

}  // namespace mc::agent
