// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/live_objects.h"

#include <algorithm>
#include <bit>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kSecondNs = 1000000000;
constexpr std::uint64_t kExpiryPeriodNs = kSecondNs;
// Adopted objects that the policy learns of before each choice of a victim.
constexpr std::uint64_t kAdoptedForVictim = 64;

}  // namespace

std::uint32_t steady_seconds() { return static_cast<std::uint32_t>(now_ns() / kSecondNs); }

[[gnu::hot]] void LiveObjects::admit(std::uint32_t id, std::uint64_t hash, const PutOrder& order) {
  pending_.push_back({id, order.parent_hash, hash, order.length, static_cast<PinLevel>(order.pin)});
  if (order.group != 0) groups_[order.group].push_back(id);
  if (order.pin == MC_PIN_SOFT) {
    note_soft_pin(id, attribute_field(index_.entry(id)).soft_pin_until_s);
  }
  bytes_ += order.length;
  if (notes_uses_) note_use(id, false);
  ++counters_.puts;
  counters_.put_bytes += order.length;
  if (listener_ != nullptr) listener_->on_live(id, order);
}

void LiveObjects::adopt(std::uint32_t id) {
  const shm::Entry& entry = index_.entry(id);
  const shm::AttributeField attribute = attribute_field(entry);
  if (attribute.group != 0) groups_[attribute.group].push_back(id);
  if (key_field(entry).pin == MC_PIN_SOFT) note_soft_pin(id, attribute.soft_pin_until_s);
  bytes_ += entry.length.load_relaxed();
  adopted_.add(id, shm::sequence_of(entry.version.load_relaxed()));
}

void LiveObjects::catch_up(std::uint64_t most_adopted) {
  admit_pending();
  for (; most_adopted > 0; --most_adopted) {
    const std::uint32_t oldest = adopted_.oldest();
    if (oldest == kNoEntry) return;
    admit_adopted(oldest);
  }
}

void LiveObjects::admit_pending() {
  for (const Pending& pending : pending_) insert(pending);
  pending_.clear();
}

// The policy learns of an object after the object's ancestors.
void LiveObjects::admit_adopted(std::uint32_t id) {
  std::vector<std::uint32_t> chain;
  // take() also ends a circle of parents.
  for (OptionalId at = id; at && adopted_.take(*at);) {
    chain.push_back(*at);
    at = index_.find_by_hash(index_.entry(*at).parent_hash.load_relaxed());
  }
  for (; !chain.empty(); chain.pop_back()) insert(pending_of(chain.back()));
}

LiveObjects::Pending LiveObjects::pending_of(std::uint32_t id) const {
  const shm::Entry& entry = index_.entry(id);
  const std::uint8_t pin = key_field(entry).pin;
  return {id, entry.parent_hash.load_relaxed(), entry.hash.load_relaxed(),
          entry.length.load_relaxed(),
          pin <= MC_PIN_HARD ? static_cast<PinLevel>(pin) : PinLevel::kNone};
}

[[gnu::hot]] void LiveObjects::insert(const Pending& object) {
  Arrival arrival;
  arrival.id = object.entry;
  arrival.parent = index_.find_by_hash(object.parent_hash).value_or(kNoEntry);
  if (arrival.parent == object.entry) arrival.parent = kNoEntry;
  if (adopted_.contains(arrival.parent)) admit_adopted(arrival.parent);
  arrival.key_hash = object.hash;
  arrival.bytes = object.length;
  arrival.pin = object.pin;
  policy_->insert(arrival);
}

void LiveObjects::note_use(std::uint32_t id, bool used) {
  if (id >= used_.size()) used_.resize(std::size_t{id} + 1);
  used_[id] = used;
}

void LiveObjects::touch(std::uint32_t id) {
  admit_pending();
  admit_adopted(id);
  if (notes_uses_) note_use(id, true);
  policy_->touch(id);
}

std::uint32_t LiveObjects::choose_victim() {
  for (;;) {
    catch_up(kAdoptedForVictim);
    const std::uint32_t victim = policy_->evict();
    if (victim != kNoEntry || adopted_.count() == 0) return victim;
  }
}

void LiveObjects::forget(std::uint32_t id) {
  admit_pending();
  if (!adopted_.take(id)) policy_->erase(id);
}

