// SPDX-License-Identifier: Apache-2.0
//
// Changes of the sessions that a keeper holds, for the next agent to find.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <string>

#include "agent/keeper/descriptor_store.h"

namespace mc {

// Calls change(store, name) for each descriptor of a session. REQUIRES: no agent runs in the directory.
template <typename Change>
void change_kept_sessions(const std::string& runtime_dir, const Change& change) {
  auto store = agent::make_keeper_store(
      runtime_dir, 60, [] { return Status(MC_UNSUPPORTED, "the keeper is gone"); });
  ASSERT_TRUE(store) << store.error().to_string();
  const auto kept = (*store)->take_all();
  ASSERT_TRUE(kept) << kept.error().to_string();
  for (const auto& [name, fd] : *kept) {
    if (!name.starts_with("session.")) continue;
    ASSERT_TRUE(change(**store, name).ok());
  }
}

// The loss of all sessions: the next agent does not know the sessions' pins. A full store refuses a client
// instead, but an agent that cannot ask systemd for the store's limit loses what systemd drops.
inline void drop_kept_sessions(const std::string& runtime_dir) {
  change_kept_sessions(runtime_dir, [](agent::DescriptorStore& store, const std::string& name) {
    return store.drop(name);
  });
}

// Replaces each process descriptor by a file, which an epoll refuses.
inline void replace_kept_pidfds(const std::string& runtime_dir) {
  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  change_kept_sessions(runtime_dir, [&](agent::DescriptorStore& store, const std::string& name) {
    return name.find(".pidfd.") != std::string::npos ? store.put(name, file.get()) : Status();
  });
}

}  // namespace mc
