// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/master/masters.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

// Collects `count` answers, which come in any order.
template <typename Answer>
class Gathering {
 public:
  using All = std::function<void(std::vector<Result<Answer>>)>;

  Gathering(std::size_t count, All all) : state_(std::make_shared<State>(count, std::move(all))) {}
  MasterPort::Done<Answer> slot(std::size_t number) const {
    return [state = state_, number](Result<Answer> answer) {
      state->answers[number] = std::move(answer);
      if (--state->open == 0) state->all(std::move(state->answers));
    };
  }

 private:
  struct State {
    State(std::size_t count, All when_all)
        : answers(count, fail(MC_INTERNAL)), open(count), all(std::move(when_all)) {}
    std::vector<Result<Answer>> answers;
    std::size_t open;
    All all;
  };
  std::shared_ptr<State> state_;
};

void merge(wire::MemberInfo& known, const wire::MemberInfo& heard) {
  if (heard.descriptor.incarnation < known.descriptor.incarnation) return;
  if (heard.descriptor.incarnation > known.descriptor.incarnation) {
    known = heard;
    return;
  }
  // Each partition counts only the partition's entries. A member that any master hears is alive.
  known.entries += heard.entries;
  known.used_bytes = std::max(known.used_bytes, heard.used_bytes);
  known.draining |= heard.draining;
  known.readable |= heard.readable;
  if (heard.state == metadata::MemberState::kOk) known.state = heard.state;
}

class Union {
 public:
  void add(const wire::MemberInfo& member) {
    const auto [at, is_new] = members_.try_emplace(member.descriptor.node, member);
    if (!is_new) merge(at->second, member);
  }
  // A member that any master hears is not down.
  void add_down(const metadata::DownMember& member) {
    const auto [at, is_new] = down_.try_emplace(member.descriptor.node, member);
    if (!is_new && member.down_ms < at->second.down_ms) at->second = member;
  }
  wire::MembersAnswer take() {
    wire::MembersAnswer all;
    for (auto& [node, member] : down_) {
      if (!members_.contains(node)) all.down.push_back(std::move(member));
    }
    for (auto& [node, member] : members_) all.members.push_back(std::move(member));
    return all;
  }

 private:
  std::map<MemberId, wire::MemberInfo> members_;
  std::map<MemberId, metadata::DownMember> down_;
};

Result<wire::MembersAnswer> merge(std::vector<Result<wire::MembersAnswer>> answers) {
  Union all;
  bool any = false;
  for (const Result<wire::MembersAnswer>& answer : answers) {
    any |= answer.has_value();
    if (!answer) continue;
    for (const wire::MemberInfo& member : answer->members) all.add(member);
    for (const metadata::DownMember& member : answer->down) all.add_down(member);
  }
  if (!any) return std::move(answers.front());
  return all.take();
}

// REQUIRES: each partition has answered.
wire::ListAnswer merge(std::vector<Result<wire::ListAnswer>> answers, std::uint32_t limit) {
  wire::ListAnswer all;
  std::optional<std::string> complete_until;  // a partition may have more keys after this key
  for (Result<wire::ListAnswer>& answer : answers) {
    all.unconfirmed = std::max(all.unconfirmed, answer->unconfirmed);
    if (answer->more && !answer->keys.empty() &&
        (!complete_until || answer->keys.back().key < *complete_until)) {
      complete_until = answer->keys.back().key;
    }
    std::ranges::move(answer->keys, std::back_inserter(all.keys));
  }
  std::ranges::sort(all.keys, {}, &wire::ListedKey::key);
  if (complete_until) {
    const auto end = std::ranges::upper_bound(all.keys, *complete_until, {}, &wire::ListedKey::key);
    all.keys.erase(end, all.keys.end());
    all.more = true;
  }
  if (all.keys.size() > limit) {
    all.keys.resize(limit);
    all.more = true;
  }
  return all;
}

}  // namespace

std::vector<Masters::Part> Masters::split(std::span<const metadata::KeyHash> names) const {
  std::vector<Part> parts(count());
  for (std::uint32_t partition = 0; partition < count(); ++partition)
    parts[partition].partition = partition;
  if (count() == 1) {
    parts.front().places.resize(names.size());
    std::iota(parts.front().places.begin(), parts.front().places.end(), std::size_t{0});
  } else {
    for (std::size_t i = 0; i < names.size(); ++i)
      parts[partition_of(names[i])].places.push_back(i);
  }
  std::erase_if(parts, [](const Part& part) { return part.places.empty(); });
  return parts;
}

bool Masters::all_ready() const {
  return std::ranges::all_of(ports_, [](const MasterPort* port) { return port->ready(); });
}

std::uint64_t Masters::refused_up_to() const {
  std::uint64_t latest = 0;
  for (const MasterPort* const port : ports_) latest = std::max(latest, port->refused_up_to());
  return latest;
}

void Masters::report_unreachable(wire::Unreachable peer) const {
  for (MasterPort* const port : ports_) port->report_unreachable(peer);
}

std::uint64_t Masters::readable_until_ns(MemberId node) const {
  std::uint64_t until_ns = UINT64_MAX;
  for (const MasterPort* const port : ports_) {
    until_ns = std::min(until_ns, port->member_list().readable_until_ns(node));
  }
  return until_ns;
}

wire::MembersAnswer Masters::known_members() const {
  Union all;
  for (const MasterPort* const port : ports_) {
    for (const auto& [node, member] : port->member_list().members()) all.add(member);
  }
  return all.take();
}

