// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/leader_state.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "libmc/base/clock.h"
#include "metadata/directory/key_pattern.h"
#include "metadata/wire/codec.h"
#include "metadata/wire/wire_limits.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kCatchUpNs = 30'000 * kMs;
// A member that was refused asks again by then.
constexpr std::uint64_t kAsksAgainNs = 400 * kMs;
// A turn of the loop shall take less than a millisecond. It visits at most this many buckets (15
// slots each).
constexpr std::uint64_t kSweepBuckets = 4096;
constexpr std::uint64_t kRemovalsAhead = 1u << 20;
constexpr std::size_t kMaxFanouts = 1024;
constexpr std::size_t kMaxPatternRemovals = 1024;
constexpr std::size_t kCatchUpWindow = 8;

// Higher than every removal number of earlier leaders. Each leader saves a number ahead of the use.
// A store that lost the number assigns epochs by the clock in microseconds, so the epoch is high
// enough.
std::uint64_t first_removal(const Term& term) {
  const std::uint64_t by_epoch = term.epoch < (1ull << 52) ? term.epoch << 12 : term.epoch;
  return std::max(by_epoch, term.removals + 1);
}

DirectoryOptions directory_options(const MasterOptions& options, const Term& term) {
  DirectoryOptions directory;
  directory.max_entries = options.max_entries;
  directory.max_nodes = static_cast<std::uint32_t>(options.max_nodes);
  directory.first_removal = first_removal(term);
  return directory;
}

std::uint64_t lease_ms(const MasterOptions& options) {
  return options.gone_ms - options.suspect_ms;
}

std::uint64_t promise_ns(const MasterOptions& options) { return 2 * options.gone_ms * kMs; }

MembershipOptions membership_options(const MasterOptions& options) {
  MembershipOptions membership;
  membership.suspect_after_ns = options.suspect_ms * kMs;
  membership.gone_after_ns = options.gone_ms * kMs;
  // The shorter silences after peers' reports keep the proportions of membership.h.
  membership.gone_after_report_ns = membership.gone_after_ns * 7 / 10;
  membership.suspect_after_report_ns = membership.suspect_after_ns / 2;
  membership.lease_ns = lease_ms(options) * kMs;
  membership.max_members = static_cast<std::uint32_t>(options.max_nodes);
  return membership;
}

// Without the load, which no version counts.
wire::MemberInfo info_of(const Member& member) {
  wire::MemberInfo info;
  info.descriptor = member.descriptor;
  info.state = member.state;
  info.readable = member.readable();
  return info;
}

// The store has the id alone.
Descriptor absent_member(NodeId node) {
  Descriptor absent;
  absent.node = node;
  absent.incarnation = 1;  // the lowest
  absent.address = "unknown";
  return absent;
}

std::string member_key(NodeId node) { return std::string(kMembersPrefix) + std::to_string(node); }

std::vector<RemovalNote> notes_of(std::span<const Holding> drops) {
  std::vector<RemovalNote> notes;
  for (const Holding& drop : drops) {
    const RemovalNote note{.hash = drop.hash, .version = drop.version};
    // Each holder has a drop.
    if (notes.empty() || notes.back() != note) notes.push_back(note);
  }
  return notes;
}

using wire::Method;

constexpr std::size_t kMaxWaiting = 4096;  // locates that wait for reports

}  // namespace

LeaderState::LeaderState(const MasterOptions& options, const Term& term, Outside outside,
                         std::uint64_t now_ns)
    : options_(options),
      epoch_(term.epoch),
      outside_(std::move(outside)),
      recover_until_ns_(now_ns + options.recover_ms * kMs),
      last_promise_ns_(recover_until_ns_ + promise_ns(options)),
      old_leases_until_ns_(now_ns + lease_ms(options) * kMs),
      now_ns_(now_ns),
      directory_(directory_options(options, term)),
      membership_(membership_options(options)),
      fanout_([this](NodeId node) { return link_of(node); }, term.epoch, kMaxFanouts),
      drops_([this](NodeId node) { return link_of(node); }, term.epoch, now_ns),
      patterns_(kMaxPatternRemovals),
      reports_(options.max_nodes),
      promises_(promise_ns(options), lease_ms(options) * kMs),
      last_leader_(promise_ns(options_)),
      absence_(term, outside_.save, now_ns),
      copies_(
          {directory_, membership_, views_, drops_, *outside_.counters},
          [this](NodeId node) { return link_of(node); }, term.epoch),
      removals_saved_(term.removals) {
  for (const Entry& entry : term.members) {
    Descriptor descriptor;
    if (!wire::decode(entry.value, descriptor).ok()) continue;
    if (directory_.expect(descriptor.node).ok()) {
      expected_[descriptor.node] = descriptor;
      last_leader_.had(descriptor.node, descriptor.incarnation);
      absence_.unheard(descriptor.node);
      promises_.expect(descriptor.node);
    }
  }
  for (const NodeId node : absence_.expected_back()) {
    if (!expected_.contains(node)) membership_.missing(absent_member(node), now_ns);
  }
  patterns_.restore(Absence::patterns_before(term));
  directory_.bury(absence_.removed_before());
  note_removals();
}

