// SPDX-License-Identifier: Apache-2.0
//
// A ring of the client's notes for the eviction policy: "the client used entry N". A full ring
//   loses the oldest notes; the policy then works with less information.
// Threads: the channel's owner calls record(); the agent's loop calls drain().
// Trusts: nothing. The agent bounds every number from the ring.
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

  // Skips an entry that is noted already since the agent last drained the ring: the policy would
  // learn nothing new. A small table of recent entries finds most repetitions.
  void record(std::uint32_t entry) {
    const std::uint32_t round = channel_->header.touch_round.load_relaxed() + requests_;
    std::uint64_t& recent = recent_[entry % kRecentSlots];
    const std::uint64_t note = (std::uint64_t{round} << 32) | entry;
    if (recent == note) return;
    recent = note;
    channel_->touches[head_ & (kTouchSlots - 1)].store_relaxed(entry);
    channel_->header.touch_head.store_release(++head_);
  }
  // The count of notes so far. The client sends the count with a request, and the agent first
  // drains up to that count.
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

  // Calls use(entry) for every note before head. head: the count in a client's request.
  template <typename Use>
  void drain(std::uint32_t head, Use use) {
    // An older head comes from a request before the last drain, or from a hostile client.
    if (head - seen_ > 0x7fffffffu) return;
    if (head - seen_ > kTouchSlots) seen_ = head - kTouchSlots;
    for (; seen_ != head; ++seen_) {
      use(channel_->touches[seen_ & (kTouchSlots - 1)].load_relaxed());
    }
  }
  // Drains all notes, between requests. True: the ring had notes.
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