bool Masters::members_changed(std::vector<std::uint64_t>& seen) const {
  bool changed = seen.size() != ports_.size();
  seen.resize(ports_.size());
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const std::uint64_t now = ports_[i]->member_list().changes();
    changed |= std::exchange(seen[i], now) != now;
  }
  return changed;
}

void Masters::refresh_members() const {
  for (MasterPort* const port : ports_) port->refresh_members();
}

void Masters::members(std::uint64_t deadline_ns, Done<wire::MembersAnswer> done) const {
  if (count() == 1) return ports_.front()->members(deadline_ns, std::move(done));
  // Leave out masters that are away: waiting for such a master would take until the deadline.
  std::vector<MasterPort*> asked = ports_;
  std::erase_if(asked, [](const MasterPort* port) { return !port->ready(); });
  if (asked.empty()) asked = ports_;
  const Gathering<wire::MembersAnswer> gathering(
      asked.size(), [done = std::move(done)](std::vector<Result<wire::MembersAnswer>> answers) {
        done(merge(std::move(answers)));
      });
  for (std::size_t i = 0; i < asked.size(); ++i) asked[i]->members(deadline_ns, gathering.slot(i));
}

void Masters::drain(const wire::Drain& request, std::uint64_t deadline_ns,
                    Done<wire::DrainAnswer> done) const {
  const Gathering<wire::DrainAnswer> gathering(
      count(), [done = std::move(done)](std::vector<Result<wire::DrainAnswer>> answers) {
        wire::DrainAnswer sum;
        sum.done = true;
        for (Result<wire::DrainAnswer>& answer : answers) {
          if (!answer) return done(std::move(answer));
          sum.add(*answer);
        }
        done(sum);
      });
  for (std::uint32_t partition = 0; partition < count(); ++partition) {
    at(partition).drain(request, deadline_ns, gathering.slot(partition));
  }
}

void Masters::remove_matching(const wire::Match& match, std::uint64_t deadline_ns,
                              Done<wire::RemoveMatchingAnswer> done) const {
  const Gathering<wire::RemoveMatchingAnswer> gathering(
      count(), [done = std::move(done)](std::vector<Result<wire::RemoveMatchingAnswer>> answers) {
        wire::RemoveMatchingAnswer sum;
        for (Result<wire::RemoveMatchingAnswer>& answer : answers) {
          if (!answer) return done(std::move(answer));
          sum.add(*answer);
        }
        done(sum);
      });
  for (std::uint32_t partition = 0; partition < count(); ++partition) {
    at(partition).remove_matching(match, deadline_ns, gathering.slot(partition));
  }
}

void Masters::list(const wire::Match& match, std::uint64_t deadline_ns,
                   Done<wire::ListAnswer> done) const {
  if (count() == 1) return ports_.front()->list(match, deadline_ns, std::move(done));
  const Gathering<wire::ListAnswer> gathering(
      count(),
      [limit = match.limit, done = std::move(done)](std::vector<Result<wire::ListAnswer>> answers) {
        for (Result<wire::ListAnswer>& answer : answers) {
          if (!answer) return done(std::move(answer));
        }
        done(merge(std::move(answers), limit));
      });
  for (std::uint32_t partition = 0; partition < count(); ++partition) {
    at(partition).list(match, deadline_ns, gathering.slot(partition));
  }
}

void Masters::stats(std::uint64_t deadline_ns,
                    std::function<void(std::vector<Result<wire::StatsAnswer>>)> done) const {
  const Gathering<wire::StatsAnswer> gathering(count(), std::move(done));
  for (std::uint32_t partition = 0; partition < count(); ++partition) {
    at(partition).stats(deadline_ns, gathering.slot(partition));
  }
}

void Masters::locate(const wire::Locate& request, std::uint64_t deadline_ns,
                     Done<metadata::LocateAnswer> done) const {
  if (count() == 1) return ports_.front()->locate(request, deadline_ns, std::move(done));
  const std::vector<Part> parts = split(request.keys);
  if (parts.empty()) return done(metadata::LocateAnswer{});
  const Gathering<metadata::LocateAnswer> gathering(
      parts.size(), [parts, total = request.keys.size(),
                     done = std::move(done)](std::vector<Result<metadata::LocateAnswer>> answers) {
        metadata::LocateAnswer whole;
        whole.keys.resize(total);
        for (std::size_t part = 0; part < parts.size(); ++part) {
          const Result<metadata::LocateAnswer>& answer = answers[part];
          const auto first = static_cast<std::uint32_t>(whole.holders.size());
          if (answer) {
            whole.holders.insert(whole.holders.end(), answer->holders.begin(),
                                 answer->holders.end());
          }
          for (std::size_t i = 0; i < parts[part].places.size(); ++i) {
            metadata::Located& key = whole.keys[parts[part].places[i]];
            if (answer && i < answer->keys.size()) {
              key = answer->keys[i];
              key.first_holder += first;
            } else {
              key.state = metadata::Lookup::kRecovering;
            }
          }
        }
        done(std::move(whole));
      });
  for (std::size_t part = 0; part < parts.size(); ++part) {
    wire::Locate one = request;
    one.keys.clear();
    for (const std::size_t place : parts[part].places) one.keys.push_back(request.keys[place]);
    at(parts[part].partition).locate(one, deadline_ns, gathering.slot(part));
  }
}

}  // namespace mc::agent
