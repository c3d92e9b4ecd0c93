// SPDX-License-Identifier: Apache-2.0
//
// A doubly linked queue of entry ids with links in another owner's array. Links is a
//   callable that returns, for an id, a reference with EntryId members `older` and `newer`.
// Threads: the policy's thread.
// Owns: the two ends.
// Trusts: its caller: an id is in at most one queue of the same links.
#pragma once

#include "agent/pool/policy/policy.h"

namespace mc::agent {

struct Queue {
  EntryId oldest = kNoEntry;
  EntryId newest = kNoEntry;

  [[nodiscard]] bool empty() const { return oldest == kNoEntry; }

  template <typename Links>
  void push_newest(Links&& links, EntryId id) {
    links(id).older = newest;
    links(id).newer = kNoEntry;
    (newest == kNoEntry ? oldest : links(newest).newer) = id;
    newest = id;
  }

  template <typename Links>
  void push_oldest(Links&& links, EntryId id) {
    links(id).older = kNoEntry;
    links(id).newer = oldest;
    (oldest == kNoEntry ? newest : links(oldest).older) = id;
    oldest = id;
  }

  template <typename Links>
  void remove(Links&& links, EntryId id) {
    const EntryId older = links(id).older;
    const EntryId newer = links(id).newer;
    (older == kNoEntry ? oldest : links(older).newer) = newer;
    (newer == kNoEntry ? newest : links(newer).older) = older;
  }

  // Puts all ids of `ahead` before the oldest id and empties `ahead`.
  template <typename Links>
  void take_as_oldest(Links&& links, Queue& ahead) {
    if (ahead.empty()) return;
    if (empty()) {
      newest = ahead.newest;
    } else {
      links(ahead.newest).newer = oldest;
      links(oldest).older = ahead.newest;
    }
    oldest = ahead.oldest;
    ahead = Queue{};
  }
};

}  // namespace mc::agent