std::shared_ptr<rpc::RpcLink> LeaderState::link_of(NodeId node) const {
  const auto found = links_.find(node);
  const auto link = found == links_.end() ? nullptr : found->second.lock();
  return link != nullptr && link->open() ? link : nullptr;
}

// Saves the number well before it is used up, so that the next leader starts above it.
void LeaderState::note_removals() {
  if (directory_.removal() + kRemovalsAhead / 2 < removals_saved_) return;
  removals_saved_ = directory_.removal() + kRemovalsAhead;
  outside_.save(std::string(kRemovalsKey), std::to_string(removals_saved_), nullptr);
}

void LeaderState::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  Membership::Events events;
  membership_.tick(now_ns, events);
  handle(events);
  if (!expected_.empty() && now_ns >= recover_until_ns_) expire_expected();
  expire_reports();
  if (!waiting_.empty()) answer_waiting();
  if (now_ns >= old_leases_until_ns_) {
    for (const Act& act : std::exchange(after_old_leases_, {})) act();
  }
  fanout_.tick(now_ns);
  drops_.tick(now_ns);
  absence_.tick(now_ns);
  catch_all_up();
  if (directory_.unswept() > 0 || directory_.resizing()) directory_.sweep(kSweepBuckets);
  refresh_views();
  copies_.tick(!recovering(now_ns_), now_ns_);
  awaited_.tick(!recovering(now_ns_), now_ns_);
  note_removals();
}

void LeaderState::handle(const Membership::Events& events) {
  for (const MembershipEvent& event : events) {
    spdlog::info("event=member what={} node={} incarnation={}",
                 event.what == MemberEvent::kJoined      ? "joined"
                 : event.what == MemberEvent::kSuspected ? "suspected"
                 : event.what == MemberEvent::kBack      ? "back"
                                                         : "gone",
                 event.node, event.incarnation);
    if (event.what == MemberEvent::kGone) gone(event.node, event.incarnation);
  }
  if (!events.empty()) refresh_views();
}

void LeaderState::gone(NodeId node, Incarnation incarnation) {
  const bool drained = copies_.drained(node);
  // If a newer incarnation has already joined, only the old incarnation's entries are removed.
  if (!directory_.leave(node, incarnation)) return;
  links_.erase(node);
  catching_up_.erase(node);
  reports_.gone(node);
  lost_up_to_ = latest_version_;
  copies_.node_gone(node, now_ns_);
  absence_.gone(node, patterns_.owed_from(node));
  outside_.save(member_key(node), std::nullopt, [this, weak = std::weak_ptr(alive_), node] {
    if (weak.lock() != nullptr && membership_.find(node) == nullptr) promises_.forget(node);
  });
  // A newer incarnation may have kept the pool; it gets the order after its join. If the node is
  // gone, orders that waited only for this node are complete now.
  if (membership_.find(node) != nullptr) return;
  if (drained) give_up(node);  // the node holds no object
  fanout_.fenced(node);
  drops_.fenced(node);
}

// Members of the last leader that have not come. Their state is unknown, and the heartbeats are
// long overdue.
void LeaderState::expire_expected() {
  for (const auto& [node, descriptor] : std::exchange(expected_, {})) {
    if (membership_.find(node) != nullptr) continue;
    spdlog::warn("event=member what=missing node={} incarnation={}", node, descriptor.incarnation);
    membership_.missing(descriptor, now_ns_);
    gone(node, descriptor.incarnation);
  }
}

// A member that never ends its report must not delay the misses and removals of all others.
void LeaderState::expire_reports() {
  for (const NodeId node : reports_.expire(awake_ns())) {
    spdlog::warn("event=member what=late_report node={}", node);
    directory_.stop_waiting(node);
  }
}

void LeaderState::answer_waiting() {
  const bool over = !recovering(now_ns_);
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    const auto link = each->link.lock();
    if (link != nullptr && link->open() && !over && now_ns_ < each->deadline_ns) {
      ++each;
      continue;
    }
    if (link != nullptr && link->open()) answer_locate(*link, each->id, each->request);
    each = waiting_.erase(each);
  }
}

void LeaderState::refresh_views() {
  views_.clear();
  for (const Member& member : membership_.members()) {
    const Descriptor& about = member.descriptor;
    const std::uint64_t used = std::min(member.load.used_bytes, about.capacity_bytes);
    views_.push_back(
        {.node = about.node,
         .host = about.host,
         .zone = about.zone,
         .capacity_bytes = about.capacity_bytes,
         .free_bytes = about.capacity_bytes - used,
         .busy_permille = member.load.busy_permille,
         .age_ns = now_ns_ - std::min(now_ns_, member.joined_ns),
         .draining = member.load.draining || copies_.drains(about.node),
         // A node without a link cannot receive orders and may be dead already.
         .suspected = member.state == MemberState::kSuspected || link_of(about.node) == nullptr});
  }
  std::vector<NodeId> places;
  for (const NodeView& view : views_) {
    if (!view.draining && !view.suspected) places.push_back(view.node);
  }
  // Objects that had no place for a replica may find one now.
  if (!std::ranges::includes(places_, places)) copies_.look_again();
  places_ = std::move(places);
}

