// SPDX-License-Identifier: Apache-2.0
//
// The newest figures of an agent, for the screen: a thread asks the agent at an interval.
// Threads: a thread of its own asks the agent, so that an agent that hangs does not stop the screen.
//   All member functions belong to the thread of the owner.
// Owns: the thread and the event.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "ctl/top/sample.h"
#include "ctl/top/view.h"
#include "libmc/base/fd.h"
#include "libmc/base/mutex.h"

namespace mc::ctl::top {

class AgentWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // event: from make_eventfd().
  AgentWatch(std::string socket_path, std::uint64_t timeout_ns, double interval_s, Fd event);
  // Waits for the answer to the last question, at most for the timeout of two questions.
  ~AgentWatch();
  AgentWatch(const AgentWatch&) = delete;
  AgentWatch& operator=(const AgentWatch&) = delete;

  // Readable when take() has news.
  int event() const { return event_.get(); }
  // Nullopt: nothing is new. A feed with a trouble has no sample.
  std::optional<Feed> take();
  // From the current interval on.
  void set_interval(double interval_s);

 private:
  void run();
  // The feed of a look.
  Feed next_feed();
  void wait_until_next(Clock::time_point looked_at, bool answered);

  const std::string socket_path_;
  const std::uint64_t timeout_ns_;
  const Fd event_;
  // The thread alone uses the last look and the number of looks at the same agent.
  std::optional<AgentLook> before_;
  Clock::time_point before_at_{};
  std::uint64_t look_count_ = 0;
  Mutex mutex_;
  Condition changed_;
  std::optional<Feed> news_ MC_GUARDED_BY(mutex_);
  double interval_s_ MC_GUARDED_BY(mutex_);
  bool ends_ MC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace mc::ctl::top
