// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/verbs.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace mc::transport::rdma {

namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

// Functions that the library exports, and verbs.h hides behind inline functions of the same names.
int (*library_query_port)(ibv_context*, std::uint8_t, ibv_port_attr*) = nullptr;
int (*library_query_gid)(ibv_context*, std::uint8_t, int, ibv_gid*) = nullptr;
ibv_mr* (*library_reg_mr)(ibv_pd*, void*, std::size_t, int) = nullptr;
ibv_mr* (*library_reg_mr_iova2)(ibv_pd*, void*, std::size_t, std::uint64_t, unsigned) = nullptr;
ibv_mr* (*library_reg_dmabuf_mr)(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int,
                                 int) = nullptr;
ibv_cq* (*library_create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int) = nullptr;

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  // The exported function fills a shorter struct and leaves the rest unchanged.
  *attributes = ibv_port_attr{};
  return library_query_port(context, port, attributes);
}

GidType type_of(const ibv_context* context, std::uint8_t port, int index, bool is_infiniband) {
  if (is_infiniband) return GidType::kInfiniBand;
  std::ifstream file(std::string(context->device->ibdev_path) + "/ports/" + std::to_string(port) +
                     "/gid_attrs/types/" + std::to_string(index));
  std::string text;
  std::getline(file, text);
  return text.find("v2") != std::string::npos ? GidType::kRoceV2 : GidType::kRoceV1;
}

std::vector<GidEntry> query_gids(ibv_context* context, std::uint8_t port) {
  std::vector<GidEntry> entries;
  ibv_port_attr attributes;
  if (query_port(context, port, &attributes) != 0) return entries;
  const bool is_infiniband = attributes.link_layer != IBV_LINK_LAYER_ETHERNET;
  for (int i = 0; i < attributes.gid_tbl_len; ++i) {
    GidEntry entry;
    if (library_query_gid(context, port, i, &entry.gid) != 0) continue;
    if (entry.gid.global.interface_id == 0 && entry.gid.global.subnet_prefix == 0) continue;
    entry.type = type_of(context, port, i, is_infiniband);
    entry.index = static_cast<std::uint32_t>(i);
    entries.push_back(entry);
  }
  return entries;
}

bool faults_pages(ibv_context* context) {
  const verbs_context* extended = verbs_get_ctx(context);
  if (extended == nullptr || extended->query_device_ex == nullptr) return false;
  ibv_device_attr_ex attributes{};
  if (extended->query_device_ex(context, nullptr, &attributes, sizeof attributes) != 0) {
    return false;
  }
  constexpr std::uint32_t kNeeded = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;
  return (attributes.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0 &&
         (attributes.odp_caps.per_transport_caps.rc_odp_caps & kNeeded) == kNeeded;
}

ibv_mr* reg_mr(ibv_pd* domain, void* data, std::size_t bytes, unsigned access) {
  constexpr unsigned kOptional = IBV_ACCESS_OPTIONAL_RANGE;
  if ((access & kOptional) != 0 && library_reg_mr_iova2 != nullptr) {
    return library_reg_mr_iova2(domain, data, bytes, reinterpret_cast<std::uintptr_t>(data),
                                access);
  }
  return library_reg_mr(domain, data, bytes, static_cast<int>(access & ~kOptional));
}

ibv_mr* reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t bytes,
                      std::uint64_t address, int fd, unsigned access) {
  if (library_reg_dmabuf_mr == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return library_reg_dmabuf_mr(domain, offset, bytes, address, fd, static_cast<int>(access));
}

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<Verbs> load_verbs() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(MC_UNSUPPORTED,
                "no RDMA: libibverbs.so.1 is not on this host; install libibverbs1 and "
                "ibverbs-providers (Debian) or rdma-core");
  }
  Verbs verbs;
  const bool complete = find(library, "ibv_get_device_list", verbs.get_device_list) &&
                        find(library, "ibv_free_device_list", verbs.free_device_list) &&
                        find(library, "ibv_get_device_name", verbs.get_device_name) &&
                        find(library, "ibv_open_device", verbs.open_device) &&
                        find(library, "ibv_close_device", verbs.close_device) &&
                        find(library, "ibv_query_device", verbs.query_device) &&
                        find(library, "ibv_query_port", library_query_port) &&
                        find(library, "ibv_query_gid", library_query_gid) &&
                        find(library, "ibv_alloc_pd", verbs.alloc_pd) &&
                        find(library, "ibv_dealloc_pd", verbs.dealloc_pd) &&
                        find(library, "ibv_reg_mr", library_reg_mr) &&
                        find(library, "ibv_dereg_mr", verbs.dereg_mr) &&
                        find(library, "ibv_create_comp_channel", verbs.create_comp_channel) &&
                        find(library, "ibv_destroy_comp_channel", verbs.destroy_comp_channel) &&
                        find(library, "ibv_create_cq", library_create_cq) &&
                        find(library, "ibv_destroy_cq", verbs.destroy_cq) &&
                        find(library, "ibv_get_cq_event", verbs.get_cq_event) &&
                        find(library, "ibv_ack_cq_events", verbs.ack_cq_events) &&
                        find(library, "ibv_create_srq", verbs.create_srq) &&
                        find(library, "ibv_destroy_srq", verbs.destroy_srq) &&
                        find(library, "ibv_create_qp", verbs.create_qp) &&
                        find(library, "ibv_modify_qp", verbs.modify_qp) &&
                        find(library, "ibv_destroy_qp", verbs.destroy_qp) &&
                        find(library, "ibv_get_async_event", verbs.get_async_event) &&
                        find(library, "ibv_ack_async_event", verbs.ack_async_event);
  if (!complete) {
    return fail(MC_UNSUPPORTED,
                "no RDMA: this host's libibverbs.so.1 lacks calls that every "
                "rdma-core since 2017 has; update it");
  }
  // Newer functions; without these functions there is neither relaxed ordering nor DMA-BUF.
  static_cast<void>(find(library, "ibv_reg_mr_iova2", library_reg_mr_iova2));
  static_cast<void>(find(library, "ibv_reg_dmabuf_mr", library_reg_dmabuf_mr));
  verbs.faults_pages = faults_pages;
  verbs.query_port = query_port;
  verbs.query_gids = query_gids;
  verbs.reg_mr = reg_mr;
  verbs.reg_dmabuf_mr = reg_dmabuf_mr;
  verbs.create_cq = [](ibv_context* context, int entries, ibv_comp_channel* channel) {
    return library_create_cq(context, entries, nullptr, channel, 0);
  };
  // These functions are inline in verbs.h: the driver's own functions.
  verbs.req_notify_cq = [](ibv_cq* queue) { return ibv_req_notify_cq(queue, 0); };
  verbs.poll_cq = ibv_poll_cq;
  verbs.post_srq_recv = ibv_post_srq_recv;
  verbs.post_send = ibv_post_send;
  return verbs;
}

}  // namespace mc::transport::rdma