// Sends a member the removals that it has not carried out. The report may begin after all of them.
void LeaderState::catch_up(NodeId node) {
  const auto found = catching_up_.find(node);
  if (found == catching_up_.end()) return;
  CatchUp& state = found->second;
  const auto link = state.link.lock();
  if (link == nullptr || !link->open()) {
    catching_up_.erase(found);  // the member gets the rest after the next join
    return;
  }
  const auto unheard = patterns_.unheard(node);
  if (unheard.empty()) {
    const auto report = state.report;
    catching_up_.erase(found);
    absence_.caught_up(node);
    if (report.has_value()) {
      std::string body;
      wire::encode(wire::ReportAnswer{StreamAnswer::kApplied}, body);
      link->answer(*report, 0, std::move(body), epoch_);
    }
    return;
  }
  std::vector<std::pair<std::uint64_t, std::string>> orders;
  for (const PatternRemovals::Removal* removal : unheard) {
    if (state.asked.size() >= kCatchUpWindow) break;
    if (!state.asked.insert(removal->id).second) continue;
    wire::Match match;
    match.name_space = removal->pattern.name_space;
    match.pattern = removal->pattern.text;
    match.kind = removal->pattern.regex ? wire::Match::Kind::kRegex : wire::Match::Kind::kPrefix;
    wire::encode(match, orders.emplace_back(removal->id, std::string()).second);
  }
  // A call may fail at once, and the callback changes catching_up_. So all orders are built first.
  for (auto& [id, body] : orders) {
    link->call(static_cast<std::uint8_t>(wire::Method::kDropMatching), std::move(body),
               now_ns_ + kCatchUpNs, epoch_,
               [this, weak = std::weak_ptr(alive_), of = state.link, node,
                id = id](const Result<rpc::Answer>& answer) {
                 if (weak.lock() == nullptr) return;
                 const bool done = answer && answer->status == 0;
                 if (done) patterns_.confirm(id, node);
                 const auto open = catching_up_.find(node);
                 if (open == catching_up_.end() || open->second.link.lock() != of.lock()) return;
                 open->second.asked.erase(id);
                 if (done) catch_up(node);  // otherwise the next tick tries again
               });
  }
}

void LeaderState::catch_all_up() {
  std::vector<NodeId> nodes;
  for (const auto& [node, state] : catching_up_) nodes.push_back(node);
  for (const NodeId node : nodes) catch_up(node);
}

void LeaderState::on_cancel(rpc::RpcLink& link, std::uint32_t id) {
  waiting_.remove_if(
      [&](const Waiting& each) { return each.id == id && each.link.lock().get() == &link; });
}

void LeaderState::attended(const rpc::RpcLink& link, std::uint64_t heard) {
  if (heard != 0 && heard < epoch_) of_earlier_leaders_.insert(&link);
}

void LeaderState::on_closed(rpc::RpcLink& link) {
  if (of_earlier_leaders_.erase(&link) > 0) recover_until_ns_ = last_promise_ns_;
  const auto* speaker = static_cast<Speaker*>(link.attachment.get());
  if (speaker == nullptr || speaker->joined_to != this) return;
  const auto found = links_.find(speaker->node);
  if (found == links_.end() || found->second.lock().get() != &link) return;
  links_.erase(found);
  absence_.unheard(speaker->node);
}

// ---- Requests -----------------------------------------------------------------------------------

// A function for each method. Each answers, now or later.

template <typename Message>
void LeaderState::answer(rpc::RpcLink& link, std::uint32_t id, const Message& message) {
  std::string body;
  wire::encode(message, body);
  link.answer(id, 0, std::move(body), epoch_);
}

void LeaderState::refuse(rpc::RpcLink& link, std::uint32_t id, std::uint16_t status,
                         std::string text) {
  std::string body;
  wire::encode(wire::Refusal{std::move(text), {}}, body);
  link.answer(id, status, std::move(body), epoch_);
}

template <typename Message, typename Handle>
void LeaderState::decoded(rpc::RpcLink& link, const rpc::Request& request, Message& message,
                          Handle handle) {
  const Status status = wire::decode(request.body, message);
  if (status.ok()) {
    handle();
  } else {
    refuse(link, request.id, static_cast<std::uint16_t>(status.code()), std::string(status.text()));
  }
}

