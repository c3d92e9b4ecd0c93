// SPDX-License-Identifier: Apache-2.0
//
// Compares keys with regular expressions in a thread of its own, because a single key may take
//   milliseconds. A walk over the index hands a batch of keys over and goes on when the batch is
//   done.
// Threads: the agent's loop submits batches and reads the results; the matcher's thread compares.
// Owns: the thread, which the first batch starts.
// Trusts: not the expressions; see KeyPattern.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "libmc/base/mutex.h"
#include "metadata/directory/key_pattern.h"

namespace mc::agent {

class KeyMatcher {
 public:
  // A regular expression, which the thread compiles with the first batch.
  struct Expression {
    std::string text;
    std::optional<Result<metadata::KeyPattern>> compiled;  // the thread's
  };
  struct Batch {
    std::shared_ptr<Expression> expression;
    std::string keys;                 // without separators
    std::vector<std::uint32_t> ends;  // of each key, in keys
    // Written by the thread before done.
    std::vector<bool> matches;
    Status failure;  // the expression is none
    std::atomic<bool> done{false};
    std::atomic<bool> cancelled{false};  // nobody reads the result
  };

  KeyMatcher() = default;
  ~KeyMatcher();
  KeyMatcher(const KeyMatcher&) = delete;
  KeyMatcher& operator=(const KeyMatcher&) = delete;

  // Batches are done in order. Errors: MC_NO_MEMORY.
  Status submit(std::shared_ptr<Batch> batch);

 private:
  void run();
  void match(Batch& batch) const;

  Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<Batch>> batches_ MC_GUARDED_BY(mutex_);
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace mc::agent
