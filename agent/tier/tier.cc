// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/tier.h"

#include <chrono>
#include <fstream>
#include <future>
#include <thread>
#include <utility>

#include "agent/tier/disk/open_disk.h"

namespace mc::tier {

Tier::Tier(const Plan& plan) : told_(plan.paths.size(), DiskState::kOpening) {
  std::vector<Log::DiskPlan> disks;
  for (const std::string& path : plan.paths) {
    opened_.push_back({.disk = {.name = path, .state = DiskState::kRefused}});
    Report& report = opened_.back();
    auto opened = open_disk({.path = path, .bytes = plan.bytes_of_each});
    if (!opened) {
      report.disk.text = opened.error().text();
      continue;
    }
    report.disk.name = opened->path;
    auto thread = DiskThread::start(std::move(opened->disk));
    if (!thread) {
      report.disk.text = thread.error().text();
      continue;
    }
    report.disk.state = DiskState::kOpening;
    report.engine = opened->uring ? "io_uring" : "threads";
    report.cache = opened->direct ? "direct" : "page cache";
    disks.push_back({.jobs = thread->get(), .name = opened->path});
    threads_.push_back(std::move(*thread));
  }
  const bool all = disks.size() == plan.paths.size();
  log_ =
      std::make_unique<Log>(std::move(disks), Log::Config{.random = plan.random,
                                                          .disks_not_opened = !all,
                                                          .host = plan.host,
                                                          .incarnation = plan.incarnation,
                                                          .only_own_disks = plan.only_own_disks});
}

// A thread reads each disk, since a disk may hang.
Tier::Identity Tier::identity_on(const std::vector<std::string>& paths) {
  constexpr std::chrono::seconds kPatience{5};
  std::vector<std::future<Identity>> answers;
  for (const std::string& path : paths) {
    std::promise<Identity> answer;
    answers.push_back(answer.get_future());
    std::thread([path, answer = std::move(answer)]() mutable {
      answer.set_value(identity_on(path));
    }).detach();
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  Identity latest;
  for (std::future<Identity>& answer : answers) {
    if (answer.wait_until(until) != std::future_status::ready) continue;
    const Identity found = answer.get();
    if (found.incarnation > latest.incarnation) latest = found;
  }
  return latest;
}

Tier::Identity Tier::identity_on(const std::string& path) {
  Identity latest;
  std::ifstream file(path_of_disk(path), std::ios::binary);
  std::vector<std::byte> block(kBlockBytes);
  for (std::uint64_t copy = 0; copy < kSuperblocks; ++copy) {
    if (!file.read(reinterpret_cast<char*>(block.data()), kBlockBytes)) break;
    const auto superblock = read_superblock(block);
    if (!superblock || superblock->format != kFormat) continue;
    if (superblock->incarnation <= latest.incarnation) continue;
    latest = {superblock->host, superblock->incarnation};
  }
  return latest;
}

std::vector<int> Tier::wait_fds() const {
  std::vector<int> fds;
  for (const auto& thread : threads_) fds.push_back(thread->wait_fd());
  return fds;
}

void Tier::do_work(std::uint64_t now_ns) { log_->do_work(now_ns); }

std::vector<Tier::Report> Tier::report() const {
  std::vector<Report> reports = opened_;
  std::vector<DiskReport> of_log = log_->report();
  auto next = of_log.begin();
  for (Report& report : reports) {
    if (report.disk.state != DiskState::kRefused) report.disk = std::move(*next++);
  }
  return reports;
}

std::vector<DiskReport> Tier::take_changes() {
  std::vector<DiskReport> changes;
  std::vector<Report> reports = report();
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (std::exchange(told_[i], reports[i].disk.state) != reports[i].disk.state) {
      changes.push_back(std::move(reports[i].disk));
    }
  }
  return changes;
}

}  // namespace mc::tier
