// SPDX-License-Identifier: Apache-2.0
//
// The loss of sessions: the next agent does not know the sessions' pins. A full store refuses a client
// instead, but an agent that cannot ask systemd for the store's limit loses what systemd drops.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "agent/keeper/keeper_store.h"

namespace mc {

// Drops all sessions out of the keeper. REQUIRES: no agent runs in the directory.
inline void drop_kept_sessions(const std::string& runtime_dir) {
  auto store = agent::make_keeper_store(
      runtime_dir, 60, [] { return Status(MC_UNSUPPORTED, "the keeper is gone"); });
  ASSERT_TRUE(store) << store.error().to_string();
  const auto kept = (*store)->take_all();
  ASSERT_TRUE(kept) << kept.error().to_string();
  for (const auto& [name, fd] : *kept) {
    if (!name.starts_with("session.")) continue;
    ASSERT_TRUE((*store)->drop(name).ok());
  }
}

}  // namespace mc
