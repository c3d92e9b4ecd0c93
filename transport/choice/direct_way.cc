// SPDX-License-Identifier: Apache-2.0
#include "transport/choice/direct_way.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "transport/fabric/fabric_transport.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/topology/device_tree.h"
#include "transport/topology/nic_choice.h"
#include "transport/topology/sysfs_reader.h"

namespace mc::transport::choice {

namespace {

// A unit with PrivateDevices, or a container, hides the devices that the host has.
std::string hidden_devices() {
  std::error_code ignored;
  const bool has = std::filesystem::exists("/sys/class/infiniband", ignored) &&
                   !std::filesystem::is_empty("/sys/class/infiniband", ignored);
  const bool sees = std::filesystem::exists("/dev/infiniband", ignored);
  return has && !sees ? "; this process may not see the host's devices in /dev/infiniband: the "
                        "unit mc-agent.service needs its drop-in rdma.conf, a container needs "
                        "--device=/dev/infiniband"
                      : "";
}

using Opened = Result<std::unique_ptr<OneSidedTransport>>;

template <typename T>
Opened as_one_sided(Result<std::unique_ptr<T>> made) {
  if (!made) return fail(made.error());
  return std::unique_ptr<OneSidedTransport>(std::move(*made));
}

Opened open_rdma(const DirectOptions& options, Dialer& dialer) {
  const auto verbs = rdma::load_verbs();
  if (!verbs) return fail(verbs.error());
  rdma::RdmaOptions rdma;
  rdma.node = options.node;
  rdma.incarnation = options.incarnation;
  rdma.devices = options.rdma_devices;
  rdma.ack_timeout = static_cast<std::uint8_t>(options.rdma_ack_timeout);
  rdma.near = near_devices_of_host(options.place_of);
  rdma.gid_index = rdma::gid_index_from_environment();
  return as_one_sided(rdma::RdmaTransport::create(rdma, *verbs, dialer));
}

Opened open_fabric(const DirectOptions& options, Dialer& dialer) {
  for (const char* const memory : {"shm", "sm2"}) {
    if (options.fabric_provider.find(memory) == std::string::npos) continue;
    return fail(MC_UNSUPPORTED,
                "fabric_provider = \"" + options.fabric_provider +
                    "\" locks memory that processes share: one that is killed while it holds the "
                    "lock would hang the others; say \"tcp;ofi_rxm\", or transports = \"tcp\", "
                    "which is as fast on one host");
  }
  // libfabric is large and probes much. Hosts without an EFA do not load the library.
  if (options.transports == "auto" && options.fabric_provider == kEfaProvider &&
      !has_efa(read_topology(DirectoryTree()))) {
    return fail(MC_UNSUPPORTED, "no EFA: this host has no such device");
  }
  const auto library = fabric::load_libfabric();
  if (!library) return fail(library.error());
  fabric::FabricOptions fabric;
  fabric.node = options.node;
  fabric.incarnation = options.incarnation;
  fabric.provider = options.fabric_provider;
  // Other providers find the devices themselves.
  if (fabric.provider.starts_with("tcp")) fabric.address = options.address;
  return as_one_sided(fabric::FabricTransport::create(fabric, *library, dialer));
}

}  // namespace

Result<DirectWay> open_direct_way(const DirectOptions& options, Dialer& dialer) {
  const std::string& wanted = options.transports;
  DirectWay way;
  if (wanted == "tcp") return way;
  if (options.encrypted) {
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
  for (const std::string_view name : {"rdma", "fabric"}) {
    if (wanted != "auto" && wanted != name) continue;
    Opened opened = name == "rdma" ? open_rdma(options, dialer) : open_fabric(options, dialer);
    if (opened) {
      way.transport = std::move(*opened);
      return way;
    }
    const std::string why(opened.error().text());
    if (wanted == name) {
      return fail(opened.error().code(), "transports = \"" + wanted + "\": " + why +
                                             hidden_devices() + "; or say transports = \"auto\"");
    }
    way.why_not += (way.why_not.empty() ? "" : "; ") + why;
  }
  if (way.why_not.empty()) {
    return fail(MC_INVALID_ARGUMENT,
                "transports = \"" + wanted + "\" is unknown; say auto, tcp, rdma or fabric");
  }
  way.why_not += hidden_devices();
  return way;
}

}  // namespace mc::transport::choice