void LeaderState::on_request(rpc::RpcLink& link, const rpc::Request& request,
                             std::uint64_t now_ns) {
  now_ns_ = now_ns;
  const auto run = [&]<typename Message>(
                       Message message, void (LeaderState::*act)(rpc::RpcLink&, const rpc::Request&,
                                                                 const Message&)) {
    decoded(link, request, message, [&] { (this->*act)(link, request, message); });
  };
  switch (static_cast<Method>(request.method)) {
    case Method::kJoin:
      ++outside_.counters->joins;
      return run(Descriptor{}, &LeaderState::join);
    case Method::kHeartbeat:
      ++outside_.counters->heartbeats;
      return run(wire::Heartbeat{}, &LeaderState::heartbeat);
    case Method::kLeave:
      ++outside_.counters->leaves;
      return leave(link, request);
    case Method::kReport:
      return run(wire::Report{}, &LeaderState::report);
    case Method::kPublish:
      return decoded(link, request, publish_, [&] { publish(link, request); });
    case Method::kLocate:
      return decoded(link, request, locate_, [&] { locate(link, request); });
    case Method::kChooseHolders:
      return run(wire::ChooseHolders{}, &LeaderState::choose_holders);
    case Method::kRemove:
      return run(wire::Remove{}, &LeaderState::remove);
    case Method::kAwaitReplicas:
      return run(wire::AwaitReplicas{}, &LeaderState::await_replicas);
    case Method::kRemoveMatching:
      return run(wire::Match{}, &LeaderState::remove_matching);
    case Method::kList:
      return run(wire::Match{}, &LeaderState::list);
    case Method::kMembers:
      return answer(link, request.id, wire::MembersAnswer{members(), down()});
    case Method::kStats:
      return answer(link, request.id, stats());
    case Method::kDrain:
      return run(wire::Drain{}, &LeaderState::drain);
    case Method::kRelocate:
      return run(wire::Relocate{}, &LeaderState::relocate);
    case Method::kRelocation:
      return run(wire::RelocationId{}, &LeaderState::relocation);
    default:
      refuse(link, request.id, MC_UNSUPPORTED, "a master does not support this call; ask an agent");
  }
}

// nullptr: the request was refused, because the link has not joined this leader.
LeaderState::Speaker* LeaderState::speaker(rpc::RpcLink& link, const rpc::Request& request) {
  auto* speaker = static_cast<Speaker*>(link.attachment.get());
  if (speaker != nullptr && speaker->joined_to == this) return speaker;
  refuse(link, request.id, rpc::kNotJoined, "this link has no member; join first");
  return nullptr;
}

void LeaderState::join(rpc::RpcLink& link, const rpc::Request& request,
                       const Descriptor& descriptor) {
  const std::uint64_t admitted_ns =
      last_leader_.admits_at(descriptor.node, descriptor.incarnation, recover_until_ns_, now_ns_);
  if (now_ns_ < admitted_ns) {
    // The objects of a member that comes soon are no misses.
    if (now_ns_ < recover_until_ns_ && recover_until_ns_ < admitted_ns) {
      recover_until_ns_ = std::min(admitted_ns + kAsksAgainNs, last_promise_ns_);
    }
    return refuse(link, request.id, MC_BUSY,
                  "the last leader may still lead the members that it had; try again");
  }
  Membership::Events events;
  Status status = membership_.join(descriptor, now_ns_, events);
  handle(events);
  if (status.ok()) status = directory_.join(descriptor.node, descriptor.incarnation);
  if (!status.ok()) {
    refuse(link, request.id, static_cast<std::uint16_t>(status.code()), std::string(status.text()));
    return;
  }
  expected_.erase(descriptor.node);
  of_earlier_leaders_.erase(&link);
  link.attachment =
      std::make_shared<Speaker>(Speaker{descriptor.node, descriptor.incarnation, this});
  links_[descriptor.node] = link.weak_from_this();
  refresh_views();
  std::string saved;
  wire::encode(descriptor, saved);
  outside_.save(std::string(kMembersPrefix) + std::to_string(descriptor.node), std::move(saved),
                nullptr);
  absence_.joined(descriptor.node, directory_.removal());
  promises_.joined(descriptor.node, now_ns_);
  answer(link, request.id,
         wire::JoinAnswer{directory_.removal(), static_cast<std::uint32_t>(options_.heartbeat_ms),
                          promise_ms()});
  fanout_.joined(descriptor.node);
  drops_.joined(descriptor.node);
  catching_up_.erase(descriptor.node);
  if (!reports_.joined(descriptor.node, awake_ns())) directory_.stop_waiting(descriptor.node);
  if (patterns_.unheard(descriptor.node).empty()) return;
  catching_up_[descriptor.node] = {link.weak_from_this(), directory_.removal(), {}, {}};
  catch_up(descriptor.node);
}

