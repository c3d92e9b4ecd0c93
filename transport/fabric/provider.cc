// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/domain.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "transport/fabric/message.h"

namespace mc::transport::fabric {

namespace {

// Without an option, the first that this host has. shm reaches only this host, so an operator must
// name shm.
constexpr const char* kProviders[] = {"efa", "verbs;ofi_rxm", "tcp;ofi_rxm"};

// A domain checks keys by offset, unless the provider can only check keys by address. shm with
// addresses does not check keys.
constexpr int kModes[] = {FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
                          FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR};

std::string_view name_of(const fi_info& info) {
  return info.domain_attr->name == nullptr ? "" : info.domain_attr->name;
}

bool has_bus_address(const fi_info& info) {
  return info.nic != nullptr && info.nic->bus_attr != nullptr &&
         info.nic->bus_attr->bus_type == FI_BUS_PCI;
}

fi_info* ask(const Library& library, const FabricOptions& options, const char* provider, int mode) {
  const Info hints(library.dupinfo(nullptr), library.freeinfo);
  hints->caps = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = mode;
  hints->domain_attr->threading = FI_THREAD_SAFE;  // memory is registered beside the loop
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  // A write completes when the bytes are in the peer's memory.
  hints->tx_attr->op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
  hints->fabric_attr->prov_name = ::strdup(provider);
  fi_info* list = nullptr;
  const char* node = options.address.empty() ? nullptr : options.address.c_str();
  const std::uint64_t flags = node == nullptr ? 0 : FI_SOURCE;
  if (library.getinfo(kApiVersion, node, nullptr, flags, hints.get(), &list) != 0) return nullptr;
  return list;
}

std::string what_was_looked_for(const FabricOptions& options) {
  std::string text = options.provider.empty() ? "no provider of efa, verbs;ofi_rxm or tcp;ofi_rxm"
                                              : "no provider " + options.provider;
  if (!options.domains.empty()) {
    text += " with domain";
    for (const std::string& domain : options.domains) text += " " + domain;
  }
  if (!options.address.empty()) text += " at " + options.address;
  return text;
}

// The wanted entries of the list, each domain once.
std::vector<Info> choose(const Library& library, const FabricOptions& options, fi_info* list) {
  std::vector<Info> chosen;
  for (const fi_info* at = list; at != nullptr; at = at->next) {
    const std::string_view name = name_of(*at);
    const bool is_known =
        std::ranges::any_of(chosen, [&](const Info& info) { return name_of(*info) == name; });
    // Without NICs, the first domain is enough: other domains lead to the same wire.
    const bool is_wanted =
        options.domains.empty()
            ? chosen.empty() || (has_bus_address(*at) && has_bus_address(*chosen.front()))
            : std::ranges::find(options.domains, name) != options.domains.end();
    if (is_known || !is_wanted || name.size() >= kMaxNameBytes || chosen.size() == kMaxDomains) {
      continue;
    }
    chosen.emplace_back(library.dupinfo(at), library.freeinfo);
  }
  return chosen;
}

}  // namespace

Result<std::vector<Info>> find_domains(const Library& library, const FabricOptions& options) {
  std::vector<const char*> providers(std::begin(kProviders), std::end(kProviders));
  if (!options.provider.empty()) providers = {options.provider.c_str()};
  for (const char* provider : providers) {
    for (const int mode : kModes) {
      const Info list(ask(library, options, provider, mode), library.freeinfo);
      std::vector<Info> chosen = choose(library, options, list.get());
      if (!chosen.empty()) return chosen;
    }
  }
  return fail(MC_UNSUPPORTED, "libfabric has " + what_was_looked_for(options) +
                                  " with FI_EP_RDM and FI_RMA; `fi_info -l` and `fi_info -t "
                                  "FI_EP_RDM -c FI_RMA` show what it has");
}

}  // namespace mc::transport::fabric
