// SPDX-License-Identifier: Apache-2.0
//
// Keeps fetched objects in this host's pool: copies of hot objects, copies that a
//   master ordered, and objects that clients of other hosts put here. The master must accept a copy
//   before this host publishes it, so that a later removal also reaches this host.
//
//     expect ──read──► keep ──► offered to the master ──accepted──► published ──► kept
//       │                │                └──refused, dropped, no answer──► not kept
//       │                └ an upsert is published before the offer
//       └──read──► shelve: a stripe is published, and waits for the Seal
//
//   If this host offered an object but does not keep the object, the keeper withdraws the offer.
// Threads: the agent's loop.
// Owns: the expected copies, the objects that wait for a verdict, the queue of hot objects.
// Trusts: the master's verdict on a version.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "agent/cluster/fetch/object_reader.h"
#include "agent/cluster/publish/announcer.h"

namespace mc::agent {

// A put by a client of another host, which this host is to hold.
struct HoldJob {
  MemberId writer = metadata::kNoNode;
  std::uint32_t request = 0;
  PutOrder order;                // soft pin, and whether the put is an upsert
  std::vector<std::byte> label;  // of a stripe
};

class CopyKeeper {
 public:
  struct Outcome {
    std::uint32_t entry = kNoEntry;  // the live entry; kNoEntry: the object is not kept
    mc_status status = MC_OK;        // for the node that ordered the copy
  };
  // The end of keep(). An object that is not kept still has a reservation. May be called from
  // within keep().
  using Done = std::function<void(std::uint64_t id, FetchedObject object, const Outcome& outcome)>;
  // Fetches of this object below the given version must not be joined, except fetch `by`.
  using Superseded = std::function<void(const metadata::KeyHash& name, std::uint64_t below_version,
                                        std::uint64_t by)>;

  CopyKeeper(Announcer& announcer, FetchCounters& counters, Done done, Superseded superseded)
      : announcer_(announcer),
        counters_(counters),
        done_(std::move(done)),
        superseded_(std::move(superseded)) {}

  // A fetch begins whose object is to be kept.
  void expect(std::uint64_t id, const metadata::KeyHash& name, std::optional<HoldJob> hold);
  // The fetch has a location for the object.
  void found(std::uint64_t id, const ClusterTenant* tenant, std::uint64_t version);
  // REQUIRES for the next three: expect(id).
  void keep(std::uint64_t id, FetchedObject object, std::uint64_t deadline_ns,
            std::uint64_t now_ns);
  // Publishes a stripe. After a failure the object may still have a reservation.
  mc_status shelve(std::uint64_t id, FetchedObject& object);
  // Takes the object back before the verdict. done is not called.
  FetchedObject stop_waiting(std::uint64_t id);
  // The fetch has ended. Does nothing for an unknown id.
  void forget(std::uint64_t id);

  bool will_keep(std::uint64_t id) const;
  std::size_t hold_count() const;
  bool holds(MemberId writer, std::uint32_t request) const;

  // The master has ordered a drop up to this version, or of a whole namespace.
  void drop(const metadata::KeyHash& name, std::uint64_t up_to_version);
  void drop(const ClusterTenant& tenant);
  // This node has put the key itself. The master hears of that put after earlier offers.
  void put_here(const metadata::PublishItem& put);

  // Objects that were read often enough to be copied soon.
  void add_hot(FetchedObject object, std::uint64_t now_ns);
  std::optional<FetchedObject> take_hot(std::uint64_t now_ns);
  void forget_hot(const ClusterTenant& tenant);
  std::uint64_t next_hot_ns() const { return hot_.empty() ? UINT64_MAX : hot_.front().due_ns; }

 private:
  enum class Offer : std::uint8_t { kNone, kPending, kAnswered };
  struct Copy {
    std::uint64_t id = 0;
    metadata::KeyHash name;
    const ClusterTenant* tenant = nullptr;  // of an ordered copy: unknown until a holder answers
    std::uint64_t version = 0;
    std::optional<HoldJob> hold;
    FetchedObject object;
    bool dropped = false;    // removed or replaced since expect()
    bool published = false;  // by this class
    Offer offer = Offer::kNone;
    metadata::PublishItem item;                // of the offer
    std::optional<metadata::Verdict> verdict;  // none: no master could be asked
  };
  struct Hot {
    FetchedObject object;
    std::uint64_t due_ns = 0;
  };

  void make_offer(Copy& copy, std::uint64_t deadline_ns);
  void on_verdict(std::uint64_t id, const metadata::PublishItem& item,
                  std::optional<metadata::Verdict> verdict);
  void finish(Copy& copy);
  std::uint32_t conclude(Copy& copy);
  bool publish_upsert(Copy& copy);
  std::uint32_t publish(Copy& copy);
  void supersede(const Copy& by, std::uint64_t below_version);
  void withdraw(const metadata::PublishItem& item, std::optional<metadata::Verdict> verdict);

  Announcer& announcer_;
  FetchCounters& counters_;
  const Done done_;
  const Superseded superseded_;
  std::unordered_map<std::uint64_t, Copy> copies_;
  std::deque<Hot> hot_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
