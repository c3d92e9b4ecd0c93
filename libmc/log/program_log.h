// SPDX-License-Identifier: Apache-2.0
//
// The log of a program: lines for the operator on standard error, or, under systemd, entries of the
//   journal with fields.
//
//     spdlog::warn("event=no_metrics cause=\"the port is taken\"")
//       terminal, file   2026-01-31T10:00:00.000 warning event=no_metrics cause="the port is taken"
//       journal          MESSAGE=event=no_metrics …  PRIORITY=4  MC_EVENT=no_metrics  MC_CAUSE=the port is taken
//
// A thread of its own writes the lines, so a journal or terminal that hangs stops no other thread. The
// oldest of 1,024 waiting lines gives way to a new line. mcctl events reads the last lines from the program.
// Threads: the log itself from any thread.
// Owns: spdlog's default logger and the writing thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "libmc/log/recent_events.h"

namespace spdlog::details {
class thread_pool;
}  // namespace spdlog::details

namespace mc::log {

// Made in main() before other threads.
class ProgramLog {
 public:
  // The log goes to the journal if standard error is a stream to the journal, as systemd says in
  // JOURNAL_STREAM.
  explicit ProgramLog(const std::string& program);
  // Writes the waiting lines, for at most a second. REQUIRES: no thread logs any more.
  ~ProgramLog();
  // Says why the program does not start: as a sentence on standard error, or as an entry of the journal
  // with MC_EVENT=not_started.
  void report_failure(std::string_view cause) const;
  const RecentEvents& recent() const { return *recent_; }
  ProgramLog(const ProgramLog&) = delete;
  ProgramLog& operator=(const ProgramLog&) = delete;

 private:
  const std::string program_;
  const bool to_journal_;
  const std::shared_ptr<RecentEvents> recent_ = std::make_shared<RecentEvents>();
  std::shared_ptr<spdlog::details::thread_pool> writer_;
};

}  // namespace mc::log
