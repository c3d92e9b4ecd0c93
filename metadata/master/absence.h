// SPDX-License-Identifier: Apache-2.0
//
// The record of absent members that the next leader needs. This leader remembers which
//   versions were removed or replaced while a member was away. The next leader would not know, so
//   the cluster store keeps the absent members and these removals. PROTOCOL.md, "Absence", has the
//   rules.
//
//     a member is gone ──► away/<node> = the first pattern that the member owes
//                          the report is complete ──► no entry
//     a removal while a member is away ──► removed/<n> = notes of removals, 256 a value ──► answered
//     a removal by pattern, likewise ──► patterns/<id> = the pattern ──► answered
//     over 4,096 removals ──► away/<node> = "missed removals"; no removed/…
//     a member is not expected back ──► away/<node> = "given up"
//
// A member is away if it is gone, has no link, has not reported all objects that it holds, or has
// not carried out a removal by pattern in time.
// A note that the store refuses is written again until the store has the note. A removal waits for
// the note for a second at most.
// Threads: the master's loop.
// Owns: the list of absent members (at most 4,096 of them gone), at most 4,096 removals, and the
//   ids of the stored patterns.
// Trusts: the store's content, because a leader has written it.
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
#include "metadata/directory/pattern_removals.h"
#include "metadata/master/elector.h"

namespace mc::metadata {

class Absence {
 public:
  // done may be empty. The loop calls done after the store has this value or a later value.
  using Save = std::function<void(std::string key, std::optional<std::string> value,
                                  std::function<void()> done)>;

  // Noted: the store has the removal, or no member is away. Otherwise an absent member may bring the
  // objects back if this leader ends before the store takes the note.
  using Then = std::function<void(bool noted)>;
  static constexpr std::uint64_t kPatienceNs = 1'000'000'000;

  Absence(const Term& term, Save save, std::uint64_t now_ns);

  void tick(std::uint64_t now_ns);
  // The members that are away.
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(away_.size()); }

  // The removals under earlier leaders that an absent member may have missed.
  [[nodiscard]] std::vector<RemovalNote> removed_before() const;
  // The removals by pattern under earlier leaders, and who has carried them out.
  [[nodiscard]] static PatternRemovals::Past patterns_before(const Term& term);

  // ---- Members
  // The last leader named this member, or the member's link is lost.
  void unheard(NodeId node);
  // removal: the latest removal number of this leader.
  void joined(NodeId node, std::uint64_t removal);
  // owes: of PatternRemovals::owed_from().
  void gone(NodeId node, std::uint64_t owes);
  // The member has not carried out a removal by pattern, and then has.
  void late(NodeId node, std::uint64_t owes);
  void caught_up(NodeId node);
  // The member has reported all its objects. It hears of every removal from now on.
  void reported(NodeId node);
  // The member is not expected back. A member that comes back all the same restores no removed object, and may lose
  // other objects.
  void give_up(NodeId node);
  // The members that are gone and expected back. These members may hold objects that no directory knows.
  [[nodiscard]] const std::set<NodeId>& expected_back() const { return expected_back_; }
  // Whether the member missed removals that no master can name any more.
  [[nodiscard]] bool may_have_missed(NodeId node, std::uint64_t removals_seen) const;

  // ---- Removals. then is called at once if no member is away, else after the store has the
  // removal, or after kPatienceNs.
  void removed(std::span<const RemovalNote> notes, Then then);
  void removed_by_pattern(const PatternRemovals& removals, Then then);

 private:
  struct Member {
    bool here = false;      // joined, and reporting
    bool given_up = false;  // the store's entry says "given up"
    bool late = false;      // has reported
    bool recorded = false;  // the store has an entry for this member
    bool marked = false;    // the store's entry says "missed removals"
    bool missed = false;    // removals that this leader cannot name
    std::uint64_t heard_from = 0;
  };
  using Chunk = std::vector<RemovalNote>;

  Member& away(NodeId node);
  void forget(std::map<NodeId, Member>::iterator member);
  void make_room();
  void save(std::string key, std::string value);
  void save_chunk(std::uint64_t number);
  void when_saved(std::function<void()> then);
  void in_time(Then then);
  void mark_all();
  void forget_removals();
  void forget_patterns();

  Save save_;
  std::map<NodeId, Member> away_;
  std::set<NodeId> expected_back_;
  std::size_t unmarked_ = 0;  // members that are not marked; removals are recorded for them
  std::map<std::uint64_t, Chunk> chunks_;  // by <number> of removed/<number>
  std::size_t removed_ = 0;
  std::set<std::uint64_t> patterns_;  // ids of patterns/<id>
  std::uint64_t next_chunk_ = 0;
  std::uint64_t saves_ = 0;
  std::set<std::uint64_t> open_;  // numbers of saves that the store has not confirmed
  struct Waiting {
    std::uint64_t number;  // all saves up to this number must be stored
    std::uint64_t until_ns;
    Then then;
  };
  std::deque<Waiting> waiting_;
  std::uint64_t now_ns_;
  // The store may answer after this leadership has ended.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace mc::metadata
