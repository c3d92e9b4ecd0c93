// SPDX-License-Identifier: Apache-2.0
#include "tests/model/explorer.h"

#include <bit>
#include <chrono>
#include <unordered_map>

namespace mc::model {

namespace {

using Mask = std::uint64_t;
constexpr Mask bit(unsigned process) { return Mask{1} << process; }

// A state on the path, before the choice.
struct Frame {
  Mask enabled = 0;
  Mask backtrack = 0;
  Mask done = 0;
  Mask sleep = 0;
  unsigned choice = 0;
};

// A step of the current execution.
struct Event {
  unsigned process;
  unsigned thread;
  bool of_thread;
  std::uint16_t number;  // number among this process' steps
  std::uint64_t entry;   // kFlush: the number of the thread's store
  Op op;
  Clock clock;
};

bool overlap(const Op& a, const Op& b) {
  if (a.kind == Kind::kAwait) {
    return std::any_of(a.awaited.begin(), a.awaited.end(),
                       [&](std::uint64_t granule) { return b.touches(granule); });
  }
  if (b.kind == Kind::kAwait) return overlap(b, a);
  return a.first < b.end && b.first < a.end;
}

struct Actor {
  unsigned process;
  unsigned thread;
  bool is_thread;
};

// REQUIRES: the steps belong to different processes.
bool dependent(const Actor& p, const Op& a, const Actor& q, const Op& b) {
  if (a.kind == Kind::kKill) return q.is_thread && q.thread == a.target;
  if (b.kind == Kind::kKill) return dependent(q, b, p, a);
  // A store is private to the thread until the flush.
  if (a.kind == Kind::kStore || b.kind == Kind::kStore || (!a.writes && !b.writes)) return false;
  // A thread sees its own stores before and after the flush.
  if (p.thread == q.thread && (a.kind == Kind::kLoad || b.kind == Kind::kLoad)) return false;
  return overlap(a, b);
}

bool is_wide(const Op& op) { return op.kind == Kind::kAwait || op.kind == Kind::kPunch; }
bool in_memory(const Op& op) { return op.end > op.first && op.kind != Kind::kStore; }

class Explorer {
 public:
  Explorer(const Options& options, const std::function<void(Machine&)>& build)
      : options_(options), build_(build) {}

  Verdict run() {
    const auto start = std::chrono::steady_clock::now();
    do {
      execute();
      ++verdict_.executions;
    } while (verdict_.violation.empty() && verdict_.executions < options_.max_executions &&
             branch());
    verdict_.complete = !verdict_.violation.empty() || frames_.empty();
    verdict_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return verdict_;
  }

 private:
  Actor actor(unsigned process) const {
    return {process, machine_->thread_of(process), machine_->is_thread(process)};
  }

  void execute() {
    Machine machine;
    machine_ = &machine;
    build_(machine);
    machine.begin(options_.memory, options_.mutations.empty() ? nullptr : &options_.mutations);
    machine.launch();
    events_.clear();
    last_at_.clear();
    wide_.clear();
    for (auto& list : steps_of_) list.clear();
    for (auto& list : flush_events_) list.clear();
    for (Clock& clock : flushes_of_) clock = Clock{};
    for (Clock& clock : clocks_) clock = Clock{};
    kill_events_.clear();
    // The steps before the newest choice have been analysed before.
    const std::size_t first_new = frames_.empty() ? 0 : frames_.size() - 1;
    Mask sleep = 0;
    for (;;) {
      Mask enabled = 0;
      for (unsigned p = 0; p < machine.process_count(); ++p) {
        if (machine.enabled(p)) enabled |= bit(p);
      }
      if (!machine.violation().empty() || enabled == 0) break;
      const std::size_t depth = events_.size();
      if (depth >= frames_.size()) {
        Frame frame;
        frame.enabled = enabled;
        frame.sleep = sleep;
        if ((enabled & ~sleep) == 0) {
          ++verdict_.redundant;
          find_races_of_waiting();
          machine.finish();
          return;
        }
        frame.choice = static_cast<unsigned>(std::countr_zero(enabled & ~sleep));
        frame.backtrack = options_.reduce ? bit(frame.choice) : enabled;
        frames_.push_back(frame);
      }
      if (depth >= first_new) find_races(frames_[depth].choice);
      sleep = step(frames_[depth]);
    }
    end(machine);
  }

