// SPDX-License-Identifier: Apache-2.0
#include "libmc/log/program_log.h"

#include <signal.h>
#include <spdlog/async.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace mc::log {

namespace {

int priority_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return LOG_DEBUG;
    case spdlog::level::info:
      return LOG_INFO;
    case spdlog::level::warn:
      return LOG_WARNING;
    case spdlog::level::err:
      return LOG_ERR;
    default:
      return LOG_CRIT;
  }
}

// Lines that wait while nobody reads the log: 0.5 MiB.
constexpr std::size_t kLines = 1024;
constexpr std::chrono::seconds kLastLines{1};

void send_to_journal(std::vector<std::string> fields) {
  std::vector<iovec> parts;
  for (std::string& field : fields) parts.push_back({field.data(), field.size()});
  ::sd_journal_sendv(parts.data(), static_cast<int>(parts.size()));
}

// "event" is MC_EVENT.
std::string journal_name(std::string_view name) {
  std::string field = "MC_";
  std::ranges::transform(name, std::back_inserter(field), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return field;
}

class RecentSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit RecentSink(std::shared_ptr<RecentEvents> events) : events_(std::move(events)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const auto since_1970 = message.time.time_since_epoch();
    const auto level = spdlog::level::to_string_view(message.level);
    events_->add(static_cast<std::uint64_t>(
                     std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count()),
                 {level.data(), level.size()}, {message.payload.data(), message.payload.size()});
  }
  void flush_() override {}

  // Shared: a library may log after the end of the ProgramLog.
  const std::shared_ptr<RecentEvents> events_;
};

// To a logger whose own thread writes.
class WriterSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit WriterSink(std::shared_ptr<spdlog::logger> writer) : writer_(std::move(writer)) {
    writer_->set_level(spdlog::level::trace);
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    writer_->log(message.time, message.source, message.level, message.payload);
  }
  void flush_() override {}

  const std::shared_ptr<spdlog::logger> writer_;
};

class JournalSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string_view line(message.payload.data(), message.payload.size());
    std::vector<std::string> fields{"MESSAGE=" + std::string(line),
                                    "PRIORITY=" + std::to_string(priority_of(message.level))};
    for (const auto& [name, value] : pairs_of(line)) {
      fields.push_back(journal_name(name) + "=" + value);
    }
    send_to_journal(std::move(fields));
  }
  void flush_() override {}
};

// Without stdio, which locks stderr while it writes: a blocked write would block the end of the program, too.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string_view left(line.data(), line.size());
    while (!left.empty()) {
      const ssize_t count = ::write(STDERR_FILENO, left.data(), left.size());
      if (count < 0 && errno != EINTR) return;
      if (count > 0) left.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  void flush_() override {}
};

// JOURNAL_STREAM has device and inode of the stream. A descriptor that was redirected since then is
// another file.
bool writes_to_journal(int fd) {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat at {};
  if (stream == nullptr || ::fstat(fd, &at) != 0) return false;
  return std::to_string(at.st_dev) + ":" + std::to_string(at.st_ino) == stream;
}

}  // namespace

ProgramLog::ProgramLog(const std::string& program)
    : program_(program), to_journal_(writes_to_journal(STDERR_FILENO)) {
  spdlog::sink_ptr sink;
  if (to_journal_) {
    sink = std::make_shared<JournalSink>();
  } else {
    sink = std::make_shared<StderrSink>();
    sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  }
  // The program's signals belong to its other threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  writer_ = std::make_shared<spdlog::details::thread_pool>(kLines, 1);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  auto writer = std::make_shared<spdlog::async_logger>(
      program, std::move(sink), writer_, spdlog::async_overflow_policy::overrun_oldest);
  const spdlog::sinks_init_list sinks{std::make_shared<RecentSink>(recent_),
                                      std::make_shared<WriterSink>(std::move(writer))};
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(program, sinks));
}

void ProgramLog::report_failure(std::string_view cause) const {
  if (to_journal_) {
    send_to_journal({"MESSAGE=" + std::string(cause), "PRIORITY=" + std::to_string(LOG_ERR),
                     "MC_EVENT=not_started", "MC_CAUSE=" + std::string(cause)});
  } else {
    std::cerr << program_ << ": " << cause << "\n";
  }
}

ProgramLog::~ProgramLog() {
  std::promise<void> written;
  auto all_written = written.get_future();
  // The writer ends after its last line. A program whose log nobody reads ends all the same.
  std::thread([writer = std::move(writer_), written = std::move(written)]() mutable {
    writer.reset();
    written.set_value();
  }).detach();
  all_written.wait_for(kLastLines);
}

}  // namespace mc::log
