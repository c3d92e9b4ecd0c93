// SPDX-License-Identifier: Apache-2.0
//
// The notifications that have arrived, until the transport's owner takes them as
//   events.
// Threads: the transport's.
// Owns: the payloads, until the take() after the call that returned the payloads.
#pragma once

#include <utility>
#include <vector>

#include "transport/limits.h"
#include "transport/transport.h"

namespace mc::transport {

class Inbox {
 public:
  bool empty() const { return arrived_.empty(); }
  bool is_full() const { return arrived_.size() >= kMaxPendingNotifications; }
  void add(NodeId from, std::vector<std::byte> payload) {
    arrived_.push_back({from, std::move(payload)});
  }
  // Appends an event for each notification.
  void take(std::vector<Event>& events) {
    taken_.clear();
    taken_.swap(arrived_);
    for (const Notification& notification : taken_) {
      Event event;
      event.kind = Event::Kind::kNotified;
      event.verb = Verb::kNotify;
      event.bytes = notification.payload.size();
      event.from = notification.from;
      event.payload = notification.payload;
      events.push_back(event);
    }
  }

 private:
  struct Notification {
    NodeId from = 0;
    std::vector<std::byte> payload;
  };
  std::vector<Notification> arrived_;
  std::vector<Notification> taken_;
};

}  // namespace mc::transport
