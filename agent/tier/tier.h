// SPDX-License-Identifier: Apache-2.0
//
// The tier of an agent: opens the disks of the options, and runs the log over them.
//   A disk that cannot be opened does not stop the agent: DRAM serves, and the report names the disk.
// Threads: the agent's loop. Each disk has a thread of its own.
// Owns: the disks, their threads and the log.
// Trusts: the options. Bytes from the disks are checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/tier/jobs/disk_thread.h"
#include "agent/tier/log/log.h"

namespace mc::tier {

class Tier {
 public:
  struct Plan {
    std::vector<std::string> paths = {};
    std::uint64_t bytes_of_each = 0;  // 0: the present size of each file or device
    // Names a new tier and its lives. Never the same in two starts: bytes of an earlier tier would count.
    std::uint64_t random = 0;
    // See Log::Config.
    std::uint64_t host = 0, incarnation = 0;
    bool only_own_disks = false;
  };
  // The host and incarnation on the disks; host 0: no disk says. Waits for a disk for up to 5 s.
  struct Identity {
    std::uint64_t host = 0, incarnation = 0;
  };
  static Identity identity_on(const std::vector<std::string>& paths);
  explicit Tier(const Plan& plan);

  // Readable when do_work() has something to do.
  std::vector<int> wait_fds() const;
  void do_work(std::uint64_t now_ns);
  Log& log() { return *log_; }
  const Log& log() const { return *log_; }
  struct Report {
    DiskReport disk;
    // How the disk is read and written: "io_uring" or "threads", and "direct" or "page cache".
    std::string engine = {}, cache = {};
  };
  // One for each path, in the order of the paths.
  std::vector<Report> report() const;
  // Disks whose state has changed since the last call.
  std::vector<DiskReport> take_changes();

 private:
  static Identity identity_on(const std::string& path);

  std::vector<Report> opened_;   // by path; with state kRefused: the log does not have the disk
  std::vector<DiskState> told_;  // by path
  std::unique_ptr<Log> log_;     // owns bytes that the threads read and write
  std::vector<std::unique_ptr<DiskThread>> threads_;
};

}  // namespace mc::tier
