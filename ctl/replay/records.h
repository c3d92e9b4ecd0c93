// SPDX-License-Identifier: Apache-2.0
//
// The records that a replay worker sends to its parent through a pipe.
//     frame: u32 type, u32 payload bytes, payload
//   Both ends are the same program.
// Threads: a writer and a reader belong to one thread each.
// Owns: the reader owns the unread bytes.
// Trusts: a worker may be broken, so sizes are checked; values are only counted and drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ctl/replay/report/histogram.h"

namespace mc::ctl {

struct WorkerTotals {
  std::uint64_t requests = 0;
  std::uint64_t block_refs = 0;
  std::uint64_t hit_refs = 0;  // prefix hits: every earlier block of the request was a hit too
  std::uint64_t fetched_refs =
      0;  // prefix hits that the agent fetched from another host or from a disk
  std::uint64_t wrong_bytes = 0;
  std::uint64_t view_bytes = 0;  // read in place
  std::uint64_t copy_bytes = 0;  // copied to a buffer
  std::uint64_t put_bytes = 0;
  std::uint64_t inserted = 0;     // blocks put that were not resident at the lookup
  std::uint64_t failed_gets = 0;  // lookups that ended in an error
  std::uint64_t failed_puts = 0;
  std::uint64_t finished_ns = 0;  // on the host's steady clock

  void add(const WorkerTotals& other);
  std::uint64_t got_bytes() const { return view_bytes + copy_bytes; }
};

struct HitBin {  // of consecutive requests
  std::uint64_t refs = 0;
  std::uint64_t hits = 0;
  std::uint64_t fetched = 0;  // of the hits
};

inline constexpr std::uint64_t kTimeBinNs = 50'000'000;
inline constexpr std::size_t kMaxTimeBins = std::size_t{1} << 17;
struct TimeBin {
  std::uint64_t got_bytes = 0;
  std::uint64_t put_bytes = 0;
  std::uint64_t inserted = 0;
};

struct WorkerResult {
  WorkerTotals totals;
  LatencyHistogram get_batch;  // a lookup batch
  LatencyHistogram get_block;  // the time of the batch, divided by its blocks
  LatencyHistogram put_batch;
  LatencyHistogram put_block;
  std::vector<HitBin> by_request;
  std::vector<TimeBin> by_time;

  void merge(const WorkerResult& other);
};

enum class RecordType : std::uint32_t { kReady = 1, kProgress = 2, kResult = 3, kError = 4 };

struct Record {
  RecordType type = RecordType::kReady;
  WorkerTotals totals;  // kProgress
  std::string text;     // kError
  std::optional<WorkerResult> result;
};

// False if the reader has ended.
bool write_ready(int fd);
bool write_progress(int fd, const WorkerTotals& totals);
bool write_result(int fd, const WorkerResult& result);
bool write_error(int fd, const std::string& text);

class RecordReader {
 public:
  void feed(std::span<const std::byte> bytes);
  // The next whole record. Nullopt: no whole record has arrived; if broken(), no more will arrive.
  std::optional<Record> next();
  bool broken() const { return broken_; }

 private:
  std::vector<std::byte> buffer_;
  bool broken_ = false;
};

}  // namespace mc::ctl
