// SPDX-License-Identifier: Apache-2.0
//
// Gets objects that other hosts hold, and brings the objects to the readers that wait
//   here.
//
//              location cached ──────────────────────────┐
//     fetch ─► kLocate ─► kLocating ─► kAsk ─► kAsking ──┴─► kReading ──► readers, or kOffered
//                 ▲         master        ▲     holder           │            (a copy to keep)
//                 └───── stale ───────────┴──── next holder ─────┤
//                           └─ striped ─► kGathering             └─► a miss, counted by reason
//
//   The Locator asks masters, HolderQuestions asks holders, the ObjectReader reads and sums, the
//   CopyKeeper keeps. The Fetcher moves each fetch from step to step.
//   Readers of the same object share a fetch. A fetched object is served unpublished.
//   If readers ask for an object again, this host makes a copy, so that a hot prefix spreads.
//   The Gatherer reads objects in stripes, which are never kept as copies.
// Threads: the agent's loop.
// Owns: the fetches under way, and fetched objects that no other class holds.
// Trusts: a holder's answer about a place is checked by the transport and the checksum.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "agent/cluster/fetch/copy_keeper.h"
#include "agent/cluster/fetch/holder_questions.h"
#include "agent/cluster/fetch/locator.h"
#include "agent/cluster/fetch/object_reader.h"
#include "agent/cluster/fetch/waiting_readers.h"
#include "agent/cluster/stripe/gatherer.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

class Fetcher {
 public:
  using Ended = std::function<void(mc_status)>;

  Fetcher(const Masters& masters, Peers& peers, transport::Transport& transport,
          Announcer& announcer, Gatherer& gatherer, const metadata::Reader& reader);

  void fetch(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
             std::uint64_t now_ns);
  void exists(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
              std::uint64_t now_ns);
  // Copies an object to this host. Only holders of the object know the key and the namespace.
  void copy(const std::vector<ClusterTenant*>& tenants, const metadata::KeyHash& name,
            MemberId source, std::uint64_t deadline_ns, Ended ended);
  // Holds an object that a client of host `writer` is putting. The bytes lie at the writer.
  // ended: MC_OK, MC_NO_SPACE, MC_CANCELLED (the version is too old) or another failure.
  void hold(ClusterTenant& tenant, const HoldRequest& message, MemberId writer,
            std::uint64_t now_ns, Ended ended);
  // The same for a stripe of an expected set. The set stays open, and no master is told.
  void hold_stripe(ClusterTenant& tenant, const HoldRequest& message, MemberId writer,
                   std::uint64_t now_ns, Ended ended);
  // Ends all fetches of a namespace that is going away. False: the transport may still write to
  // the namespace's pool; the caller polls and calls again.
  bool forget(const ClusterTenant& tenant);
  // The master has ordered a drop of the object up to this version, or of all objects of the
  // namespace. A fetch under way still serves the waiting readers, but nobody joins the fetch and
  // this host does not keep the object.
  void dropped(const metadata::KeyHash& name, std::uint64_t up_to_version);
  void dropped(const ClusterTenant& tenant);
  // This node has put the key itself. The master hears of the put after earlier announcements.
  void put_here(const metadata::PublishItem& put);

  void on_answer(MemberId from, const AskAnswer& message,
                 const std::vector<std::unique_ptr<ClusterTenant>>& tenants);
  void on_event(const transport::Event& event);
  void flush(std::uint64_t now_ns);
  // When flush() must be called even if nothing happens; UINT64_MAX: never.
  std::uint64_t next_ns() const;
  bool take_ended();

  LocationCache& locations() { return locator_.locations(); }
  const FetchCounters& counters() const { return counters_; }

