// SPDX-License-Identifier: Apache-2.0
//
// Pin slots. A client pins an object to read the object's bytes in place.
//   Client: writes the slot, runs a full fence, and checks that the entry still has the version.
//     If the version has changed, the client clears the slot and looks the key up again.
//   Agent: changes the entry's version, runs a full fence, and reads all slots. A pinned extent
//     stays in limbo.
//   Invariant: the later side sees the store of the earlier side, so the agent never reuses an
//     extent that a client reads.
// Threads: the channel's owner calls set_pin(); any thread calls clear_pin().
// Trusts: nothing. A forged pin keeps memory of the client's own namespace in limbo until the
//   client is gone. The agent counts pins and never uses a pin as an address.
#pragma once

#include <cstdint>

#include "shm/layout.h"

namespace mc::shm {

// The pin of one version of one object: entry number + 1, and the low half of the sequence.
inline constexpr std::uint64_t pin_value(std::uint32_t entry, std::uint64_t version) {
  return (std::uint64_t{entry + 1} << 32) | (sequence_of(version) & 0xffffffffu);
}

inline void set_pin(Word64& slot, std::uint64_t pin) {
  slot.store_relaxed(pin);
  full_fence();
}
// Value of a slot in which the client expects a pin from the agent. No entry has this number.
inline constexpr std::uint64_t kPinWanted = ~std::uint64_t{0};
// The release orders the client's reads of the object before the cleared slot.
inline void clear_pin(Word64& slot) { slot.store_release(0); }

}  // namespace mc::shm
