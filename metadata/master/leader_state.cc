// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/leader_state.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libmc/base/clock.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kCopyTimeoutNs = 30'000 * kMs;
constexpr std::uint64_t kDropTimeoutNs = 10'000 * kMs;
// A turn of the loop shall take less than a millisecond. It visits at most this many buckets (15
// slots each).
constexpr std::uint64_t kSweepBuckets = 4096;
constexpr std::uint64_t kWalkBuckets = 1024;
constexpr std::uint64_t kRemovalsAhead = 1u << 20;
constexpr std::size_t kMaxFanouts = 1024;
// The share of kMaxFanouts for orders that no caller waits for.
constexpr std::size_t kMaxQuietFanouts = kMaxFanouts / 2;
constexpr std::size_t kMaxPatternRemovals = 1024;
constexpr std::size_t kCatchUpWindow = 8;
constexpr std::uint32_t kLocateSample = 8;  // one locate in eight is sampled, and counts for eight

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

MembershipOptions membership_options(const MasterOptions& options) {
  MembershipOptions membership;
  membership.suspect_after_ns = options.suspect_ms * kMs;
  membership.gone_after_ns = options.gone_ms * kMs;
  // The shorter silences after peers' reports keep the proportions of membership.h.
  membership.gone_after_one_report_ns = membership.gone_after_ns * 7 / 10;
  membership.gone_after_two_reports_ns = membership.gone_after_ns / 2;
  membership.suspect_after_one_report_ns = membership.suspect_after_ns / 2;
  membership.max_members = static_cast<std::uint32_t>(options.max_nodes);
  return membership;
}

// One order for each host. An order names each key once.
std::map<NodeId, std::string> drop_orders(const std::vector<Holding>& holdings,
                                          std::uint64_t removal) {
  std::map<NodeId, std::map<KeyHash, std::uint64_t>> of;
  for (const Holding& holding : holdings) {
    std::uint64_t& version = of[holding.node][holding.hash];
    version = std::max(version, holding.version);
  }
  std::map<NodeId, std::string> bodies;
  for (const auto& [node, keys] : of) {
    wire::Drop order;
    order.removal = removal;
    for (const auto& [hash, version] : keys) order.items.push_back({hash, version});
    wire::encode(order, bodies[node]);
  }
  return bodies;
}

std::string member_key(NodeId node) { return std::string(kMembersPrefix) + std::to_string(node); }

}  // namespace

LeaderState::LeaderState(const MasterOptions& options, const Term& term, Outside outside,
                         std::uint64_t now_ns)
    : options_(options),
      epoch_(term.epoch),
      outside_(std::move(outside)),
      recover_until_ns_(now_ns + options.recover_ms * kMs),
      now_ns_(now_ns),
      directory_(directory_options(options, term)),
      membership_(membership_options(options)),
      repair_({}),
      fanout_([this](NodeId node) { return link_of(node); }, term.epoch, kMaxFanouts),
      patterns_(kMaxPatternRemovals),
      hot_({}),
      absence_(term, outside_.save),
      removals_saved_(term.removals) {
  for (const Entry& entry : term.members) {
    Descriptor descriptor;
    if (!wire::decode(entry.value, descriptor).ok()) continue;
    if (directory_.expect(descriptor.node).ok()) {
      expected_[descriptor.node] = descriptor.incarnation;
      absence_.unheard(descriptor.node);
    }
  }
  directory_.bury(absence_.removed_before());
  note_removals();
}

std::shared_ptr<rpc::Link> LeaderState::link_of(NodeId node) const {
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
  if (!waiting_.empty()) answer_waiting();
  fanout_.tick(now_ns);
  catch_all_up();
  if (directory_.unswept() > 0 || directory_.resizing()) directory_.sweep(kSweepBuckets);
  refresh_views();
  repair();
  advance_drains();
  advance_hot();
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
    if (event.what == MemberEvent::kJoined) repair_.request_pass();
  }
  if (!events.empty()) refresh_views();
}

void LeaderState::gone(NodeId node, Incarnation incarnation) {
  // If a newer incarnation has already joined, only the old incarnation's entries are removed.
  if (!directory_.leave(node, incarnation)) return;
  links_.erase(node);
  drains_.erase(node);
  catching_up_.erase(node);
  hot_.node_gone(node);
  repair_.node_gone(node, now_ns_);
  repair_.request_pass();
  for (auto& [drained, draining] : drains_) draining.planner->node_gone(node);
  absence_.gone(node);
  outside_.save(member_key(node), std::nullopt, nullptr);
  // A newer incarnation may have kept the pool; it gets the order after its join. If the node is
  // gone, orders that waited only for this node are complete now.
  if (membership_.find(node) == nullptr) fanout_.fenced(node);
}

// Members of the last leader that have not come. Their state is unknown, and the heartbeats are
// long overdue.
void LeaderState::expire_expected() {
  for (const auto& [node, incarnation] : std::exchange(expected_, {})) {
    if (membership_.find(node) != nullptr) continue;
    spdlog::warn("event=member what=missing node={} incarnation={}", node, incarnation);
    gone(node, incarnation);
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
         .draining = member.load.draining || drains_.contains(about.node),
         // A node without a link cannot receive orders and may be dead already.
         .suspected = member.state == MemberState::kSuspected || link_of(about.node) == nullptr});
  }
}

