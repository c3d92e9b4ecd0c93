// SPDX-License-Identifier: Apache-2.0
//
// The simulated machine: threads, a store buffer for each thread, and shared memory. The machine
//   executes one step at a time, of the process that the explorer chooses. A process is
//     a thread      its next operation, at which the thread waits
//     a flusher     moves an entry of a thread's store buffer to memory. Total store order: one per
//                   thread, oldest entry first. Partial store order: one per thread and word; only
//                   an ordered store (release) waits for all older entries
//     a killer      stops a thread for ever; earlier stores of the thread still reach the memory
//   Fences, locked operations and system calls wait until the thread's own buffer is empty.
// Threads: one real thread. Owns: the fibers. Trusts: scenarios keep shared words in the arena.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/model/arena.h"
#include "tests/model/clock.h"
#include "tests/model/fiber.h"
#include "tests/model/hooks.h"

namespace mc::model {

enum class Memory { kTotalStoreOrder, kPartialStoreOrder };

enum class Kind : std::uint8_t {
  kNone,
  kLoad,
  kStore,  // into the buffer
  kFlush,  // from the buffer to memory
  kRmw,
  kFence,
  kAwait,  // the thread reads again, because a word that it read has changed
  kFutexWait,
  kFutexSleep,
  kFutexWake,
  kSignal,
  kWaitEvent,
  kPunch,
  kKill,
};
const char* kind_name(Kind kind);

// A word is identified by its 8 bytes (a granule).
inline std::uint64_t granule_of(const void* at) {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - arena_base()) >> 3;
}

struct Op {
  Kind kind = Kind::kNone;
  bool writes = false;
  std::uint8_t target = 0;             // kKill: a thread
  std::uint64_t first = 0, end = 0;    // granules touched
  std::vector<std::uint64_t> awaited;  // kAwait: granules read
  bool touches(std::uint64_t granule) const;
};

// One line of a counterexample.
struct Step {
  unsigned process = 0;
  Kind kind = Kind::kNone;
  std::uint64_t address = 0;  // in the arena
  std::uint64_t value = 0;
  Site site{};
};

enum class Action : std::uint8_t {
  kSkip,   // omits a fence or store
  kStale,  // a load returns the value that the thread last read there: a missing check
  kZero,   // a load always returns 0
  kRelax,  // an ordered store becomes relaxed
  kLate,   // a store changes places with the thread's next store
};
// A deliberate fault at the operations of this kind in the named function of the product.
struct Mutation {
  const char* function;
  Kind kind;
  Action action;
  enum class Of : std::uint8_t { kAll, kRelaxed, kOrdered } of = Of::kAll;  // loads and stores
};

class Machine {
 public:
  static constexpr unsigned kMaxThreads = 4;

