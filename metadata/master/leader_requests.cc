// SPDX-License-Identifier: Apache-2.0
//
// LeaderState: a function for each request.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libmc/base/clock.h"
#include "metadata/master/leader_state.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

namespace {

using wire::Method;

constexpr std::size_t kMaxWaiting = 4096;  // locates that wait for reports

}  // namespace

template <typename Message>
void LeaderState::answer(rpc::Link& link, std::uint32_t id, const Message& message) {
  std::string body;
  wire::encode(message, body);
  link.answer(id, 0, std::move(body), epoch_);
}

void LeaderState::refuse(rpc::Link& link, std::uint32_t id, std::uint16_t status,
                         std::string text) {
  std::string body;
  wire::encode(wire::Refusal{std::move(text), {}}, body);
  link.answer(id, status, std::move(body), epoch_);
}

template <typename Message, typename Handle>
void LeaderState::decoded(rpc::Link& link, const rpc::Request& request, Message& message,
                          Handle handle) {
  const Status status = wire::decode(request.body, message);
  if (status.ok()) {
    handle();
  } else {
    refuse(link, request.id, static_cast<std::uint16_t>(status.code()), std::string(status.text()));
  }
}

void LeaderState::on_request(rpc::Link& link, const rpc::Request& request, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  const auto run = [&]<typename Message>(
                       Message message,
                       void (LeaderState::*act)(rpc::Link&, const rpc::Request&, const Message&)) {
    decoded(link, request, message, [&] { (this->*act)(link, request, message); });
  };
  switch (static_cast<Method>(request.method)) {
    case Method::kJoin:
      return run(Descriptor{}, &LeaderState::join);
    case Method::kHeartbeat:
      return run(wire::Heartbeat{}, &LeaderState::heartbeat);
    case Method::kLeave:
      return leave(link, request);
    case Method::kReport:
      return run(wire::Report{}, &LeaderState::report);
    case Method::kPublish:
      return decoded(link, request, publish_, [&] { publish(link, request); });
    case Method::kLocate:
      return decoded(link, request, locate_, [&] { locate(link, request); });
    case Method::kPlace:
      return run(wire::Place{}, &LeaderState::place_objects);
    case Method::kRemove:
      return run(wire::Remove{}, &LeaderState::remove);
    case Method::kRemoveMatching:
      return run(wire::Match{}, &LeaderState::remove_matching);
    case Method::kList:
      return run(wire::Match{}, &LeaderState::list);
    case Method::kMembers:
      return members(link, request);
    case Method::kStats:
      return stats(link, request);
    case Method::kDrain:
      return run(wire::Drain{}, &LeaderState::drain);
    default:
      refuse(link, request.id, MC_UNSUPPORTED, "a master does not support this call; ask an agent");
  }
}

// nullptr: the request was refused, because the link has not joined this leader.
LeaderState::Speaker* LeaderState::speaker(rpc::Link& link, const rpc::Request& request) {
  auto* speaker = static_cast<Speaker*>(link.attachment.get());
  if (speaker != nullptr && speaker->joined_to == this) return speaker;
  refuse(link, request.id, rpc::kNotJoined, "this link has no member; join first");
  return nullptr;
}

void LeaderState::join(rpc::Link& link, const rpc::Request& request, const Descriptor& descriptor) {
  Membership::Events events;
  Status status = membership_.join(descriptor, now_ns_, events);
  handle(events);
  if (status.ok()) status = directory_.join(descriptor.node, descriptor.incarnation);
  if (!status.ok()) {
    refuse(link, request.id, static_cast<std::uint16_t>(status.code()), std::string(status.text()));
    return;
  }
  expected_.erase(descriptor.node);
  link.attachment =
      std::make_shared<Speaker>(Speaker{descriptor.node, descriptor.incarnation, this});
  links_[descriptor.node] = link.weak_from_this();
  refresh_views();
  std::string saved;
  wire::encode(descriptor, saved);
  outside_.save(std::string(kMembersPrefix) + std::to_string(descriptor.node), std::move(saved),
                nullptr);
  absence_.joined(descriptor.node, directory_.removal());
  answer(link, request.id,
         wire::JoinAnswer{directory_.removal(), static_cast<std::uint32_t>(options_.heartbeat_ms)});
  fanout_.joined(descriptor.node);
  catching_up_.erase(descriptor.node);
  if (patterns_.unheard(descriptor.node).empty()) return;
  catching_up_[descriptor.node] = {link.weak_from_this(), directory_.removal(), {}, {}};
  catch_up(descriptor.node);
}

