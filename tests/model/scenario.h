// SPDX-License-Identifier: Apache-2.0
//
// Assertions that a scenario holds in every interleaving, or that the checker finds a deliberate
// fault.
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>

#include "tests/model/explorer.h"

namespace mc::model {

using Build = std::function<void(Machine&)>;

inline bool long_form() { return std::getenv("MC_TEST_LONG") != nullptr; }

inline Verdict report(const char* what, const Options& options, const Build& build) {
  const Verdict verdict = explore(options, build);
  std::printf("%-11s %s: %llu executions, %llu of them cut short, %llu steps, %.2f s\n", what,
              options.memory == Memory::kTotalStoreOrder ? "total" : "partial",
              static_cast<unsigned long long>(verdict.executions),
              static_cast<unsigned long long>(verdict.redundant),
              static_cast<unsigned long long>(verdict.steps), verdict.seconds);
  return verdict;
}

inline void expect_holds(Memory memory, const Build& build) {
  Options options;
  options.memory = memory;
  if (long_form()) options.max_executions *= 100;
  const Verdict verdict = report("holds", options, build);
  EXPECT_EQ(verdict.violation, "");
  EXPECT_TRUE(verdict.complete) << "more interleavings than the limit";
}

// In both memory models.
inline void expect_holds(const Build& build) {
  expect_holds(Memory::kTotalStoreOrder, build);
  expect_holds(Memory::kPartialStoreOrder, build);
}

inline void expect_found(Memory memory, const Build& build, std::vector<Mutation> mutations = {}) {
  Options options;
  options.memory = memory;
  options.mutations = std::move(mutations);
  const Verdict verdict = report("fault found", options, build);
  EXPECT_NE(verdict.violation, "") << "the checker does not see this fault";
  if (std::getenv("MC_MODEL_SHOW") != nullptr) std::printf("%s\n", verdict.violation.c_str());
}

}  // namespace mc::model
