// SPDX-License-Identifier: Apache-2.0
//
// The functions that the product's code calls in the model in place of the processor: every access
//   to memory that two processes share becomes a step of the simulated machine (machine.h). Outside
//   a run (while a scenario is prepared or checked) an access happens at once.
// Threads: one real thread; the simulated threads are fibers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mc::model {

// The place of a step in the product's code, for counterexamples and mutations.
struct Site {
  const char* file;
  const char* function;
  int line;
};

#define MC_MODEL_SITE \
  ::mc::model::Site site = {__builtin_FILE(), __builtin_FUNCTION(), __builtin_LINE()}

enum class Order : std::uint8_t { kRelaxed, kOrdered };
enum class Rmw : std::uint8_t { kExchange, kOr, kCompareExchange };

std::uint64_t load(const void* word, unsigned bytes, Order order, const Site& site);
void store(void* word, unsigned bytes, std::uint64_t value, Order order, const Site& site);
// Returns the previous value.
std::uint64_t rmw(void* word, unsigned bytes, Rmw how, std::uint64_t operand,
                  std::uint64_t expected, const Site& site);
void full_fence(const Site& site);
// Zeroes a range at once, like the system when it takes pages away.
void punch(void* range, std::uint64_t bytes, const Site& site);
// An eventfd, identified by a word of modelled memory that counts the signals.
void signal_event(std::uint64_t* event, const Site& site);
void wait_event(std::uint64_t* event, const Site& site);

}  // namespace mc::model

// Stand-ins for memcpy, memcmp, syscall and getrandom in product code. Bytes outside of modelled
// memory are private and copied at once.
void* model_memcpy(void* to, const void* from, std::size_t bytes);
int model_memcmp(const void* a, const void* b, std::size_t bytes);
long model_syscall(long number, std::uint32_t* word, int operation, std::uint32_t value, ...);
long model_getrandom(void* bytes, std::size_t count, unsigned flags);
