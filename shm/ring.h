// SPDX-License-Identifier: Apache-2.0
//
// A ring of 64-byte records from one producer to one consumer in another process. The sides share
//   no indices. The first word of a slot is a stamp of epoch and position. The consumer knows the
//   next stamp and polls one cache line. Neither ring can overrun, because a client keeps at most
//   kRingSlots requests without a completion; neither side reads a counter of the other side.
// Threads: one producer and one consumer, each with its own object.
// Trusts: nothing. A consumer copies a record once, and the caller checks the copy. A forged stamp
//   makes the consumer accept a forged record or stop.
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
  // Copies the next record. False: the ring has no new record.
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
