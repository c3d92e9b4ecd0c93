// SPDX-License-Identifier: Apache-2.0
#include "agent/tiering/tiered_pools.h"

#include <algorithm>

#include "libmc/base/failpoint.h"

namespace mc::agent {

TieredPools::TieredPools(tier::Log& log, std::uint64_t bytes_per_day, std::uint64_t now_ns)
    : log_(log),
      demoter_(log, Admission(bytes_per_day, log.written_bytes(), now_ns)),
      reads_(log, demoter_),
      now_ns_(now_ns) {}

TieredPools::~TieredPools() {
  for (auto& [tenant, pool] : pools_) pool->store().set_demotion(nullptr);
}

bool TieredPools::Pool::begin(const Leaving& object) {
  const bool held = pools.demoter_.begin(*this, object, pools.now_ns_);
  pools.new_work_ = pools.new_work_ || held;
  return held;
}

void TieredPools::add_tenant(const std::shared_ptr<Tenant>& tenant) {
  auto pool = std::make_unique<Pool>(*this);
  pool->tenant = tenant;
  pool->id = namespace_id(tenant->name);
  tenant->store->set_demotion(pool.get());
  tenant->on_disks = true;
  pools_[tenant.get()] = std::move(pool);
}

bool TieredPools::has(const Tenant& tenant, std::string_view key) const {
  const Pool& pool = pool_of(tenant);
  if (demoter_.find(pool, key) != kNoEntry) return true;
  const tier::TierEntry* const entry = log_.find(key, pool.id);
  return entry != nullptr && entry->flags == 0;
}

void TieredPools::begin(const std::shared_ptr<RemoteRequest>& request, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  Pool& pool = pool_of(*request->tenant);
  request->open_count = request->items.size();
  if (request->kind == RemoteRequest::Kind::kRemove) {
    for (std::size_t i = 0; i < request->items.size(); ++i) remove(pool, request, i);
  } else {
    reads_.begin(pool, request, now_ns);
  }
  new_work_ = true;
}

void TieredPools::created(const Tenant& tenant, std::string_view key) {
  if (!log_.recovering()) return;
  remove_unheard(log_, key, pool_of(tenant).id);
  new_work_ = true;
}

void TieredPools::forget(const std::shared_ptr<RemoteRequest>& request, std::size_t item) {
  remove(pool_of(*request->tenant), request, item);
  new_work_ = true;
}

// kRemove: the object leaves the pool and the disks. kForget: the pool has a later object, and only the disks
// are asked.
void TieredPools::remove(Pool& pool, const std::shared_ptr<RemoteRequest>& request,
                         std::size_t number) {
  RemoteRequest::Item& item = request->items[number];
  // While the disks are being read, nobody knows what is there.
  bool was_there = request->kind == RemoteRequest::Kind::kForget || log_.recovering() ||
                   has(*pool.tenant, item.key);
  const auto ticket = log_.remove(item.key, pool.id);
  if (!ticket) return request->settle(item, MC_BUSY);
  demoter_.forget(pool, item.key);
  MC_FAILPOINT("remove.after_log");
  if (request->kind == RemoteRequest::Kind::kRemove) {
    was_there = pool.store().remove(item.key) || was_there;
  }
  if (!*ticket) return request->settle(item, was_there ? MC_OK : MC_NOT_FOUND);
  removals_[**ticket] = {request, number, was_there};
}

void TieredPools::end_removal(const tier::LogEnd& end) {
  const auto removal = removals_.extract(end.ticket);
  if (removal.empty()) return;
  const auto& [request, item, was_there] = removal.mapped();
  const bool done = end.outcome == tier::LogEnd::Outcome::kDone;
  const mc_status status = !done ? MC_DISK_AWAY : was_there ? MC_OK : MC_NOT_FOUND;
  request->settle(request->items[item], status);
  settled_ = true;
}

bool TieredPools::advance(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  ends_.clear();
  log_.take_ended(ends_);
  for (const tier::LogEnd& end : ends_) {
    if (!demoter_.end(end) && !reads_.end(end, now_ns)) end_removal(end);
  }
  reads_.advance(now_ns);
  const bool read = reads_.take_settled();
  return std::exchange(settled_, false) || read;
}

std::uint64_t TieredPools::next_ns() const {
  return std::min(log_.next_work_ns(), reads_.next_ns());
}

}  // namespace mc::agent