void LeaderState::heartbeat(rpc::Link& link, const rpc::Request& request,
                            const wire::Heartbeat& beat) {
  const Speaker* who = speaker(link, request);
  if (who == nullptr) return;
  Membership::Events events;
  const HeartbeatAnswer state =
      membership_.heartbeat(who->node, who->incarnation, beat.load, now_ns_, events);
  for (const wire::Unreachable& peer : beat.unreachable) {
    membership_.report_unreachable(who->node, peer.node, peer.incarnation, now_ns_, events);
  }
  handle(events);
  answer(link, request.id, wire::HeartbeatReply{state, directory_.removal()});
}

void LeaderState::leave(rpc::Link& link, const rpc::Request& request) {
  const Speaker* who = speaker(link, request);
  if (who == nullptr) return;
  Membership::Events events;
  membership_.leave(who->node, who->incarnation, now_ns_, events);
  handle(events);
  link.attachment.reset();
  link.answer(request.id, 0, {}, epoch_);
}

void LeaderState::report(rpc::Link& link, const rpc::Request& request, const wire::Report& report) {
  const Speaker* who = speaker(link, request);
  if (who == nullptr) return;
  const StreamPosition position{who->node, who->incarnation, report.sequence};
  const StreamAnswer result =
      report.end ? directory_.end_report(position) : directory_.begin_report(position);
  if (const auto late = catching_up_.find(who->node);
      !report.end && result == StreamAnswer::kApplied && late != catching_up_.end()) {
    late->second.report = request.id;
    return;
  }
  answer(link, request.id, wire::ReportAnswer{result});
  if (report.end && result == StreamAnswer::kApplied) {
    spdlog::info("event=reported node={} entries={} recovering={}", who->node,
                 directory_.entry_count(), recovering(now_ns_));
    absence_.reported(who->node);
    // Objects that the node held before and did not name may need new replicas.
    repair_.request_pass();
    if (!waiting_.empty()) answer_waiting();
  }
}

// A member may put an object before hearing of a removal that it missed. That removal may cover
// the object.
bool LeaderState::must_forget(const Speaker& who) {
  const auto late = catching_up_.find(who.node);
  return late != catching_up_.end() && publish_.removals_seen < late->second.removal;
}

void LeaderState::publish(rpc::Link& link, const rpc::Request& request) {
  const Speaker* who = speaker(link, request);
  if (who == nullptr) return;
  std::vector<bool> forgotten;
  if (must_forget(*who)) {
    const auto held = [](const PublishItem& item) {
      return item.what != PublishItem::What::kDropped;
    };
    for (const PublishItem& item : publish_.items) forgotten.push_back(held(item));
    std::erase_if(publish_.items, held);
  }
  directory_.apply({.position = {who->node, who->incarnation, publish_.sequence},
                    .removals_seen = publish_.removals_seen,
                    .items = publish_.items,
                    .may_have_missed = absence_.may_have_missed(who->node, publish_.removals_seen)},
                   batch_answer_);
  wire::PublishAnswer result{batch_answer_.stream, {}, batch_answer_.refused_up_to};
  if (result.stream == StreamAnswer::kApplied) {
    published_ += publish_.items.size();
    const bool all_accepted = std::ranges::all_of(
        batch_answer_.verdicts, [](Verdict verdict) { return verdict == Verdict::kAccepted; });
    if (!all_accepted) result.verdicts = batch_answer_.verdicts;
    if (!forgotten.empty()) {
      result.verdicts.clear();
      auto said = batch_answer_.verdicts.begin();
      for (const bool forget : forgotten) {
        result.verdicts.push_back(forget ? Verdict::kUncertain : *said++);
      }
    }
    want_replicas();
    wait_for_open_drops();
    if (!batch_answer_.drops.empty()) {
      // Answer an upsert after no reader can read the replaced version.
      drop(batch_answer_.drops, 0,
           [this, drops = batch_answer_.drops, weak = link.weak_from_this(), id = request.id,
            result] {
             absence_.removed(drops, [this, weak, id, result] {
               if (const auto asker = weak.lock()) answer(*asker, id, result);
             });
           });
      return;
    }
  }
  answer(link, request.id, result);
}

