// SPDX-License-Identifier: Apache-2.0
//
// What it is: the stripes that this host holds in one namespace, in sets: all of one put that are
//   not sealed yet, and of each object the parts that are. A part is what one host took when the
//   object was put; it is moved as a whole, so that a host may have several.
//
//     Hold ──► open ──Seal──► offered to the master ──► sealed: a part of an object that is there
//               │ time is over, its writer gone            │ a stripe evicted: broken, the object
//               goes └──► dropped                               └ a later put: replaced
//
// Threads: the agent's loop. Owns: what is known of the stripes; they themselves are the ObjectStore's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/cluster/fetch/location_cache.h"
#include "agent/cluster/stripe/stripe.h"
#include "agent/server/tenant.h"
#include "metadata/directory/directory_types.h"
#include "metadata/membership/membership.h"

namespace mc::agent {

inline constexpr std::uint8_t kNoPart = 0xff;  // not sealed: nobody knows yet

struct SetId {
  std::uint64_t put = 0;
  std::uint8_t part = kNoPart;
  auto operator<=>(const SetId&) const = default;
};

struct StripeSet {
  SetId id;
  StripeFacts facts;  // of the object; number is nothing
  metadata::KeyHash name;
  std::string key;
  std::uint8_t pin = 0;
  std::uint64_t version = 0;  // that it was sealed with; 0: not yet
  std::uint8_t parts = 0;     // of the object; 0: not known yet
  std::uint8_t replicas = 1;  // wanted of each part
  bool offered = false;       // to the master, which has not said yet
  bool sealed = false;
  bool broken = false;    // a stripe of it has gone
  bool replaced = false;  // by a later put here
  // Open: who puts it, and how long it may take.
  metadata::NodeId writer = metadata::kNoNode;
  metadata::Incarnation writer_incarnation = 0;
  std::uint64_t until_ns = 0;
  // Sealed: since when nobody holds some other part.
  std::uint64_t lacking_since_ns = 0;
  struct Stripe {
    std::uint32_t entry = kNoEntry;
    std::uint64_t sum = 0;
  };
  std::map<std::uint16_t, Stripe> stripes;  // those that are on their way have no entry

  bool open() const { return !sealed && !offered; }
};

class StripeTable {
 public:
  using Sets = std::map<SetId, StripeSet>;

  StripeSet* find(SetId id);
  // The set that this stripe is in, or is to be in when it has come.
  StripeSet* set_of(const StripeName& stripe);
  const Sets& all() const { return sets_; }
  bool empty() const { return sets_.empty(); }
  StripeSet& add(SetId id, const StripeFacts& facts, const metadata::KeyHash& name,
                 std::string key);
  // These stripes of a set, a bit for each, are a set of their own from now on. REQUIRES: it has
  // them.
  StripeSet& split(SetId from, SetId to, std::uint64_t stripes);
  // What a reader of that version may have.
  std::vector<StripeSet*> sealed(const metadata::KeyHash& name, std::uint64_t version);
  std::vector<SetId> sets_of(const metadata::KeyHash& name) const;
  std::vector<SetId> sets_of(std::uint64_t put) const;
  StripeSet take(SetId id);  // REQUIRES: find(id)

  // What the store has done; stripes that the set does not name are nobody's.
  void came(const StripeName& stripe, std::uint32_t entry);
  void left(const StripeName& stripe, std::uint32_t entry);
  // A put that replaces what is sealed under that name with a version before this one.
  void replaced(const metadata::KeyHash& name, std::uint64_t version);
  // Sets that are broken or replaced since the last call.
  std::vector<SetId> take_flagged() { return std::exchange(flagged_, {}); }
  bool anything_flagged() const { return !flagged_.empty(); }
  // The last set of which the master was asked whether its object is whole.
  SetId asked_up_to;

 private:
  Sets sets_;
  std::unordered_multimap<metadata::KeyHash, SetId, NameHash> by_name_;
  std::vector<SetId> flagged_;
};

}  // namespace mc::agent
