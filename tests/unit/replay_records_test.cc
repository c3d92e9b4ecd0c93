// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/records.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>
#include <vector>

namespace mc::ctl {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    close(ends[0]);
    close_writer();
  }
  void close_writer() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

// Reads to the end, a few bytes at a time, so that records arrive in parts.
std::vector<Record> read_all(int fd, std::size_t step) {
  RecordReader reader;
  std::vector<Record> records;
  std::vector<std::byte> bytes(step);
  for (ssize_t count = 0; (count = read(fd, bytes.data(), bytes.size())) > 0;) {
    reader.feed(std::span(bytes).first(static_cast<std::size_t>(count)));
    while (auto record = reader.next()) records.push_back(std::move(*record));
  }
  EXPECT_FALSE(reader.broken());
  return records;
}

TEST(ReplayRecords, ArriveWholeThoughTheyAreReadInParts) {
  WorkerResult result;
  result.totals.hit_refs = 42;
  result.get_batch.add(1000, 5);
  result.put_block.add(77, 2);
  result.by_request = {{10, 4}, {20, 5}};
  result.by_time = {{1, 2, 3}};
  Pipe pipe;
  std::thread writer([&] {
    EXPECT_TRUE(write_ready(pipe.ends[1]));
    EXPECT_TRUE(write_progress(pipe.ends[1], result.totals));
    EXPECT_TRUE(write_error(pipe.ends[1], "what went wrong"));
    EXPECT_TRUE(write_result(pipe.ends[1], result));
    pipe.close_writer();
  });
  const std::vector<Record> records = read_all(pipe.ends[0], 1013);
  writer.join();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].type, RecordType::kReady);
  EXPECT_EQ(records[1].totals.hit_refs, 42u);
  EXPECT_EQ(records[2].text, "what went wrong");
  ASSERT_TRUE(records[3].result);
  EXPECT_EQ(records[3].result->get_batch.count(), 5u);
  EXPECT_EQ(records[3].result->put_block.percentile_ns(0.5), result.put_block.percentile_ns(0.5));
  ASSERT_EQ(records[3].result->by_request.size(), 2u);
  EXPECT_EQ(records[3].result->by_request[1].hits, 5u);
  ASSERT_EQ(records[3].result->by_time.size(), 1u);
  EXPECT_EQ(records[3].result->by_time[0].inserted, 3u);
}

TEST(ReplayRecords, AFrameOfForgedLengthOrTypeIsRefused) {
  const auto broken = [](std::array<std::uint32_t, 4> frame) {
    RecordReader reader;
    reader.feed(std::as_bytes(std::span(frame)));
    EXPECT_FALSE(reader.next());
    return reader.broken();
  };
  EXPECT_TRUE(broken({3, 0xffffffff, 0, 0}));  // longer than any record
  EXPECT_TRUE(broken({99, 8, 0, 0}));          // no such type
  EXPECT_TRUE(broken({2, 8, 0, 0}));           // a progress cut short
}

TEST(ReplayRecords, AResultWhoseListIsLongerThanItsBytesIsRefused) {
  const std::uint64_t forged_count = ~std::uint64_t{0} / 2;
  const std::size_t fixed = sizeof(WorkerTotals) + 4 * sizeof(LatencyHistogram);
  std::vector<std::byte> bytes(2 * sizeof(std::uint32_t) + fixed + sizeof(forged_count));
  const std::array<std::uint32_t, 2> frame{3, static_cast<std::uint32_t>(fixed + 8)};
  std::memcpy(bytes.data(), frame.data(), sizeof(frame));
  std::memcpy(bytes.data() + bytes.size() - 8, &forged_count, sizeof(forged_count));
  RecordReader reader;
  reader.feed(bytes);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.broken());
}

TEST(ReplayRecords, MergedResultsAddUpBinByBin) {
  WorkerResult a;
  WorkerResult b;
  a.totals.requests = 1;
  b.totals.requests = 2;
  a.by_request = {{1, 1}};
  b.by_request = {{1, 0}, {5, 2}};
  a.merge(b);
  EXPECT_EQ(a.totals.requests, 3u);
  ASSERT_EQ(a.by_request.size(), 2u);
  EXPECT_EQ(a.by_request[0].refs, 2u);
  EXPECT_EQ(a.by_request[1].hits, 2u);
}

}  // namespace
}  // namespace mc::ctl