// An earlier order may already drop the replaced version. Until that order is confirmed, readers
// may still read this version.
void LeaderState::wait_for_open_drops() {
  if (open_drops_.empty()) return;
  for (std::size_t i = 0; i < publish_.items.size(); ++i) {
    const PublishItem& item = publish_.items[i];
    if (item.what == PublishItem::What::kDropped || item.version == 0) continue;
    if (batch_answer_.verdicts[i] != Verdict::kAccepted) continue;
    open_drops_.add_to(batch_answer_.drops, item.hash, item.version - 1);
  }
}

// Queues repair for new objects that want more replicas than the one just published.
void LeaderState::want_replicas() {
  for (std::size_t i = 0; i < publish_.items.size(); ++i) {
    const PublishItem& item = publish_.items[i];
    if (item.what == PublishItem::What::kDropped || item.attributes.replicas == 1) continue;
    if (batch_answer_.verdicts[i] == Verdict::kAccepted) repair_.lacks(item);
  }
}

void LeaderState::locate(rpc::Link& link, const rpc::Request& request) {
  if (locate_.wait_ms > 0 && recovering(now_ns_) && waiting_.size() < kMaxWaiting) {
    directory_.locate(locate_.keys, locate_answer_);
    const bool all_found = std::ranges::all_of(
        locate_answer_.keys, [](const Located& key) { return key.state == Lookup::kFound; });
    if (!all_found) {
      const std::uint64_t until_ns = std::min(request.deadline_ns, now_ns_ + locate_.wait_ms * kMs);
      waiting_.push_back({link.weak_from_this(), request.id, until_ns, locate_});
      return;
    }
  }
  answer_locate(link, request.id, locate_);
}

void LeaderState::answer_locate(rpc::Link& link, std::uint32_t id, const wire::Locate& request) {
  directory_.locate(request.keys, locate_answer_);
  located_ += request.keys.size();
  const bool unsure = recovering(now_ns_);
  const Reader reader{request.host, request.zone};
  std::vector<NodeView> holders;
  for (std::size_t i = 0; i < locate_answer_.keys.size(); ++i) {
    Located& key = locate_answer_.keys[i];
    if (unsure && key.state == Lookup::kMiss) key.state = Lookup::kRecovering;
    if (key.state == Lookup::kFound) note_located(request.keys[i]);
    if (key.holder_count < 2) continue;
    holders.clear();
    const auto nodes =
        std::span(locate_answer_.holders).subspan(key.first_holder, key.holder_count);
    for (const NodeId node : nodes) {
      const auto view = std::ranges::lower_bound(views_, node, {}, &NodeView::node);
      holders.push_back(view != views_.end() && view->node == node ? *view
                                                                   : NodeView{.node = node});
    }
    const std::vector<NodeId> ordered = order_for_read(reader, request.keys[i], holders);
    std::ranges::copy(ordered, nodes.begin());
  }
  answer(link, id, locate_answer_);
}

