// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/stripe/stripe_holder.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

using metadata::PublishItem;
using metadata::Verdict;

namespace {

constexpr std::uint64_t kHolderCheckNs = 20 * kMs;
constexpr std::uint64_t kOfferNs = 5'000 * kMs;
constexpr std::uint64_t kRemoveNs = 5'000 * kMs;
constexpr std::uint64_t kMostKeepMs = 3'600'000;
constexpr std::size_t kQuestions = 256;  // sets asked about in a round
constexpr std::uint64_t kRoundsPerGrace = 8;

}  // namespace

ClusterTenant* StripeHolder::find(std::uint64_t tenant_id) const {
  for (const auto& tenant : tenants_) {
    if (tenant->id() == tenant_id) return tenant.get();
  }
  return nullptr;
}

// ---- Messages of writers ------------------------------------------------------------------------

bool StripeHolder::expect(ClusterTenant& tenant, const HoldRequest& hold, MemberId writer,
                          std::uint8_t part) {
  const StripeFacts& facts = *hold.stripe;
  const PlaceRow& row = hold.row;
  const SetId id{facts.put, part};
  StripeTable& table = tenant.stripes();
  StripeSet* const owner = table.set_of({facts.put, facts.number});
  if (owner != nullptr && owner->id != id) {
    if (!owner->facts.same_object(facts) || owner->key != row.key) return false;
    // The message is repeated after the Seal. Otherwise a move uses a stripe that the put left.
    if (part == kNoPart || !owner->open()) return true;
    table.split(owner->id, id, std::uint64_t{1} << facts.number);
  }
  if (table.find(id) == nullptr && table.unsealed().size() >= kMaxOpen) return false;
  StripeSet& set = table.add(id, facts, tenant.name_of(row.key), row.key);
  if (!set.open() || !set.facts.same_object(facts) || set.key != row.key) {
    return false;
  }
  set.pin = row.pin;
  set.replicas = row.replicas;
  set.writer = writer;
  const metadata::wire::MemberInfo* const member = peers_.find(writer);
  set.writer_incarnation = member != nullptr ? member->descriptor.incarnation : 0;
  const std::uint64_t keep_ms = std::min<std::uint64_t>(facts.keep_ms, kMostKeepMs);
  set.until_ns = std::max(set.until_ns, operations_.now_ns() + keep_ms * kMs);
  table.stripe(set, facts.number).sum = row.checksum;
  return true;
}

void StripeHolder::seal(ClusterTenant& tenant, const SealRequest& message, Ended ended) {
  StripeTable& table = tenant.stripes();
  if (message.drop) {
    for (const SetId& id : table.sets_of(message.put)) tenant.drop_stripes(id, true);
    return;
  }
  const auto there = [&](const StripeSet* set) {
    std::uint64_t bits = 0;
    if (set == nullptr || set->broken) return bits;
    for (const auto& [number, stripe] : set->stripes) {
      if (stripe.entry != kNoEntry) bits |= std::uint64_t{1} << number;
    }
    return bits;
  };
  const std::uint64_t wanted = message.stripes;
  const SetId id{message.put, message.part};
  StripeSet* set = table.find(id);
  if (set == nullptr) {
    // Another host holds the stripes that came too late here. The late stripes stay in the unsealed
    // set until that set expires.
    const SetId unsealed{message.put};
    if ((there(table.find(unsealed)) & wanted) != wanted) return ended(MC_NOT_FOUND);
    set = &table.split(unsealed, id, wanted);
  }
  if (set->broken) return ended(MC_NOT_FOUND);
  // A message of an earlier Seal may come late. The writer has the answer to that Seal.
  if (message.version < set->latest_version) return;
  set->latest_version = message.version;
  if (set->sealed) return ended(set->version == message.version ? MC_OK : MC_NOT_FOUND);
  // Only the message that was offered gets the master's answer. The writer repeats other messages.
  if (set->offered) return;
  if (set->refused && message.request == set->seal) return ended(MC_CANCELLED);
  if (there(set) != wanted) return ended(MC_NOT_FOUND);
  MC_FAILPOINT("stripes.before_seal");
  name(*set, message.version, message.parts);
  set->seal = message.request;
  set->refused = false;
  using What = PublishItem::What;
  offer(tenant, *set, message.upsert ? What::kHolds : What::kCreates, std::move(ended));
}

