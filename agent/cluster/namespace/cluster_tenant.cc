// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/namespace/cluster_tenant.h"

#include <algorithm>
#include <bit>

#include "libmc/base/hash.h"
#include "shm/pins.h"

namespace mc::agent {

using metadata::KeyHash;
using metadata::PublishItem;

namespace {

ClusterTenant* find_if(const ClusterTenants& tenants, const auto& matches) {
  const auto at = std::ranges::find_if(tenants, [&](const auto& one) { return matches(*one); });
  return at == tenants.end() ? nullptr : at->get();
}

}  // namespace

ClusterTenant* find_tenant(const ClusterTenants& tenants, const Tenant& tenant) {
  return find_if(tenants, [&](const ClusterTenant& one) { return one.tenant().get() == &tenant; });
}
ClusterTenant* find_tenant(const ClusterTenants& tenants, std::string_view name) {
  return find_if(tenants, [&](const ClusterTenant& one) { return one.tenant()->name == name; });
}
ClusterTenant* find_tenant(const ClusterTenants& tenants, std::uint64_t id) {
  return find_if(tenants, [&](const ClusterTenant& one) { return one.id() == id; });
}

LocalDisks* disks_of(const ClusterTenants& tenants) {
  const ClusterTenant* const any =
      find_if(tenants, [](const ClusterTenant& one) { return one.disks() != nullptr; });
  return any == nullptr ? nullptr : any->disks();
}

ClusterTenant::ClusterTenant(std::shared_ptr<Tenant> tenant, const metadata::KeyHasher& hasher,
                             VersionClock& clock, std::unique_ptr<VersionBook> book,
                             ArrivalListener* listener)
    : tenant_(std::move(tenant)),
      hasher_(hasher),
      clock_(clock),
      book_(std::move(book)),
      listener_(listener),
      id_(hasher.hash(tenant_->name, {}).lo | 1) {
  ObjectIndex& index = store().index();
  for (std::uint32_t entry = 0; entry < index.entry_count(); ++entry) {
    clock_.saw(book_->row(entry).version);
  }
  adopt_stripes();
}

// The low half is the index's own hash of the key. Names therefore need no table beside the index.
// As KeyHasher::name(), with the seed that the index keeps.
KeyHash ClusterTenant::name_of(std::string_view key) const {
  return {hasher_.hash(tenant_->name, key).hi, store().index().hash(key)};
}

std::uint32_t ClusterTenant::find(const KeyHash& name) const {
  const auto entry = store().index().find_by_hash(name.lo);
  if (!entry) return kNoEntry;
  const std::string_view key = store().index().key_of(*entry);
  return hasher_.hash(tenant_->name, key).hi == name.hi ? *entry : kNoEntry;
}

PublishItem ClusterTenant::item_of(std::uint32_t entry) const {
  const shm::Entry& at = store().index().entry(entry);
  const VersionBook::Row row = book_->row(entry);
  const auto field = std::bit_cast<shm::KeyField>(at.key.load_relaxed());
  const auto attribute = std::bit_cast<shm::AttributeField>(at.attributes.load_relaxed());
  PublishItem item;
  item.hash = name_of(store().index().key_of(entry));
  item.version = row.version;
  item.bytes = at.length.load_relaxed();
  item.attributes.pin = static_cast<metadata::Pin>(std::min<std::uint8_t>(field.pin, MC_PIN_HARD));
  item.attributes.grouped = attribute.group != 0;
  item.attributes.replicas = std::clamp<std::uint8_t>(row.replicas, 1, metadata::kMaxReplicas);
  return item;
}

PlaceRow ClusterTenant::place_of(std::uint32_t entry) const {
  return place_of(entry, store().index().entry(entry).length.load_relaxed());
}

PlaceRow ClusterTenant::place_of(std::uint32_t entry, std::uint64_t length) const {
  const shm::Entry& at = store().index().entry(entry);
  const auto field = std::bit_cast<shm::KeyField>(at.key.load_relaxed());
  PlaceRow row;
  row.held = true;
  row.version = book_->row(entry).version;
  row.replicas = std::clamp<std::uint8_t>(book_->row(entry).replicas, 1, metadata::kMaxReplicas);
  row.length = length;
  row.generation = generation_of(entry);
  row.checksum = at.checksum.load_relaxed();
  row.parent_hash = at.parent_hash.load_relaxed();
  row.pin = std::min<std::uint8_t>(field.pin, MC_PIN_HARD);
  const PoolExtents lies = store().extents(entry);
  std::uint64_t left = row.length;
  for (std::uint32_t i = 0; i < lies.count && left > 0; ++i) {
    const std::uint64_t bytes = std::min(left, lies.at[i].length_bytes);
    row.extents.push_back({lies.at[i].offset_bytes, bytes});
    left -= bytes;
  }
  return row;
}

std::vector<std::byte> ClusterTenant::bytes_of(const PlaceRow& row) const {
  std::vector<std::byte> bytes;
  bytes.reserve(row.length);
  for (const shm::ExtentRecord& extent : row.extents) {
    const std::byte* const at = store().pool().data() + extent.offset_bytes;
    bytes.insert(bytes.end(), at, at + extent.length_bytes);
  }
  return bytes;
}

std::uint64_t ClusterTenant::generation_of(std::uint32_t entry) const {
  return shm::pin_value(entry, store().index().entry(entry).version.load_relaxed());
}

bool ClusterTenant::set_version(std::uint32_t entry, std::uint64_t version) {
  VersionBook::Row row = book_->row(entry);
  row.version = version;
  return book_->write(entry, row);
}

void ClusterTenant::told(std::uint32_t entry) {
  VersionBook::Row row = book_->row(entry);
  row.unannounced = VersionBook::Unannounced::kNo;
  book_->write(entry, row);
}

bool ClusterTenant::unannounced(std::uint32_t entry) const {
  return book_->row(entry).unannounced != VersionBook::Unannounced::kNo;
}

bool ClusterTenant::set_replicas(std::uint32_t entry, std::uint8_t replicas) {
  VersionBook::Row row = book_->row(entry);
  row.replicas = replicas;
  if (!book_->write(entry, row)) return false;
  changes_.push_back({item_of(entry), entry});
  return true;
}

void ClusterTenant::drop(std::uint32_t entry, LocalDisks::Dropped done) {
  const auto stripe = parse_stripe_key(store().index().key_of(entry));
  const StripeSet* const set = stripe ? stripes_.set_of(*stripe) : nullptr;
  // The key's text belongs to the entry and would be freed with the entry, hence this copy.
  const std::string key(store().index().key_of(entry));
  if (disks() != nullptr && !stripe) {
    disks()->drop(shared_name(key), book_->row(entry).version, std::move(done));
  } else if (done) {
    done(true);
  }
  if (set != nullptr) return drop_stripes(set->id, true);
  store().remove(key, ObjectStore::Removal::kByCluster);
}

void ClusterTenant::on_live(std::uint32_t entry, const PutOrder& order) {
  VersionBook::Row row;
  const bool is_put = expected_.version == 0;
  if (listener_ != nullptr) listener_->on_arrival(*this, entry, is_put);
  if (const auto stripe = parse_stripe_key(order.key)) {
    row.version = stripe->put;
    row.unannounced = VersionBook::Unannounced::kStripe;
    book_->write(entry, row);
    return stripes_.came(*stripe, entry);
  }
  // The replaced object may come from a host whose clock is ahead.
  if (is_put && !changes_.empty()) {
    const PublishItem& before = changes_.back().item;
    const bool gone = before.what == PublishItem::What::kDropped || before.on_disk;
    if (gone && before.hash == name_of(order.key)) clock_.saw(before.version);
  }
  using Unannounced = VersionBook::Unannounced;
  if (is_put) {
    if (disks() != nullptr) put_replaces(shared_name(order.key), order.upsert);
    row.version = clock_.next(wall_ns());
    row.replicas = order.replicas;
    row.unannounced = order.upsert ? Unannounced::kUpsert : Unannounced::kPut;
  } else {
    row.version = expected_.version;
    row.replicas = expected_.from_disk ? expected_.replicas : order.replicas;
    row.unannounced = expected_.unannounced;
  }
  const bool from_disk = std::exchange(expected_, {}).from_disk;
  if (!stripes_.empty() && (!is_put || order.upsert)) {
    stripes_.replaced(name_of(order.key), row.version);
  }
  // A copy replaces an earlier object on a disk. Puts and disks see to that themselves.
  if (!is_put && !from_disk && disks() != nullptr) {
    disks()->drop(shared_name(order.key), row.version - 1, {});
  }
  // Without a row in the book the object has version 0 and only this host knows the object.
  if (!book_->write(entry, row) || (!is_put && !from_disk)) return;
  Change change{item_of(entry), entry};
  if (row.unannounced == Unannounced::kPut) change.item.what = PublishItem::What::kCreates;
  changes_.push_back(change);
  if (is_put && listener_ != nullptr) listener_->on_put(change.item);
}

// The server removes the earlier object of the key from the disks. A create would yield to this host's own object,
// if the master still knew it.
void ClusterTenant::put_replaces(const SharedName& name, bool upsert) {
  const std::uint64_t version = disks()->version_of(name);
  if (version == 0) return;
  clock_.saw(version);
  if (!upsert) tell_dropped(name, version);
}

void ClusterTenant::on_moved(std::uint32_t from, std::uint32_t to) {
  book_->write(to, book_->row(from));
  if (const auto stripe = parse_stripe_key(store().index().key_of(to))) stripes_.came(*stripe, to);
  if (listener_ != nullptr) listener_->on_arrival(*this, to, false);
}

void ClusterTenant::on_gone(std::uint32_t entry) {
  if (const auto stripe = parse_stripe_key(store().index().key_of(entry))) {
    return stripes_.left(*stripe, entry);
  }
  const VersionBook::Row row = book_->row(entry);
  if (row.version == 0) return;
  Change change{item_of(entry), entry};
  change.item.on_disk =
      disks() != nullptr && disks()->version_of(shared_name_of(change.item.hash)) == row.version;
  if (!change.item.on_disk) {
    change.item.what = PublishItem::What::kDropped;
  } else if (row.unannounced == VersionBook::Unannounced::kPut) {
    change.item.what = PublishItem::What::kCreates;
  }
  changes_.push_back(change);
}

// ---- Disks --------------------------------------------------------------------------------------

PublishItem ClusterTenant::item_of(const SharedObject& object) const {
  PublishItem item;
  item.hash = {object.name.hi, object.name.lo};
  item.version = object.version;
  item.bytes = object.length;
  item.attributes.replicas = object.replicas;
  item.on_disk = true;
  return item;
}

SharedObject ClusterTenant::describe(std::uint32_t entry) const {
  const VersionBook::Row row = book_->row(entry);
  const std::string_view key = store().index().key_of(entry);
  SharedObject object;
  object.name = shared_name(key);
  object.length = store().index().entry(entry).length.load_relaxed();
  if (parse_stripe_key(key)) return object;
  object.version = row.version;
  object.replicas = std::clamp<std::uint8_t>(row.replicas, 1, metadata::kMaxReplicas);
  object.unannounced = row.unannounced;
  return object;
}

void ClusterTenant::expect_from_disk(const SharedObject* object) {
  expected_ = {};
  if (object == nullptr) return;
  expected_ = {.version = object->version,
               .from_disk = true,
               .replicas = object->replicas,
               .unannounced = object->unannounced};
}

void ClusterTenant::left_disks(const SharedName& name, std::uint64_t version) {
  const std::uint32_t entry = find(name);
  if (entry != kNoEntry && book_->row(entry).version == version) return;
  // The pool may have had the object, and sent it to a disk again.
  if (disks()->version_of(name) != version) tell_dropped(name, version);
}

void ClusterTenant::leave_pool(const SharedName& name, std::uint64_t up_to_version) {
  const std::uint32_t entry = find(name);
  if (entry == kNoEntry || book_->row(entry).version > up_to_version) return;
  const std::string key(store().index().key_of(entry));
  store().remove(key, ObjectStore::Removal::kByCluster);
}

void ClusterTenant::tell_dropped(const SharedName& name, std::uint64_t version) {
  Change change;
  change.item.hash = {name.hi, name.lo};
  change.item.version = version;
  change.item.what = PublishItem::What::kDropped;
  changes_.push_back(change);
}

void ClusterTenant::look_elsewhere(const std::shared_ptr<RemoteRequest>& request,
                                   std::size_t item) {
  if (listener_ != nullptr) listener_->on_not_on_disks(*this, request, item);
}

// ---- Stripes ------------------------------------------------------------------------------------

PublishItem ClusterTenant::item_of(const StripeSet& set) {
  PublishItem item;
  item.hash = set.name;
  item.version = set.version;
  item.bytes = set.facts.whole_bytes;
  item.attributes.striped = true;
  item.attributes.replicas = set.replicas;
  item.attributes.parts = set.parts;
  item.attributes.part = set.id.part;
  return item;
}

PlaceRow ClusterTenant::place_of(const StripeSet& set, std::uint16_t number) const {
  const StripeSet::Stripe& stripe = set.stripes.at(number);
  PlaceRow row = place_of(stripe.entry, set.facts.bytes_of(number));
  row.number = number;
  row.version = set.version;
  row.checksum = stripe.sum;
  return row;
}

bool ClusterTenant::is_stripe(std::uint32_t entry) const {
  return parse_stripe_key(store().index().key_of(entry)).has_value();
}

const StripeSet* ClusterTenant::speaks_for(std::uint32_t entry) {
  const auto stripe = parse_stripe_key(store().index().key_of(entry));
  const StripeSet* const set = stripe ? stripes_.set_of(*stripe) : nullptr;
  if (set == nullptr || !set->sealed || set->broken) return nullptr;
  return set->stripes.begin()->second.entry == entry ? set : nullptr;
}

void ClusterTenant::write_rows(const StripeSet& set) {
  VersionBook::Row row;
  row.version = set.version;
  row.replicas = set.replicas;
  row.parts = set.parts;
  row.part = static_cast<std::uint8_t>(set.id.part + 1);
  row.stripes_here = static_cast<std::uint8_t>(set.stripes.size());
  for (const auto& [number, stripe] : set.stripes) {
    if (stripe.entry != kNoEntry) book_->write(stripe.entry, row);
  }
}

void ClusterTenant::drop_stripes(SetId id, bool tell) {
  const StripeSet set = stripes_.take(id);
  if (tell && set.sealed) {
    Change change{item_of(set), 0};
    change.item.what = PublishItem::What::kDropped;
    changes_.push_back(change);
  }
  for (const auto& [number, stripe] : set.stripes) {
    if (stripe.entry != kNoEntry) store().remove(stripe_key({set.id.put, number}));
  }
}

// Takes over the stripes of an earlier agent. Drops stripes of incomplete puts and of sets that
// lack a stripe.
void ClusterTenant::adopt_stripes() {
  ObjectIndex& index = store().index();
  std::vector<std::string> useless;
  std::map<SetId, std::uint8_t> wanted;
  for (std::uint32_t entry = 0; entry < index.entry_count(); ++entry) {
    const VersionBook::Row row = book_->row(entry);
    const bool may_be =
        row.stripes_here != 0 || row.unannounced == VersionBook::Unannounced::kStripe;
    const std::uint64_t version = index.entry(entry).version.load_relaxed();
    if (!may_be || shm::state_of(version) != shm::EntryState::kLive) continue;
    const std::string_view key = index.key_of(entry);
    const auto name = parse_stripe_key(key);
    if (!name) continue;
    const std::uint64_t length = index.entry(entry).length.load_relaxed();
    std::vector<std::byte> end(std::min(length, kMostLabelBytes));
    store().read(entry, length - end.size(), end);
    const auto label = decode_label(end, *name);
    const auto replicas = std::clamp<std::uint8_t>(row.replicas, 1, metadata::kMaxReplicas);
    const bool sound =
        label && row.unannounced == VersionBook::Unannounced::kNo &&
        row.parts <= metadata::most_parts(replicas) && row.part >= 1 && row.part <= row.parts &&
        length == label->facts.bytes_of(name->number) + label_bytes(label->key.size());
    if (!sound) {
      useless.emplace_back(key);
      continue;
    }
    const SetId id{name->put, static_cast<std::uint8_t>(row.part - 1)};
    StripeSet& set = stripes_.add(id, label->facts, name_of(label->key), label->key);
    const auto field = std::bit_cast<shm::KeyField>(index.entry(entry).key.load_relaxed());
    set.pin = std::min<std::uint8_t>(field.pin, MC_PIN_HARD);
    set.version = row.version;
    set.parts = row.parts;
    set.replicas = replicas;
    stripes_.seal(set);
    set.broken |= !set.facts.same_object(label->facts);
    stripes_.stripe(set, name->number) = {entry, label->own_sum};
    wanted[id] = row.stripes_here;
  }
  for (const auto& [id, count] : wanted) {
    const StripeSet& set = *stripes_.find(id);
    if (set.broken || set.stripes.size() != count) drop_stripes(id, false);
  }
  for (const std::string& key : useless) store().remove(key);
}

// ---- Peers that read ----------------------------------------------------------------------------

transport::Outcome ClusterTenant::pin(const transport::Access& access, std::uint64_t* ticket) {
  const std::uint64_t number = access.generation >> 32;
  ObjectIndex& index = store().index();
  if (access.write || number == 0 || number > index.entry_count()) {
    return transport::Outcome::kStale;
  }
  const auto entry = static_cast<std::uint32_t>(number - 1);
  const std::uint64_t version = index.entry(entry).version.load_relaxed();
  if (shm::state_of(version) != shm::EntryState::kLive ||
      shm::pin_value(entry, version) != access.generation) {
    return transport::Outcome::kStale;
  }
  const PoolExtents lies = store().extents(entry);
  for (std::uint32_t i = 0; i < lies.count; ++i) {
    const PoolExtent& extent = lies.at[i];
    if (access.offset_bytes < extent.offset_bytes) continue;
    const std::uint64_t within = access.offset_bytes - extent.offset_bytes;
    if (within > extent.length_bytes || access.size_bytes > extent.length_bytes - within) continue;
    *ticket = next_ticket_++;
    pins_.emplace(*ticket, access.generation);
    if (within == 0 && i == 0) store().touch(entry);
    return transport::Outcome::kDone;
  }
  return transport::Outcome::kInvalid;
}

void ClusterTenant::unpin(std::uint64_t ticket) { pins_.erase(ticket); }

void ClusterTenant::collect_pins(std::vector<std::uint64_t>& pins) const {
  for (const auto& [ticket, generation] : pins_) pins.push_back(generation);
}

}  // namespace mc::agent
