// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/publish/replica_waits.h"

#include <algorithm>
#include <map>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

// A question occupies a place on the link to the master; most places are for other requests.
constexpr std::size_t kMostAsking = 64;
constexpr std::uint64_t kMostAskingNs = 1'000 * kMs;
constexpr std::uint64_t kAwaitAgainNs = 20 * kMs;

}  // namespace

void ReplicaWaits::begin(const std::shared_ptr<RemoteRequest>& remote_request,
                         ClusterTenant& tenant) {
  std::map<std::uint32_t, std::vector<ReplicaWait::Awaited>> parts;  // by partition
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    const metadata::KeyHash name = tenant.name_of(remote_request->items[i].key);
    parts[masters_.partition_of(name)].push_back({i, name});
  }
  for (auto& [partition, awaited] : parts) {
    auto wait = std::make_unique<ReplicaWait>(*this, remote_request, partition);
    wait->awaited = std::move(awaited);
    operations_.begin(std::move(wait), &tenant);
  }
}

void ReplicaWait::step() { waits.step(*this); }
void ReplicaWait::cancel() { waits.end(*this, MC_NOT_FOUND); }

void ReplicaWaits::step(ReplicaWait& wait) {
  const RemoteRequest& remote_request = *wait.remote_request;
  const std::uint64_t now_ns = operations_.now_ns();
  if (remote_request.abandoned) return operations_.end(wait);
  if (wait.at == Step::kAsking) {
    if (!wait.answer) return;  // the master's link answers in time
    take_answer(wait);
    if (wait.over()) return;
  }
  const MasterPort& port = masters_.at(wait.partition);
  if (now_ns >= remote_request.answer_by_ns) {
    return end(wait, port.ready() ? MC_TIMEOUT : port.away());
  }
  if (now_ns >= wait.not_before_ns) {
    if (port.ready() && asking_ < kMostAsking) return ask(wait);
    wait.not_before_ns = now_ns + kAwaitAgainNs;
  }
  operations_.wake_at(wait, std::min(wait.not_before_ns, remote_request.answer_by_ns));
}

void ReplicaWaits::ask(ReplicaWait& wait) {
  const std::uint64_t now_ns = operations_.now_ns();
  // Announce the objects before the question.
  announcer_.flush(now_ns);
  wire::AwaitReplicas request;
  for (const ReplicaWait::Awaited& each : wait.awaited) {
    request.keys.push_back({each.name, wait.remote_request->items[each.item].replicas});
  }
  wait.at = Step::kAsking;
  ++asking_;
  masters_.at(wait.partition)
      .await_replicas(request, std::min(wait.remote_request->answer_by_ns, now_ns + kMostAskingNs),
                      [this, id = wait.id()](const Result<wire::AwaitReplicasAnswer>& answer) {
                        --asking_;
                        ReplicaWait* const asked = operations_.find<ReplicaWait>(id);
                        if (asked == nullptr) return;
                        asked->answer = answer;
                        operations_.wake(*asked);
                      });
}

void ReplicaWaits::take_answer(ReplicaWait& wait) {
  using State = metadata::AwaitedState;
  const Result<wire::AwaitReplicasAnswer> answer = *std::exchange(wait.answer, std::nullopt);
  wait.at = Step::kAsk;
  if (!answer) {
    if (answer.error().code() == MC_UNSUPPORTED) return end(wait, MC_UNSUPPORTED);
    wait.not_before_ns = operations_.now_ns() + kAwaitAgainNs;
    return;
  }
  if (answer->keys.size() != wait.awaited.size()) return end(wait, MC_INTERNAL);
  std::vector<ReplicaWait::Awaited> open;
  for (std::size_t i = 0; i < wait.awaited.size(); ++i) {
    if (answer->keys[i] == State::kTooFew) {
      open.push_back(wait.awaited[i]);
      continue;
    }
    operations_.settle(*wait.remote_request, wait.remote_request->items[wait.awaited[i].item],
                       answer->keys[i] == State::kEnough ? MC_OK : MC_NOT_FOUND);
  }
  wait.awaited = std::move(open);
  if (wait.awaited.empty()) operations_.end(wait);
}

void ReplicaWaits::end(ReplicaWait& wait, mc_status status) {
  for (const ReplicaWait::Awaited& each : wait.awaited) {
    operations_.settle(*wait.remote_request, wait.remote_request->items[each.item], status);
  }
  operations_.end(wait);
}

}  // namespace mc::agent