void StripeHolder::seal_moved(ClusterTenant& tenant, SetId id, std::uint64_t version,
                              std::uint8_t parts, Ended ended) {
  StripeSet* const set = tenant.stripes().find(id);
  if (set == nullptr || set->broken) return ended(MC_NOT_FOUND);
  if (set->offered) return;
  if (set->sealed) return ended(MC_OK);
  name(*set, version, parts);
  // The rows must be written before the offer: an accepted offer lets the master release the host
  // that held the part before.
  tenant.write_rows(*set);
  MC_FAILPOINT("stripes.before_moved");
  offer(tenant, *set, PublishItem::What::kHolds, std::move(ended));
}

// Sets the version and the parts under which the set is published. The count of parts limits the
// number of replicas.
void StripeHolder::name(StripeSet& set, std::uint64_t version, std::uint8_t parts) {
  set.version = version;
  set.parts = parts;
  while (metadata::most_parts(set.replicas) < parts) --set.replicas;
}

void StripeHolder::offer(ClusterTenant& tenant, StripeSet& set, PublishItem::What what,
                         Ended ended) {
  set.offered = true;
  PublishItem item = ClusterTenant::item_of(set);
  item.what = what;
  announcer_.offer(
      item, operations_.now_ns() + kOfferNs,
      [this, item, tenant_id = tenant.id(), id = set.id, ended = std::move(ended)](
          std::optional<Verdict> verdict) { on_verdict(tenant_id, id, item, verdict, ended); });
}

void StripeHolder::on_verdict(std::uint64_t tenant_id, SetId id, const PublishItem& item,
                              std::optional<Verdict> verdict, const Ended& ended) {
  ClusterTenant* const tenant = find(tenant_id);
  StripeSet* const set = tenant == nullptr ? nullptr : tenant->stripes().find(id);
  if (set == nullptr || !set->offered || set->version != item.version) {
    // The set has been removed, replaced, evicted, or given up by the writer meanwhile.
    if (verdict == Verdict::kAccepted) {
      if (tenant != nullptr) make_way(*tenant, item.hash, item.version, {});
      announcer_.withdraw(item);
    }
    return ended(MC_NOT_FOUND);
  }
  set->offered = false;
  if (!verdict) {
    // The master may have accepted the offer. The replaced object may be gone by another host's
    // offer. If the set were dropped now, neither object would be left. The set stays open and
    // `ended` is not called, so that the writer repeats the Seal.
    set->version = 0;
    announcer_.withdraw(item);
    return;
  }
  switch (*verdict) {
    case Verdict::kAccepted:
      tenant->stripes().seal(*set);
      clock_.saw(set->version);
      tenant->write_rows(*set);
      MC_FAILPOINT("stripes.sealed");
      ++counters_.sealed;
      fetcher_.replaced(item.hash, item.version);
      return make_way(*tenant, item.hash, item.version,
                      [ended](bool durable) { ended(durable ? MC_OK : MC_AGENT_UNAVAILABLE); });
    case Verdict::kStale:
      if (item.what == PublishItem::What::kCreates) {
        // The key exists, so a create succeeds and changes nothing.
        tenant->drop_stripes(id, false);
        return ended(MC_OK);
      }
      [[fallthrough]];
    case Verdict::kRemoved:
    case Verdict::kBehind:
    case Verdict::kUncertain:
      // The set stays open for another Seal.
      set->version = 0;
      set->refused = true;
      return ended(MC_CANCELLED);
    default:
      tenant->drop_stripes(id, false);
      return ended(MC_AGENT_UNAVAILABLE);
  }
}

