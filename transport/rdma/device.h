// SPDX-License-Identifier: Apache-2.0
//
// An open RDMA device: protection domain, completion queue with its event channel, a
//   shared receive queue with buffers for notifications, and the device's address.
// Threads: the transport's; any for registering memory.
// Owns: all of these. Queue pairs and memory regions of the device must be destroyed first.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/limits.h"
#include "transport/rdma/address.h"
#include "transport/rdma/rdma_options.h"
#include "transport/rdma/verbs.h"

namespace mc::transport::rdma {

inline constexpr std::uint32_t kMaxSlicePieces = 16;
inline constexpr std::uint32_t kInlineBytes = 128;
inline constexpr int kReceiveBuffers = 256;  // of a device, each for a notification
// Marks the work request ids of receives; the other bits are the index of the buffer.
inline constexpr std::uint64_t kReceiveMark = std::uint64_t{1} << 63;

class Device {
 public:
  // epoch: differs from the epoch of any device opened before. Errors: MC_UNSUPPORTED (no active
  // port, no usable address), MC_NO_MEMORY (out of resources), each with device, cause and remedy.
  static Result<std::unique_ptr<Device>> open(const Verbs& verbs, ibv_device* device,
                                              const RdmaOptions& options, std::uint64_t epoch);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Verbs& verbs() const { return *verbs_; }
  const std::string& name() const { return name_; }
  std::uint64_t epoch() const { return epoch_; }
  const PortAddress& address() const { return address_; }
  double line_bytes_per_ns() const { return line_bytes_per_ns_; }  // of the port; 0: unknown
  std::uint32_t gid_index() const { return gid_index_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  ibv_cq* completions() const { return completions_; }
  ibv_srq* receives() const { return receives_; }
  std::uint32_t max_pieces() const { return max_pieces_; }
  std::uint8_t reads_out() const { return reads_out_; }  // outstanding reads of this device
  std::uint8_t reads_in() const { return reads_in_; }    // reads that this device answers at once
  bool faults_pages() const { return faults_pages_; }
  int event_fd() const { return channel_->fd; }
  int async_fd() const { return context_->async_fd; }

  // Whether the chosen GID is still the right choice.
  bool address_holds() const;

  int poll(std::span<ibv_wc> completions);
  bool armed() const { return armed_; }
  void arm();
  // Takes the waiting events of the event channel.
  void take_events();

  std::span<const std::byte> received(std::uint64_t work_id, std::uint32_t bytes) const;
  void repost(std::uint64_t work_id);

  // The work requests that may still be posted, so that completions never overflow the queue.
  std::uint32_t room() const { return room_ - std::min(room_, outstanding_); }
  void on_posted() { ++outstanding_; }
  void on_ended(std::uint32_t count) { outstanding_ -= count; }

 private:
  Device(const Verbs& verbs, const RdmaOptions& options, std::uint64_t epoch)
      : verbs_(&verbs), options_(options), epoch_(epoch) {}
  Status start(ibv_device* device);
  Status find_address();
  Status make_queues(const ibv_device_attr& attributes);

  const Verbs* verbs_;
  const RdmaOptions& options_;
  const std::uint64_t epoch_;
  std::string name_;
  PortAddress address_;
  double line_bytes_per_ns_ = 0;
  std::uint32_t gid_index_ = 0;
  std::uint32_t max_pieces_ = 1;
  std::uint8_t reads_out_ = 1;
  std::uint8_t reads_in_ = 1;
  bool faults_pages_ = false;
  bool armed_ = false;
  std::uint32_t outstanding_ = 0;
  std::uint32_t room_ = 0;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_srq* receives_ = nullptr;
  ibv_mr* buffers_region_ = nullptr;
  std::vector<std::byte> buffers_;
};

}  // namespace mc::transport::rdma
