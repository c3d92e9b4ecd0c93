// SPDX-License-Identifier: Apache-2.0
//
// The options of an rdma transport.
// Threads: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transport/limits.h"
#include "transport/link.h"

namespace mc::transport::rdma {

struct RdmaOptions {
  NodeId node = 0;
  std::uint64_t incarnation = 0;
  std::vector<std::string> devices;  // by name; empty: all devices with an active port
  std::uint8_t port = 1;
  int gid_index = -1;  // of RoCE; -1: chosen by the address (address.h)
  std::uint16_t pkey_index = 0;
  std::uint8_t service_level = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t max_mtu_bytes = 4096;
  // A packet without acknowledgement within 4.096 µs · 2^ack_timeout is sent again, retry_count
  // times. 14: 67 ms.
  std::uint8_t ack_timeout = 14;
  std::uint8_t retry_count = 6;
  // Queue pairs of a rail for large operations, besides the queue pair for small operations.
  std::uint32_t bulk_pairs = 1;
  // Limit of bytes that each device asks of all peers together, for large operations.
  std::uint64_t max_asked_bytes = kMaxNicAskedBytes;
  // The queue pairs of a peer without operations for so long are closed until the next operation.
  std::uint64_t idle_close_ns = 600'000'000'000;
  // Bits of the local devices that are near to the memory at data. Large reads and writes use these
  // devices first. Empty: all devices are near.
  std::function<std::uint64_t(const std::byte* data, std::span<const std::string> devices)> near;
  bool relaxed_ordering = true;
  bool on_demand_paging = true;  // where the device supports on-demand paging
  std::uint32_t registering_threads = 8;
  std::uint32_t opening_threads = 4;  // of queue pairs; 0: the loop waits for each (opener.h)
};

}  // namespace mc::transport::rdma