// Drops the object that the put replaces here. The master orders this drop at other holders only. done: as of
// LocalDisks::drop().
void StripeHolder::make_way(ClusterTenant& tenant, const metadata::KeyHash& name,
                            std::uint64_t version, LocalDisks::Dropped done) {
  for (const SetId& id : tenant.stripes().sets_of(name)) {
    const StripeSet& set = *tenant.stripes().find(id);
    if (set.sealed && set.version < version) tenant.drop_stripes(id, false);
  }
  if (const std::uint32_t entry = tenant.find(name); entry != kNoEntry) {
    const VersionBook::Row row = tenant.book().row(entry);
    if (row.version < version && row.unannounced != VersionBook::Unannounced::kPut)
      tenant.drop(entry);
  }
  if (tenant.disks() != nullptr) {
    tenant.disks()->drop(shared_name_of(name), version - 1, std::move(done));
  } else if (done) {
    done(true);
  }
}

// ---- Questions of readers -----------------------------------------------------------------------

std::vector<StripesAnswer> StripeHolder::places(ClusterTenant& tenant,
                                                const StripesRequest& ask) const {
  constexpr std::size_t kPlacesHeadBytes = 256 + sizeof(StripeFacts);  // head and descriptor
  std::vector<StripesAnswer> answers;
  const bool of_part = ask.part.has_value();
  if (of_part) MC_FAILPOINT("stripes.asked_for_part");
  const auto begin = [&] {
    StripesAnswer& answer = answers.emplace_back();
    answer.of_part = of_part;
    answer.request = ask.request;
    answer.name_space = tenant.id();
    if (auto text = transport_.describe(tenant.region)) answer.region = std::move(*text);
    return kPlacesHeadBytes;
  };
  std::size_t bytes = begin();
  std::uint16_t count = 0;
  StripeFacts facts;
  for (const StripeSet* const set : tenant.stripes().sealed(ask.key, ask.version)) {
    if (of_part && set->id.part != *ask.part) continue;
    facts = set->facts;
    for (const auto& [number, stripe] : set->stripes) {
      PlaceRow row = tenant.place_of(*set, number);
      if (of_part) row.key = set->key;
      bytes += encoded_row_bytes(row);
      if (bytes > transport_.capabilities().max_notification_bytes) {
        bytes = begin() + encoded_row_bytes(row);
      }
      answers.back().rows.push_back(std::move(row));
      tenant.store().touch(stripe.entry);
      ++count;
    }
  }
  for (StripesAnswer& answer : answers) {
    answer.facts = facts;
    answer.facts.number = count;
  }
  return answers;
}

// ---- Drops --------------------------------------------------------------------------------------

void StripeHolder::drop(ClusterTenant& tenant, const metadata::KeyHash& name,
                        std::uint64_t up_to_version) {
  if (tenant.stripes().empty()) return;
  for (const SetId& id : tenant.stripes().sets_of(name)) {
    const StripeSet& set = *tenant.stripes().find(id);
    // An open set belongs to a put that no removal can have meant.
    const bool told = set.sealed || set.offered;
    // The drop is announced, because the master may still count this host as a holder.
    if (!told || set.version > up_to_version) continue;
    MC_FAILPOINT("stripes.before_drop");
    tenant.drop_stripes(id, true);
  }
}

void StripeHolder::remove(const StripeSet& set) {
  metadata::wire::Remove request;
  request.items.push_back({set.name, set.version});
  // If no master hears of the removal, the other holders will notice the missing part.
  masters_.of(set.name).remove(request, operations_.now_ns() + kRemoveNs,
                               [](const Result<metadata::wire::RemoveReply>&) {});
}

void StripeHolder::look_at_flagged(ClusterTenant& tenant) {
  for (const SetId& id : tenant.stripes().take_flagged()) {
    const StripeSet* const set = tenant.stripes().find(id);
    if (set == nullptr) continue;
    if (set->replaced) {
      tenant.drop_stripes(id, false);
    } else if (set->broken) {
      if (set->sealed) {
        ++counters_.broken;
        // With replicas another host may still hold the part. If none does, all holders notice.
        if (set->replicas == 1) remove(*set);
      }
      tenant.drop_stripes(id, true);
    }
  }
}

