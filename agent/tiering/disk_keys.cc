// SPDX-License-Identifier: Apache-2.0
#include "agent/tiering/disk_keys.h"

namespace mc::agent {

DiskKeys::Next DiskKeys::go_on(const Visit& visit) {
  constexpr std::size_t kOnTheWayAtOnce = 64;
  if (on_the_way_) {
    on_the_way_ = demoter_.walk(pool_, *on_the_way_, kOnTheWayAtOnce,
                                [&](const SharedObject& object, std::string_view key) {
                                  if (want_keys_) visited_.insert(hash_of(key));
                                  visit(object, key);
                                });
    return Next::kMore;
  }
  if (!want_keys_) return go_on_without_keys(visit);
  if (!begun_) {
    if (log_.recovering()) return Next::kWaits;
    begun_ = true;
    disks_ = log_.walk_keys();
  }
  if (disks_.empty()) return Next::kOver;
  const auto next =
      disks_.front().go_on([&](const tier::KeyWalk::Object& object) { look_at(object, visit); });
  if (next == tier::KeyWalk::Next::kWaits) return Next::kWaits;
  if (next == tier::KeyWalk::Next::kOver) disks_.pop_front();
  return Next::kMore;
}

DiskKeys::Next DiskKeys::go_on_without_keys(const Visit& visit) {
  constexpr std::uint32_t kEntriesAtOnce = 256;
  if (log_.recovering()) return Next::kWaits;
  if (next_entry_ == tier::kNoEntry) return Next::kOver;
  next_entry_ = log_.walk(next_entry_, kEntriesAtOnce, [&](const tier::TierEntry& entry) {
    look_at({.entry = entry, .namespace_id = log_.namespace_of(entry)}, visit);
  });
  return Next::kMore;
}

void DiskKeys::look_at(const tier::KeyWalk::Object& object, const Visit& visit) const {
  if (object.namespace_id != pool_.id) return;
  const tier::TierEntry& entry = object.entry;
  if (!object.key.empty() && pool_.shared != nullptr &&
      pool_.object(object.key).given != entry.key()) {
    return;
  }
  if (!visited_.empty() && visited_.contains(hash_of(object.key))) return;
  visit(shared_object(entry.key(), entry.version, entry.length, entry.marks), object.key);
}

}  // namespace mc::agent
