// SPDX-License-Identifier: Apache-2.0
//
// What it is: frames and payload on their way into one socket, gathered: many frames with their
//   payload leave in one call, payload straight from where it lies. Large payload may go without
//   the kernel's copy (MSG_ZEROCOPY); the first time the kernel says that it copied all the same,
//   as on loopback, that is given up for this lane.
// Threads: the transport's. Owns the frames, not the payload: that stays in place until released()
//   has given back its grant.
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

  // What leaves is encrypted by it, which outlives this; null: nothing is.
  void use_tls(Session* tls) { tls_ = tls; }
  // 0: never without a copy.
  void use_zero_copy(std::uint32_t min_bytes) { zero_copy_min_bytes_ = min_bytes; }

  // A frame and its payload, if any; grant: what to give back when the kernel has it. What else the
  // frame says is filled in before the next call.
  Frame& push(FrameKind kind, std::uint64_t id, iovec payload = {},
              const RegionTable::Grant* grant = nullptr);
  // More payload of the frame before.
  void push_payload(iovec payload, std::uint64_t frame_id);

  // Nothing is left to do for flush().
  bool empty() const { return items_.empty() && !has_unsent(); }
  // Whether frame and payload of that id have left. Ids grow.
  bool has_sent(std::uint64_t frame_id) const {
    return items_.empty() || frame_id < items_[0].frame.id;
  }
  // Whether a byte of it may have left.
  bool has_begun(std::uint64_t frame_id) const {
    if (items_.empty() || items_[0].frame.id != frame_id) return has_sent(frame_id);
    return items_[0].frame_left < kFrameBytes;
  }
  std::uint64_t queued_bytes() const { return queued_bytes_; }
  // Nothing queued and nothing the kernel still looks at.
  bool idle() const { return empty() && waiting_.empty(); }

  Result flush(int socket, std::uint64_t budget_bytes, Counters& counters);
  // Reads the socket's error queue. False: there was none of ours in it.
  bool take_notices(int socket, Counters& counters);
  // Grants whose bytes the kernel no longer needs; the caller releases and clears them.
  std::vector<RegionTable::Grant>& released() { return released_; }
  // The socket is cut: everything is given back.
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
  // Payload the kernel reads on: numbers of the sends, as its notices count them.
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

  Session* tls_ = nullptr;
  Queue<Item> items_;
  Queue<Waiting> waiting_;
  std::vector<RegionTable::Grant> released_;
  std::vector<iovec> vectors_;
  std::uint64_t queued_bytes_ = 0;
  std::uint32_t zero_copy_min_bytes_ = 0;
  std::uint32_t next_notice_ = 0;
};

}  // namespace mc::transport::tcp
