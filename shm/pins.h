// SPDX-License-Identifier: Apache-2.0
//
// What it is: pin slots, by which a client says "I read this object in place".
//   Client: write the slot, light fence, check that the entry still has that version. If it has
//   not,
//     clear the slot and look the key up again.
//   Agent: bump the entry's version, heavy fence, read all slots. An extent with a pin waits in
//   limbo. Whoever comes second sees the other's store, so no extent is reused under a reader.
// Threads: set_pin by the channel's owner; clear_pin by anyone.
// Trusts: the agent treats a slot as a hint that may keep memory of this client's namespace in
// limbo
//   until the client is gone, and counts it; it never follows one.
#pragma once

#include <cstdint>

#include "shm/layout.h"

namespace mc::shm {

// Names one version of one object: the entry's number plus one, and the low half of its sequence.
inline constexpr std::uint64_t pin_value(std::uint32_t entry, std::uint64_t version) {
  return (std::uint64_t{entry + 1} << 32) | (sequence_of(version) & 0xffffffffu);
}

inline void set_pin(Word64& slot, std::uint64_t pin) {
  slot.store_relaxed(pin);
  light_fence();
}
// In a slot that waits for a pin which the agent will write. Names no entry there can be.
inline constexpr std::uint64_t kPinWanted = ~std::uint64_t{0};
// Reads of the object stay before the release.
inline void clear_pin(Word64& slot) { slot.store_release(0); }

}  // namespace mc::shm