  // Checks a whole execution.
  void end(Machine& machine) {
    if (machine.violation().empty()) {
      find_races_of_waiting();
      if (machine.anyone_waits() && !anyone_died(machine)) {
        machine.set_violation("a thread waits for ever");
      }
    }
    if (machine.violation().empty()) machine.judge();
    if (!machine.violation().empty()) {
      verdict_.violation = machine.violation() + "\n" + machine.table();
    }
  }

  static bool anyone_died(const Machine& machine) {
    for (unsigned t = 0; t < machine.thread_count(); ++t) {
      if (machine.died(t)) return true;
    }
    return false;
  }

  // Takes the frame's choice; returns the sleep set after the step.
  Mask step(const Frame& frame) {
    const unsigned p = frame.choice;
    const Op op = machine_->next(p);
    Mask sleep = 0;
    for (Mask left = (frame.sleep | frame.done) & ~bit(p); left != 0; left &= left - 1) {
      const auto q = static_cast<unsigned>(std::countr_zero(left));
      if (options_.reduce && !dependent(actor(p), op, actor(q), machine_->next(q))) sleep |= bit(q);
    }
    Event event{p, machine_->thread_of(p), machine_->is_thread(p), 0, 0, op, next_clock(p)};
    if (op.kind == Kind::kFlush) event.entry = machine_->flush_number(p);
    join_dependencies(event);
    event.number = static_cast<std::uint16_t>(clocks_[p].steps[p] + 1);
    event.clock.steps[p] = event.number;
    clocks_[p] = event.clock;
    machine_->step(p);
    ++verdict_.steps;
    record(std::move(event));
    return sleep;
  }

  // The steps that happen before the next step of a process in every schedule.
  Clock next_clock(unsigned p) const {
    Clock clock = clocks_[p];
    const Op& op = machine_->next(p);
    const unsigned thread = machine_->thread_of(p);
    switch (op.kind) {
      case Kind::kFlush:
        clock.join(machine_->flush_clock(p));
        // A release waits for earlier stores; later stores may overtake the release.
        if (machine_->flush_is_ordered(p)) {
          for (const std::uint32_t index : flush_events_[thread]) {
            if (events_[index].entry < machine_->flush_number(p)) clock.join(events_[index].clock);
          }
        }
        break;
      case Kind::kFutexSleep:
        if (machine_->enabled(p)) clock.join(clocks_[machine_->woken_by(thread)]);
        break;
      case Kind::kRmw:
      case Kind::kFence:
      case Kind::kFutexWait:
      case Kind::kFutexWake:
      case Kind::kSignal:
      case Kind::kWaitEvent:
      case Kind::kPunch:
        clock.join(flushes_of_[thread]);  // these wait for an empty buffer
        break;
      default:
        break;
    }
    return clock;
  }

  // Calls use(index) for earlier events on which the operation may depend.
  template <typename Use>
  void for_earlier(const Op& op, bool of_thread, Use use) const {
    const auto all = [&](const std::vector<std::uint32_t>& list) {
      for (const std::uint32_t index : list) use(index);
    };
    if (is_wide(op)) {
      for (std::uint32_t i = 0; i < events_.size(); ++i) use(i);
      return;
    }
    if (in_memory(op)) {
      if (const auto found = last_at_.find(op.first); found != last_at_.end()) all(found->second);
      all(wide_);
    }
    if (op.kind == Kind::kKill) all(steps_of_[op.target]);
    if (of_thread) all(kill_events_);
  }

  bool depends(const Event& event, const Actor& q, const Op& op) const {
    return event.process != q.process &&
           dependent({event.process, event.thread, event.of_thread}, event.op, q, op);
  }

  void join_dependencies(Event& event) const {
    const Actor self{event.process, event.thread, event.of_thread};
    for_earlier(event.op, event.of_thread, [&](std::uint32_t index) {
      const Event& earlier = events_[index];
      if (depends(earlier, self, event.op)) event.clock.join(earlier.clock);
    });
  }