  Machine() { arena_reset(); }
  ~Machine() { finish(); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // ---- For scenarios, before the run
  void thread(std::string name, std::function<void()> body);
  // Allows the explorer to stop this thread for ever at any step.
  void may_die(unsigned thread) { killers_ |= 1u << thread; }
  // Checks the end of an execution.
  void at_end(std::function<void()> judge) { judge_ = std::move(judge); }
  // Names words in counterexamples.
  void name(const void* at, std::uint64_t bytes, std::string text);
  bool died(unsigned thread) const { return threads_[thread].dead; }

  // ---- For the explorer
  void begin(Memory memory, const std::vector<Mutation>* mutations);
  void launch();  // runs every thread to its first operation
  unsigned process_count() const { return static_cast<unsigned>(processes_.size()); }
  bool enabled(unsigned process) const;
  const Op& next(unsigned process) const { return processes_[process].next; }
  bool is_thread(unsigned process) const { return process < threads_.size(); }
  unsigned thread_of(unsigned process) const { return processes_[process].thread; }
  std::size_t thread_count() const { return threads_.size(); }
  void step(unsigned process);
  // Ends the execution; unwinds unfinished threads.
  void finish();
  // Number of threads that have neither ended nor died.
  bool anyone_waits() const;
  void judge();
  const std::string& violation() const { return violation_; }
  void set_violation(std::string text);
  std::string table() const;

  // For the explorer's happens-before: about the buffer's entry that the flusher takes next.
  const Clock& flush_clock(unsigned process) const;
  bool flush_is_ordered(unsigned process) const;
  std::uint64_t flush_number(unsigned process) const;  // number among the thread's stores
  void set_newest_entry_clock(unsigned thread, const Clock& clock);
  // The thread that woke a futex sleeper.
  unsigned woken_by(unsigned thread) const { return threads_[thread].woken_by; }

  // ---- For threads (through hooks.h)
  static Machine* running();
  std::uint64_t load(const void* word, unsigned bytes, Order order, const Site& site);
  void store(void* word, unsigned bytes, std::uint64_t value, Order order, const Site& site);
  std::uint64_t rmw(void* word, unsigned bytes, Rmw how, std::uint64_t operand,
                    std::uint64_t expected, const Site& site);
  void full_fence(const Site& site);
  void punch(void* range, std::uint64_t bytes, const Site& site);
  void signal_event(std::uint64_t* event, const Site& site);
  void wait_event(std::uint64_t* event, const Site& site);
  void futex_wait(std::uint32_t* word, std::uint32_t value, const Site& site);
  void futex_wake(std::uint32_t* word, const Site& site);
  // Waits until a word changes that this thread has read since the last forget_reads() or retry().
  void retry(const Site& site);
  void forget_reads();
  bool in_thread() const { return current_ != nullptr; }

 private:
  struct Entry {
    void* address;
    unsigned bytes;
    std::uint64_t value;
    bool ordered;
    Site site;
    std::uint64_t number = 0;
    Clock clock{};
  };
  struct Read {
    const void* address;
    unsigned bytes;
    std::uint64_t value;
  };
  struct Thread {
    std::string name;
    std::function<void()> body;
    std::unique_ptr<Fiber> fiber;
    std::deque<Entry> buffer;
    std::uint64_t stores = 0;
    std::vector<Read> reads;
    std::vector<Entry> held;  // Action::kLate
    bool done = false, dead = false, waiting = false, woken = false;
    unsigned woken_by = 0;
    const void* futex = nullptr;
  };
  enum class Role : std::uint8_t { kThread, kKiller, kFlusher };
  struct Process {
    Role role;
    unsigned thread;
    std::uint64_t granule;  // granule of a flusher, in partial store order
    Op next;
  };

  Thread& post(Op op);  // waits until the explorer chooses the thread
  Thread& me() { return *current_; }
  unsigned my_number() const { return static_cast<unsigned>(current_ - threads_.data()); }
  void run(Thread& thread);
  void step_thread(Thread& thread);
  void flush(Process& flusher);
  void release_held(Thread& thread);
  bool may_run(const Process& process) const;
  std::uint64_t read(const Thread& thread, const void* address, unsigned bytes) const;
  void push(Thread& thread, Entry entry);
  void note(unsigned process, Kind kind, const void* address, std::uint64_t value,
            const Site& site);
  const Entry* head(const Process& flusher, std::size_t* index = nullptr) const;
  void refresh_flushers(unsigned thread);
  bool reads_changed(const Thread& thread) const;
  bool mutated(const Site& site, Kind kind, Action action, bool ordered = false) const;
  std::string place(std::uint64_t address) const;

  struct Name {
    std::uint64_t first, end;
    std::string text;
  };

  Memory memory_ = Memory::kTotalStoreOrder;
  const std::vector<Mutation>* mutations_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Process> processes_;
  std::vector<Step> steps_;
  std::vector<Name> names_;
  std::function<void()> judge_;
  std::string violation_;
  unsigned killers_ = 0;
  Thread* current_ = nullptr;
  bool abandoning_ = false;
};

// ---- For the bodies of simulated threads

// Records a violation of the scenario's promise and ends the execution.
void expect(bool holds, const char* promise);
// REQUIRES: in a simulated thread. See Machine::retry().
void retry(MC_MODEL_SITE);
void forget_reads();

}  // namespace mc::model
