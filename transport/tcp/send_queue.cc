// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/send_queue.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace mc::transport::tcp {

namespace {
constexpr std::size_t kMaxSendVectors = 128;
}

Frame& SendQueue::push(FrameKind kind, std::uint64_t id, iovec payload,
                       const RegionTable::Grant* grant) {
  Item& item = items_.push();
  item.frame = make_frame(kind, id);
  item.frame_left = kFrameBytes;
  item.payload = payload;
  if (grant != nullptr) item.grant = *grant;
  item.granted = grant != nullptr;
  item.zero_copied = false;
  queued_bytes_ += kFrameBytes + payload.iov_len;
  return item.frame;
}

void SendQueue::push_payload(iovec payload, std::uint64_t frame_id) {
  Item& item = items_.push();
  item.frame.id = frame_id;
  item.frame_left = 0;
  item.payload = payload;
  item.granted = false;
  item.zero_copied = false;
  queued_bytes_ += payload.iov_len;
}

bool SendQueue::wants_zero_copy(const Item& item) const {
  return zero_copy_min_bytes_ > 0 && item.granted &&
         (item.zero_copied || item.payload.iov_len >= zero_copy_min_bytes_);
}

// Builds the vectors of the next call. A payload without copy has a call of its own: the payload's
// frame does not stay in place, so the kernel must copy the frame.
void SendQueue::gather(std::uint64_t budget_bytes, bool* more_follows) {
  vectors_.clear();
  *more_follows = false;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (bytes >= budget_bytes || vectors_.size() + 2 > kMaxSendVectors) break;
    Item& item = items_[i];
    if (item.frame_left > 0) {
      auto* frame = reinterpret_cast<std::byte*>(&item.frame) + kFrameBytes - item.frame_left;
      vectors_.push_back({frame, item.frame_left});
      bytes += item.frame_left;
    }
    if (item.payload.iov_len == 0) continue;
    if (wants_zero_copy(item)) {
      *more_follows = !vectors_.empty();
      if (vectors_.empty()) vectors_.push_back(item.payload);
      break;
    }
    vectors_.push_back(item.payload);
    bytes += item.payload.iov_len;
  }
}

ssize_t SendQueue::send(int socket, int flags) {
  if (tls_ != nullptr) return tls_->send(vectors_);
  msghdr message{};
  message.msg_iov = vectors_.data();
  message.msg_iovlen = vectors_.size();
  return ::sendmsg(socket, &message, flags);
}

SendQueue::Result SendQueue::flush(int socket, std::uint64_t budget_bytes, Counters& counters) {
  std::uint64_t spent = 0;
  while (!items_.empty()) {
    if (spent >= budget_bytes) return Result::kBudgetSpent;
    bool more_follows = false;
    gather(budget_bytes - spent, &more_follows);
    const bool zero_copy =
        !more_follows && items_.front().frame_left == 0 && wants_zero_copy(items_.front());
    int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    if (more_follows) flags |= MSG_MORE;
    if (zero_copy) flags |= MSG_ZEROCOPY;
    const ssize_t sent = send(socket, flags);
    ++counters.send_calls;
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Result::kWouldBlock;
      if (zero_copy && errno == ENOBUFS) {
        // Too many pages are locked for sending. A copying send always works.
        use_zero_copy(0);
        continue;
      }
      return Result::kFailed;
    }
    if (zero_copy) ++counters.zero_copy_sends;
    advance(static_cast<std::uint64_t>(sent), zero_copy);
    spent += static_cast<std::uint64_t>(sent);
  }
  // Encrypted bytes that found no room in the socket.
  if (has_unsent()) {
    if (!tls_->flush()) return Result::kFailed;
    if (has_unsent()) return Result::kWouldBlock;
  }
  return Result::kDrained;
}

void SendQueue::advance(std::uint64_t bytes, bool zero_copied) {
  queued_bytes_ -= bytes;
  if (zero_copied) {
    Item& item = items_.front();
    if (!item.zero_copied) {
      waiting_.push({item.grant, next_notice_, next_notice_, 0, false, item.granted});
      item.zero_copied = true;
    }
    Waiting& waiting = waiting_.back();
    waiting.last = next_notice_++;
    ++waiting.open;
  }
  while (!items_.empty()) {
    Item& item = items_.front();
    const auto of_frame =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, item.frame_left));
    item.frame_left -= of_frame;
    bytes -= of_frame;
    const std::size_t of_payload = std::min<std::uint64_t>(bytes, item.payload.iov_len);
    item.payload.iov_base = static_cast<std::byte*>(item.payload.iov_base) + of_payload;
    item.payload.iov_len -= of_payload;
    bytes -= of_payload;
    if (item.frame_left > 0 || item.payload.iov_len > 0) return;
    finish_front();
  }
}

void SendQueue::finish_front() {
  Item& item = items_.front();
  if (item.zero_copied) {
    waiting_.back().all_sent = true;
  } else if (item.granted) {
    released_.push_back(item.grant);
  }
  items_.pop();
}

bool SendQueue::take_notices(int socket, Counters& counters) {
  bool any = false;
  for (;;) {
    alignas(cmsghdr) char control[128];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(socket, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
      const bool of_errors = (part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR) ||
                             (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR);
      if (!of_errors || part->cmsg_len < CMSG_LEN(sizeof(sock_extended_err))) continue;
      const auto* error = reinterpret_cast<const sock_extended_err*>(CMSG_DATA(part));
      if (error->ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      any = true;
      if ((error->ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) {
        counters.zero_copy_copied += error->ee_data - error->ee_info + 1;
        zero_copy_min_bytes_ = 0;
      }
      noticed(error->ee_info, error->ee_data);
    }
  }
  return any;
}

void SendQueue::noticed(std::uint32_t first, std::uint32_t last) {
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    Waiting& waiting = waiting_[i];
    // Numbers wrap around, so distances from first are compared.
    const std::uint32_t span = last - first;
    for (std::uint32_t id = waiting.first; waiting.open > 0; ++id) {
      if (id - first <= span) --waiting.open;
      if (id == waiting.last) break;
    }
  }
  while (!waiting_.empty() && waiting_.front().all_sent && waiting_.front().open == 0) {
    if (waiting_.front().granted) released_.push_back(waiting_.front().grant);
    waiting_.pop();
  }
}

void SendQueue::abandon() {
  for (; !waiting_.empty(); waiting_.pop()) {
    if (waiting_.front().granted && waiting_.front().all_sent) {
      released_.push_back(waiting_.front().grant);
    }
  }
  for (; !items_.empty(); items_.pop()) {
    if (items_.front().granted) released_.push_back(items_.front().grant);
  }
  queued_bytes_ = 0;
}

}  // namespace mc::transport::tcp
