// SPDX-License-Identifier: Apache-2.0
#include "agent/tiering/tiered_pools.h"

#include <algorithm>

#include "libmc/base/failpoint.h"

namespace mc::agent {

TieredPools::TieredPools(tier::Log& log, std::uint64_t bytes_per_day, std::uint64_t now_ns)
    : log_(log),
      demoter_(log, Admission(bytes_per_day, log.written_bytes(), now_ns)),
      reads_(log, demoter_),
      listings_(log, demoter_),
      now_ns_(now_ns) {}

TieredPools::~TieredPools() {
  for (auto& [tenant, pool] : pools_) pool->store().set_demotion(nullptr);
}

bool TieredPools::Pool::begin(const Leaving& object) {
  const bool held = pools.demoter_.begin(*this, object, pools.now_ns_);
  pools.new_work_ = pools.new_work_ || held;
  return held;
}

void TieredPools::add_tenant(const std::shared_ptr<Tenant>& tenant, SharedObjects* shared) {
  auto pool = std::make_unique<Pool>(*this);
  pool->tenant = tenant;
  pool->shared = shared;
  pool->id = shared != nullptr ? shared->id() : namespace_id(tenant->name);
  log_.know_namespace(pool->id);
  tenant->store->set_demotion(pool.get());
  tenant->on_disks = true;
  pools_[tenant.get()] = std::move(pool);
}

bool TieredPools::has(const Tenant& tenant, std::string_view key) const {
  const Pool& pool = pool_of(tenant);
  const tier::ObjectName object = pool.object(key);
  if (demoter_.find(pool, pool.hash(object), object) != kNoEntry) return true;
  const tier::TierEntry* const entry = log_.find(object);
  return entry != nullptr && entry->flags == 0;
}

void TieredPools::begin(const std::shared_ptr<RemoteRequest>& request, std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  Pool& pool = pool_of(*request->tenant);
  request->open_count = request->items.size();
  if (request->kind == RemoteRequest::Kind::kRemove) {
    for (std::size_t i = 0; i < request->items.size(); ++i) remove(pool, request, i);
  } else {
    for (std::size_t i = 0; i < request->items.size(); ++i) {
      reads_.begin(pool, request, i, now_ns);
    }
  }
  new_work_ = true;
}

void TieredPools::begin_item(const std::shared_ptr<RemoteRequest>& request, std::size_t item,
                             std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  reads_.begin(pool_of(*request->tenant), request, item, now_ns_);
  new_work_ = true;
}

void TieredPools::created(const Tenant& tenant, std::string_view key) {
  if (!log_.recovering()) return;
  remove_unheard(log_, pool_of(tenant).object(key));
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
  const tier::ObjectName object = pool.object(item.key);
  const auto ticket = log_.remove(object);
  if (!ticket) return request->settle(item, MC_BUSY);
  demoter_.forget(pool, pool.hash(object), object);
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

// ---- Objects of clusters ------------------------------------------------------------------------

std::uint64_t TieredPools::version_of(const SharedName& name) const {
  const auto latest = log_.latest({.given = tier_key_of(name)});
  return latest && latest->readable ? latest->version : 0;
}

std::shared_ptr<Tenant> TieredPools::tenant_of(const SharedName& name) const {
  const tier::ObjectName object{.given = tier_key_of(name)};
  const tier::TierEntry* const entry = log_.find(object);
  for (const auto& [tenant, pool] : pools_) {
    if (pool->shared == nullptr) continue;
    const bool is_here = entry != nullptr
                             ? log_.namespace_of(*entry) == pool->id
                             : demoter_.find(*pool, object.given->hash, object) != kNoEntry;
    if (is_here) return pool->tenant;
  }
  return nullptr;
}

void TieredPools::announced(const SharedName& name, std::uint64_t version) {
  const tier::ObjectName object{.given = tier_key_of(name)};
  for (const auto& [tenant, pool] : pools_) {
    if (pool->shared != nullptr) demoter_.announced(*pool, object, version);
  }
  const tier::TierEntry* const entry = log_.find(object);
  if (entry == nullptr || entry->version != version) return;
  SharedObject known = shared_object(entry->key(), version, entry->length, entry->marks);
  known.unannounced = VersionBook::Unannounced::kNo;
  log_.set_marks(object, marks_of(known));
}

void TieredPools::drop(const SharedName& name, std::uint64_t up_to_version, Dropped done) {
  Drop drop{name, up_to_version, std::move(done)};
  if (!waiting_drops_.empty() || !begin(drop)) waiting_drops_.push_back(std::move(drop));
}

// Returns false if the drop must wait. While the disks are being read, nobody knows which versions they have.
bool TieredPools::begin(Drop& drop) {
  const tier::ObjectName object{.given = tier_key_of(drop.name)};
  const auto latest = log_.latest(object);
  if (latest && latest->version > drop.up_to_version) {
    if (!drop.done) return true;
    // With the record of the later object, the removal of the earlier one becomes durable.
    if (const auto put = put_of(object)) {
      drops_behind_puts_.emplace(*put, std::move(drop));
    } else {
      drop.done(true);
    }
    return true;
  }
  // Another drop may have begun a removal.
  const auto under_way = latest ? dropping_.end() : dropping_.find(drop.name.lo);
  if (under_way != dropping_.end()) {
    Dropping& removal = drops_.at(under_way->second);
    if (removal.name == drop.name) {
      if (drop.done) removal.done.push_back(std::move(drop.done));
      return true;
    }
  }
  // A disk that failed may have objects that nobody knows any more, so the log decides.
  const auto ticket = log_.remove(object);
  if (!ticket) return false;
  new_work_ = true;
  for (const auto& [tenant, pool] : pools_) {
    if (pool->shared != nullptr) demoter_.forget(*pool, object.given->hash, object);
  }
  if (!*ticket) {
    if (drop.done) drop.done(true);
    return true;
  }
  Dropping& removal = drops_[**ticket];
  removal.name = drop.name;
  if (drop.done) removal.done.push_back(std::move(drop.done));
  dropping_[drop.name.lo] = **ticket;
  return true;
}

// The ticket of the object's put that is under way.
std::optional<std::uint64_t> TieredPools::put_of(const tier::ObjectName& object) const {
  for (const auto& [tenant, pool] : pools_) {
    if (pool->shared == nullptr) continue;
    if (const auto put = demoter_.put_of(*pool, object)) return put;
  }
  return std::nullopt;
}

// The put may have ended without the later object.
void TieredPools::begin_drops_behind(std::uint64_t put) {
  const auto [first, last] = drops_behind_puts_.equal_range(put);
  std::vector<Drop> behind;
  for (auto at = first; at != last; ++at) behind.push_back(std::move(at->second));
  drops_behind_puts_.erase(first, last);
  for (Drop& drop : behind) {
    if (!begin(drop)) waiting_drops_.push_back(std::move(drop));
  }
}

void TieredPools::begin_waiting_drops() {
  constexpr int kAtOnce = 256;
  for (int i = 0; i < kAtOnce && !waiting_drops_.empty(); ++i) {
    Drop& drop = waiting_drops_.front();
    const std::uint64_t version = version_of(drop.name);
    const std::shared_ptr<Tenant> tenant = tenant_of(drop.name);
    if (!begin(drop)) return;
    // The object may have come into the pool meanwhile, and the master was not told that it leaves the disks.
    if (tenant != nullptr && version <= drop.up_to_version) {
      SharedObjects& shared = *pool_of(*tenant).shared;
      shared.leave_pool(drop.name, drop.up_to_version);
      shared.left_disks(drop.name, version);
    }
    waiting_drops_.pop_front();
  }
}

bool TieredPools::end_drop(const tier::LogEnd& end) {
  const auto drop = drops_.extract(end.ticket);
  if (drop.empty()) return false;
  const auto under_way = dropping_.find(drop.mapped().name.lo);
  if (under_way != dropping_.end() && under_way->second == end.ticket) dropping_.erase(under_way);
  for (const Dropped& done : drop.mapped().done) {
    done(end.outcome == tier::LogEnd::Outcome::kDone);
  }
  return true;
}

// First the objects on their way, by ticket. From kOnDisks on, the position is a number of the catalog.
std::optional<std::uint64_t> TieredPools::walk(const Tenant& tenant, std::uint64_t position,
                                               const Visit& visit) const {
  constexpr std::uint64_t kOnDisks = std::uint64_t{1} << 63;
  constexpr std::uint32_t kAtOnce = MC_MAX_BATCH_ITEMS;
  const Pool& pool = pool_of(tenant);
  if (position < kOnDisks) {
    const auto visit_object = [&](const SharedObject& object, std::string_view) { visit(object); };
    return demoter_.walk(pool, position, kAtOnce, visit_object).value_or(kOnDisks);
  }
  const auto from = static_cast<std::uint32_t>(position - kOnDisks);
  const std::uint32_t next = log_.walk(from, kAtOnce, [&](const tier::TierEntry& entry) {
    if (log_.namespace_of(entry) != pool.id) return;
    visit(shared_object(entry.key(), entry.version, entry.length, entry.marks));
  });
  return next == tier::kNoEntry ? std::nullopt : std::optional(kOnDisks + next);
}

// Objects have left the disks to make room, or with a disk.
void TieredPools::tell_dropped() {
  dropped_.clear();
  log_.take_dropped(dropped_);
  for (const tier::Dropped& object : dropped_) {
    for (const auto& [tenant, pool] : pools_) {
      if (pool->shared == nullptr || pool->id != object.namespace_id) continue;
      pool->shared->left_disks(shared_name_of(object.key), object.version);
    }
  }
}

bool TieredPools::write_pools() {
  if (!before_writing_) before_writing_ = demoter_.counters();
  if (!log_.takes_puts()) return log_.will_take_puts();
  // The pools take turns, since clients may fill one of them meanwhile.
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const auto turn = static_cast<std::ptrdiff_t>(next_written_++ % pools_.size());
    ObjectStore& store = std::next(pools_.begin(), turn)->second->store();
    const std::uint64_t all = store.pool().reserved_bytes();
    if (store.evict_towards(all) == ObjectStore::Evicting::kMore) return true;
  }
  for (const auto& [tenant, pool] : pools_) {
    if (end_some_pins(*pool)) return true;
  }
  return demoter_.counters().on_the_way_bytes > 0;
}

void TieredPools::stop_writing() {
  before_writing_.reset();
  writes_pins_ = false;
  for (const auto& [tenant, pool] : pools_) pool->next_unpinned = 0;
}

// Returns false when no entry is left.
bool TieredPools::end_some_pins(Pool& pool) {
  constexpr std::uint32_t kEntriesAtOnce = 1024;
  ObjectStore& store = pool.store();
  ObjectIndex& index = store.index();
  const auto end = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(index.entry_count(), pool.next_unpinned + kEntriesAtOnce));
  const bool more = pool.next_unpinned < end;
  for (; pool.next_unpinned < end; ++pool.next_unpinned) {
    const shm::Entry& entry = index.entry(pool.next_unpinned);
    if (shm::state_of(entry.version.load_relaxed()) != shm::EntryState::kLive) continue;
    if (key_field(entry).pin != MC_PIN_HARD) continue;
    writes_pins_ = true;
    static_cast<void>(store.set_pin(index.key_of(pool.next_unpinned), MC_PIN_NONE, 0));
  }
  return more;
}

