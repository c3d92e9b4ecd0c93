// SPDX-License-Identifier: Apache-2.0
//
// What it is: the client's notes for the eviction policy: "I used entry N". The ring may be overrun:
//   then old notes are lost and the policy knows a little less.
// Threads: record() by the channel's owner; drain() by the agent's loop.
// Trusts: the agent bounds every number it reads here.
#pragma once

#include <cstdint>

#include "shm/layout.h"

namespace mc::shm {

class TouchWriter {
 public:
  TouchWriter() = default;
  explicit TouchWriter(Channel* channel)
      : channel_(channel), head_(channel->header.touch_head.load_relaxed()) {}
  void record(std::uint32_t entry) {
    channel_->touches[head_ & (kTouchSlots - 1)].store_relaxed(entry);
    ++head_;
  }
  // Makes the notes so far visible; returns their count, which travels with the next request.
  std::uint32_t publish() {
    channel_->header.touch_head.store_release(head_);
    return head_;
  }

 private:
  Channel* channel_ = nullptr;
  std::uint32_t head_ = 0;
};

class TouchReader {
 public:
  TouchReader() = default;
  explicit TouchReader(const Channel* channel)
      : channel_(channel), seen_(channel->header.touch_head.load_acquire()) {}

  // Calls use(entry) for every note before head (a count as TouchWriter::publish() returns).
  template <typename Use>
  void drain(std::uint32_t head, Use use) {
    if (head - seen_ > kTouchSlots) seen_ = head - kTouchSlots;
    for (; seen_ != head; ++seen_) {
      use(channel_->touches[seen_ & (kTouchSlots - 1)].load_relaxed());
    }
  }
  // Notes not yet drained.
  std::uint32_t waiting() const { return channel_->header.touch_head.load_acquire() - seen_; }

 private:
  const Channel* channel_ = nullptr;
  std::uint32_t seen_ = 0;
};

}  // namespace mc::shm
