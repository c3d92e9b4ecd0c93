// SPDX-License-Identifier: Apache-2.0
//
// What it is: what the next leader has to know about members that are away: who they are, and what
//   was removed or replaced meanwhile, which this leader remembers and the next one would not.
//
//     gone ──► away/<node> = ""                                its report complete ──► no entry
//     removal while anybody is away ──► removed/<n> = keys and versions, 256 a value ──► answered
//     4,096 of them, or one by a pattern ──► away/<node> = "missed removals"; no removed/…
//
//   Away is who is gone, has no link, or has not reported all it holds.
//   Who "missed removals" under an earlier leader brings back only what others hold as well.
// Threads: the master's loop. Owns: the list of who is away, at most 4,096 of them gone; the
//   removals, at most 4,096. Trusts: the store's content, as a leader has written it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "metadata/directory/directory_types.h"
#include "metadata/master/elector.h"

namespace mc::metadata {

class Absence {
 public:
  // done: may be empty; is called in the loop, once the store has this value or a later one.
  using Save = std::function<void(std::string key, std::optional<std::string> value,
                                  std::function<void()> done)>;

  Absence(const Term& term, Save save);

  // What was removed under the leaders before, as far as somebody who is away may still hold it.
  [[nodiscard]] std::vector<RemoveItem> removed_before() const;

  // ---- Members
  // Expected from the last leader, or its link is lost.
  void unheard(NodeId node);
  // removal: the latest one here.
  void joined(NodeId node, std::uint64_t removal);
  void gone(NodeId node);
  // All that it holds is known, and it hears of every removal.
  void reported(NodeId node);
  // Whether there were removals that it had not heard of and that nobody can name any more.
  [[nodiscard]] bool may_have_missed(NodeId node, std::uint64_t removals_seen) const;

  // ---- Removals. then: at once where nobody is away, else when the store has it.
  void removed(std::span<const Holding> what, std::function<void()> then);
  void removed_by_pattern(std::function<void()> then);

 private:
  struct Member {
    bool here = false;           // joined, and reporting
    bool recorded = false;       // in the store
    bool marked = false;         // there, as one that has missed removals
    bool missed_before = false;  // it was, when this leader began
    std::uint64_t heard_from = 0;
  };
  using Chunk = std::vector<RemoveItem>;

  Member& away(NodeId node);
  void forget(std::map<NodeId, Member>::iterator member);
  void make_room();
  void save(std::string key, std::string value);
  void save_chunk(std::uint64_t number);
  void when_saved(std::function<void()> then);
  void mark_all();
  void forget_removals();

  Save save_;
  std::map<NodeId, Member> away_;
  std::size_t unmarked_ = 0;               // of them: for whom removals are written down
  std::map<std::uint64_t, Chunk> chunks_;  // removed/<number>
  std::size_t removed_ = 0;
  std::uint64_t next_chunk_ = 0;
  std::uint64_t saves_ = 0;
  std::set<std::uint64_t> open_;  // of these, not stored yet
  // To be called when all saves up to the number are stored.
  std::deque<std::pair<std::uint64_t, std::function<void()>>> waiting_;
  // Words of the store may come after the leadership that asked.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace mc::metadata
