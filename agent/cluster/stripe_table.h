// SPDX-License-Identifier: Apache-2.0
//
// What it is: the stripes that this host holds in one namespace, together by the put that they are
//   of.
//
//     Hold ──► open ──Seal──► offered to the master ──► sealed: a part of an object that is there
//               │ time is over, its writer gone            │ a stripe evicted: broken, the object
//               goes └──► dropped                               └ a later put: replaced
//
// Threads: the agent's loop. Owns: what is known of the stripes; they themselves are the Store's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/cluster/location_cache.h"
#include "agent/cluster/stripe.h"
#include "agent/tenant.h"
#include "metadata/directory/directory_types.h"
#include "metadata/membership/membership.h"

namespace mc::agent {

struct StripeSet {
  StripeFacts facts;  // of the object; number is nothing
  metadata::KeyHash name;
  std::string key;
  std::uint8_t pin = 0;
  std::uint64_t version = 0;  // that it was sealed with; 0: not yet
  std::uint8_t hosts = 0;
  bool offered = false;  // to the master, which has not said yet
  bool sealed = false;
  bool broken = false;    // a stripe of it has gone
  bool replaced = false;  // by a later put here
  // Open: who puts it, and how long it may take.
  metadata::NodeId writer = metadata::kNoNode;
  metadata::Incarnation writer_incarnation = 0;
  std::uint64_t until_ns = 0;
  // Sealed: since when the master knows too few of its hosts.
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
  using Sets = std::map<std::uint64_t, StripeSet>;  // by put

  StripeSet* find(std::uint64_t put);
  const Sets& all() const { return sets_; }
  bool empty() const { return sets_.empty(); }
  StripeSet& add(const StripeFacts& facts, const metadata::KeyHash& name, std::string key);
  // Those of the object that a reader may have: the latest that is sealed.
  StripeSet* sealed(const metadata::KeyHash& name);
  std::vector<std::uint64_t> puts_of(const metadata::KeyHash& name) const;
  StripeSet take(std::uint64_t put);  // REQUIRES: find(put)

  // What the store has done; stripes that the set does not name are nobody's.
  void came(const StripeName& stripe, std::uint32_t entry);
  void left(const StripeName& stripe, std::uint32_t entry);
  // A put that replaces what is sealed under that name with a version before this one.
  void replaced(const metadata::KeyHash& name, std::uint64_t version);
  // Puts of sets that are broken or replaced since the last call.
  std::vector<std::uint64_t> take_flagged() { return std::exchange(flagged_, {}); }
  bool anything_flagged() const { return !flagged_.empty(); }
  // The last put of which the master was asked whether its object is whole.
  std::uint64_t asked_up_to = 0;

 private:
  Sets sets_;
  std::unordered_multimap<metadata::KeyHash, std::uint64_t, NameHash> by_name_;
  std::vector<std::uint64_t> flagged_;
};

}  // namespace mc::agent
