// SPDX-License-Identifier: Apache-2.0
//
// Sends memory accesses of the product's code to the running machine, or to plain memory without
// one.
#include "tests/model/hooks.h"

#include <linux/futex.h>

#include <cstdarg>
#include <cstring>

#include "tests/model/machine.h"

namespace mc::model {

namespace {

Machine* machine() {
  Machine* running = Machine::running();
  return running != nullptr && running->in_thread() ? running : nullptr;
}

// One step for each 8-byte word of a range.
template <typename Use>
void for_words(const void* range, std::size_t bytes, Use use) {
  const auto* at = static_cast<const std::byte*>(range);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t in_word = 8 - reinterpret_cast<std::uintptr_t>(at + done) % 8;
    const auto step = static_cast<unsigned>(in_word < bytes - done ? in_word : bytes - done);
    use(done, step);
    done += step;
  }
}

}  // namespace

std::uint64_t load(const void* word, unsigned bytes, Order order, const Site& site) {
  if (Machine* running = machine()) return running->load(word, bytes, order, site);
  std::uint64_t value = 0;
  std::memcpy(&value, word, bytes);
  return value;
}

void store(void* word, unsigned bytes, std::uint64_t value, Order order, const Site& site) {
  if (Machine* running = machine()) {
    running->store(word, bytes, value, order, site);
    return;
  }
  std::memcpy(word, &value, bytes);
}

std::uint64_t rmw(void* word, unsigned bytes, Rmw how, std::uint64_t operand,
                  std::uint64_t expected, const Site& site) {
  if (Machine* running = machine()) {
    return running->rmw(word, bytes, how, operand, expected, site);
  }
  std::uint64_t before = 0;
  std::memcpy(&before, word, bytes);
  std::uint64_t after = how == Rmw::kOr ? before | operand : operand;
  if (how == Rmw::kCompareExchange && before != expected) after = before;
  std::memcpy(word, &after, bytes);
  return before;
}

void full_fence(const Site& site) {
  if (Machine* running = machine()) running->full_fence(site);
}

void punch(void* range, std::uint64_t bytes, const Site& site) {
  if (Machine* running = machine()) {
    running->punch(range, bytes, site);
  } else {
    arena_zero(range, bytes);
  }
}

void signal_event(std::uint64_t* event, const Site& site) {
  if (Machine* running = machine()) running->signal_event(event, site);
}

void wait_event(std::uint64_t* event, const Site& site) {
  if (Machine* running = machine()) running->wait_event(event, site);
}

void expect(bool holds, const char* promise) {
  if (!holds && Machine::running() != nullptr) Machine::running()->set_violation(promise);
}

void retry(Site site) {
  if (Machine* running = machine()) running->retry(site);
}

void forget_reads() {
  if (Machine* running = machine()) running->forget_reads();
}

}  // namespace mc::model

void* model_memcpy(void* to, const void* from, std::size_t bytes) {
  using namespace mc::model;
  if (machine() == nullptr || (!in_arena(to) && !in_arena(from)))
    return std::memcpy(to, from, bytes);
  const bool shared_to = in_arena(to);
  for_words(shared_to ? to : from, bytes, [&](std::size_t at, unsigned step) {
    const auto* source = static_cast<const std::byte*>(from) + at;
    auto* target = static_cast<std::byte*>(to) + at;
    std::uint64_t value = 0;
    if (in_arena(source)) {
      value = load(source, step, Order::kRelaxed, {"", "memcpy", 0});
    } else {
      std::memcpy(&value, source, step);
    }
    if (shared_to) {
      store(target, step, value, Order::kRelaxed, {"", "memcpy", 0});
    } else {
      std::memcpy(target, &value, step);
    }
  });
  return to;
}

int model_memcmp(const void* a, const void* b, std::size_t bytes) {
  using namespace mc::model;
  if (machine() == nullptr || (!in_arena(a) && !in_arena(b))) return std::memcmp(a, b, bytes);
  // Compares with the caller's private bytes, like every lookup of a key.
  const void* shared = in_arena(a) ? a : b;
  const auto* own = static_cast<const std::byte*>(in_arena(a) ? b : a);
  int difference = 0;
  for_words(shared, bytes, [&](std::size_t at, unsigned step) {
    if (difference != 0) return;
    const std::uint64_t value =
        load(static_cast<const std::byte*>(shared) + at, step, Order::kRelaxed, {"", "memcmp", 0});
    difference = std::memcmp(&value, own + at, step);
  });
  return difference;
}

long model_syscall(long, std::uint32_t* word, int operation, std::uint32_t value, ...) {
  using namespace mc::model;
  Machine* running = machine();
  if (running == nullptr) return 0;
  if (operation == FUTEX_WAIT) {
    running->futex_wait(word, value, {"doorbell.cc", "wait_for_agent", 1});
  } else {
    running->futex_wake(word, {"doorbell.cc", "wake_client", 1});
  }
  return 0;
}

long model_getrandom(void* bytes, std::size_t count, unsigned) {
  std::memset(bytes, 0x5a, count);
  return static_cast<long>(count);
}
