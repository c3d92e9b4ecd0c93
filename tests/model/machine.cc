// SPDX-License-Identifier: Apache-2.0
#include "tests/model/machine.h"

#include <cstring>
#include <exception>

namespace mc::model {

namespace {

Machine* running_machine = nullptr;

// Unwinds a thread's stack when the execution ends early.
struct Abandoned {};

std::vector<std::unique_ptr<Fiber>>& spare_fibers() {
  static std::vector<std::unique_ptr<Fiber>> fibers;
  return fibers;
}

std::uint64_t read_memory(const void* address, unsigned bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, address, bytes);
  return value;
}

}  // namespace

bool Op::touches(std::uint64_t granule) const {
  if (kind != Kind::kAwait) return granule >= first && granule < end;
  return std::find(awaited.begin(), awaited.end(), granule) != awaited.end();
}

Machine* Machine::running() { return running_machine; }

// ---- Scenario -----------------------------------------------------------------------------------

void Machine::thread(std::string name, std::function<void()> body) {
  Thread thread;
  thread.name = std::move(name);
  thread.body = std::move(body);
  threads_.push_back(std::move(thread));
}

void Machine::name(const void* at, std::uint64_t bytes, std::string text) {
  const auto first = static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - arena_base());
  names_.push_back({first, first + bytes, std::move(text)});
}

void Machine::begin(Memory memory, const std::vector<Mutation>* mutations) {
  memory_ = memory;
  mutations_ = mutations;
  const auto count = static_cast<unsigned>(threads_.size());
  for (const Role role : {Role::kThread, Role::kKiller}) {
    for (unsigned i = 0; i < count; ++i) {
      Process process{role, i, 0, {}};
      if (role == Role::kKiller && (killers_ >> i & 1) != 0) {
        process.next.kind = Kind::kKill;
        process.next.target = static_cast<std::uint8_t>(i);
      }
      processes_.push_back(std::move(process));
    }
  }
  if (memory_ == Memory::kPartialStoreOrder) return;
  for (unsigned i = 0; i < count; ++i) processes_.push_back({Role::kFlusher, i, 0, {}});
}

void Machine::launch() {
  running_machine = this;
  for (Thread& thread : threads_) {
    if (spare_fibers().empty()) spare_fibers().push_back(std::make_unique<Fiber>());
    thread.fiber = std::move(spare_fibers().back());
    spare_fibers().pop_back();
    thread.fiber->start([this, &thread] { run(thread); });
    step_thread(thread);
  }
}

void Machine::run(Thread& thread) {
  try {
    thread.body();
    release_held(thread);
  } catch (const Abandoned&) {
  }
  thread.done = true;
  processes_[my_number()].next = Op{};
}

void Machine::step_thread(Thread& thread) {
  current_ = &thread;
  thread.fiber->resume();
  current_ = nullptr;
}

void Machine::finish() {
  if (running_machine != this) return;
  abandoning_ = true;
  for (Thread& thread : threads_) {
    if (thread.fiber == nullptr) continue;
    if (!thread.fiber->finished()) step_thread(thread);
    spare_fibers().push_back(std::move(thread.fiber));
  }
  running_machine = nullptr;
}

bool Machine::anyone_waits() const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const Thread& thread) { return !thread.done && !thread.dead; });
}

void Machine::judge() {
  if (judge_) judge_();
}

void Machine::set_violation(std::string text) {
  if (violation_.empty()) violation_ = std::move(text);
}

// ---- Processes ----------------------------------------------------------------------------------

bool Machine::enabled(unsigned process) const {
  return violation_.empty() && may_run(processes_[process]);
}

bool Machine::may_run(const Process& process) const {
  const Thread& thread = threads_[process.thread];
  switch (process.next.kind) {
    case Kind::kNone:
      return false;
    case Kind::kFlush: {
      std::size_t index = 0;
      const Entry* entry = head(process, &index);
      return entry != nullptr && (!entry->ordered || index == 0);
    }
    case Kind::kKill:
      return !thread.done && !thread.dead;
    default:
      break;
  }
  if (thread.dead) return false;
  switch (process.next.kind) {
    case Kind::kLoad:
    case Kind::kStore:
      return true;
    case Kind::kAwait:
      return reads_changed(thread);
    case Kind::kFutexSleep:
      return thread.woken;
    case Kind::kWaitEvent:
      return thread.buffer.empty() &&
             read_memory(arena_base() + process.next.first * 8, sizeof(std::uint64_t)) != 0;
    default:
      return thread.buffer.empty();
  }
}

const Machine::Entry* Machine::head(const Process& flusher, std::size_t* index) const {
  const std::deque<Entry>& buffer = threads_[flusher.thread].buffer;
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    if (memory_ == Memory::kPartialStoreOrder && granule_of(buffer[i].address) != flusher.granule) {
      continue;
    }
    if (index != nullptr) *index = i;
    return &buffer[i];
  }
  return nullptr;
}