void LeaderState::heartbeat(rpc::RpcLink& link, const rpc::Request& request,
                            const wire::Heartbeat& beat) {
  const Speaker* who = speaker(link, request);
  if (who == nullptr) return;
  Membership::Events events;
  const Member* const member = membership_.find(who->node);
  const bool resized = member != nullptr && beat.load.capacity_bytes &&
                       *beat.load.capacity_bytes != member->descriptor.capacity_bytes;
  const HeartbeatAnswer state =
      membership_.heartbeat(who->node, who->incarnation, beat.load, now_ns_, events);
  for (const wire::Unreachable& peer : beat.unreachable) {
    membership_.report_unreachable(who->node, peer.node, peer.incarnation, now_ns_, events);
  }
  handle(events);
  heard_version(beat.latest_version);
  promises_.heard(who->node, beat.promised_ns, now_ns_);
  if (resized) refresh_views();  // a put may need the new room before the next tick
  wire::HeartbeatReply reply;
  reply.answer = state;
  reply.removal = directory_.removal();
  if (state == HeartbeatAnswer::kOk) {
    reply.lease_ms = static_cast<std::uint32_t>(lease_ms(options_));
    reply.latest_version = latest_version_;
    reply.promise_ms = promise_ms();
    reply.asked_ns = now_ns_;
    tell_changes(beat.list_version, reply);
  }
  answer(link, request.id, reply);
}

void LeaderState::tell_changes(std::uint64_t known_version, wire::HeartbeatReply& reply) const {
  reply.list_version = membership_.version();
  const auto nodes = known_version == 0 ? std::nullopt : membership_.changed_since(known_version);
  reply.whole = !nodes.has_value();
  if (reply.whole) {
    for (const Member& member : membership_.members()) {
      reply.changed.members.push_back(info_of(member));
    }
    return;
  }
  for (const NodeId node : *nodes) {
    if (const Member* const member = membership_.find(node)) {
      reply.changed.members.push_back(info_of(*member));
    } else {
      reply.gone.push_back(node);
    }
  }
}

void LeaderState::leave(rpc::RpcLink& link, const rpc::Request& request) {
  const Speaker* who = speaker(link, request);
  if (who == nullptr) return;
  Membership::Events events;
  membership_.leave(who->node, who->incarnation, now_ns_, events);
  handle(events);
  promises_.forget(who->node);
  link.attachment.reset();
  link.answer(request.id, 0, {}, epoch_);
}

void LeaderState::report(rpc::RpcLink& link, const rpc::Request& request,
                         const wire::Report& report) {
  const Speaker* who = speaker(link, request);
  if (who == nullptr) return;
  reports_.heard(who->node, awake_ns());
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
    ++outside_.counters->reports;
    reports_.reported(who->node);
    absence_.reported(who->node);
    membership_.reported(who->node, who->incarnation);
    // Objects that the node held before and did not name may need new replicas.
    copies_.look_again();
    if (!waiting_.empty()) answer_waiting();
  }
}

// A member may put an object before hearing of a removal that it missed. That removal may cover
// the object.
bool LeaderState::must_forget(const Speaker& who) {
  const auto late = catching_up_.find(who.node);
  return late != catching_up_.end() && publish_.removals_seen < late->second.removal;
}

void LeaderState::publish(rpc::RpcLink& link, const rpc::Request& request) {
  const Speaker* who = speaker(link, request);
  if (who == nullptr) return;
  reports_.heard(who->node, awake_ns());
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
                    .may_have_missed = absence_.may_have_missed(who->node, publish_.removals_seen),
                    .lost_up_to = directory_.reported(who->node) ? lost_up_to_ : 0},
                   batch_answer_);
  wire::PublishAnswer result{batch_answer_.stream, {}, batch_answer_.refused_up_to};
  if (result.stream == StreamAnswer::kApplied) {
    published_ += publish_.items.size();
    for (const PublishItem& item : publish_.items) heard_version(item.version);
    const auto accepted = std::ranges::count(batch_answer_.verdicts, Verdict::kAccepted);
    const std::size_t refused = batch_answer_.verdicts.size() - static_cast<std::size_t>(accepted);
    outside_.counters->publish.add(publish_.items.size(), refused);
    if (refused != 0) result.verdicts = batch_answer_.verdicts;
    if (!forgotten.empty()) {
      result.verdicts.clear();
      auto said = batch_answer_.verdicts.begin();
      for (const bool forget : forgotten) {
        result.verdicts.push_back(forget ? Verdict::kUncertain : *said++);
      }
    }
    copies_.published(publish_.items, batch_answer_.verdicts, now_ns_);
    awaited_.published(publish_.items, !recovering(now_ns_));
    wait_for_open_drops();
    if (directory_.reported(who->node)) return answer_in_time(link, request, result);
    // No caller waits for a batch of a report.
    drops_.release(batch_answer_.drops);
  }
  answer(link, request.id, result);
}

// Answers after no reader can read a version that the batch has replaced. A holder without a link drops
// the version after the next join, or is gone.
void LeaderState::answer_in_time(rpc::RpcLink& link, const rpc::Request& request,
                                 wire::PublishAnswer result) {
  const auto say = [this, weak = link.weak_from_this(), id = request.id,
                    result = std::move(result)] {
    if (const auto asker = weak.lock()) answer(*asker, id, result);
  };
  if (batch_answer_.drops.empty()) {
    // A put that only creates replaces nothing.
    const auto upsert = [](const PublishItem& item) {
      return item.what == PublishItem::What::kHolds;
    };
    if (std::ranges::none_of(publish_.items, upsert)) return say();
    return when_old_leases_are_over(say);
  }
  drops_.replace(batch_answer_.drops, request.deadline_ns,
                 [this, noted = notes_of(batch_answer_.drops), say] {
                   // Also without a note, the replaced version of a returning host yields to the newer version.
                   absence_.removed(noted, [this, say](bool) { when_old_leases_are_over(say); });
                 });
}

