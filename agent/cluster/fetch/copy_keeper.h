// SPDX-License-Identifier: Apache-2.0
//
// Keeps objects of other hosts in this host's pool: copies of hot objects, copies that a
//   master ordered, and objects that clients of other hosts put here. The master must accept a copy
//   before this host publishes it, so that a later removal also reaches this host.
//
//     kAsk ─► kAsking ─► kRead ─► kReading ─► kOffered ──accepted──► published ─► kClearing ─► kept
//      an ordered copy      ▲         │           └──refused, dropped, no answer──► not kept
//           hot, held ──────┘         ├ an upsert is published before the offer
//                                     └ a stripe is published, and waits for the Seal
//
//   kClearing: no restart may bring back an earlier object of the key from a disk of this host. Otherwise
//   the earlier object would be there again after a power cut, because the copy is in the pool only.
//   If this host offered an object but does not keep the object, the keeper withdraws the offer.
// Threads: the agent's loop.
// Owns: the names of copies under way, and the queue of hot objects. The OperationTable owns the
//   copies.
// Trusts: the master's verdict on a version.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "agent/cluster/fetch/fetch.h"
#include "agent/cluster/fetch/locator.h"
#include "agent/cluster/publish/announcer.h"

namespace mc::agent {

// A put by a client of another host, which this host is to hold.
struct HoldJob {
  MemberId writer = metadata::kNoNode;
  std::uint32_t request = 0;
  PutOrder order;                // soft pin, and whether the put is an upsert
  std::vector<std::byte> label;  // of a stripe
};

class CopyKeeper;

struct Copy final : Asker {
  static constexpr OperationKind kKind = OperationKind::kCopy;
  enum class Purpose : std::uint8_t { kHot, kOrdered, kHold, kStripe };
  enum class Step : std::uint8_t { kAsk, kAsking, kRead, kReading, kOffered, kClearing };
  enum class Offer : std::uint8_t { kNone, kPending, kAnswered };
  using Ended = std::function<void(mc_status)>;

  Copy(CopyKeeper& with, Purpose why) : keeper(with), purpose(why) {}

  CopyKeeper& keeper;
  const Purpose purpose;
  Step at = Step::kRead;
  metadata::KeyHash name;
  FetchedObject object;  // while the Read has the object: only the names
  std::uint64_t version = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t patience_ns = 0;        // until when the source may be unknown
  MemberId source = metadata::kNoNode;  // of an ordered copy
  std::optional<HoldJob> hold;          // of kHold and kStripe
  mc_status result = MC_OK;             // once the copy has ended
  Ended ended;                          // tells the node that ordered the copy
  OperationId read;
  bool dropped = false;  // removed or replaced since the copy began
  bool published = false;
  Offer offer = Offer::kNone;
  metadata::PublishItem item;                // of the offer
  std::optional<metadata::Verdict> verdict;  // none: no master could be asked
  std::uint32_t kept = kNoEntry;             // the live entry, if the offer was accepted
  std::optional<bool> cleared;  // kClearing is over; false: a disk that failed may come back

 private:
  void step() override;
  void cancel() override;
};

class CopyKeeper {
 public:
  using Ended = Copy::Ended;

  CopyKeeper(OperationTable& operations, const ClusterTenants& tenants, Peers& peers,
             Announcer& announcer, Locator& locator, HolderQuestions& questions,
             ObjectReader& reader, JoinableFetches& joinable, FetchCounters& counters)
      : operations_(operations),
        tenants_(tenants),
        peers_(peers),
        announcer_(announcer),
        locator_(locator),
        questions_(questions),
        reader_(reader),
        joinable_(joinable),
        counters_(counters) {}

  // Copies an object to this host. Only holders of the object know the key and the namespace.
  void copy(const metadata::KeyHash& name, MemberId source, std::uint64_t deadline_ns, Ended ended);
  // Holds an object that a client of host `writer` is putting. The bytes lie at the writer.
  // ended: MC_OK, MC_NO_SPACE, MC_CANCELLED (the version is too old) or another failure.
  void hold(ClusterTenant& tenant, const HoldRequest& message, MemberId writer, Ended ended);
  // The same for a stripe of an expected set. The set stays open, and no master is told.
  void hold_stripe(ClusterTenant& tenant, const HoldRequest& message, MemberId writer, Ended ended);
  // The same for a Move, which takes the Copy. Errors: MC_BUSY (try again).
  Result<OperationId> pull_stripe(ClusterTenant& tenant, const HoldRequest& message,
                                  MemberId source, OperationId parent);

  // The master has ordered a drop up to this version, or of a whole namespace.
  void drop(const metadata::KeyHash& name, std::uint64_t up_to_version);
  void drop(const ClusterTenant& tenant);
  // This node has put the key itself. The master hears of that put after earlier offers.
  void put_here(const metadata::PublishItem& put);

  // Objects that were read often enough to be copied soon.
  void add_hot(FetchedObject object);
  void begin_hot_copies();
  void forget_hot(const ClusterTenant& tenant);
  std::uint64_t next_hot_ns() const;

 private:
  friend struct Copy;
  using Step = Copy::Step;
  using Purpose = Copy::Purpose;
  struct Hot {
    FetchedObject object;
    std::uint64_t due_ns = 0;
  };

  Copy& begin(Purpose purpose, FetchedObject object, std::uint64_t deadline_ns,
              OperationId parent = {});
  Result<Copy*> begin_hold(Purpose purpose, FetchedObject object, HoldJob hold,
                           const HoldRequest& message, MemberId writer, OperationId parent = {});
  Result<Copy*> begin_stripe(ClusterTenant& tenant, const HoldRequest& message, MemberId writer,
                             OperationId parent);
  bool holds(MemberId writer, std::uint32_t request) const;
  bool may_begin_hot_copy() const;
  std::size_t hold_count() const;

  void step(Copy& copy);
  void go_on(Copy& copy);
  void ask(Copy& copy);
  void take_answer(Copy& copy);
  void read(Copy& copy);
  void take_read(Copy& copy, Read::End result);
  void keep(Copy& copy);
  void make_offer(Copy& copy);
  void on_verdict(OperationId id, const metadata::PublishItem& item,
                  std::optional<metadata::Verdict> verdict);
  std::uint32_t conclude(Copy& copy);
  bool publish_upsert(Copy& copy);
  std::uint32_t publish(Copy& copy);
  mc_status shelve(Copy& copy);
  void supersede(const Copy& by, std::uint64_t below_version);
  void withdraw(const metadata::PublishItem& item, std::optional<metadata::Verdict> verdict);
  void fail(Copy& copy, mc_status status, std::uint64_t& reason);
  void finish(Copy& copy);
  void clear_disks(Copy& copy);
  void end(Copy& copy, mc_status status);

  OperationTable& operations_;
  const ClusterTenants& tenants_;
  Peers& peers_;
  Announcer& announcer_;
  Locator& locator_;
  HolderQuestions& questions_;
  ObjectReader& reader_;
  JoinableFetches& joinable_;
  FetchCounters& counters_;
  std::unordered_multimap<metadata::KeyHash, Copy*, NameHash> copies_;
  std::deque<Hot> hot_;
};

}  // namespace mc::agent