const Clock& Machine::flush_clock(unsigned process) const {
  return head(processes_[process])->clock;
}

bool Machine::flush_is_ordered(unsigned process) const {
  return memory_ == Memory::kPartialStoreOrder && head(processes_[process])->ordered;
}

std::uint64_t Machine::flush_number(unsigned process) const {
  return head(processes_[process])->number;
}

void Machine::set_newest_entry_clock(unsigned thread, const Clock& clock) {
  threads_[thread].buffer.back().clock = clock;
}

void Machine::refresh_flushers(unsigned thread) {
  for (Process& process : processes_) {
    if (process.role != Role::kFlusher || process.thread != thread) continue;
    const Entry* entry = head(process);
    process.next = Op{};
    if (entry != nullptr) {
      process.next.kind = Kind::kFlush;
      process.next.writes = true;
      process.next.first = granule_of(entry->address);
      process.next.end = process.next.first + 1;
    }
  }
}

void Machine::step(unsigned number) {
  Process& process = processes_[number];
  Thread& thread = threads_[process.thread];
  switch (process.role) {
    case Role::kThread:
      step_thread(thread);
      break;
    case Role::kKiller:
      note(number, Kind::kKill, nullptr, 0, {"", "", 0});
      thread.dead = true;
      process.next = Op{};
      break;
    case Role::kFlusher:
      flush(process);
      break;
  }
}

void Machine::flush(Process& flusher) {
  std::size_t index = 0;
  head(flusher, &index);
  std::deque<Entry>& buffer = threads_[flusher.thread].buffer;
  const Entry entry = buffer[index];
  buffer.erase(buffer.begin() + static_cast<std::ptrdiff_t>(index));
  std::memcpy(entry.address, &entry.value, entry.bytes);
  note(static_cast<unsigned>(&flusher - processes_.data()), Kind::kFlush, entry.address,
       entry.value, entry.site);
  refresh_flushers(flusher.thread);
}

// ---- Operations of threads ----------------------------------------------------------------------

Machine::Thread& Machine::post(Op op) {
  const unsigned number = my_number();
  Thread& thread = me();
  processes_[number].next = std::move(op);
  thread.fiber->pause();
  if (abandoning_) throw Abandoned{};
  return thread;
}

namespace {

Op op_at(Kind kind, const void* address, unsigned bytes, bool writes) {
  Op op;
  op.kind = kind;
  op.writes = writes;
  op.first = granule_of(address);
  op.end = granule_of(static_cast<const std::byte*>(address) + bytes - 1) + 1;
  return op;
}

Op op_of(Kind kind) {
  Op op;
  op.kind = kind;
  return op;
}

}  // namespace

std::uint64_t Machine::read(const Thread& thread, const void* address, unsigned bytes) const {
  std::uint64_t value = read_memory(address, bytes);
  const auto* first = static_cast<const std::byte*>(address);
  for (const Entry& entry : thread.buffer) {
    const auto* at = static_cast<const std::byte*>(entry.address);
    if (at + entry.bytes <= first || at >= first + bytes) continue;
    for (unsigned i = 0; i < entry.bytes; ++i) {
      if (at + i < first || at + i >= first + bytes) continue;
      std::memcpy(reinterpret_cast<std::byte*>(&value) + (at + i - first),
                  reinterpret_cast<const std::byte*>(&entry.value) + i, 1);
    }
  }
  return value;
}

std::uint64_t Machine::load(const void* word, unsigned bytes, Order order, const Site& site) {
  if (abandoning_) return 0;
  // The head of the reader's loop: a retry makes sense only after a change.
  if (order == Order::kOrdered && !me().reads.empty() && std::strcmp(site.function, "find") == 0) {
    retry(site);
  }
  Thread& thread = post(op_at(Kind::kLoad, word, bytes, false));
  std::uint64_t value = read(thread, word, bytes);
  const bool ordered = order == Order::kOrdered;
  if (mutated(site, Kind::kLoad, Action::kZero, ordered)) value = 0;
  if (mutated(site, Kind::kLoad, Action::kStale, ordered)) {
    for (const Read& past : thread.reads) {
      if (past.address == word) value = past.value;
    }
  }
  thread.reads.push_back({word, bytes, value});
  note(my_number(), Kind::kLoad, word, value, site);
  return value;
}

void Machine::store(void* word, unsigned bytes, std::uint64_t value, Order order,
                    const Site& site) {
  if (abandoning_) return;
  bool ordered = order == Order::kOrdered;
  if (mutated(site, Kind::kStore, Action::kSkip, ordered)) return;
  if (mutated(site, Kind::kStore, Action::kLate, ordered)) {
    me().held.push_back({word, bytes, value, false, site});
    return;
  }
  if (mutated(site, Kind::kStore, Action::kRelax, ordered)) ordered = false;
  push(me(), {word, bytes, value, ordered, site});
  release_held(me());
}

