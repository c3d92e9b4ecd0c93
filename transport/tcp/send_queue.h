// SPDX-License-Identifier: Apache-2.0
//
// Frames and payload on the way into a socket. Many frames with payload leave
//   in one call, and payload leaves straight from the source. Large payload may leave without the
//   kernel's copy (MSG_ZEROCOPY). The lane stops using MSG_ZEROCOPY when the kernel first reports
//   a copy nevertheless, as on loopback.
// Threads: the transport's.
// Owns: the frames, not the payload. Payload stays in place until released() has returned the
//   grant.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/flow/queue.h"
#include "transport/region.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/wire.h"
#include "transport/transport.h"

namespace mc::transport::tcp {

class SendQueue {
 public:
  enum class Result { kDrained, kWouldBlock, kBudgetSpent, kFailed };

  // tls encrypts the bytes and outlives the queue; null: plain bytes.
  void use_tls(TlsSession* tls) { tls_ = tls; }
  // 0: every payload is copied.
  void use_zero_copy(std::uint32_t min_bytes) { zero_copy_min_bytes_ = min_bytes; }

  // Adds a frame and the payload, if any. grant: returned when the kernel has the payload. The
  // caller fills in the other fields of the frame before the next call.
  Frame& push(FrameKind kind, std::uint64_t id, iovec payload = {},
              const RegionTable::Grant* grant = nullptr);
  // Adds payload to the last frame.
  void push_payload(iovec payload, std::uint64_t frame_id);

  // flush() has no work left.
  bool empty() const { return items_.empty() && !has_unsent(); }
  // Whether frame and payload with the id have left. Ids grow.
  bool has_sent(std::uint64_t frame_id) const {
    return items_.empty() || frame_id < items_[0].frame.id;
  }
  // Whether a byte of the frame may have left.
  bool has_begun(std::uint64_t frame_id) const {
    if (items_.empty() || items_[0].frame.id != frame_id) return has_sent(frame_id);
    return items_[0].frame_left < kFrameBytes;
  }
  std::uint64_t queued_bytes() const { return queued_bytes_; }
  // The queue is empty, and the kernel uses no payload.
  bool idle() const { return empty() && waiting_.empty(); }

  Result flush(int socket, std::uint64_t budget_bytes, Counters& counters);
  // Reads the socket's error queue. False: the error queue had no notice of this queue.
  bool take_notices(int socket, Counters& counters);
  // Grants whose bytes the kernel no longer needs; the caller releases and clears the grants.
  std::vector<RegionTable::Grant>& released() { return released_; }
  // The socket is cut: returns every grant.
  void abandon();

 private:
  struct Item {
    Frame frame{};
    iovec payload{};
    RegionTable::Grant grant;
    std::uint32_t frame_left = 0;
    bool granted = false;
    bool zero_copied = false;
  };
  // Payload that the kernel still reads: numbers of the sends, as the kernel's notices count them.
  struct Waiting {
    RegionTable::Grant grant;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint32_t open = 0;
    bool all_sent = false;
    bool granted = false;
  };

  bool has_unsent() const { return tls_ != nullptr && tls_->has_unsent(); }
  ssize_t send(int socket, int flags);
  bool wants_zero_copy(const Item& item) const;
  void gather(std::uint64_t budget_bytes, bool* more_follows);
  void advance(std::uint64_t bytes, bool zero_copied);
  void finish_front();
  void noticed(std::uint32_t first, std::uint32_t last);

  TlsSession* tls_ = nullptr;
  Queue<Item> items_;
  Queue<Waiting> waiting_;
  std::vector<RegionTable::Grant> released_;
  std::vector<iovec> vectors_;
  std::uint64_t queued_bytes_ = 0;
  std::uint32_t zero_copy_min_bytes_ = 0;
  std::uint32_t next_notice_ = 0;
};

}  // namespace mc::transport::tcp