void StripeHolder::look_at_open(ClusterTenant& tenant) {
  std::vector<SetId> over;
  for (const SetId& id : tenant.stripes().unsealed()) {
    const StripeSet& set = *tenant.stripes().find(id);
    if (!set.open()) continue;
    const metadata::wire::MemberInfo* const writer = peers_.find(set.writer);
    const bool gone =
        set.writer_incarnation != 0 &&
        (writer == nullptr || writer->descriptor.incarnation != set.writer_incarnation);
    if (gone || operations_.now_ns() >= set.until_ns) over.push_back(id);
  }
  counters_.expired += over.size();
  for (const SetId& id : over) tenant.drop_stripes(id, false);
}

// Asks the masters whether the objects of sealed sets are still complete.
void StripeHolder::ask_for_the_rest(ClusterTenant& tenant) {
  std::vector<metadata::KeyHash> names;
  std::vector<SetId> ids;
  const StripeTable::Sets& sets = tenant.stripes().all();
  SetId& cursor = tenant.stripes().asked_up_to;
  for (auto at = sets.upper_bound(cursor); at != sets.end() && ids.size() < kQuestions; ++at) {
    cursor = at->first;
    const bool complete = at->second.sealed && !at->second.broken;
    if (!complete || !masters_.of(at->second.name).ready()) continue;
    names.push_back(at->second.name);
    ids.push_back(at->first);
  }
  if (sets.upper_bound(cursor) == sets.end()) cursor = {};
  for (const Masters::Part& part : masters_.split(names)) {
    metadata::wire::Locate request;
    std::vector<SetId> asked;
    for (const std::size_t place : part.places) {
      request.keys.push_back(names[place]);
      asked.push_back(ids[place]);
    }
    masters_.at(part.partition)
        .locate(
            request, operations_.now_ns() + kOfferNs,
            [this, asked, tenant_id = tenant.id()](const Result<metadata::LocateAnswer>& answer) {
              if (answer && answer->keys.size() == asked.size()) {
                on_located(tenant_id, asked, *answer);
              }
            });
  }
}

void StripeHolder::on_located(std::uint64_t tenant_id, const std::vector<SetId>& ids,
                              const metadata::LocateAnswer& answer) {
  ClusterTenant* const tenant = find(tenant_id);
  if (tenant == nullptr) return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    StripeSet* const set = tenant->stripes().find(ids[i]);
    if (set == nullptr || !set->sealed) continue;
    const metadata::Located& found = answer.keys[i];
    const bool whole = found.whole() && found.version == set->version;
    if (whole || found.state == metadata::Lookup::kRecovering) {
      set->lacking_since_ns = 0;
    } else if (set->lacking_since_ns == 0) {
      set->lacking_since_ns = operations_.now_ns();
    } else if (operations_.now_ns() >= set->lacking_since_ns + grace_ns_) {
      ++counters_.orphaned;
      remove(*set);
      tenant->drop_stripes(ids[i], true);
    }
  }
}

// ---- Time ---------------------------------------------------------------------------------------

void StripeHolder::flush() {
  const std::uint64_t now_ns = operations_.now_ns();
  for (const auto& tenant : tenants_) {
    if (tenant->stripes().anything_flagged()) look_at_flagged(*tenant);
  }
  if (now_ns < next_check_ns_) return;
  next_check_ns_ = now_ns + kHolderCheckNs;
  for (const auto& tenant : tenants_) look_at_open(*tenant);
  if (now_ns < next_question_ns_) return;
  next_question_ns_ = now_ns + grace_ns_ / kRoundsPerGrace;
  for (const auto& tenant : tenants_) ask_for_the_rest(*tenant);
}

std::uint64_t StripeHolder::next_ns() const {
  for (const auto& tenant : tenants_) {
    if (tenant->stripes().anything_flagged()) return 0;
    if (!tenant->stripes().unsealed().empty()) return next_check_ns_;
    if (!tenant->stripes().empty()) return std::max(next_check_ns_, next_question_ns_);
  }
  return UINT64_MAX;
}

}  // namespace mc::agent
