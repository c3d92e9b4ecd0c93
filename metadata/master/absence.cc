// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/absence.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "metadata/wire/codec.h"

namespace mc::metadata {

namespace {

constexpr std::size_t kMaxGone = 4096;
constexpr std::size_t kMaxRemoved = 4096;
constexpr std::size_t kChunk = 256;
constexpr std::size_t kMaxAwaitingStore = 4096;
constexpr std::string_view kMissedRemovals = "missed removals";
constexpr std::string_view kGivenUp = "given up";  // and missed removals

std::string away_key(NodeId node) { return std::string(kAwayPrefix) + std::to_string(node); }
std::string pattern_key(std::uint64_t id) {
  return std::string(kPatternsPrefix) + std::to_string(id);
}
std::string chunk_key(std::uint64_t number) {
  return std::string(kRemovedPrefix) + std::to_string(number);
}

// The number at the end of a key such as "shares/3/removed/17". None: the last component is no
// number.
std::optional<std::uint64_t> number_of(std::string_view key) {
  key.remove_prefix(key.rfind('/') + 1);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
  const bool whole = error == std::errc() && end == key.data() + key.size();
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace

Absence::Absence(const Term& term, Save save, std::uint64_t now_ns)
    : save_(std::move(save)), now_ns_(now_ns) {
  for (const Entry& entry : term.away) {
    const auto node = number_of(entry.key);
    if (!node) continue;
    Member& member = away(*node);
    member.recorded = true;
    member.given_up = entry.value == kGivenUp;
    if (!member.given_up) expected_back_.insert(*node);
    if (entry.value != kMissedRemovals && !member.given_up) continue;
    member.marked = member.missed = true;
    --unmarked_;
  }
  for (const Entry& entry : term.removed) {
    const auto number = number_of(entry.key);
    wire::RemovalNotes chunk;
    if (!number || !wire::decode(entry.value, chunk).ok()) continue;
    removed_ += chunk.items.size();
    next_chunk_ = std::max(next_chunk_, *number + 1);
    chunks_[*number] = std::move(chunk.items);
  }
  for (const Entry& entry : term.patterns) {
    if (const auto id = number_of(entry.key)) patterns_.insert(*id);
  }
}

// A member that was away owes the patterns from the number on that the store has. The other members
// of the last leader owe none. An unknown node owes all patterns.
PatternRemovals::Past Absence::patterns_before(const Term& term) {
  PatternRemovals::Past past;
  std::map<NodeId, std::uint64_t> owed_from;
  for (const Entry& entry : term.members) {
    if (const auto node = number_of(entry.key)) owed_from[*node] = UINT64_MAX;
  }
  for (const Entry& entry : term.away) {
    const auto node = number_of(entry.key);
    if (!node) continue;
    const std::uint64_t from = number_of(entry.value).value_or(0);
    owed_from[*node] = from;
    // The member has carried out all patterns below, and the store may lack these patterns.
    past.next_id = std::max(past.next_id, from);
  }
  for (const Entry& entry : term.patterns) {
    const auto id = number_of(entry.key);
    wire::Match match;
    if (!id || !wire::decode(entry.value, match).ok()) continue;
    const bool regex = match.kind == wire::Match::Kind::kRegex;
    PatternRemovals::Removal removal{*id, {match.name_space, match.pattern, regex}, {}};
    for (const auto& [node, from] : owed_from) {
      if (*id < from) removal.heard.push_back(node);
    }
    past.removals.push_back(std::move(removal));
    past.next_id = std::max(past.next_id, *id + 1);
  }
  std::ranges::sort(past.removals, {}, &PatternRemovals::Removal::id);
  return past;
}

std::vector<RemovalNote> Absence::removed_before() const {
  std::vector<RemovalNote> all;
  for (const auto& [number, chunk] : chunks_) all.insert(all.end(), chunk.begin(), chunk.end());
  return all;
}

// ---- Members ------------------------------------------------------------------------------------

Absence::Member& Absence::away(NodeId node) {
  const auto [member, added] = away_.try_emplace(node);
  if (added) ++unmarked_;
  return member->second;
}

void Absence::forget(std::map<NodeId, Member>::iterator member) {
  if (member->second.recorded) save_(away_key(member->first), std::nullopt, nullptr);
  if (!member->second.marked) --unmarked_;
  expected_back_.erase(member->first);
  away_.erase(member);
  if (unmarked_ == 0) forget_removals();
  if (away_.empty()) forget_patterns();
}

// A late member that is lost must report anew.
void Absence::unheard(NodeId node) { away(node).late = false; }

void Absence::joined(NodeId node, std::uint64_t removal) {
  Member& member = away(node);
  member.here = true;
  member.late = false;
  member.heard_from = removal;
  expected_back_.erase(node);
  if (std::exchange(member.given_up, false)) save(away_key(node), std::string(kMissedRemovals));
}

void Absence::gone(NodeId node, std::uint64_t owes) {
  make_room();
  Member& member = away(node);
  member.here = member.late = false;
  if (!member.given_up) expected_back_.insert(node);
  if (!std::exchange(member.recorded, true)) save_(away_key(node), std::to_string(owes), nullptr);
}

void Absence::late(NodeId node, std::uint64_t owes) {
  const bool reported = !away_.contains(node);
  Member& member = away(node);
  if (reported) member.here = member.late = true;
  if (!std::exchange(member.recorded, true)) save(away_key(node), std::to_string(owes));
}

void Absence::caught_up(NodeId node) {
  const auto found = away_.find(node);
  if (found != away_.end() && found->second.late) forget(found);
}

// Hosts may keep joining with new ids and leave for good, so the list of absent members is bounded.
void Absence::make_room() {
  if (away_.size() < kMaxGone) return;
  const auto found =
      std::ranges::find_if(away_, [](const auto& member) { return !member.second.here; });
  if (found != away_.end()) forget(found);
}

void Absence::reported(NodeId node) {
  const auto found = away_.find(node);
  if (found != away_.end()) forget(found);
}

void Absence::give_up(NodeId node) {
  if (expected_back_.erase(node) == 0) return;
  Member& member = away(node);
  if (!std::exchange(member.marked, true)) --unmarked_;
  member.given_up = member.missed = member.recorded = true;
  save(away_key(node), std::string(kGivenUp));
  if (unmarked_ == 0) forget_removals();
}

bool Absence::may_have_missed(NodeId node, std::uint64_t removals_seen) const {
  const auto found = away_.find(node);
  return found != away_.end() && found->second.missed && removals_seen < found->second.heard_from;
}

// ---- Removals -----------------------------------------------------------------------------------

void Absence::removed(std::span<const RemovalNote> notes, Then then) {
  if (unmarked_ != 0) {
    std::set<std::uint64_t> changed;
    for (const RemovalNote& note : notes) {
      if (chunks_.empty() || chunks_.rbegin()->second.size() >= kChunk) chunks_[next_chunk_++];
      chunks_.rbegin()->second.push_back(note);
      ++removed_;
      changed.insert(chunks_.rbegin()->first);
    }
    if (removed_ > kMaxRemoved) {
      mark_all();
    } else {
      for (const std::uint64_t number : changed) save_chunk(number);
    }
  }
  in_time(std::move(then));
}

void Absence::removed_by_pattern(const PatternRemovals& removals, Then then) {
  if (away_.empty()) return then(true);
  for (auto& [node, member] : away_) {
    if (std::exchange(member.recorded, true)) continue;
    save(away_key(node), std::to_string(removals.owed_from(node)));
  }
  std::set<std::uint64_t> gone = patterns_;  // merged into later ones
  for (const PatternRemovals::Removal& removal : removals.all()) {
    gone.erase(removal.id);
    if (!patterns_.insert(removal.id).second) continue;
    wire::Match match;
    match.name_space = removal.pattern.name_space;
    match.pattern = removal.pattern.text;
    match.kind = removal.pattern.regex ? wire::Match::Kind::kRegex : wire::Match::Kind::kPrefix;
    save(pattern_key(removal.id), wire::encoded(match));
  }
  for (const std::uint64_t id : gone) patterns_.erase(id);
  if (!gone.empty()) {
    when_saved([this, gone = std::move(gone)] {
      for (const std::uint64_t id : gone) save_(pattern_key(id), std::nullopt, nullptr);
    });
  }
  in_time(std::move(then));
}

void Absence::forget_patterns() {
  for (const std::uint64_t id : std::exchange(patterns_, {})) {
    save_(pattern_key(id), std::nullopt, nullptr);
  }
}

// The chunks are deleted only after the store has marked every absent member.
void Absence::mark_all() {
  if (unmarked_ == 0) return;
  for (auto& [node, member] : away_) {
    if (member.marked) continue;
    member.marked = member.recorded = true;
    save(away_key(node), std::string(kMissedRemovals));
  }
  unmarked_ = 0;
  forget_removals();
}

void Absence::forget_removals() {
  removed_ = 0;
  when_saved([this, chunks = std::exchange(chunks_, {})] {
    for (const auto& [number, chunk] : chunks) save_(chunk_key(number), std::nullopt, nullptr);
  });
}

void Absence::save_chunk(std::uint64_t number) {
  std::string value;
  wire::encode(wire::RemovalNotes{chunks_.at(number)}, value);
  save(chunk_key(number), std::move(value));
}

void Absence::save(std::string key, std::string value) {
  const std::uint64_t number = ++saves_;
  open_.insert(number);
  save_(std::move(key), std::move(value), [this, alive = std::weak_ptr(alive_), number] {
    if (alive.expired()) return;
    open_.erase(number);
    while (!waiting_.empty() && (open_.empty() || waiting_.front().number < *open_.begin())) {
      const Then then = std::move(waiting_.front().then);
      waiting_.pop_front();
      then(true);
    }
  });
}

void Absence::when_saved(std::function<void()> then) {
  if (open_.empty()) return then();
  waiting_.push_back({saves_, UINT64_MAX, [then = std::move(then)](bool) { then(); }});
}

void Absence::in_time(Then then) {
  if (open_.empty()) return then(true);
  if (waiting_.size() >= kMaxAwaitingStore) return then(false);
  waiting_.push_back({saves_, now_ns_ + kPatienceNs, std::move(then)});
}

void Absence::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<Then> late;
  std::erase_if(waiting_, [&](Waiting& one) {
    if (one.until_ns > now_ns) return false;
    late.push_back(std::move(one.then));
    return true;
  });
  for (const Then& then : late) then(false);
}

}  // namespace mc::metadata
