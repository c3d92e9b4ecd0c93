// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/awaited_replicas.h"

#include <algorithm>
#include <utility>

namespace mc::metadata {

namespace {

// A turn of the loop shall take less than a millisecond.
constexpr std::size_t kLooksPerTick = 2048;

// The number of holders of the part that has the fewest.
std::size_t least_holders(const KeyView& known) {
  std::size_t least = SIZE_MAX;
  for (unsigned part = 0; part < known.part_count(); ++part) {
    least = std::min(least, known.holders_of(part).size());
  }
  return least;
}

AwaitedState state_of(const KeyView& known, std::size_t least, std::uint8_t replicas,
                      bool settled) {
  if (known.holder_count == 0) return settled ? AwaitedState::kGone : AwaitedState::kTooFew;
  return least >= replicas ? AwaitedState::kEnough : AwaitedState::kTooFew;
}

}  // namespace

void AwaitedReplicas::begin(const std::vector<AwaitedKey>& keys, bool settled,
                            std::uint64_t deadline_ns, Done done) {
  const auto begun = requests_.emplace(requests_.end());
  begun->deadline_ns = deadline_ns;
  begun->done = std::move(done);
  for (const AwaitedKey& key : keys) {
    const KeyView known = directory_.about(key.hash);
    const AwaitedState state = state_of(known, least_holders(known), key.replicas, settled);
    const auto number = static_cast<std::uint32_t>(begun->states.size());
    begun->states.push_back(state);
    begun->places.push_back(by_key_.end());
    if (state != AwaitedState::kTooFew) continue;
    begun->places.back() = by_key_.emplace(key.hash, Awaited{begun, number, key.replicas});
    ++begun->open;
  }
  if (begun->open == 0) end(begun);
}

std::size_t AwaitedReplicas::look(KeyHash key, bool settled) {
  auto at = by_key_.lower_bound(key);
  if (at == by_key_.end() || at->first != key) return 0;
  const KeyView known = directory_.about(key);
  const std::size_t least = least_holders(known);
  std::size_t compared = 0;
  for (; at != by_key_.end() && at->first == key; ++compared) {
    const Awaited awaited = at->second;
    const AwaitedState state = state_of(known, least, awaited.replicas, settled);
    if (state == AwaitedState::kTooFew) {
      ++at;
      continue;
    }
    at = by_key_.erase(at);
    Request& request = *awaited.request;
    request.states[awaited.number] = state;
    request.places[awaited.number] = by_key_.end();
    if (--request.open == 0) end(awaited.request);
  }
  return compared;
}

void AwaitedReplicas::published(std::span<const PublishItem> items, bool settled) {
  if (by_key_.empty()) return;
  for (const PublishItem& item : items) look(item.hash, settled);
}

void AwaitedReplicas::tick(bool settled, std::uint64_t now_ns) {
  if (requests_.empty()) return;
  for (std::size_t looks = 0; looks < std::min(kLooksPerTick, by_key_.size());) {
    auto at = by_key_.upper_bound(next_look_);
    if (at == by_key_.end()) at = by_key_.begin();
    next_look_ = at->first;
    looks += look(at->first, settled);
  }
  for (auto at = requests_.begin(); at != requests_.end();) {
    const auto request = at++;
    if (now_ns < request->deadline_ns) continue;
    for (const ByKey::iterator place : request->places) {
      if (place != by_key_.end()) by_key_.erase(place);
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
