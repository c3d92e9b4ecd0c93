// SPDX-License-Identifier: Apache-2.0
//
// A table whose entries are named by numbers. A number holds a slot and the slot's
//   generation, so the number of a removed entry is never used again.
// Threads: under the engine's lock.
// Owns: the entries. T has a field `std::uint64_t id`.
// Trusts: no number. An unknown number finds no entry.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace mc::transfer {

inline std::uint32_t slot_of(std::uint64_t id) { return static_cast<std::uint32_t>(id) - 1; }

template <typename T>
class SlotTable {
 public:
  explicit SlotTable(std::size_t limit) : limit_(limit) {}

  // Null: no entry has this number.
  T* find(std::uint64_t id) const {
    T* const entry = id != 0 ? at(slot_of(id)) : nullptr;
    return entry != nullptr && entry->id == id ? entry : nullptr;
  }
  // Null: the slot is empty.
  T* at(std::uint32_t slot) const {
    return slot < slots_.size() ? slots_[slot].entry.get() : nullptr;
  }
  bool full() const { return free_.empty() && slots_.size() >= limit_; }
  // Adds the entry and sets the number. Null: the table is full.
  T* add(std::unique_ptr<T> entry) {
    if (full()) return nullptr;
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    Slot& taken = slots_[slot];
    entry->id = (std::uint64_t{++taken.generation} << 32) | (slot + 1);
    taken.entry = std::move(entry);
    return taken.entry.get();
  }
  void remove(T& entry) {
    const std::uint32_t slot = slot_of(entry.id);
    free_.push_back(slot);
    slots_[slot].entry.reset();
  }
  // visit may add and remove entries.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (T* const entry = at(slot)) visit(*entry);
    }
  }

 private:
  struct Slot {
    std::unique_ptr<T> entry;
    std::uint32_t generation = 0;
  };
  const std::size_t limit_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace mc::transfer