void LeaderState::place_objects(rpc::Link& link, const rpc::Request& request,
                                const wire::Place& wanted) {
  wire::PlaceAnswer result;
  std::vector<KeyHash> keys;
  for (const wire::PlaceItem& item : wanted.items) keys.push_back(item.key);
  directory_.locate(keys, locate_answer_);
  for (std::size_t i = 0; i < wanted.items.size(); ++i) {
    const wire::PlaceItem& item = wanted.items[i];
    result.nodes.push_back(place({.key = item.key,
                                  .bytes = item.bytes,
                                  .replicas = item.replicas,
                                  .host = wanted.host,
                                  .preferred = wanted.preferred,
                                  .exclude = wanted.exclude,
                                  .holders = locate_answer_.holders_of(locate_answer_.keys[i])},
                                 views_));
  }
  answer(link, request.id, result);
}

void LeaderState::remove(rpc::Link& link, const rpc::Request& request, const wire::Remove& wanted) {
  if (fanout_.full())
    return refuse(link, request.id, MC_BUSY, "too many removals are running; try again later");
  RemoveAnswer removed;
  directory_.remove(wanted.items, removed);
  const std::uint64_t removal = directory_.removal();
  note_removals();
  const bool unsure = recovering(now_ns_);
  for (Lookup& state : removed.keys) {
    if (unsure && state == Lookup::kMiss) state = Lookup::kRecovering;
  }
  for (const RemoveItem& item : wanted.items) {
    open_drops_.add_to(removed.drops, item.hash, item.up_to_version);
  }
  order_drops(removed.drops, removal, request.deadline_ns,
              [this, removal, drops = removed.drops, weak = link.weak_from_this(), id = request.id,
               keys = std::move(removed.keys)](std::uint32_t unconfirmed) {
                if (unconfirmed != 0) go_on_dropping(drops, removal);
                absence_.removed(drops, [this, weak, id, keys, unconfirmed] {
                  if (const auto asker = weak.lock()) {
                    answer(*asker, id, wire::RemoveReply{keys, unconfirmed});
                  }
                });
              });
}

std::map<NodeId, std::string> LeaderState::to_all(const std::string& body) const {
  std::map<NodeId, std::string> bodies;
  for (const NodeCounts& node : directory_.nodes()) bodies[node.node] = body;
  return bodies;
}

void LeaderState::remove_matching(rpc::Link& link, const rpc::Request& request,
                                  const wire::Match& match) {
  if (fanout_.full())
    return refuse(link, request.id, MC_BUSY, "too many removals are running; try again later");
  const Pattern pattern{match.name_space, match.pattern, match.kind == wire::Match::Kind::kRegex};
  if (!patterns_.takes(pattern)) {
    return refuse(link, request.id, MC_BUSY,
                  "the master remembers removals in too many namespaces; try again later");
  }
  const std::uint64_t removal = patterns_.add(pattern);
  directory_.number_removal();
  note_removals();
  std::string body;
  wire::encode(match, body);
  const auto sum = std::make_shared<wire::RemoveMatchingAnswer>();
  fanout_.start(
      static_cast<std::uint8_t>(Method::kDropMatching), to_all(body), request.deadline_ns,
      [this, sum, removal](NodeId node, std::string_view bytes) {
        wire::RemoveMatchingAnswer one;
        if (wire::decode(bytes, one).ok()) {
          sum->removed += one.removed;
          patterns_.confirm(removal, node);
        } else {
          ++sum->unconfirmed;
        }
      },
      [this, sum, weak = link.weak_from_this(), id = request.id](std::uint32_t unconfirmed) {
        sum->unconfirmed += unconfirmed;
        if (sum->unconfirmed > 0) tell_the_late();
        absence_.removed_by_pattern([this, sum, weak, id] {
          if (const auto asker = weak.lock()) answer(*asker, id, *sum);
        });
      });
}

// Members that are present but did not carry out a removal before the deadline.
void LeaderState::tell_the_late() {
  for (const auto& [node, link] : links_) {
    if (!patterns_.unheard(node).empty()) catching_up_.try_emplace(node, CatchUp{link, 0, {}, {}});
  }
}

