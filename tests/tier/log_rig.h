// SPDX-License-Identifier: Apache-2.0
//
// A tier over model disks, in one thread and with a time of its own: the production log, catalog,
//   cleaner, recovery and disk workers.
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/tier/jobs/disk_worker.h"
#include "agent/tier/log/log.h"
#include "libmc/base/checksum.h"
#include "tier/model_disk.h"

namespace mc::tier::testing {

using Bytes = std::vector<std::byte>;

// Bytes that name their key and version.
inline Bytes value_of(const std::string& key, std::uint64_t version, std::size_t size) {
  Bytes bytes(size);
  std::uint64_t word = checksum(version, key.data(), key.size());
  for (std::size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) word = word * 6364136223846793005ull + 1442695040888963407ull;
    bytes[i] = static_cast<std::byte>(word >> (8 * (i % 8)));
  }
  return bytes;
}

class LogRig {
 public:
  static constexpr std::uint64_t kNamespace = 7;
  static constexpr std::uint64_t kSumSeed = 99;
  struct Plan {
    std::size_t disks = 1;
    std::uint64_t disk_bytes = 16 << 20;
    std::uint64_t segment_bytes = kSmallestSegmentBytes;
    std::uint64_t seed = 1;
    std::uint64_t batch_bytes = 1 << 20;
    std::uint32_t sector_bytes = kSectorBytes;  // of reads
  };

  explicit LogRig(const Plan& plan)
      : plan_(plan), seed_(plan.seed), images_(plan.disks), here_(plan.disks, true) {
    start();
  }

  // REQUIRES: the disk is here.
  ModelDisk& disk(std::size_t i = 0) { return *disks_[i]; }
  Log& log() { return *log_; }
  std::uint64_t now_ns() const { return now_ns_; }
  const std::vector<LogEnd>& ends() const { return ends_; }
  const std::vector<Dropped>& dropped() const { return dropped_; }