void Machine::push(Thread& thread, Entry entry) {
  post(op_at(Kind::kStore, entry.address, entry.bytes, false));
  note(my_number(), Kind::kStore, entry.address, entry.value, entry.site);
  const std::uint64_t granule = granule_of(entry.address);
  entry.number = ++thread.stores;
  thread.buffer.push_back(std::move(entry));
  const unsigned number = my_number();
  if (memory_ == Memory::kPartialStoreOrder) {
    const bool known = std::any_of(processes_.begin(), processes_.end(), [&](const Process& p) {
      return p.role == Role::kFlusher && p.thread == number && p.granule == granule;
    });
    if (!known) processes_.push_back({Role::kFlusher, number, granule, {}});
    if (processes_.size() > kMaxProcesses) set_violation("the scenario stores to too many words");
  }
  refresh_flushers(number);
}

void Machine::release_held(Thread& thread) {
  std::vector<Entry> held;
  held.swap(thread.held);
  for (Entry& entry : held) push(thread, std::move(entry));
}

std::uint64_t Machine::rmw(void* word, unsigned bytes, Rmw how, std::uint64_t operand,
                           std::uint64_t expected, const Site& site) {
  if (abandoning_) return 0;
  release_held(me());
  post(op_at(Kind::kRmw, word, bytes, true));
  const std::uint64_t before = read_memory(word, bytes);
  std::uint64_t after = operand;
  if (how == Rmw::kOr) after = before | operand;
  if (how == Rmw::kCompareExchange && before != expected) after = before;
  std::memcpy(word, &after, bytes);
  note(my_number(), Kind::kRmw, word, before, site);
  return before;
}

void Machine::full_fence(const Site& site) {
  if (abandoning_ || mutated(site, Kind::kFence, Action::kSkip)) return;
  release_held(me());
  post(op_of(Kind::kFence));
  note(my_number(), Kind::kFence, nullptr, 0, site);
}

void Machine::punch(void* range, std::uint64_t bytes, const Site& site) {
  if (abandoning_) return;
  release_held(me());
  Op op = op_at(Kind::kPunch, range, 1, true);
  op.end = op.first + bytes / 8;
  post(std::move(op));
  arena_zero(range, bytes);
  note(my_number(), Kind::kPunch, range, bytes, site);
}

void Machine::signal_event(std::uint64_t* event, const Site& site) {
  if (abandoning_) return;
  post(op_at(Kind::kSignal, event, sizeof *event, true));
  ++*event;
  note(my_number(), Kind::kSignal, event, *event, site);
}

void Machine::wait_event(std::uint64_t* event, const Site& site) {
  if (abandoning_) return;
  post(op_at(Kind::kWaitEvent, event, sizeof *event, true));
  note(my_number(), Kind::kWaitEvent, event, *event, site);
  *event = 0;
}

void Machine::futex_wait(std::uint32_t* word, std::uint32_t value, const Site& site) {
  if (abandoning_) return;
  Thread& thread = post(op_at(Kind::kFutexWait, word, sizeof *word, false));
  note(my_number(), Kind::kFutexWait, word, *word, site);
  if (*word != value) return;
  thread.futex = word;
  thread.waiting = true;
  thread.woken = false;
  post(op_of(Kind::kFutexSleep));
  note(my_number(), Kind::kFutexSleep, word, *word, site);
}

void Machine::futex_wake(std::uint32_t* word, const Site& site) {
  if (abandoning_) return;
  post(op_at(Kind::kFutexWake, word, sizeof *word, true));
  note(my_number(), Kind::kFutexWake, word, *word, site);
  for (Thread& thread : threads_) {
    if (!thread.waiting || thread.futex != word) continue;
    thread.waiting = false;
    thread.woken = true;
    thread.woken_by = my_number();
    return;
  }
}

// ---- Retry --------------------------------------------------------------------------------------

bool Machine::reads_changed(const Thread& thread) const {
  return std::any_of(thread.reads.begin(), thread.reads.end(), [&](const Read& past) {
    return read(thread, past.address, past.bytes) != past.value;
  });
}

void Machine::retry(const Site& site) {
  if (abandoning_) return;
  Op op = op_of(Kind::kAwait);
  for (const Read& past : me().reads) {
    const std::uint64_t granule = granule_of(past.address);
    if (!op.touches(granule)) op.awaited.push_back(granule);
  }
  Thread& thread = post(std::move(op));
  note(my_number(), Kind::kAwait, nullptr, 0, site);
  thread.reads.clear();
}

void Machine::forget_reads() {
  if (!abandoning_) me().reads.clear();
}

bool Machine::mutated(const Site& site, Kind kind, Action action, bool ordered) const {
  if (mutations_ == nullptr) return false;
  return std::any_of(mutations_->begin(), mutations_->end(), [&](const Mutation& mutation) {
    return mutation.kind == kind && mutation.action == action &&
           mutation.of != (ordered ? Mutation::Of::kRelaxed : Mutation::Of::kOrdered) &&
           std::strcmp(mutation.function, site.function) == 0;
  });
}

}  // namespace mc::model
