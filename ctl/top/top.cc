// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/command.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/top/agent_watch.h"
#include "ctl/top/rows.h"
#include "ctl/top/sample.h"
#include "ctl/top/screen.h"
#include "ctl/top/summary.h"
#include "ctl/top/view.h"

namespace mc::ctl {
namespace top {
namespace {

// A longer wait for one answer would show old figures without a word.
constexpr std::uint64_t kLongestAnswerNs = 1000000000u;

struct TopOptions {
  double interval_s = 1;
  bool once = false;
  Arrangement arrangement;
};

// ---- Plain text and JSON ------------------------------------------------------------------------

// Nullopt after a reported failure.
std::optional<AgentLook> reported_look(Context& context) {
  auto look = look_at_agent(socket_path(context), timeout_ns(context));
  if (look) return std::move(*look);
  report_status(context, "top", look.error().code(), look.error().text());
  return std::nullopt;
}

void print_sample(const Context& context, const Json::Value& sample, const Arrangement& arrangement,
                  bool redraw) {
  if (context.json) {
    print_json_line(arranged(sample, arrangement));
  } else {
    fmt::print("{}{}{}", redraw ? "\x1b[H\x1b[2J" : "", plain_text(sample, arrangement),
               redraw ? "" : "\n");
  }
  std::fflush(stdout);
}

// Ends on a signal, when standard output fails, or after one interval with --once.
void print_samples(Context& context, const TopOptions& options, bool redraw) {
  using Clock = std::chrono::steady_clock;
  const auto period = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options.interval_s));
  auto before = reported_look(context);
  auto before_at = Clock::now();
  while (before && std::ferror(stdout) == 0) {
    std::this_thread::sleep_until(before_at + period);
    auto now = reported_look(context);
    const auto now_at = Clock::now();
    if (!now) return;
    // An agent that started anew has no rates yet.
    if (is_same_agent(*before, *now)) {
      const double elapsed_s = std::chrono::duration<double>(now_at - before_at).count();
      print_sample(context, sample_of(*before, *now, elapsed_s), options.arrangement, redraw);
      if (options.once) return;
    }
    before = std::move(now);
    before_at = now_at;
  }
}

// ---- The full screen ----------------------------------------------------------------------------

// Signals that would end mcctl before the terminal is restored, SIGWINCH and SIGCONT, as readable
// events.
class CaughtSignals {
 public:
  CaughtSignals() {
    sigemptyset(&caught_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT}) {
      sigaddset(&caught_, number);
    }
    pthread_sigmask(SIG_BLOCK, &caught_, &before_);
    fd_ = Fd(::signalfd(-1, &caught_, SFD_NONBLOCK | SFD_CLOEXEC));
    // Blocked signals that nothing reads could not end mcctl.
    if (!fd_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  ~CaughtSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;

  int fd() const { return fd_.get(); }
  // The next signal, or 0.
  int next() {
    signalfd_siginfo info{};
    const ssize_t bytes = ::read(fd_.get(), &info, sizeof info);
    return bytes == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t caught_{};
  sigset_t before_{};
  Fd fd_;
};

// The loop of the full screen: waits for keys, signals and news of the agent, and draws.
class FullScreen {
 public:
  FullScreen(const TopOptions& options, AgentWatch& watch, CaughtSignals& signals, Screen& screen)
      : view_(options.arrangement, options.interval_s),
        watch_(watch),
        signals_(signals),
        screen_(screen) {}

  // Returns the signal that ended the loop, or 0 for the key q.
  int run() {
    while (true) {
      draw();
      pollfd events[] = {
          {STDIN_FILENO, POLLIN, 0}, {signals_.fd(), POLLIN, 0}, {watch_.event(), POLLIN, 0}};
      // EINTR: ncurses handled SIGTSTP.
      if (::poll(events, std::size(events), -1) < 0) continue;
      if (const int number = take_signals(); number != 0) return number;
      if ((events[0].revents & POLLIN) != 0 && !take_keys()) return 0;
      if ((events[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return SIGHUP;
      take_news();
    }
  }

 private:
  void draw() {
    const Feed& shown = view_.paused ? paused_ : feed_;
    screen_.draw(lay_out(view_, shown, screen_.width(), screen_.height()));
  }

  int take_signals() {
    for (int number = signals_.next(); number != 0; number = signals_.next()) {
      if (number == SIGWINCH) {
        screen_.resize();
      } else if (number == SIGCONT) {
        screen_.redraw();
      } else {
        return number;
      }
    }
    return 0;
  }

  // False: a key ends the program.
  bool take_keys() {
    for (KeyPress key = screen_.next_key(); key.key != Key::kNone; key = screen_.next_key()) {
      const bool paused = view_.paused;
      const double interval_s = view_.interval_s;
      if (!press(view_, key)) return false;
      if (view_.paused && !paused) paused_ = feed_;
      if (view_.interval_s != interval_s) watch_.set_interval(view_.interval_s);
    }
    return true;
  }

  void take_news() {
    auto news = watch_.take();
    if (!news) return;
    // The last figures stay while the agent is away.
    if (!news->trouble.empty()) news->sample = std::move(feed_.sample);
    feed_ = std::move(*news);
  }

  View view_;
  Feed feed_;
  Feed paused_;
  AgentWatch& watch_;
  CaughtSignals& signals_;
  Screen& screen_;
};

// Ends mcctl as the signal would have done without the screen.
void end_by(int number) {
  std::signal(number, SIG_DFL);
  std::raise(number);
}

// Nullopt: the screen is not usable, which is reported. Otherwise the signal that ended it, or 0.
std::optional<int> show_full_screen(Context& context, const TopOptions& options) {
  auto event = make_eventfd();
  if (!event) {
    report_status(context, "top", event.error().code(), event.error().text());
    return 0;
  }
  CaughtSignals signals;
  AgentWatch watch(socket_path(context), std::min(timeout_ns(context), kLongestAnswerNs),
                   options.interval_s, std::move(*event));
  auto screen = Screen::open();
  if (!screen) {
    const Failure failure = explain(screen.error().code(), screen.error().text());
    fmt::print(stderr, "mcctl: top: {}: plain text instead\n  try: {}\n", failure.cause,
               failure.remedy);
    return std::nullopt;
  }
  const int number = FullScreen(options, watch, signals, **screen).run();
  // Before the watch ends, which may wait for an agent that hangs.
  screen->reset();
  return number;
}

void run_top(Context& context, const TopOptions& options) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  bool redraw = terminal && !options.once && !context.json;
  if (redraw && isatty(STDIN_FILENO) == 1) {
    if (const auto number = show_full_screen(context, options)) {
      if (*number != 0) end_by(*number);
      return;
    }
    redraw = false;  // the terminal may not understand the codes
  }
  print_samples(context, options, redraw);
}

std::string columns_text() {
  std::string out;
  for (const TopTable& table : kTopTables) {
    std::string line = fmt::format("  {:<11}", table.name);
    for (const Column& column : table.columns) {
      const std::string key = column.key();
      if (line.size() + 1 + key.size() > 90) {
        out += line + '\n';
        line = std::string(13, ' ');
      }
      line += " " + key;
    }
    out += line + '\n';
  }
  return out;
}

constexpr const char* kDescription = R"(Watch the current activity of the agent

On a terminal, the view fills the screen: figures of the whole agent, a bar for the pool of each
namespace, and a table of the namespaces, of the sessions, or of the rails to other hosts. The key
h shows the keys. If the agent goes away, the screen says why, keeps the last figures, and goes on
when the agent is back. Without a terminal, and with --once or --json, the samples are printed one
after the other; the table of sessions then has the first ten that are not idle, or all that match
--filter.

Local reads: GETS/s, HITS% and GET BYTES/s are the hits and misses in the pool of this host.
Clients keep these counts in shared memory, and the agent collects the counts. A hit asks no agent,
so the requests, the latencies and the REQUESTS/s of a session do not include hits. A get that
another host's object serves is a miss in this pool and a remote get.

Other hosts: "fetched" are the bytes of objects that this host read from other hosts. "served" are
the bytes that other hosts read here, without small objects inside an answer and without one-sided
reads of RDMA or libfabric.

Disks (tier_paths): live bytes of the size, and objects. "demoted" are the evicted bytes that went to
disks, "read" are the gets that a disk served. Objects "evicted without a disk" are lost.

"latency" is that of requests that waited for room or for the cluster; "below 128 us" is the bound
of a bucket. "longest turn" is the longest time that the agent's loop was busy without a look at
its other work. "-" is a value that is not known, or not known yet.

The verb ends with the key q, on a signal, or after one interval with --once. With --json it
prints one document per line.)";

}  // namespace
}  // namespace top

Verb top_verb(Context& context) {
  auto options = std::make_shared<top::TopOptions>();
  return {
      .name = "top",
      .text = top::kDescription,
      .footer = "COLUMNS\n" + top::columns_text() + R"(
EXAMPLES
  mcctl top
  mcctl top --sort requests/s --interval 5
  mcctl top --once --filter vllm
  mcctl top --once --json | jq .rates

EXIT STATUS
  0 the agent answered; 1 it did not; 2 wrong usage)",
      .options = {{"--interval",
                   &options->interval_s,
                   "The time between two samples",
                   "SECONDS",
                   {{0.1, 3600}}},
                  {"--once", &options->once, "End after one interval"},
                  {.name = "--sort",
                   .value = &options->arrangement.sort,
                   .help = "The column that orders the tables that have the column; see COLUMNS",
                   .type = "COLUMN",
                   .refusal = top::sort_refusal},
                  {.name = "--filter",
                   .value = &options->arrangement.filter,
                   .help = "Show the rows with this text in a name or id; the case does not matter",
                   .type = "TEXT"}},
      .run = [options, &context] { top::run_top(context, *options); },
  };
}

}  // namespace mc::ctl
