// SPDX-License-Identifier: Apache-2.0
//
// The calls of libibverbs that this transport makes, as a table of functions. The
//   library is opened at run time, so that the same program serves hosts with and without RDMA.
//   Tests put a simulated device below the table.
// Threads: a value. Any thread may call the functions, as with libibverbs.
// Owns: nothing. An opened library stays for the life of the process, as the drivers need.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "mc/status.h"

namespace mc::transport::rdma {

enum class GidType : std::uint8_t { kInfiniBand, kRoceV1, kRoceV2 };

struct GidEntry {
  ibv_gid gid{};
  GidType type = GidType::kInfiniBand;
  std::uint32_t index = 0;
};

struct Verbs {
  ibv_device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(ibv_device** list) = nullptr;
  const char* (*get_device_name)(ibv_device* device) = nullptr;
  ibv_context* (*open_device)(ibv_device* device) = nullptr;
  int (*close_device)(ibv_context* context) = nullptr;
  int (*query_device)(ibv_context* context, ibv_device_attr* attributes) = nullptr;
  // Whether memory need not be pinned: the device faults pages in for all requests of this
  // transport.
  bool (*faults_pages)(ibv_context* context) = nullptr;
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) = nullptr;
  // The used entries of the GID table.
  std::vector<GidEntry> (*query_gids)(ibv_context* context, std::uint8_t port) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context* context) = nullptr;
  int (*dealloc_pd)(ibv_pd* domain) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* data, std::size_t bytes, unsigned access) = nullptr;
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* domain, std::uint64_t offset, std::size_t bytes,
                           std::uint64_t address, int fd, unsigned access) = nullptr;
  int (*dereg_mr)(ibv_mr* region) = nullptr;
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context) = nullptr;
  int (*destroy_comp_channel)(ibv_comp_channel* channel) = nullptr;
  ibv_cq* (*create_cq)(ibv_context* context, int entries, ibv_comp_channel* channel) = nullptr;
  int (*destroy_cq)(ibv_cq* queue) = nullptr;
  int (*req_notify_cq)(ibv_cq* queue) = nullptr;
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** queue, void** context) = nullptr;
  void (*ack_cq_events)(ibv_cq* queue, unsigned count) = nullptr;
  int (*poll_cq)(ibv_cq* queue, int count, ibv_wc* completions) = nullptr;
  ibv_srq* (*create_srq)(ibv_pd* domain, ibv_srq_init_attr* attributes) = nullptr;
  int (*destroy_srq)(ibv_srq* queue) = nullptr;
  int (*post_srq_recv)(ibv_srq* queue, ibv_recv_wr* first, ibv_recv_wr** bad) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd* domain, ibv_qp_init_attr* attributes) = nullptr;
  int (*modify_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask) = nullptr;
  int (*destroy_qp)(ibv_qp* pair) = nullptr;
  int (*post_send)(ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) = nullptr;
  int (*get_async_event)(ibv_context* context, ibv_async_event* event) = nullptr;
  void (*ack_async_event)(ibv_async_event* event) = nullptr;
};

// Errors: MC_UNSUPPORTED: this host has no libibverbs, or an old version; with the remedy.
Result<Verbs> load_verbs();

}  // namespace mc::transport::rdma
