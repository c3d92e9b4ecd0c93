// SPDX-License-Identifier: Apache-2.0
//
// Notifications that arrived and that the program has not taken yet.
// Threads: under the engine's lock.
// Owns: the notifications, at most MC_MAX_TRANSFER_NOTIFICATIONS.
// Trusts: no payload; decode_notification() checks each.
#pragma once

#include <deque>
#include <utility>

#include "mc/limits.h"
#include "transport/engine/wire/notification.h"

namespace mc::transfer {

class NotificationQueue {
 public:
  // Ignores a payload of an unknown protocol.
  void add(std::span<const std::byte> payload) {
    auto notification = decode_notification(payload);
    if (!notification) return;
    if (queue_.size() >= MC_MAX_TRANSFER_NOTIFICATIONS) {
      ++dropped_;
    } else {
      queue_.push_back(std::move(*notification));
    }
  }
  bool take(Notification* oldest) {
    if (queue_.empty()) return false;
    *oldest = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }
  bool empty() const { return queue_.empty(); }
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::deque<Notification> queue_;
  std::uint64_t dropped_ = 0;
};

}  // namespace mc::transfer
