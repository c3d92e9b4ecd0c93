// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/awaited_replicas.h"

#include <algorithm>
#include <utility>

namespace mc::metadata {

namespace {

// A turn of the loop shall take less than a millisecond.
constexpr std::size_t kLooksPerTick = 2048;

}  // namespace

void AwaitedReplicas::begin(const std::vector<AwaitedKey>& keys, bool settled,
                            std::uint64_t deadline_ns, Done done) {
  const auto begun = requests_.emplace(requests_.end());
  begun->keys = keys;
  begun->states.resize(keys.size());
  begun->deadline_ns = deadline_ns;
  begun->done = std::move(done);
  for (std::uint32_t number = 0; number < keys.size(); ++number) {
    const AwaitedKey& key = keys[number];
    begun->states[number] = state_of(key.hash, key.replicas, settled);
    if (begun->states[number] != AwaitedState::kTooFew) continue;
    by_key_.emplace(key.hash, Awaited{begun, number, key.replicas});
    ++begun->open;
  }
  if (begun->open == 0) end(begun);
}

AwaitedState AwaitedReplicas::state_of(KeyHash key, std::uint8_t replicas, bool settled) const {
  const KeyView known = directory_.about(key);
  if (known.holder_count == 0) return settled ? AwaitedState::kGone : AwaitedState::kTooFew;
  for (unsigned part = 0; part < known.part_count(); ++part) {
    if (known.holders_of(part).size() < replicas) return AwaitedState::kTooFew;
  }
  return AwaitedState::kEnough;
}

void AwaitedReplicas::look(KeyHash key, bool settled) {
  const auto [first, last] = by_key_.equal_range(key);
  for (auto at = first; at != last;) {
    const Awaited awaited = at->second;
    const AwaitedState state = state_of(key, awaited.replicas, settled);
    if (state == AwaitedState::kTooFew) {
      ++at;
      continue;
    }
    at = by_key_.erase(at);
    awaited.request->states[awaited.number] = state;
    if (--awaited.request->open == 0) end(awaited.request);
  }
}

void AwaitedReplicas::published(std::span<const PublishItem> items, bool settled) {
  if (by_key_.empty()) return;
  for (const PublishItem& item : items) look(item.hash, settled);
}

void AwaitedReplicas::tick(bool settled, std::uint64_t now_ns) {
  if (requests_.empty()) return;
  for (std::size_t looks = 0; looks < std::min(kLooksPerTick, by_key_.size() + 1); ++looks) {
    const auto at = by_key_.upper_bound(next_look_);
    next_look_ = at == by_key_.end() ? KeyHash{} : at->first;
    if (at != by_key_.end()) look(at->first, settled);
  }
  for (auto at = requests_.begin(); at != requests_.end();) {
    const auto request = at++;
    if (now_ns < request->deadline_ns) continue;
    for (const AwaitedKey& key : request->keys) {
      const auto [first, last] = by_key_.equal_range(key.hash);
      for (auto each = first; each != last;) {
        each = each->second.request == request ? by_key_.erase(each) : std::next(each);
      }
    }
    end(request);
  }
}

void AwaitedReplicas::end(Requests::iterator request) {
  const Request ended = std::move(*request);
  requests_.erase(request);
  ended.done(ended.states);
}

}  // namespace mc::metadata
