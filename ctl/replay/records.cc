// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/records.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <type_traits>

namespace mc::ctl {
namespace {

constexpr std::size_t kMaxPayloadBytes = std::size_t{64} << 20;

struct Frame {
  std::uint32_t type;
  std::uint32_t payload_bytes;
};

class Writer {
 public:
  template <typename T>
  void put(const T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(values);
    bytes_.insert(bytes_.end(), bytes, bytes + count * sizeof(T));
  }
  template <typename T>
  void put_vector(const std::vector<T>& values) {
    const std::uint64_t count = values.size();
    put(&count, 1);
    put(values.data(), values.size());
  }
  bool send(int fd, RecordType type) {
    const Frame frame{static_cast<std::uint32_t>(type), static_cast<std::uint32_t>(bytes_.size())};
    return write_all(fd, &frame, sizeof(frame)) && write_all(fd, bytes_.data(), bytes_.size());
  }

 private:
  static bool write_all(int fd, const void* data, std::size_t size) {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(fd, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      at += written;
      size -= static_cast<std::size_t>(written);
    }
    return true;
  }
  std::vector<std::byte> bytes_;
};

class Payload {
 public:
  explicit Payload(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  bool take(T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > bytes_.size() / sizeof(T)) return false;
    if (count > 0) std::memcpy(static_cast<void*>(values), bytes_.data(), count * sizeof(T));
    bytes_ = bytes_.subspan(count * sizeof(T));
    return true;
  }
  template <typename T>
  bool take_vector(std::vector<T>& values) {
    std::uint64_t count = 0;
    if (!take(&count, 1) || count > bytes_.size() / sizeof(T)) return false;
    values.resize(count);
    return take(values.data(), values.size());
  }

 private:
  std::span<const std::byte> bytes_;
};

template <typename Result, typename Visit>
bool for_each_histogram(Result& result, Visit visit) {
  return visit(result.get_batch) && visit(result.get_block) && visit(result.put_batch) &&
         visit(result.put_block);
}

bool decode(Record& record, std::span<const std::byte> bytes) {
  Payload payload(bytes);
  switch (record.type) {
    case RecordType::kReady:
      return true;
    case RecordType::kProgress:
      return payload.take(&record.totals, 1);
    case RecordType::kError:
      record.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return true;
    case RecordType::kResult: {
      WorkerResult& result = record.result.emplace();
      return payload.take(&result.totals, 1) &&
             for_each_histogram(result, [&](auto& h) { return payload.take(&h, 1); }) &&
             payload.take_vector(result.by_request) && payload.take_vector(result.by_time);
    }
  }
  return false;
}

}  // namespace

void WorkerTotals::add(const WorkerTotals& other) {
  requests += other.requests;
  block_refs += other.block_refs;
  hit_refs += other.hit_refs;
  fetched_refs += other.fetched_refs;
  wrong_bytes += other.wrong_bytes;
  view_bytes += other.view_bytes;
  copy_bytes += other.copy_bytes;
  put_bytes += other.put_bytes;
  inserted += other.inserted;
  failed_gets += other.failed_gets;
  failed_puts += other.failed_puts;
  finished_ns = std::max(finished_ns, other.finished_ns);
}

void WorkerResult::merge(const WorkerResult& other) {
  totals.add(other.totals);
  get_batch.merge(other.get_batch);
  get_block.merge(other.get_block);
  put_batch.merge(other.put_batch);
  put_block.merge(other.put_block);
  by_request.resize(std::max(by_request.size(), other.by_request.size()));
  for (std::size_t i = 0; i < other.by_request.size(); ++i) {
    by_request[i].refs += other.by_request[i].refs;
    by_request[i].hits += other.by_request[i].hits;
    by_request[i].fetched += other.by_request[i].fetched;
  }
  by_time.resize(std::max(by_time.size(), other.by_time.size()));
  for (std::size_t i = 0; i < other.by_time.size(); ++i) {
    by_time[i].got_bytes += other.by_time[i].got_bytes;
    by_time[i].put_bytes += other.by_time[i].put_bytes;
    by_time[i].inserted += other.by_time[i].inserted;
  }
}

bool write_ready(int fd) { return Writer().send(fd, RecordType::kReady); }

bool write_progress(int fd, const WorkerTotals& totals) {
  Writer writer;
  writer.put(&totals, 1);
  return writer.send(fd, RecordType::kProgress);
}

bool write_result(int fd, const WorkerResult& result) {
  Writer writer;
  writer.put(&result.totals, 1);
  for_each_histogram(result, [&](const LatencyHistogram& h) {
    writer.put(&h, 1);
    return true;
  });
  writer.put_vector(result.by_request);
  writer.put_vector(result.by_time);
  return writer.send(fd, RecordType::kResult);
}

bool write_error(int fd, const std::string& text) {
  Writer writer;
  writer.put(text.data(), text.size());
  return writer.send(fd, RecordType::kError);
}

void RecordReader::feed(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<Record> RecordReader::next() {
  Frame frame{};
  if (broken_ || buffer_.size() < sizeof(frame)) return std::nullopt;
  std::memcpy(&frame, buffer_.data(), sizeof(frame));
  Record record;
  record.type = static_cast<RecordType>(frame.type);
  broken_ = frame.payload_bytes > kMaxPayloadBytes;
  if (broken_ || buffer_.size() - sizeof(frame) < frame.payload_bytes) return std::nullopt;
  broken_ = !decode(record, std::span(buffer_).subspan(sizeof(frame), frame.payload_bytes));
  if (broken_) return std::nullopt;
  buffer_.erase(buffer_.begin(),
                buffer_.begin() + static_cast<std::ptrdiff_t>(sizeof(frame) + frame.payload_bytes));
  return record;
}

}  // namespace mc::ctl