  // One round of all parts. Time goes on to the next event.
  void turn() {
    turn_disks();
    log_->take_ended(ends_);
    log_->take_dropped(dropped_);
  }
  // The same for a test that takes the ends itself.
  void turn_disks() {
    const std::uint64_t own = log_->next_work_ns();
    // A part that has work and does not say so would wait for a second.
    std::uint64_t next = std::min(now_ns_ + 1'000'000'000, own == 0 ? now_ns_ : own);
    for (auto& worker : workers_) next = std::min(next, worker->next_work_ns());
    for_each_disk([&](ModelDisk& disk) { next = std::min(next, disk.next_end_ns()); });
    now_ns_ = std::max(now_ns_ + 1'000, next);
    for_each_disk([&](ModelDisk& disk) { disk.set_now(now_ns_); });
    for (auto& worker : workers_) worker->do_work(now_ns_);
    log_->do_work(now_ns_);
  }
  template <typename Condition>
  bool turn_until(const Condition& condition) {
    for (int i = 0; i < 1'000'000; ++i) {
      if (condition()) return true;
      turn();
    }
    return false;
  }
  void settle() {
    ASSERT_TRUE(turn_until([this] { return log_->idle(); }));
  }
  // Of a long test. REQUIRES: nothing is under way.
  void forget_ends() {
    ends_.clear();
    dropped_.clear();
    values_.clear();
  }
  std::optional<LogEnd> end_of(std::uint64_t ticket) const {
    const auto found = std::find_if(ends_.begin(), ends_.end(),
                                    [ticket](const LogEnd& end) { return end.ticket == ticket; });
    if (found == ends_.end()) return std::nullopt;
    return *found;
  }
  LogEnd wait_for(std::uint64_t ticket) {
    EXPECT_TRUE(turn_until([&] { return end_of(ticket).has_value(); }));
    return end_of(ticket).value_or(LogEnd{});
  }

  tl::expected<std::uint64_t, Log::Refusal> begin_put(const std::string& key, std::uint64_t version,
                                                      std::size_t size) {
    auto bytes = std::make_unique<Bytes>(value_of(key, version, size));
    const NewObject object{.name = {key, kNamespace},
                           .version = version,
                           .length = size,
                           .sum_seed = kSumSeed,
                           .checksum = checksum(kSumSeed, bytes->data(), size)};
    // Two pieces, as an object of two extents.
    const auto ticket =
        log_->put(object, {{bytes->data(), size / 3}, {bytes->data() + size / 3, size - size / 3}});
    values_.push_back(std::move(bytes));
    return ticket;
  }
  // Returns true if the put was durable.
  bool put(const std::string& key, std::uint64_t version, std::size_t size) {
    auto ticket = begin_put(key, version, size);
    while (!ticket && ticket.error() == Log::Refusal::kBusy) {
      turn();
      ticket = begin_put(key, version, size);
    }
    return ticket && wait_for(*ticket).outcome == LogEnd::Outcome::kDone;
  }
  struct Got {
    LogEnd end;
    Bytes bytes;
  };
  std::optional<Got> get(const std::string& key) {
    const TierEntry* const entry = log_->find({key, kNamespace});
    if (entry == nullptr) return std::nullopt;
    Got got;
    got.bytes.resize(entry->length);
    const auto ticket = log_->read({key, kNamespace}, {{got.bytes.data(), got.bytes.size()}},
                                   Urgency::kGet, kSumSeed);
    if (!ticket) return std::nullopt;
    got.end = wait_for(*ticket);
    return got;
  }
  bool has(const std::string& key, std::uint64_t version) {
    const auto got = get(key);
    return got && got->end.outcome == LogEnd::Outcome::kDone &&
           got->bytes == value_of(key, version, got->bytes.size());
  }
  bool remove(const std::string& key) {
    const auto ticket = log_->remove({key, kNamespace}).value();
    return !ticket || wait_for(*ticket).outcome == LogEnd::Outcome::kDone;
  }

  // The agent ends without a word; all that the disk has taken stays.
  void kill() { restart(here_, false); }
  // The next start finds the first disk with these bytes.
  void kill(const SparseBytes& image) {
    disks_[0] = nullptr;
    images_[0] = image;
    kill();
  }
  // Unflushed sectors are kept or lost, each by itself.
  void power_cut() { restart(here_, true); }
  // Which disks the next start finds.
  void restart_with(const std::vector<bool>& here) { restart(here, false); }
  // The next start finds disks of another size.
  void resize_disks(std::uint64_t bytes) {
    plan_.disk_bytes = bytes;
    kill();
  }
  void recover() {
    ASSERT_TRUE(turn_until([this] { return !log_->recovering(); }));
  }

 private:
  template <typename Do>
  void for_each_disk(const Do& what) {
    for (ModelDisk* const disk : disks_) {
      if (disk != nullptr) what(*disk);
    }
  }
  void restart(const std::vector<bool>& here, bool power_cut) {
    for (std::size_t i = 0; i < images_.size(); ++i) {
      if (disks_[i] != nullptr)
        images_[i] = power_cut ? disks_[i]->power_cut() : disks_[i]->image();
    }
    here_ = here;
    start();
  }
  void start() {
    log_.reset();
    disks_.assign(images_.size(), nullptr);
    workers_.clear();
    ends_.clear();
    values_.clear();
    std::vector<Log::DiskPlan> plans;
    for (std::size_t i = 0; i < images_.size(); ++i) {
      if (!here_[i]) continue;
      auto disk = std::make_unique<ModelDisk>(plan_.disk_bytes, seed_++, images_[i]);
      disk->set_speed(
          {.read_ns = 50'000, .write_ns = 30'000, .flush_ns = 400'000, .block_ns = 1'000});
      disk->set_read_sector(plan_.sector_bytes);
      disk->set_now(now_ns_);
      disks_[i] = disk.get();
      workers_.push_back(std::make_unique<DiskWorker>(std::move(disk)));
      plans.push_back({.jobs = workers_.back().get(), .name = "disk " + std::to_string(i)});
    }
    log_ = std::make_unique<Log>(std::move(plans),
                                 Log::Config{.disk = {.batch_bytes = plan_.batch_bytes},
                                             .segment_bytes = plan_.segment_bytes,
                                             .random = seed_++});
  }

  Plan plan_;
  std::uint64_t seed_;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::vector<SparseBytes> images_;
  std::vector<bool> here_;
  std::vector<ModelDisk*> disks_;
  std::vector<std::unique_ptr<DiskWorker>> workers_;
  std::unique_ptr<Log> log_;
  std::vector<LogEnd> ends_;
  std::vector<Dropped> dropped_;
  std::vector<std::unique_ptr<Bytes>> values_;
};

inline std::string key_of(int number) { return "block/" + std::to_string(number); }

// Puts objects, and returns their number.
inline int fill(LogRig& rig, int count) {
  for (int i = 0; i < count; ++i) EXPECT_TRUE(rig.begin_put(key_of(i), 1, 9'000));
  rig.settle();
  return count;
}

// How many of the objects of fill() are there.
inline int present(LogRig& rig, int count) {
  int found = 0;
  for (int i = 0; i < count; ++i) found += rig.has(key_of(i), 1) ? 1 : 0;
  return found;
}

}  // namespace mc::tier::testing
