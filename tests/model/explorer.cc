// SPDX-License-Identifier: Apache-2.0
#include "tests/model/explorer.h"

#include <bit>
#include <chrono>
#include <unordered_map>

namespace mc::model {

namespace {

using Mask = std::uint64_t;
constexpr Mask bit(unsigned process) { return Mask{1} << process; }

// A state on the path: before its choice was taken.
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
  std::uint16_t number;  // of this process' steps
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

// REQUIRES: different processes.
bool dependent(const Actor& p, const Op& a, const Actor& q, const Op& b) {
  if (a.kind == Kind::kHeavy) return b.kind == Kind::kStore && q.is_thread && q.thread == a.target;
  if (b.kind == Kind::kHeavy) return dependent(q, b, p, a);
  if (a.kind == Kind::kKill) return q.is_thread && q.thread == a.target;
  if (b.kind == Kind::kKill) return dependent(q, b, p, a);
  // A store is the thread's own affair until it is flushed.
  if (a.kind == Kind::kStore || b.kind == Kind::kStore || (!a.writes && !b.writes)) return false;
  // A thread sees its own stores alike before and after they are flushed.
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
    for (auto& list : stores_of_) list.clear();
    for (auto& list : steps_of_) list.clear();
    for (Clock& clock : flushes_of_) clock = Clock{};
    for (Clock& clock : clocks_) clock = Clock{};
    heavy_events_.clear();
    kill_events_.clear();
    Mask sleep = 0;
    for (;;) {
      Mask enabled = 0;
      for (unsigned p = 0; p < machine.process_count(); ++p) {
        if (machine.enabled(p)) enabled |= bit(p);
      }
      if (!machine.violation().empty() || enabled == 0) break;
      const std::size_t depth = events_.size();
      if (depth >= frames_.size()) {
        for (unsigned p = 0; p < machine.process_count(); ++p) find_race(p);
        Frame frame;
        frame.enabled = enabled;
        frame.sleep = sleep;
        if ((enabled & ~sleep) == 0) {
          ++verdict_.redundant;
          machine.finish();
          return;
        }
        frame.choice = static_cast<unsigned>(std::countr_zero(enabled & ~sleep));
        frame.backtrack = options_.reduce ? bit(frame.choice) : enabled;
        frames_.push_back(frame);
      }
      sleep = step(frames_[depth]);
    }
    end(machine);
  }

  // Judges a whole execution.
  void end(Machine& machine) {
    if (machine.violation().empty()) {
      // What waits for ever may yet race with what came before.
      if (events_.size() >= frames_.size()) {
        for (unsigned p = 0; p < machine.process_count(); ++p) find_race(p);
      }
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

  // Takes the frame's choice; returns what sleeps after it.
  Mask step(const Frame& frame) {
    const unsigned p = frame.choice;
    const Op op = machine_->next(p);
    Mask sleep = 0;
    for (Mask left = (frame.sleep | frame.done) & ~bit(p); left != 0; left &= left - 1) {
      const auto q = static_cast<unsigned>(std::countr_zero(left));
      if (options_.reduce && !dependent(actor(p), op, actor(q), machine_->next(q))) sleep |= bit(q);
    }
    Event event{p, machine_->thread_of(p), machine_->is_thread(p), 0, op, next_clock(p)};
    join_dependencies(event);
    event.number = static_cast<std::uint16_t>(clocks_[p].steps[p] + 1);
    event.clock.steps[p] = event.number;
    clocks_[p] = event.clock;
    machine_->step(p);
    ++verdict_.steps;
    record(std::move(event));
    return sleep;
  }

  // What is known to come before the next step of a process, whatever the schedule.
  Clock next_clock(unsigned p) const {
    Clock clock = clocks_[p];
    const Op& op = machine_->next(p);
    const unsigned thread = machine_->thread_of(p);
    switch (op.kind) {
      case Kind::kFlush:
        clock.join(machine_->flush_clock(p));
        if (machine_->flush_is_ordered(p)) clock.join(flushes_of_[thread]);
        break;
      case Kind::kHeavy:
        clock.join(clocks_[machine_->fencing()]);
        break;
      case Kind::kHeavyEnd:
        for (const auto index : heavy_events_) clock.join(events_[index].clock);
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
        clock.join(flushes_of_[thread]);  // they wait for an empty buffer
        break;
      default:
        break;
    }
    return clock;
  }

  // Calls use(index) for earlier events that the op may depend on, latest first within each list, until
  // it returns true.
  template <typename Use>
  void for_earlier(const Op& op, bool of_thread, Use use) const {
    if (in_memory(op) && !is_wide(op)) {
      const auto found = last_at_.find(op.first);
      if (found != last_at_.end()) {
        for (auto it = found->second.rbegin(); it != found->second.rend(); ++it) {
          if (use(*it)) break;
        }
      }
      for (auto it = wide_.rbegin(); it != wide_.rend(); ++it) {
        if (use(*it)) break;
      }
    } else if (is_wide(op)) {
      for (std::size_t i = events_.size(); i-- > 0;) {
        if (use(static_cast<std::uint32_t>(i))) break;
      }
    }
    const auto all = [&](const std::vector<std::uint32_t>& list) {
      for (auto it = list.rbegin(); it != list.rend(); ++it) {
        if (use(*it)) break;
      }
    };
    if (op.kind == Kind::kHeavy) all(stores_of_[op.target]);
    if (op.kind == Kind::kStore) all(heavy_events_);
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
      if (!depends(earlier, self, event.op)) return false;
      event.clock.join(earlier.clock);
      return false;
    });
    if (event.op.kind == Kind::kHeavy) event.clock.join(flushes_of_[event.op.target]);
  }

