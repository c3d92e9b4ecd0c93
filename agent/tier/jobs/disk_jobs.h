// SPDX-License-Identifier: Apache-2.0
//
// The work that the tier gives a disk: writes of gathered bytes, reads of ranges, and reads of records
//   that are checked on the way. DiskWorker does the jobs; DiskThread is a worker with a thread of its
//   own, so that no copy, checksum or system call runs on the agent's loop.
//   Each job ends exactly once, unless the caller has given up the jobs.
// Threads: one thread submits jobs and takes ends.
// Owns: a job owns its bytes in `own`. Pieces point to memory of the caller, which stays valid and
//   unchanged until the job has ended or is given up.
// Trusts: its caller. Bytes that come from the disk may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/tier/index/tier_index.h"

namespace mc::tier {

// Without data: zeros in a write.
struct Piece {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

// The order in which reads that wait are begun. Writes keep their own order: a later write never begins
// before an earlier one.
enum class Urgency : std::uint8_t { kGet, kPromotion, kPeer, kLog, kCleaning };
inline constexpr std::size_t kUrgencies = 5;

struct Job {
  enum class Kind : std::uint8_t { kWrite, kRead, kReadRecord };
  Kind kind = Kind::kRead;
  Urgency urgency = Urgency::kGet;  // of a read
  std::uint64_t id = 0;
  // In bytes of the disk. Multiples of a block, except for kReadRecord: the header of the record.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  // kWrite: the bytes to write, `bytes` together. kReadRecord: receive the object's bytes.
  std::vector<Piece> pieces = {};
  std::vector<std::byte> own = {};  // memory for pieces of a write
  // kWrite: ends when a power cut can no longer take away this write and all writes that began before.
  bool durable = false;
  bool soon = false;  // a client waits for the durable end
  // kReadRecord: the record that must be there, and the stamp of its segment.
  TierEntry expected = {};
  std::optional<std::uint64_t> sum_seed = {};  // from which JobEnd::checksum starts
  std::uint64_t stamp = 0;
};

struct JobEnd {
  // kDamaged: the bytes are not those of the expected record.
  enum class Outcome : std::uint8_t { kDone, kFailed, kDamaged };
  std::uint64_t id = 0;
  Outcome outcome = Outcome::kDone;
  int error = 0;  // errno, if failed
  // kRead: the bytes. kReadRecord: header and key of the record.
  std::vector<std::byte> bytes = {};
  std::uint64_t checksum = 0;  // of the object's bytes, if the job has a sum_seed
};

class DiskJobs {
 public:
  virtual ~DiskJobs() = default;
  virtual std::uint64_t disk_bytes() const = 0;
  virtual void submit(Job job) = 0;
  // Appends the jobs that have ended.
  virtual void take_ended(std::vector<JobEnd>& ended) = 0;
  // From now on no piece is read or written, whatever the disk does. Jobs may end no more. Waits for no
  // longer than a copy of about 1 MiB.
  virtual void give_up() = 0;
};

}  // namespace mc::tier
