// SPDX-License-Identifier: Apache-2.0
//
// What it is: a ring of 64-byte records from one producer to one consumer in another process.
//   There are no shared indices. The first word of a slot is a stamp of epoch and position; the
//   consumer knows which stamp comes next and looks at one line until it is there. Room is counted
//   by the requests in flight, never read from the other side: a client keeps at most kRingSlots
//   requests without a completion, so neither ring can overrun.
// Threads: one producer and one consumer, each with its object of its own.
// Trusts: neither side believes the other. A consumer copies a record once and its owner checks the
//   copy; a forged stamp makes it accept a forged record or stop, nothing else.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "shm/layout.h"

namespace mc::shm {

// Words 1 to 7 of a slot; word 0 is the stamp.
using RecordWords = std::array<std::uint64_t, 7>;

inline constexpr std::uint64_t ring_stamp(std::uint32_t epoch, std::uint64_t position) {
  return (std::uint64_t{epoch} << 40) | ((position + 1) & 0xffffffffffull);
}

class RingProducer {
 public:
  RingProducer() = default;
  RingProducer(RingSlot* slots, std::uint32_t epoch) : slots_(slots), epoch_(epoch) {}

  // REQUIRES: fewer than kRingSlots records are unanswered.
  void publish(const RecordWords& record) {
    RingSlot& slot = slots_[next_ & (kRingSlots - 1)];
    for (std::size_t i = 0; i < record.size(); ++i) slot.words[i + 1].store_relaxed(record[i]);
    slot.words[0].store_release(ring_stamp(epoch_, next_));
    ++next_;
  }

 private:
  RingSlot* slots_ = nullptr;
  std::uint32_t epoch_ = 0;
  std::uint64_t next_ = 0;
};

class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(const RingSlot* slots, std::uint32_t epoch) : slots_(slots), epoch_(epoch) {}

  bool has_record() const {
    return slots_[next_ & (kRingSlots - 1)].words[0].load_acquire() == ring_stamp(epoch_, next_);
  }
  // Copies the next record out. False: none waits.
  bool poll(RecordWords& record) {
    if (!has_record()) return false;
    const RingSlot& slot = slots_[next_ & (kRingSlots - 1)];
    for (std::size_t i = 0; i < record.size(); ++i) record[i] = slot.words[i + 1].load_relaxed();
    ++next_;
    return true;
  }

 private:
  const RingSlot* slots_ = nullptr;
  std::uint32_t epoch_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace mc::shm