  void record(Event event) {
    const auto index = static_cast<std::uint32_t>(events_.size());
    const Op& op = event.op;
    if (is_wide(op)) {
      wide_.push_back(index);
    } else if (in_memory(op)) {
      for (std::uint64_t g = op.first; g < op.end; ++g) last_at_[g].push_back(index);
    }
    if (op.kind == Kind::kFlush) flushes_of_[event.thread].join(event.clock);
    if (op.kind == Kind::kStore) {
      stores_of_[event.thread].push_back(index);
      machine_->set_newest_entry_clock(event.thread, event.clock);
    }
    if (op.kind == Kind::kHeavy) heavy_events_.push_back(index);
    if (op.kind == Kind::kKill) kill_events_.push_back(index);
    if (event.of_thread) steps_of_[event.thread].push_back(index);
    events_.push_back(std::move(event));
  }

  // Finds the last step that p's next one could have come before, and branches there.
  void find_race(unsigned p) {
    const Op& op = machine_->next(p);
    if (op.kind == Kind::kNone || events_.empty()) return;
    const Actor self = actor(p);
    const Clock clock = next_clock(p);
    std::int64_t latest = -1;
    const auto consider = [&](std::uint32_t index) {
      const Event& event = events_[index];
      if (!depends(event, self, op)) return false;
      if (clock.steps[event.process] >= event.number) return false;
      latest = std::max<std::int64_t>(latest, index);
      return true;
    };
    const auto last = static_cast<std::uint32_t>(events_.size() - 1);
    if (machine_->next_since(p) >= events_.size()) {
      for_earlier(op, self.is_thread, consider);
    } else {
      // Earlier steps were looked at when they were the last.
      consider(last);
    }
    if (latest >= 0) branch_at(static_cast<std::size_t>(latest), p, clock);
  }

  void branch_at(std::size_t index, unsigned p, const Clock& clock) {
    Frame& frame = frames_[index];
    Mask candidates = bit(p);
    for (std::size_t j = index + 1; j < events_.size(); ++j) {
      const Event& event = events_[j];
      if (clock.steps[event.process] >= event.number) candidates |= bit(event.process);
    }
    candidates &= frame.enabled;
    if (candidates == 0) {
      frame.backtrack |= frame.enabled;
    } else if ((candidates & (frame.backtrack | frame.done)) == 0) {
      frame.backtrack |= (candidates & bit(p)) != 0 ? bit(p) : candidates & (~candidates + 1);
    }
  }

  // Goes back to the deepest state with something left to try. False: there is none.
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
  std::vector<std::uint32_t> wide_, heavy_events_, kill_events_;
  std::vector<std::uint32_t> stores_of_[Machine::kMaxThreads];
  std::vector<std::uint32_t> steps_of_[Machine::kMaxThreads];
  Clock flushes_of_[Machine::kMaxThreads];
  Clock clocks_[kMaxProcesses];
};

}  // namespace

Verdict explore(const Options& options, const std::function<void(Machine&)>& build) {
  return Explorer(options, build).run();
}

}  // namespace mc::model
