// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/fabric_faults.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace mc::transport::testing {

namespace {

fabric::Library real_calls;
std::atomic<int> spare_error{0};
// The provider's functions with replacements; all domains have the same.
const fi_ops_fabric* fabric_ops = nullptr;
const fi_ops_domain* domain_ops = nullptr;
fi_ops_fabric our_fabric_ops;
fi_ops_domain our_domain_ops;
char* first_name = nullptr;  // of the first domain

bool is_spare(const fi_info* info) {
  return std::string_view(info->domain_attr->name) == FabricFaults::kSpare;
}

// The provider knows only the real name of the wire.
template <typename Call>
int as_first(fi_info* info, Call call) {
  if (!is_spare(info)) return call();
  if (const int error = spare_error.load(); error != 0) return -error;
  char* const name = info->domain_attr->name;
  info->domain_attr->name = first_name;
  const int result = call();
  info->domain_attr->name = name;
  return result;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  return as_first(info, [&] { return domain_ops->endpoint(domain, info, endpoint, context); });
}

int open_domain(fid_fabric* of, fi_info* info, fid_domain** domain, void* context) {
  const int error = as_first(info, [&] { return fabric_ops->domain(of, info, domain, context); });
  if (error != 0) return error;
  // Set once: other threads call through this function while a thread opens a domain anew.
  if (domain_ops != (*domain)->ops) {
    domain_ops = (*domain)->ops;
    our_domain_ops = *domain_ops;
    our_domain_ops.endpoint = open_endpoint;
  }
  (*domain)->ops = &our_domain_ops;
  return 0;
}

int open_fabric(fi_fabric_attr* attributes, fid_fabric** opened, void* context) {
  const int error = real_calls.fabric(attributes, opened, context);
  if (error != 0) return error;
  if (fabric_ops != (*opened)->ops) {
    fabric_ops = (*opened)->ops;
    our_fabric_ops = *fabric_ops;
    our_fabric_ops.domain = open_domain;
  }
  (*opened)->ops = &our_fabric_ops;
  return 0;
}

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** list) {
  const int error = real_calls.getinfo(version, node, service, flags, hints, list);
  if (error != 0) return error;
  fi_info* spare = real_calls.dupinfo(*list);
  if (first_name == nullptr) first_name = ::strdup(spare->domain_attr->name);
  std::free(spare->domain_attr->name);
  spare->domain_attr->name = ::strdup(FabricFaults::kSpare);
  spare->next = (*list)->next;
  (*list)->next = spare;
  return 0;
}

}  // namespace

FabricFaults::FabricFaults(const fabric::Library& real) { real_calls = real; }

FabricFaults::~FabricFaults() {
  spare_error = 0;
  std::free(std::exchange(first_name, nullptr));
}

fabric::Library FabricFaults::library() const {
  fabric::Library calls = real_calls;
  calls.getinfo = get_info;
  calls.fabric = open_fabric;
  return calls;
}

void FabricFaults::break_spare(int error) { spare_error = error; }
void FabricFaults::mend_spare() { spare_error = 0; }

}  // namespace mc::transport::testing
