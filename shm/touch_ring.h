// SPDX-License-Identifier: Apache-2.0
//
// What it is: the client's notes for the eviction policy: "I used entry N". The ring may be
// overrun:
//   then old notes are lost and the policy knows a little less.
// Threads: record() by the channel's owner; drain() by the agent's loop.
// Trusts: the agent bounds every number it reads here.
#pragma once

#include <array>
#include <cstdint>

#include "shm/layout.h"

namespace mc::shm {

class TouchWriter {
 public:
  TouchWriter() = default;
  explicit TouchWriter(Channel* channel)
      : channel_(channel), head_(channel->header.touch_head.load_relaxed()) {}

  // A use of an entry that was noted since the agent last looked tells the policy nothing new and
  // is left out, as far as a small memory of recent entries knows.
  void record(std::uint32_t entry) {
    const std::uint32_t round = channel_->header.touch_round.load_relaxed() + requests_;
    std::uint64_t& recent = recent_[entry % kRecentSlots];
    const std::uint64_t note = (std::uint64_t{round} << 32) | entry;
    if (recent == note) return;
    recent = note;
    channel_->touches[head_ & (kTouchSlots - 1)].store_relaxed(entry);
    channel_->header.touch_head.store_release(++head_);
  }
  // The count of notes so far, which travels with a request: the agent drains up to there first.
  std::uint32_t head_for_request() {
    ++requests_;
    return head_;
  }

 private:
  static constexpr std::uint32_t kRecentSlots = 256;

  Channel* channel_ = nullptr;
  std::uint32_t head_ = 0;
  std::uint32_t requests_ = 1;
  std::array<std::uint64_t, kRecentSlots> recent_{};
};

class TouchReader {
 public:
  TouchReader() = default;
  explicit TouchReader(const Channel* channel)
      : channel_(channel), seen_(channel->header.touch_head.load_acquire()) {}

  // Calls use(entry) for every note before head, a count that came with a request.
  template <typename Use>
  void drain(std::uint32_t head, Use use) {
    // A head behind what was seen came with a request older than the last look, or from a liar.
    if (head - seen_ > 0x7fffffffu) return;
    if (head - seen_ > kTouchSlots) seen_ = head - kTouchSlots;
    for (; seen_ != head; ++seen_) {
      use(channel_->touches[seen_ & (kTouchSlots - 1)].load_relaxed());
    }
  }
  // The same for all notes there are, between requests. True if there were any.
  template <typename Use>
  bool drain_all(Use use) {
    const std::uint32_t head = channel_->header.touch_head.load_acquire();
    if (head == seen_) return false;
    drain(head, use);
    return true;
  }

 private:
  const Channel* channel_ = nullptr;
  std::uint32_t seen_ = 0;
};

}  // namespace mc::shm