void LeaderState::when_old_leases_are_over(Act act) {
  if (now_ns_ >= old_leases_until_ns_) return act();
  after_old_leases_.push_back(std::move(act));
}

// An earlier order may already drop the replaced version. Until that order is confirmed, readers
// may still read this version.
void LeaderState::wait_for_open_drops() {
  if (drops_.none_open()) return;
  for (std::size_t i = 0; i < publish_.items.size(); ++i) {
    const PublishItem& item = publish_.items[i];
    if (item.what == PublishItem::What::kDropped || item.version == 0) continue;
    if (batch_answer_.verdicts[i] != Verdict::kAccepted) continue;
    drops_.add_open(batch_answer_.drops, item.hash, item.version - 1);
  }
}

void LeaderState::locate(rpc::RpcLink& link, const rpc::Request& request) {
  if (locate_.wait_ms > 0 && recovering(now_ns_) && waiting_.size() < kMaxWaiting) {
    directory_.locate(locate_.keys, locate_answer_);
    if (!std::ranges::all_of(locate_answer_.keys, &Located::whole)) {
      const std::uint64_t until_ns = std::min(request.deadline_ns, now_ns_ + locate_.wait_ms * kMs);
      waiting_.push_back({link.weak_from_this(), request.id, until_ns, locate_});
      return;
    }
  }
  answer_locate(link, request.id, locate_);
}

void LeaderState::answer_locate(rpc::RpcLink& link, std::uint32_t id, const wire::Locate& request) {
  directory_.locate(request.keys, locate_answer_);
  located_ += request.keys.size();
  const auto found = std::ranges::count(locate_answer_.keys, Lookup::kFound, &Located::state);
  outside_.counters->locate.add(request.keys.size(),
                                request.keys.size() - static_cast<std::size_t>(found));
  const bool unsure = recovering(now_ns_);
  const Reader reader{request.host, request.zone};
  std::vector<NodeView> holders;
  for (std::size_t i = 0; i < locate_answer_.keys.size(); ++i) {
    Located& key = locate_answer_.keys[i];
    if (unsure && !key.whole()) key.state = Lookup::kRecovering;
    if (key.state == Lookup::kFound) copies_.located(request.keys[i]);
    if (key.holder_count < 2) continue;
    holders.clear();
    for (const NodeId node : locate_answer_.holders_of(key)) {
      const auto view = std::ranges::lower_bound(views_, node, {}, &NodeView::node);
      const bool known = view != views_.end() && view->node == node;
      const auto number = holders.size();
      holders.push_back(known ? *view : NodeView{.node = node});
      holders.back().on_disk = (key.on_disk >> number & 1) != 0;
    }
    locate_answer_.reorder(key, order_for_read(reader, request.keys[i], holders));
  }
  answer(link, id, locate_answer_);
}

void LeaderState::choose_holders(rpc::RpcLink& link, const rpc::Request& request,
                                 const wire::ChooseHolders& wanted) {
  wire::ChooseHoldersAnswer result;
  std::vector<KeyHash> keys;
  for (const wire::ChooseItem& item : wanted.items) keys.push_back(item.key);
  directory_.locate(keys, locate_answer_);
  for (std::size_t i = 0; i < wanted.items.size(); ++i) {
    const wire::ChooseItem& item = wanted.items[i];
    result.nodes.push_back(place({.key = item.key,
                                  .bytes = item.bytes,
                                  .replicas = item.replicas,
                                  .host = wanted.host,
                                  .preferred = wanted.preferred,
                                  .exclude = wanted.exclude,
                                  .holders = locate_answer_.holders_of(locate_answer_.keys[i])},
                                 views_));
  }
  const auto unplaced =
      std::ranges::count_if(result.nodes, [](const auto& nodes) { return nodes.empty(); });
  outside_.counters->place.add(result.nodes.size(), static_cast<std::size_t>(unplaced));
  answer(link, request.id, result);
}

void LeaderState::remove(rpc::RpcLink& link, const rpc::Request& request,
                         const wire::Remove& wanted) {
  if (drops_.full())
    return refuse(link, request.id, MC_BUSY, "too many removals are running; try again later");
  const bool unsure = recovering(now_ns_);
  const auto away = static_cast<std::uint32_t>(absence_.expected_back().size());
  RemoveAnswer removed;
  directory_.remove(
      wanted.items, removed,
      {.unheard_up_to = away != 0 || unsure ? latest_version_ : 0, .recovering = unsure});
  const auto missing = std::ranges::count(removed.keys, Lookup::kMiss);
  outside_.counters->remove.add(removed.keys.size(), static_cast<std::size_t>(missing));
  const std::uint64_t removal = directory_.removal();
  note_removals();
  std::vector<Holding> open;
  for (const RemoveItem& item : wanted.items) {
    drops_.add_open(open, item.hash, item.up_to_version);
  }
  std::ranges::move(notes_of(open), std::back_inserter(removed.notes));
  std::ranges::move(open, std::back_inserter(removed.drops));
  drops_.remove(removed.drops, removal, request.deadline_ns,
                [this, noted = std::move(removed.notes), weak = link.weak_from_this(),
                 id = request.id, reply = wire::RemoveReply{std::move(removed.keys), 0, away}](
                    std::uint32_t unconfirmed) mutable {
                  reply.unconfirmed = unconfirmed;
                  absence_.removed(noted, [this, weak, id, reply](bool stored) mutable {
                    if (!stored) reply.unconfirmed += absence_.size();
                    when_old_leases_are_over([this, weak, id, reply] {
                      if (const auto asker = weak.lock()) answer(*asker, id, reply);
                    });
                  });
                });
}

