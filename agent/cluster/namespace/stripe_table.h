// SPDX-License-Identifier: Apache-2.0
//
// The stripes that this host holds in a namespace, in sets. An open set has the
//   unsealed stripes of a put. A sealed set is a part of an object. A part has the stripes that
//   one host took when the object was put. Parts are moved as a whole, so a host may have several
//   parts of an object.
//
//     Hold ──► open ──Seal──► offered to the master ──► sealed: a part of a readable object
//               │ expired, or                              │ a stripe is evicted: broken
//               ▼ the writer is gone                       ▼ a later put here: replaced
//            dropped                                    dropped
//
// Threads: the agent's loop.
// Owns: the records of the stripes. The ObjectStore owns the stripes.
// Trusts: nothing from outside; the StripeHolder has checked the records.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/cluster/peer/stripe.h"
#include "agent/server/tenant.h"
#include "metadata/directory/directory_types.h"
#include "metadata/membership/membership.h"

namespace mc::agent {

inline constexpr std::uint8_t kNoPart = 0xff;  // not known before the Seal

struct SetId {
  std::uint64_t put = 0;
  std::uint8_t part = kNoPart;
  auto operator<=>(const SetId&) const = default;
};

struct StripeSet {
  SetId id;
  StripeFacts facts;  // number is unused
  metadata::KeyHash name;
  std::string key;
  std::uint8_t pin = 0;
  std::uint64_t version = 0;         // of the Seal; 0: not known yet
  std::uint64_t latest_version = 0;  // of the Seals for this set
  std::uint32_t seal = 0;            // number of the Seal that was offered last
  std::uint8_t parts = 0;            // of the object; 0: not known yet
  std::uint8_t replicas = 1;         // wanted of each part
  bool offered = false;              // to the master, which has not answered yet
  bool refused = false;              // by the master, at the last offer
  bool sealed = false;
  bool broken = false;    // a stripe has been evicted
  bool replaced = false;  // by a later put here
  // Of an open set: the writer, and the time at which the set expires.
  metadata::NodeId writer = metadata::kNoNode;
  metadata::Incarnation writer_incarnation = 0;
  std::uint64_t until_ns = 0;
  // Of a sealed set: since when some other part has no holder; 0: all parts have holders.
  std::uint64_t lacking_since_ns = 0;
  struct Stripe {
    std::uint32_t entry = kNoEntry;
    std::uint64_t sum = 0;
  };
  std::map<std::uint16_t, Stripe> stripes;  // expected stripes have no entry yet

  // A put may still add stripes.
  bool open() const { return !sealed && !offered; }
};

class StripeTable {
 public:
  using Sets = std::map<SetId, StripeSet>;

  StripeSet* find(SetId id);
  // The set that has or expects the stripe.
  StripeSet* set_of(const StripeName& stripe);
  const Sets& all() const { return sets_; }
  bool empty() const { return sets_.empty(); }
  const std::set<SetId>& unsealed() const { return unsealed_; }
  std::size_t stripe_count() const { return stripe_count_; }
  // The set, unsealed if the set is new.
  StripeSet& add(SetId id, const StripeFacts& facts, const metadata::KeyHash& name,
                 std::string key);
  // The record of a stripe of the set; a new record expects the stripe.
  StripeSet::Stripe& stripe(StripeSet& set, std::uint16_t number);
  void seal(StripeSet& set);
  // Moves these stripes (a bit per stripe number) to another set.
  // REQUIRES: set `from` has all of these stripes.
  StripeSet& split(SetId from, SetId to, std::uint64_t stripes);
  // The sets that a reader of that version may use.
  std::vector<StripeSet*> sealed(const metadata::KeyHash& name, std::uint64_t version);
  std::vector<SetId> sets_of(const metadata::KeyHash& name) const;
  std::vector<SetId> sets_of(std::uint64_t put) const;
  StripeSet take(SetId id);  // REQUIRES: find(id)

  // Events of the store. A stripe that no set expects is ignored.
  void came(const StripeName& stripe, std::uint32_t entry);
  void left(const StripeName& stripe, std::uint32_t entry);
  // A put here replaces the sets that are sealed under that name with an earlier version.
  void replaced(const metadata::KeyHash& name, std::uint64_t version);
  // The sets that became broken or replaced since the last call.
  std::vector<SetId> take_flagged() { return std::exchange(flagged_, {}); }
  bool anything_flagged() const { return !flagged_.empty(); }
  // The cursor of StripeHolder::ask_for_the_rest().
  SetId asked_up_to;

 private:
  Sets sets_;
  std::set<SetId> unsealed_;
  std::size_t stripe_count_ = 0;  // of all sets
  std::multimap<metadata::KeyHash, SetId> by_name_;
  std::vector<SetId> flagged_;
};

}  // namespace mc::agent