void LiveObjects::retire(std::uint32_t id, Bytes bytes) {
  index_.set_state(id, shm::EntryState::kLimbo);
  bytes_ -= index_.entry(id).length.load_relaxed();
  bytes == Bytes::kHeld ? limbo_.hold(id) : limbo_.add(id);
  if (!soft_pins_.empty()) soft_pins_.erase(id);
  if (!groups_.empty()) forget_group_member(id);
  if (listener_ != nullptr) listener_->on_gone(id);
}

void LiveObjects::remove(std::uint32_t id) {
  forget(id);
  index_.table().erase(index_.entry(id).hash.load_relaxed(), id);
  retire(id);
}

void LiveObjects::replace_moved(std::uint32_t from, std::uint32_t to) {
  const shm::Entry& entry = index_.entry(to);
  const std::uint64_t hash = entry.hash.load_relaxed();
  const std::uint64_t length = entry.length.load_relaxed();
  const shm::KeyField field = key_field(entry);
  const shm::AttributeField attribute = attribute_field(entry);
  index_.table().replace(hash, from, to);
  forget(from);
  pending_.push_back(pending_of(to));
  bytes_ += length;
  if (notes_uses_) note_use(to, was_used(from));
  if (attribute.group != 0) groups_[attribute.group].push_back(to);
  if (field.pin == MC_PIN_SOFT) note_soft_pin(to, attribute.soft_pin_until_s);
  ++counters_.moves;
  // The listener hears of a move, not of an end.
  StoreListener* const listener = std::exchange(listener_, nullptr);
  retire(from);
  listener_ = listener;
  if (listener_ != nullptr) listener_->on_moved(from, to);
}

std::span<const std::uint32_t> LiveObjects::group(std::uint32_t number) const {
  const auto found = number == 0 ? groups_.end() : groups_.find(number);
  if (found == groups_.end()) return {};
  return found->second;
}

void LiveObjects::forget_group_member(std::uint32_t id) {
  const std::uint32_t group = attribute_field(index_.entry(id)).group;
  const auto found = groups_.find(group);
  if (group == 0 || found == groups_.end()) return;
  std::erase(found->second, id);
  if (found->second.empty()) groups_.erase(found);
}

void LiveObjects::note_soft_pin(std::uint32_t id, std::uint32_t until_s) {
  soft_pins_[id] = until_s;
  next_expiry_ns_ = std::min(next_expiry_ns_, until_s * kSecondNs);
}

void LiveObjects::set_pin(std::uint32_t id, mc_pin pin, std::uint32_t ttl_s) {
  shm::Entry& entry = index_.entry(id);
  shm::KeyField field = key_field(entry);
  shm::AttributeField attribute = attribute_field(entry);
  field.pin = static_cast<std::uint8_t>(pin);
  attribute.soft_pin_until_s = pin == MC_PIN_SOFT ? steady_seconds() + ttl_s : 0;
  entry.attributes.store_relaxed(std::bit_cast<std::uint64_t>(attribute));
  entry.key.store_release(std::bit_cast<std::uint64_t>(field));
  set_level(id, static_cast<PinLevel>(pin));
  soft_pins_.erase(id);
  if (pin == MC_PIN_SOFT) note_soft_pin(id, attribute.soft_pin_until_s);
}

// The policy reads the level of an adopted object from the entry, later.
void LiveObjects::set_level(std::uint32_t id, PinLevel level) {
  admit_pending();
  if (!adopted_.contains(id)) policy_->set_pin(id, level);
}

void LiveObjects::expire_soft_pins(std::uint64_t now_ns) {
  if (soft_pins_.empty() || now_ns < next_expiry_ns_) return;
  const auto now_s = static_cast<std::uint32_t>(now_ns / kSecondNs);
  std::erase_if(soft_pins_, [&](const auto& pin) {
    if (pin.second > now_s) return false;
    shm::Entry& entry = index_.entry(pin.first);
    shm::KeyField field = key_field(entry);
    field.pin = MC_PIN_NONE;
    entry.key.store_release(std::bit_cast<std::uint64_t>(field));
    set_level(pin.first, PinLevel::kNone);
    return true;
  });
  next_expiry_ns_ = now_ns + kExpiryPeriodNs;
}

}  // namespace mc::agent