void LeaderState::await_replicas(rpc::RpcLink& link, const rpc::Request& request,
                                 const wire::AwaitReplicas& wanted) {
  if (!awaited_.has_room(wanted.keys.size())) {
    return refuse(link, request.id, MC_BUSY, "too many puts wait for replicas; try again later");
  }
  copies_.await(wanted.keys, now_ns_);
  awaited_.begin(wanted.keys, !recovering(now_ns_), request.deadline_ns,
                 [this, weak = link.weak_from_this(),
                  id = request.id](const std::vector<AwaitedState>& states) {
                   if (const auto asker = weak.lock()) {
                     answer(*asker, id, wire::AwaitReplicasAnswer{states});
                   }
                 });
}

std::map<NodeId, std::string> LeaderState::to_all(const std::string& body) const {
  std::map<NodeId, std::string> bodies;
  for (const NodeCounts& node : directory_.nodes()) bodies[node.node] = body;
  return bodies;
}

void LeaderState::remove_matching(rpc::RpcLink& link, const rpc::Request& request,
                                  const wire::Match& match) {
  if (fanout_.full())
    return refuse(link, request.id, MC_BUSY, "too many removals are running; try again later");
  if (match.kind == wire::Match::Kind::kRegex) {
    if (const auto compiled = KeyPattern::compile(match.pattern); !compiled) {
      const Status& why = compiled.error();
      return refuse(link, request.id, static_cast<std::uint16_t>(why.code()),
                    std::string(why.text()));
    }
  }
  const bool by_regex = match.kind == wire::Match::Kind::kRegex;
  ++(by_regex ? outside_.counters->removals_by_regex : outside_.counters->removals_of_all);
  const Pattern pattern{match.name_space, match.pattern, by_regex};
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
        absence_.removed_by_pattern(patterns_, [this, sum, weak, id](bool noted) {
          if (!noted) sum->unconfirmed += absence_.size();
          sum->away = static_cast<std::uint32_t>(absence_.expected_back().size());
          when_old_leases_are_over([this, sum, weak, id] {
            if (const auto asker = weak.lock()) answer(*asker, id, *sum);
          });
        });
      });
}

// Members that are present but did not carry out a removal before the deadline.
void LeaderState::tell_the_late() {
  for (const auto& [node, link] : links_) {
    if (patterns_.unheard(node).empty()) continue;
    catching_up_.try_emplace(node, CatchUp{link, 0, {}, {}});
    absence_.late(node, patterns_.owed_from(node));
  }
}

void LeaderState::list(rpc::RpcLink& link, const rpc::Request& request, const wire::Match& match) {
  if (fanout_.full())
    return refuse(link, request.id, MC_BUSY, "too many listings are running; try again later");
  if (match.limit == 0) {
    return refuse(link, request.id, MC_INVALID_ARGUMENT, "a listing needs a limit, 1 to 4,096");
  }
  struct Merged {
    std::map<std::string, std::uint64_t> keys;
    std::optional<std::string> complete_until;  // an agent may have more keys after this key
    std::uint32_t unconfirmed = 0;

    void may_lack_after(const std::string& key) {
      if (!complete_until || key < *complete_until) complete_until = key;
    }
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
        if (one.more && !one.keys.empty()) merged->may_lack_after(one.keys.back().key);
        // Keeps at most `limit` keys, however many agents answer.
        for (wire::ListedKey& key : one.keys) {
          const bool full = merged->keys.size() == limit;
          if (full && key.key > merged->keys.rbegin()->first) {
            merged->may_lack_after(merged->keys.rbegin()->first);
            break;
          }
          const bool added = merged->keys.emplace(std::move(key.key), key.bytes).second;
          if (!full || !added) continue;
          merged->keys.erase(std::prev(merged->keys.end()));
          merged->may_lack_after(merged->keys.rbegin()->first);
        }
      },
      [this, merged, weak = link.weak_from_this(), id = request.id](std::uint32_t unconfirmed) {
        wire::ListAnswer result;
        result.more = merged->complete_until.has_value();
        result.unconfirmed = merged->unconfirmed + unconfirmed;
        std::size_t listed_bytes = 0;
        for (const auto& [key, bytes] : merged->keys) {
          if (merged->complete_until && key > *merged->complete_until) break;
          listed_bytes += key.size() + 16;
          result.more |= listed_bytes > wire::kListedBytes;
          if (listed_bytes > wire::kListedBytes) break;
          result.keys.push_back({key, bytes});
        }
        if (const auto asker = weak.lock()) answer(*asker, id, result);
      });
}