void LeaderState::list(rpc::Link& link, const rpc::Request& request, const wire::Match& match) {
  if (fanout_.full())
    return refuse(link, request.id, MC_BUSY, "too many listings are running; try again later");
  if (match.limit == 0) {
    return refuse(link, request.id, MC_INVALID_ARGUMENT, "a listing needs a limit, 1 to 1,024");
  }
  struct Merged {
    std::map<std::string, std::uint64_t> keys;
    std::optional<std::string> complete_until;  // one agent may have more keys after this key
    std::uint32_t unconfirmed = 0;
  };
  const auto merged = std::make_shared<Merged>();
  std::string body;
  wire::encode(match, body);
  fanout_.start(
      static_cast<std::uint8_t>(Method::kListLocal), to_all(body), request.deadline_ns,
      [merged, limit = match.limit](NodeId, std::string_view bytes) {
        wire::ListAnswer one;
        if (!wire::decode(bytes, one).ok()) {
          ++merged->unconfirmed;
          return;
        }
        if (one.more && !one.keys.empty() &&
            (!merged->complete_until || one.keys.back().key < *merged->complete_until)) {
          merged->complete_until = one.keys.back().key;
        }
        for (wire::ListedKey& key : one.keys) merged->keys.emplace(std::move(key.key), key.bytes);
        // Keeps at most `limit` keys, however many agents answer.
        while (merged->keys.size() > limit) {
          merged->keys.erase(std::prev(merged->keys.end()));
          merged->complete_until = merged->keys.rbegin()->first;
        }
      },
      [this, merged, weak = link.weak_from_this(), id = request.id](std::uint32_t unconfirmed) {
        wire::ListAnswer result;
        result.more = merged->complete_until.has_value();
        result.unconfirmed = merged->unconfirmed + unconfirmed;
        for (const auto& [key, bytes] : merged->keys) {
          if (result.more && key > *merged->complete_until) break;
          result.keys.push_back({key, bytes});
        }
        if (const auto asker = weak.lock()) answer(*asker, id, result);
      });
}

void LeaderState::members(rpc::Link& link, const rpc::Request& request) {
  wire::MembersAnswer result;
  std::map<NodeId, std::uint64_t> entries;
  for (const NodeCounts& node : directory_.nodes()) entries[node.node] = node.entries;
  for (const Member& member : membership_.members()) {
    const NodeId node = member.descriptor.node;
    result.members.push_back({member.descriptor, member.state,
                              member.load.draining || drains_.contains(node),
                              member.load.used_bytes, entries[node]});
  }
  answer(link, request.id, result);
}

void LeaderState::stats(rpc::Link& link, const rpc::Request& request) {
  wire::StatsAnswer result;
  result.entries = directory_.entry_count();
  result.tombstones = directory_.tombstone_count();
  result.members = membership_.count();
  for (const NodeCounts& node : directory_.nodes()) {
    result.reports_missing += node.report != ReportState::kComplete;
  }
  result.memory_bytes = directory_.memory_bytes();
  result.published = published_;
  result.located = located_;
  result.repairs_queued = repair_.queued();
  result.repairs_running = repair_.in_flight();
  result.links = outside_.link_count();
  result.refused_links = outside_.refused_links();
  result.recovering = recovering(now_ns_);
  answer(link, request.id, result);
}

void LeaderState::drain(rpc::Link& link, const rpc::Request& request, const wire::Drain& wanted) {
  if (membership_.find(wanted.node) == nullptr) {
    return refuse(link, request.id, MC_NOT_FOUND,
                  "node " + std::to_string(wanted.node) + " is not a member; see the members");
  }
  if (wanted.stop) {
    drains_.erase(wanted.node);
    return answer(link, request.id, wire::DrainAnswer{});
  }
  auto& draining = drains_[wanted.node];
  if (draining.planner == nullptr) {
    draining.planner = std::make_unique<DrainPlanner>(wanted.node, DrainOptions{});
    refresh_views();
  }
  const DrainProgress& progress = draining.planner->progress();
  answer(link, request.id,
         wire::DrainAnswer{progress.copied, progress.failed, progress.unplaced, progress.seen,
                           progress.done});
}

}  // namespace mc::metadata
