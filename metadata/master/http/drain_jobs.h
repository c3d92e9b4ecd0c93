// SPDX-License-Identifier: Apache-2.0
//
// Mooncake's drain jobs: a job drains some hosts, and its state can be asked for.
//
//     begin ──► the leaders drain each host ──► kRunning ──all hosts are empty──► kSucceeded
//                                                  ├──a host has left before──► kFailed
//                                                  └──cancel: the drains stop──► kCanceled
//
//   The leaders do the work (placement/drain.h) and forget a drain with their leadership. A question
//   about a running job begins the drain again if its leader has forgotten it.
// Threads: the HTTP thread; `done` is called there.
// Owns: the last kMaxJobs jobs.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metadata/master/http/leaders.h"

namespace mc::metadata {

struct DrainOrder {
  std::vector<std::string> segments;  // names of the hosts to drain
  std::vector<NodeId> nodes;          // of the segments, in the same order
  std::vector<NodeId> targets;        // the only hosts that take objects; empty: any
  std::uint32_t max_jobs = 0;  // copies of each host under way at once; 0: the master's choice
};

struct DrainJob {
  enum class State : std::uint8_t {  // Mooncake's numbers
    kCreated = 0,
    kPlanning = 1,
    kRunning = 2,
    kSucceeded = 3,
    kFailed = 4,
    kCanceled = 5
  };
  std::string id;
  DrainOrder order;
  State state = State::kCreated;
  std::uint64_t created_ms = 0;  // since 1970
  std::uint64_t updated_ms = 0;
  wire::DrainAnswer progress;
  std::string message;

  [[nodiscard]] bool over() const { return state >= State::kSucceeded; }
};

class DrainJobs {
 public:
  static constexpr std::size_t kMaxJobs = 256;
  using Done = std::function<void(Result<DrainJob>)>;

  // All arguments outlive the jobs.
  DrainJobs(boost::asio::io_context& io, Leaders& leaders);

  // Errors: those of Leaders::drain(); MC_BUSY if too many jobs run. A host whose drain did not
  // begin is not drained further.
  void begin(DrainOrder order, Done done);
  // Errors: MC_NOT_FOUND. If a leader does not answer, the job shows the progress known before.
  void query(const std::string& id, Done done);
  // Errors: MC_NOT_FOUND; MC_CANCELLED for a job that is over; those of Leaders::drain().
  void cancel(const std::string& id, Done done);

 private:
  std::shared_ptr<DrainJob> find(const std::string& id) const;
  // Asks the leaders about each host of the job. then: with the sum, in the HTTP thread.
  void ask(const DrainJob& job, bool stop, std::function<void(Result<wire::DrainAnswer>)> then);

  boost::asio::io_context& io_;
  Leaders& leaders_;
  const std::uint64_t first_;  // of the two numbers of an id; unique to this process
  std::uint64_t last_ = 0;
  std::deque<std::shared_ptr<DrainJob>> jobs_;
};

}  // namespace mc::metadata
