// SPDX-License-Identifier: Apache-2.0
//
// The allocator of key records in a memory file that only the agent writes. The file is
//   cut into slabs of 64 KiB. A slab in use holds records of one size class (a multiple of 16
//   bytes) without headers. An empty slab returns to the list of empty slabs, which serves all
//   classes. All operations take constant time, except for growing the file.
// Threads: only the owner of the pool.
// Owns: a bitmap and a count per slab in use, in private memory. The heap never touches the
//   records; the owner of the file does, at base + reference * kUnitBytes.
// Trusts: its caller, except for the arguments of claim(). These come from a file found at restart,
//   and claim() refuses records that do not fit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <string>
#include <vector>

#include "agent/pool/index/optional_id.h"

namespace mc::agent {

class KeyHeap {
 public:
  static constexpr std::uint32_t kUnitBytes = 16;
  static constexpr std::uint32_t kSlabBytes = 64 * 1024;
  static constexpr std::uint32_t kMaxRecordBytes = 1200;
  static constexpr std::uint64_t kGrowBytes = 1024 * 1024;
  // The reach of 32-bit references, less one step: the topmost references are never given.
  static constexpr std::uint64_t kMaxBytes = (std::uint64_t{1} << 36) - kGrowBytes;
  static constexpr std::uint32_t kNoRef = 0xffffffff;

  // Makes [first_byte, first_byte + bytes) of the file usable; false if memory is short.
  using MakeUsable = std::function<bool(std::uint64_t first_byte, std::uint64_t bytes)>;

  // usable_bytes: usable bytes of a file found at restart; only whole slabs count.
  explicit KeyHeap(MakeUsable make_usable, std::uint64_t usable_bytes = 0);
  KeyHeap(const KeyHeap&) = delete;
  KeyHeap& operator=(const KeyHeap&) = delete;

  // Allocates a record of 1 to kMaxRecordBytes; returns its place in units of 16 bytes. nullopt for
  // other sizes, and if the heap is full and make_usable refuses.
  [[nodiscard]] OptionalId allocate(std::uint32_t bytes);
  // REQUIRES: bytes as given to allocate() or claim(). Returns false, without a change, if no such
  // record of that size class exists.
  bool free(std::uint32_t ref, std::uint32_t bytes);
  // Recovery: marks a record as used. Returns false, without a change, if the record is misaligned
  // for its size class, beyond the usable file, used already, or in a slab of another class.
  [[nodiscard]] bool claim(std::uint32_t ref, std::uint32_t bytes);

  // Bytes of all records, rounded up to the size classes.
  [[nodiscard]] std::uint64_t used_bytes() const { return used_units_ * kUnitBytes; }
  // Bytes of the file that were made usable.
  [[nodiscard]] std::uint64_t reserved_bytes() const {
    return std::uint64_t{slabs_.size()} * kSlabBytes;
  }
  // Heap bytes of the bookkeeping.
  [[nodiscard]] std::size_t memory_bytes() const;

  // For tests: walks all slabs. Returns the first broken invariant, or an empty string.
  [[nodiscard]] std::string check() const;

 private:
  static constexpr std::uint32_t kSlabUnits = kSlabBytes / kUnitBytes;
  static constexpr std::uint32_t kWords = kSlabUnits / 64;
  static_assert(kWords <= 64, "one word tells which words have a free record");
  static constexpr std::uint32_t kClasses = kMaxRecordBytes / kUnitBytes;
  static constexpr std::uint32_t kNoSlab = 0xffffffff;
  // List 0 holds the empty slabs; list c holds the slabs of class c with a free record.
  static constexpr std::uint32_t kReservationCache = 0;

  struct Records {
    std::uint32_t units;  // size of a record: the class
    std::uint32_t used;   // records
    std::uint64_t words_with_free;
    std::array<std::uint64_t, kWords> free;  // a bit per record, 1 = free
  };
  struct Slab {
    std::unique_ptr<Records> records;  // null: an empty slab
    std::uint32_t prev = kNoSlab;      // in its list
    std::uint32_t next = kNoSlab;
  };

  [[nodiscard]] static std::uint32_t class_of(std::uint32_t bytes);
  [[nodiscard]] bool grow();
  void add_slabs(std::uint64_t slab_count);
  void put_in_list(std::uint32_t slab, std::uint32_t list);
  void take_from_list(std::uint32_t slab, std::uint32_t list);
  void assign(std::uint32_t slab, std::uint32_t units);
  void mark_used(std::uint32_t slab, std::uint32_t record);
  void mark_free(std::uint32_t slab, std::uint32_t record);
  [[nodiscard]] std::string check_slab(std::uint32_t slab, std::uint64_t* used_units) const;
  [[nodiscard]] std::string check_list(std::uint32_t list, std::uint64_t* listed) const;

  MakeUsable make_usable_;
  std::vector<Slab> slabs_;
  std::array<std::uint32_t, kClasses + 1> lists_;
  std::uint64_t used_units_ = 0;
  std::uint64_t slabs_in_use_ = 0;
};

}  // namespace mc::agent