TieredPools::Written TieredPools::written() const {
  const auto lost = [](const Demoter::Counters& counters) {
    return counters.busy + counters.saving + counters.too_large + counters.no_disk +
           counters.failed + counters.stripes;
  };
  const Demoter::Counters& now = demoter_.counters();
  const Demoter::Counters before = before_writing_.value_or(now);
  Written written{.objects = now.objects - before.objects, .lost = lost(now) - lost(before)};
  for (const auto& [tenant, pool] : pools_) written.left += pool->store().live_count();
  written.left += demoter_.on_the_way();
  return written;
}

bool TieredPools::advance(std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  tell_dropped();
  ends_.clear();
  log_.take_ended(ends_);
  for (const tier::LogEnd& end : ends_) {
    if (demoter_.end(end)) {
      begin_drops_behind(end.ticket);
    } else if (!reads_.end(end, now_ns) && !end_drop(end)) {
      end_removal(end);
    }
  }
  begin_waiting_drops();
  reads_.advance(now_ns);
  listings_.advance(now_ns);
  const bool read = reads_.take_settled();
  return std::exchange(settled_, false) || read;
}

std::uint64_t TieredPools::next_ns() const {
  return std::min({log_.next_work_ns(), reads_.next_ns(), listings_.next_ns()});
}

}  // namespace mc::agent
