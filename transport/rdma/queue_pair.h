// SPDX-License-Identifier: Apache-2.0
//
// A reliably connected queue pair and its states.
//
//     asking end:   create ─► open_to(serving end): ready to receive, ready to send
//     serving end:  create ─► answer_to(asking end): ready to receive, which is enough to answer
//
// Threads: the transport's.
// Owns: the queue pair. After the destruction the device touches no memory of posted requests, and
//   no request that is still under way to the queue pair lands.
// Trusts: numbers of the peer that decode_body() accepted.
#pragma once

#include <utility>

#include "transport/rdma/device.h"
#include "transport/rdma/message.h"

namespace mc::transport::rdma {

inline constexpr std::uint32_t kPairDepth = 128;  // work requests posted to an asking end

struct RemoteEnd {
  PortAddress address;
  std::uint32_t pair_number = 0;
  std::uint32_t packet_number = 0;
  std::uint8_t mtu = IBV_MTU_1024;
  std::uint8_t read_depth = 1;
};

class QueuePair {
 public:
  QueuePair() = default;
  // Errors: MC_NO_MEMORY: the device has no more queue pairs.
  static Result<QueuePair> create_asking(Device& device, const RdmaOptions& options);
  static Result<QueuePair> create_serving(Device& device, const RdmaOptions& options);
  QueuePair(QueuePair&& other) noexcept { *this = std::move(other); }
  QueuePair& operator=(QueuePair&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(options_, other.options_);
    std::swap(pair_, other.pair_);
    std::swap(inline_bytes_, other.inline_bytes_);
    return *this;
  }
  ~QueuePair();

  Device& device() const { return *device_; }
  ibv_qp* get() const { return pair_; }
  std::uint32_t number() const { return pair_->qp_num; }
  std::uint32_t inline_bytes() const { return inline_bytes_; }

  // Errors: MC_UNSUPPORTED: the device has no way to that address.
  Status open_to(const RemoteEnd& end, std::uint32_t own_packet_number);
  Status answer_to(const RemoteEnd& end);
  // Stops the queue pair: the device flushes posted requests.
  void stop();

 private:
  static Result<QueuePair> create(Device& device, const RdmaOptions& options, bool asking);
  Status to_ready_to_receive(const RemoteEnd& end);

  Device* device_ = nullptr;
  const RdmaOptions* options_ = nullptr;
  ibv_qp* pair_ = nullptr;
  std::uint32_t inline_bytes_ = 0;
};

}  // namespace mc::transport::rdma
