// SPDX-License-Identifier: Apache-2.0
//
// Reads the log device of the device mapper's target log-writes: each write to the disk behind it, in
//   the order in which the writes became durable, and marks.
//   The first sector is the superblock. Each entry has a sector, and behind the sector the written bytes. The
//   writes that a flush makes durable stand in front of the flush.
// Threads: one.
// Trusts: nothing. A log that does not fit its device is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libmc/base/fd.h"

namespace mc::tier::cuts {

class WriteLog {
 public:
  struct Entry {
    std::uint64_t offset = 0, bytes = 0;  // on the disk
    std::uint64_t data_at = 0;            // on the log device
    bool flush = false, fua = false, discard = false;
    std::string mark = {};
  };

  explicit WriteLog(const std::string& device);
  const std::vector<Entry>& entries() const { return entries_; }
  std::uint64_t sector_bytes() const { return sector_bytes_; }
  // The bytes that the entry writes. A discard writes zeros.
  std::vector<std::byte> data_of(const Entry& entry) const;

 private:
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  Fd fd_;
  std::uint64_t sector_bytes_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace mc::tier::cuts