 private:
  enum class Purpose : std::uint8_t { kRead, kHotCopy, kOrderedCopy, kHold, kStripe };
  enum class Step : std::uint8_t {
    kLocate,
    kLocating,
    kAsk,
    kAsking,
    kReading,
    kOffered,
    kGathering
  };
  // How the fetch knows the holders. A failure at the last holder leads to the next state, and to a
  // question to the master.
  enum class Known : std::uint8_t { kFromCache, kFirst, kRelocated };
  struct Fetch {
    std::uint64_t id = 0;
    Purpose purpose = Purpose::kRead;
    Step step = Step::kLocate;
    ClusterTenant* tenant = nullptr;  // of an ordered copy: unknown until a holder answers
    metadata::KeyHash name;
    std::uint64_t version = 0;  // of the location used last
    FetchedObject object;       // empty while the ObjectReader or the CopyKeeper has the object
    WaitingReaders readers;
    Ended ended;  // kOrderedCopy, kHold, kStripe
    std::uint64_t deadline_ns = 0;
    std::uint64_t try_until_ns = 0;
    std::uint64_t patience_ns = 0;    // until when a holder may be unknown, or a stripe missing
    std::uint64_t not_before_ns = 0;  // for the next kLocating
    std::uint64_t gather = 0;         // the Gatherer's id; 0: none
    Known known = Known::kFirst;
    bool joined = false;          // by a reader for which nothing has been tried anew
    bool hot = false;             // the location was used before: make a copy afterwards
    bool bytes_may_come = false;  // the holder may have read the bytes by now
    std::vector<MemberId> holders;
    std::size_t next_holder = 0;

    bool is_ordered() const { return purpose >= Purpose::kOrderedCopy; }  // by another node
  };

  Fetch* find(std::uint64_t id);
  Fetch& start(Purpose purpose, FetchedObject object, std::uint64_t deadline_ns);
  bool may_join(const Fetch& fetch) const;
  template <typename Predicate>
  void unjoin_if(const metadata::KeyHash& name, Predicate predicate);
  void begin_hold(Purpose purpose, FetchedObject object, HoldJob hold, const HoldRequest& message,
                  MemberId writer, Ended ended);
  void begin_hot_copies(std::uint64_t now_ns);

  void go_locate(Fetch& fetch);
  void go_ask(Fetch& fetch, std::vector<MemberId> holders);
  void go_read(Fetch& fetch, std::uint64_t label_bytes = 0);
  void send_locates(std::uint64_t now_ns);
  void on_located(std::uint64_t id, const metadata::Located* located,
                  std::span<const MemberId> holders);
  void send_asks(std::uint64_t now_ns);
  void take_place(Fetch& fetch, MemberId from, transport::RemoteRegionId region,
                  const PlaceRow& row);
  void on_read(Fetch& fetch, ObjectReader::End result, FetchedObject object);
  void gather(Fetch& fetch, const metadata::Located& located, std::span<const MemberId> holders);
  void on_gathered(Fetch& fetch, mc_status status, std::uint32_t entry, const StripeFacts& facts);
  bool locate_again(Fetch& fetch);

  void try_next(Fetch& fetch, std::uint64_t now_ns);
  void deliver(Fetch& fetch, std::uint32_t kept = kNoEntry, mc_status status = MC_OK);
  void miss(Fetch& fetch, mc_status status, std::uint64_t& reason);
  void end(Fetch& fetch);
  void check_times(std::uint64_t now_ns);
  void on_late(Fetch& fetch, std::uint64_t now_ns);

  Peers& peers_;
  Gatherer& gatherer_;
  FetchCounters counters_;
  Locator locator_;
  HolderQuestions questions_;
  ObjectReader reader_;
  CopyKeeper keeper_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Fetch>> fetches_;
  std::unordered_map<metadata::KeyHash, std::uint64_t, NameHash> by_name_;  // fetches to join
  std::vector<std::uint64_t> to_locate_, to_ask_;
  std::uint64_t next_id_ = 1;
  std::uint64_t next_check_ns_ = 0;
  std::uint64_t now_ns_ = 0;
  bool ended_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