  void record(Event event) {
    const auto index = static_cast<std::uint32_t>(events_.size());
    const Op& op = event.op;
    if (is_wide(op)) {
      wide_.push_back(index);
    } else if (in_memory(op)) {
      for (std::uint64_t g = op.first; g < op.end; ++g) last_at_[g].push_back(index);
    }
    if (op.kind == Kind::kFlush) {
      flushes_of_[event.thread].join(event.clock);
      flush_events_[event.thread].push_back(index);
    }
    if (op.kind == Kind::kStore) machine_->set_newest_entry_clock(event.thread, event.clock);
    if (op.kind == Kind::kKill) kill_events_.push_back(index);
    if (event.of_thread) steps_of_[event.thread].push_back(index);
    events_.push_back(std::move(event));
  }

  // A blocked or killed process may still race with earlier steps.
  void find_races_of_waiting() {
    for (unsigned p = 0; p < machine_->process_count(); ++p) {
      if (!machine_->enabled(p)) find_races(p);
    }
  }

  // Finds earlier steps that p's next step could precede, and branches there.
  void find_races(unsigned p) {
    const Op& op = machine_->next(p);
    if (op.kind == Kind::kNone) return;
    const Actor self = actor(p);
    const Clock known = next_clock(p);
    racing_.clear();
    Clock clock = known;  // the clock after the step
    for_earlier(op, self.is_thread, [&](std::uint32_t index) {
      const Event& event = events_[index];
      if (!depends(event, self, op)) return;
      clock.join(event.clock);
      if (known.steps[event.process] < event.number) racing_.push_back(index);
    });
    for (const std::uint32_t index : racing_) {
      const Event& event = events_[index];
      const bool between = std::any_of(racing_.begin(), racing_.end(), [&](std::uint32_t other) {
        return other != index && events_[other].clock.steps[event.process] >= event.number;
      });
      if (!between) branch_at(index, p, clock);
    }
  }

  // Before the event: a process that can start the steps up to p's next step that do not depend on
  // the event.
  void branch_at(std::size_t index, unsigned p, const Clock& clock) {
    Frame& frame = frames_[index];
    const Event& event = events_[index];
    Mask initials = 0, seen = 0;
    without_.clear();
    const auto begins = [&](const Clock& of) {
      return std::none_of(without_.begin(), without_.end(), [&](std::uint32_t earlier) {
        return of.steps[events_[earlier].process] >= events_[earlier].number;
      });
    };
    for (std::size_t j = index + 1; j < events_.size(); ++j) {
      const Event& later = events_[j];
      if (later.clock.steps[event.process] >= event.number) continue;
      if ((seen & bit(later.process)) == 0 && begins(later.clock)) initials |= bit(later.process);
      seen |= bit(later.process);
      without_.push_back(static_cast<std::uint32_t>(j));
    }
    if ((seen & bit(p)) == 0 && begins(clock)) initials |= bit(p);
    initials &= frame.enabled;
    if (initials == 0) {
      frame.backtrack |= frame.enabled;
    } else if ((initials & frame.backtrack) == 0) {
      frame.backtrack |= initials & (~initials + 1);
    }
  }

  // Returns to the deepest state with an untried choice. False: no such state.
  bool branch() {
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      frame.done |= bit(frame.choice);
      const Mask left = frame.backtrack & ~frame.done & ~frame.sleep;
      if (left != 0) {
        frame.choice = static_cast<unsigned>(std::countr_zero(left));
        return true;
      }
      frames_.pop_back();
    }
    return false;
  }

  const Options& options_;
  const std::function<void(Machine&)>& build_;
  Verdict verdict_;
  Machine* machine_ = nullptr;
  std::vector<Frame> frames_;
  std::vector<Event> events_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> last_at_;
  std::vector<std::uint32_t> racing_, without_;  // scratch of find_races() and branch_at()
  std::vector<std::uint32_t> wide_, kill_events_;
  std::vector<std::uint32_t> flush_events_[Machine::kMaxThreads];
  std::vector<std::uint32_t> steps_of_[Machine::kMaxThreads];
  Clock flushes_of_[Machine::kMaxThreads];
  Clock clocks_[kMaxProcesses];
};

}  // namespace

Verdict explore(const Options& options, const std::function<void(Machine&)>& build) {
  return Explorer(options, build).run();
}

}  // namespace mc::model