void LeaderState::repair() {
  if (recovering(now_ns_) || repair_.idle()) return;
  repair_.scan(directory_, kWalkBuckets, now_ns_);
  std::vector<CopyJob> jobs;
  repair_.plan(directory_, views_, now_ns_, jobs);
  for (const CopyJob& job : jobs) {
    copy(job,
         [this, hash = job.hash](bool ok) { repair_.finished(directory_, hash, ok, now_ns_); });
  }
}

void LeaderState::advance_drains() {
  if (recovering(now_ns_)) return;
  for (auto& [node, draining] : drains_) {
    DrainOrders orders;
    draining.planner->advance(directory_, views_, kWalkBuckets, now_ns_, orders);
    for (const CopyJob& job : orders.copies) {
      copy(job, [this, drained = node, hash = job.hash](bool ok) {
        const auto found = drains_.find(drained);
        if (found != drains_.end()) found->second.planner->finished(hash, ok);
      });
    }
    release(orders.releases);
  }
}

void LeaderState::advance_hot() {
  if (recovering(now_ns_)) return;
  CopyAndRelease orders;
  hot_.advance(directory_, views_, now_ns_, orders);
  for (const CopyJob& job : orders.copies) {
    copy(job, [this, hash = job.hash](bool ok) { hot_.finished(hash, ok, now_ns_); });
  }
  release(orders.releases);
}

// The directory forgets the holding before the order is sent. Otherwise the next release could
// count on this holder as a remaining one.
void LeaderState::release(const std::vector<Holding>& holdings) {
  for (const Holding& holding : holdings) directory_.release(holding);
  drop(holdings, 0);
}

// Samples at random, because batches repeat.
void LeaderState::note_located(KeyHash key) {
  sample_ ^= sample_ << 13;
  sample_ ^= sample_ >> 17;
  sample_ ^= sample_ << 5;
  if (sample_ % kLocateSample == 0) hot_.note(key, kLocateSample);
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
               now_ns_ + kCopyTimeoutNs, epoch_,
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

// done is not called after this leadership has ended.
void LeaderState::copy(const CopyJob& job, std::function<void(bool ok)> done) {
  const auto link = link_of(job.target);
  const Member* source = membership_.find(job.source);
  if (link == nullptr || source == nullptr) {
    done(false);
    return;
  }
  std::string body;
  wire::encode(wire::Copy{job.hash, job.version, job.bytes, job.source, source->descriptor.address,
                          job.parts, job.part},
               body);
  link->call(
      static_cast<std::uint8_t>(wire::Method::kCopy), std::move(body), now_ns_ + kCopyTimeoutNs,
      epoch_,
      [weak = std::weak_ptr(alive_), done = std::move(done)](const Result<rpc::Answer>& answer) {
        if (weak.lock() != nullptr) done(answer.has_value() && answer->status == 0);
      });
}

// A busy agent gets the order again. If a link is lost, the report that follows finds the
// leftovers.
void LeaderState::drop(const std::vector<Holding>& holdings, std::uint64_t removal,
                       std::function<void()> finish) {
  std::vector<Holding> linked = holdings;
  std::erase_if(linked, [this](const Holding& one) { return link_of(one.node) == nullptr; });
  if (fanout_.open() < kMaxQuietFanouts) {
    order_drops(linked, removal, now_ns_ + kDropTimeoutNs, [finish](std::uint32_t) {
      if (finish) finish();
    });
    return;
  }
  for (auto& [node, body] : drop_orders(linked, removal)) {
    link_of(node)->call(static_cast<std::uint8_t>(wire::Method::kDrop), std::move(body),
                        now_ns_ + kDropTimeoutNs, epoch_, [](const Result<rpc::Answer>&) {});
  }
  if (finish) finish();
}

void LeaderState::order_drops(const std::vector<Holding>& holdings, std::uint64_t removal,
                              std::uint64_t deadline_ns, Fanout::Finish finish) {
  open_drops_.begin(holdings);
  fanout_.start(static_cast<std::uint8_t>(wire::Method::kDrop), drop_orders(holdings, removal),
                deadline_ns, nullptr,
                [this, holdings, finish = std::move(finish)](std::uint32_t unconfirmed) {
                  open_drops_.end(holdings);
                  finish(unconfirmed);
                });
}

// No caller waits for these orders any more, but a later removal of the same keys must.
void LeaderState::go_on_dropping(const std::vector<Holding>& holdings, std::uint64_t removal) {
  if (fanout_.open() >= kMaxQuietFanouts) return;
  order_drops(holdings, removal, now_ns_ + kDropTimeoutNs, [](std::uint32_t) {});
}

void LeaderState::on_cancel(rpc::Link& link, std::uint32_t id) {
  waiting_.remove_if(
      [&](const Waiting& each) { return each.id == id && each.link.lock().get() == &link; });
}

void LeaderState::on_closed(rpc::Link& link) {
  const auto* speaker = static_cast<Speaker*>(link.attachment.get());
  if (speaker == nullptr || speaker->joined_to != this) return;
  const auto found = links_.find(speaker->node);
  if (found == links_.end() || found->second.lock().get() != &link) return;
  links_.erase(found);
  absence_.unheard(speaker->node);
}

}  // namespace mc::metadata