std::vector<wire::MemberInfo> LeaderState::members() const {
  std::vector<wire::MemberInfo> result;
  std::map<NodeId, NodeCounts> counts;
  for (const NodeCounts& node : directory_.nodes()) counts[node.node] = node;
  for (const Member& member : membership_.members()) {
    const NodeId node = member.descriptor.node;
    wire::MemberInfo info = info_of(member);
    info.draining = member.load.draining || copies_.drains(node);
    info.used_bytes = member.load.used_bytes;
    info.entries = counts[node].entries;
    info.disk_entries = counts[node].disk_entries;
    info.wall_ns = member.wall_at_zero_ns == 0 ? 0 : member.wall_at_zero_ns + now_ns_;
    result.push_back(std::move(info));
  }
  return result;
}

std::vector<DownMember> LeaderState::down() const {
  std::vector<DownMember> all = membership_.down(now_ns_);
  all.resize(std::min(all.size(), wire::kMaxDown));
  return all;
}

wire::StatsAnswer LeaderState::stats() const {
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
  result.repairs_queued = copies_.repairs_queued();
  result.repairs_running = copies_.repairs_running();
  result.links = outside_.link_count();
  result.refused_links = outside_.refused_links();
  result.recovering = recovering(now_ns_);
  return result;
}

void LeaderState::drain(rpc::RpcLink& link, const rpc::Request& request,
                        const wire::Drain& wanted) {
  if (wanted.dead) return give_up(link, request, wanted.node);
  if (membership_.find(wanted.node) == nullptr) {
    return refuse(link, request.id, MC_NOT_FOUND,
                  "node " + std::to_string(wanted.node) + " is not a member; see the members");
  }
  if (wanted.stop) {
    copies_.end_drain(wanted.node);
    return answer(link, request.id, wire::DrainAnswer{});
  }
  const bool begins = !copies_.drains(wanted.node);
  const DrainProgress& progress = copies_.drain(wanted);
  if (begins) refresh_views();
  answer(link, request.id,
         wire::DrainAnswer{progress.copied, progress.failed, progress.unplaced, progress.seen,
                           progress.done, progress.copied_bytes});
}

void LeaderState::give_up(rpc::RpcLink& link, const rpc::Request& request, NodeId node) {
  if (membership_.find(node) != nullptr) {
    return refuse(link, request.id, MC_INVALID_ARGUMENT,
                  "node " + std::to_string(node) + " is not down; stop its agent first");
  }
  // The recovery waits for the last leader's members. The recovery waits for this member no longer.
  if (const auto expected = expected_.find(node); expected != expected_.end()) {
    const Incarnation incarnation = expected->second.incarnation;
    expected_.erase(expected);
    gone(node, incarnation);
  }
  spdlog::warn("event=member what=given_up node={}", node);
  give_up(node);
  wire::DrainAnswer done;
  done.done = true;
  answer(link, request.id, done);
}

// No removal is remembered for the member from now on. The number below tells the next join that removals are missing.
void LeaderState::give_up(NodeId node) {
  absence_.give_up(node);
  membership_.forget_down(node);
  directory_.number_removal();
  note_removals();
}

void LeaderState::relocate(rpc::RpcLink& link, const rpc::Request& request,
                           const wire::Relocate& wanted) {
  const auto begun = copies_.relocate(wanted, now_ns_);
  if (!begun) {
    const Status& why = begun.error();
    const bool unsure = why.code() == MC_NOT_FOUND || why.code() == MC_INVALID_ARGUMENT;
    if (unsure && recovering(now_ns_)) {
      return refuse(link, request.id, MC_BUSY,
                    "not all agents have reported their objects yet; try again");
    }
    return refuse(link, request.id, static_cast<std::uint16_t>(why.code()),
                  std::string(why.text()));
  }
  answer(link, request.id, wire::RelocationId{epoch_, *begun});
}

void LeaderState::relocation(rpc::RpcLink& link, const rpc::Request& request,
                             const wire::RelocationId& id) {
  const Relocation* const task = id.epoch == epoch_ ? copies_.relocation(id.number) : nullptr;
  if (task == nullptr) {
    return refuse(link, request.id, MC_NOT_FOUND,
                  "this master knows no such task; tasks end with the master that began them");
  }
  using State = wire::RelocationAnswer::State;
  static_assert(static_cast<int>(State::kDone) == static_cast<int>(Relocation::State::kDone));
  answer(link, request.id,
         wire::RelocationAnswer{task->moves(), static_cast<State>(task->state),
                                (now_ns_ - task->begun_ns) / kMs,
                                (now_ns_ - task->changed_ns) / kMs, task->node, task->message});
}

}  // namespace mc::metadata
