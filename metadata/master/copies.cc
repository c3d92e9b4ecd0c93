// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/copies.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "metadata/rpc/rpc_link.h"
#include "metadata/wire/codec.h"
#include "metadata/wire/method.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kCopyTimeoutNs = 30'000 * kMs;
// A turn of the loop shall take less than a millisecond. It visits at most this many buckets (15
// slots each) for repair, and for each drain.
constexpr std::uint64_t kRepairBuckets = 4096;
constexpr std::uint64_t kDrainBuckets = 1024;
constexpr std::uint64_t kDrainBucketsAfterCopy = 16;
constexpr std::uint32_t kLocateSample = 8;  // one locate in eight is sampled, and counts for eight
// Keys to examine when a copy has ended. Most of the time the first one can begin.
constexpr std::uint32_t kLooksAfterCopy = 4;

}  // namespace

void Copies::tick(bool settled, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  settled_ = settled;
  if (!settled) return;
  if (!repair_.idle()) {
    repair_.scan(around_.directory, kRepairBuckets, now_ns_);
    begin_repairs(RepairPlanner::kLooks);
  }
  for (auto& [node, planner] : drains_) advance_drain(planner, kDrainBuckets);
  advance_relocations();
  advance_hot();
}

void Copies::published(std::span<const PublishItem> items, std::span<const Verdict> verdicts,
                       std::uint64_t now_ns) {
  now_ns_ = now_ns;
  std::uint32_t lacking = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const PublishItem& item = items[i];
    if (item.what == PublishItem::What::kDropped || item.attributes.replicas == 1) continue;
    if (verdicts[i] != Verdict::kAccepted) continue;
    repair_.lacks(item, now_ns_);
    ++lacking;
  }
  if (lacking != 0) begin_repairs(lacking);
}

void Copies::await(std::span<const AwaitedKey> keys, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  std::uint32_t lacking = 0;
  for (const AwaitedKey& key : keys) {
    if (!around_.directory.want_replicas(key.hash, key.replicas)) continue;
    const KeyView raised = around_.directory.about(key.hash);
    repair_.lacks({.hash = key.hash, .bytes = raised.bytes, .attributes = raised.attributes},
                  now_ns_);
    ++lacking;
  }
  if (lacking != 0) begin_repairs(lacking);
}

// Samples at random, because batches repeat.
void Copies::located(KeyHash key) {
  sample_ ^= sample_ << 13;
  sample_ ^= sample_ >> 17;
  sample_ ^= sample_ << 5;
  if (sample_ % kLocateSample == 0) hot_.note(key, kLocateSample);
}

void Copies::node_gone(NodeId node, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  drains_.erase(node);
  hot_.node_gone(node);
  repair_.node_gone(node, now_ns);
  repair_.request_pass();
  for (auto& [drained, planner] : drains_) planner.node_gone(node);
}

// A job that cannot be ordered ends at once, while the jobs of the same plan are being ordered.
// The same is true of the jobs of a drain.
void Copies::begin_repairs(std::uint32_t looks) {
  if (!settled_ || std::exchange(beginning_repairs_, true)) return;
  std::vector<CopyJob> jobs;
  repair_.plan(around_.directory, around_.views, now_ns_, jobs, looks);
  for (const CopyJob& job : jobs) {
    order(job, [this, hash = job.hash](bool ok) {
      repair_.finished(around_.directory, hash, ok, now_ns_);
      begin_repairs(kLooksAfterCopy);
    });
  }
  beginning_repairs_ = false;
}

const DrainProgress& Copies::drain(const wire::Drain& wanted) {
  DrainOptions options;
  options.targets = wanted.targets;
  if (wanted.max_jobs != 0) {
    options.limits.max_in_flight = std::min(options.limits.max_in_flight, wanted.max_jobs);
  }
  return drains_.try_emplace(wanted.node, wanted.node, options).first->second.progress();
}

bool Copies::drained(NodeId node) const {
  const auto found = drains_.find(node);
  // The node may have put objects since the last pass.
  return found != drains_.end() && found->second.progress().done &&
         around_.directory.reported(node) && around_.directory.entry_count(node) == 0;
}

void Copies::advance_drain(DrainPlanner& planner, std::uint64_t buckets) {
  if (!settled_ || std::exchange(advancing_drain_, true)) return;
  CopyAndRelease orders;
  planner.advance(around_.directory, around_.views, buckets, now_ns_, orders);
  for (const CopyJob& job : orders.copies) {
    order(job, [this, drained = planner.node(), hash = job.hash](bool ok) {
      const auto found = drains_.find(drained);
      if (found == drains_.end()) return;
      found->second.finished(hash, ok);
      advance_drain(found->second, kDrainBucketsAfterCopy);
    });
  }
  release(orders.releases);
  advancing_drain_ = false;
}

Result<std::uint64_t> Copies::relocate(const wire::Relocate& wanted, std::uint64_t now_ns) {
  return relocations_.begin({wanted.key, wanted.source, wanted.targets}, around_.directory,
                            around_.views, now_ns);
}

void Copies::advance_relocations() {
  CopyAndRelease orders;
  relocations_.advance(around_.directory, around_.views, now_ns_, orders);
  for (const CopyJob& job : orders.copies) {
    order(job, [this, hash = job.hash](bool ok) {
      relocations_.finished(around_.directory, hash, ok, now_ns_);
    });
  }
  release(orders.releases);
}

void Copies::advance_hot() {
  CopyAndRelease orders;
  hot_.advance(around_.directory, around_.views, now_ns_, orders);
  for (const CopyJob& job : orders.copies) {
    order(job, [this, hash = job.hash](bool ok) { hot_.finished(hash, ok, now_ns_); });
  }
  release(orders.releases);
}

// The directory forgets the holding before the order is sent. Otherwise the next release could
// count on this holder as a remaining one.
void Copies::release(const std::vector<Holding>& holdings) {
  for (const Holding& holding : holdings) around_.directory.release(holding);
  around_.drops.release(holdings);
}

// done is not called after this leadership has ended.
void Copies::order(const CopyJob& job, std::function<void(bool ok)> done) {
  const auto link = link_of_(job.target);
  const Member* source = around_.membership.find(job.source);
  if (link == nullptr || source == nullptr) {
    done(false);
    return;
  }
  ++around_.counters.copies;
  std::string body;
  wire::encode(wire::Copy{job.hash, job.version, job.bytes, job.source, source->descriptor.address,
                          job.parts, job.part},
               body);
  link->call(static_cast<std::uint8_t>(wire::Method::kCopy), std::move(body),
             now_ns_ + kCopyTimeoutNs, epoch_,
             [this, weak = std::weak_ptr(alive_),
              done = std::move(done)](const Result<rpc::Answer>& answer) {
               if (weak.lock() == nullptr) return;
               const bool ok = answer.has_value() && answer->status == 0;
               around_.counters.failed_copies += ok ? 0 : 1;
               done(ok);
             });
}

}  // namespace mc::metadata
