// SPDX-License-Identifier: Apache-2.0
//
// Gets objects that other hosts hold, and brings the objects to the readers that wait
//   here.
//
//              location cached ── small ┬──── large ─────┐
//     fetch ─► kLocate ─► kLocating ─► kAsk ─► kAsking ──┴─► kRead ─► kReading ──► readers
//                 ▲         master,       ▲     holder                   │
//                 │     guessed holder    │                              │
//                 └───── stale ───────────┴──── next holder ─────────────┤
//                           └─ striped ─► kGathering                     └─► a failure, counted by reason
//
//   The Locator asks masters, HolderQuestions asks holders, the ObjectReader reads and sums. The
//   Fetcher moves each Fetch from step to step. A host that has held the last objects is asked
//   together with the master. The answer counts if the master names the host and the version.
//   Readers of the same object share a fetch. A fetched object is served unpublished.
//   If readers ask for an object again, the CopyKeeper makes a copy, so that a hot prefix spreads.
//   The Gatherer reads objects in stripes, which are never kept as copies.
// Threads: the agent's loop.
// Owns: the fetches' helpers. The OperationTable owns the fetches.
// Trusts: a holder's answer about a place is checked by the transport and the checksum.
#pragma once

#include <memory>
#include <string_view>

#include "agent/cluster/fetch/copy_keeper.h"
#include "agent/cluster/fetch/fetch.h"
#include "agent/cluster/fetch/gatherer.h"
#include "agent/cluster/fetch/holder_guess.h"
#include "agent/cluster/fetch/locator.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

class Fetcher {
 public:
  Fetcher(OperationTable& operations, const ClusterTenants& tenants, const Masters& masters,
          Peers& peers, transport::Transport& transport, Announcer& announcer,
          const metadata::Reader& reader, MemberId self);

  void fetch(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant);
  void exists(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant);
  // The host's disks do not have the object of this kFetch or kExists.
  void look_elsewhere(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item,
                      ClusterTenant& tenant);
  // Copies of objects on this host.
  CopyKeeper& copies() { return keeper_; }
  // The namespace goes away. False: the transport may still write to the namespace's pool; the
  // caller polls and calls again.
  bool forget(const ClusterTenant& tenant);
  // The master has ordered a drop of the object up to this version, or of all objects of the
  // namespace. A fetch under way still serves the waiting readers, but nobody joins the fetch and
  // this host does not keep the object.
  void dropped(const metadata::KeyHash& name, std::uint64_t up_to_version);
  void dropped(const ClusterTenant& tenant);
  // Another object has replaced the object, here or on other hosts, up to this version.
  void replaced(const metadata::KeyHash& name, std::uint64_t up_to_version);
  // A put of this host's client has reached another host, as this version.
  void put_elsewhere(const metadata::KeyHash& name, std::uint64_t version, bool upsert);
  // This node has put the key itself. The master hears of the put after earlier announcements.
  void put_here(const metadata::PublishItem& put);

  void on_answer(MemberId from, AskAnswer&& message) {
    questions_.on_answer(from, std::move(message));
  }
  // Before the steps of a turn, and after the steps.
  void prepare();
  void send();
  // When prepare() must be called even if nothing happens; UINT64_MAX: never.
  std::uint64_t next_ns() const;

  LocationCache& locations() { return locator_.locations(); }
  Gatherer& gatherer() { return gatherer_; }
  const FetchCounters& counters() const { return counters_; }

 private:
  friend struct Fetch;
  using Step = Fetch::Step;
  using Known = Fetch::Known;

  bool may_join(const Fetch& fetch) const;
  bool may_serve_own(const ClusterTenant& tenant, std::string_view key) const;
  bool read_own_disks(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item,
                      const ClusterTenant& tenant);
  void fetch(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item,
             ClusterTenant& tenant);

  void step(Fetch& fetch);
  void go_on(Fetch& fetch);
  void go_ask(Fetch& fetch, std::vector<MemberId> holders);
  void ask_master(Fetch& fetch);
  void ask_guess(Fetch& fetch);
  void take_found(Fetch& fetch);
  bool serve_own(Fetch& fetch, const FoundObject& found);
  std::uint64_t end_of_try(const Fetch& fetch) const;
  void ask_holder(Fetch& fetch);
  void take_answer(Fetch& fetch);
  void read(Fetch& fetch);
  void take_read(Fetch& fetch);
  void take_end(Fetch& fetch, Read::End end);
  bool locate_again(Fetch& fetch);
  void gather(Fetch& fetch, const FoundObject& found);
  void take_gathered(Fetch& fetch);
  void try_next(Fetch& fetch);
  bool is_late(const Fetch& fetch) const { return operations_.now_ns() >= fetch.deadline_ns; }

  void deliver(Fetch& fetch);
  // status: MC_NOT_FOUND if no host holds the object.
  void fail(Fetch& fetch, std::uint64_t& reason, mc_status status);
  void fail_without_master(Fetch& fetch, std::uint64_t& reason);
  void late(Fetch& fetch) { fail(fetch, counters_.late, MC_TIMEOUT); }
  void end(Fetch& fetch);

  OperationTable& operations_;
  Peers& peers_;
  const std::size_t most_message_bytes_;
  FetchCounters counters_;
  Locator locator_;
  HolderGuess guess_;
  HolderQuestions questions_;
  ObjectReader reader_;
  Gatherer gatherer_;
  JoinableFetches joinable_;
  CopyKeeper keeper_;
};

}  // namespace mc::agent
