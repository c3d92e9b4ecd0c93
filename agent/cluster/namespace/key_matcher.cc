// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/namespace/key_matcher.h"

#include <new>
#include <string_view>
#include <system_error>
#include <utility>

namespace mc::agent {

KeyMatcher::~KeyMatcher() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status KeyMatcher::submit(std::shared_ptr<Batch> batch) {
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      return {MC_NO_MEMORY,
              "no thread for the regular expression; raise TasksMax of the agent's unit"};
    }
  }
  {
    const MutexLock lock(mutex_);
    batches_.push_back(std::move(batch));
  }
  changed_.notify_all();
  return {};
}

void KeyMatcher::run() {
  for (;;) {
    std::shared_ptr<Batch> batch;
    {
      const MutexLock lock(mutex_);
      changed_.wait(mutex_, [&]() MC_REQUIRES(mutex_) { return stop_ || !batches_.empty(); });
      if (stop_) return;
      batch = std::move(batches_.front());
      batches_.pop_front();
    }
    try {
      match(*batch);
    } catch (const std::bad_alloc&) {
      batch->failure = {MC_NO_MEMORY, "no memory for the regular expression"};
    }
    batch->done.store(true, std::memory_order_release);
  }
}

void KeyMatcher::match(Batch& batch) const {
  Expression& expression = *batch.expression;
  if (!expression.compiled) expression.compiled = metadata::KeyPattern::compile(expression.text);
  if (!*expression.compiled) {
    batch.failure = expression.compiled->error();
    return;
  }
  const metadata::KeyPattern& pattern = **expression.compiled;
  std::uint32_t begin = 0;
  for (const std::uint32_t end : batch.ends) {
    if (stop_ || batch.cancelled) return;
    batch.matches.push_back(
        pattern.matches(std::string_view(batch.keys).substr(begin, end - begin)));
    begin = end;
  }
}

}  // namespace mc::agent
