// SPDX-License-Identifier: Apache-2.0
//
// What it is: the holder's side of objects in stripes: takes note of stripes that a writer brings,
//   seals them when all of the object is held, tells readers where they lie, and drops what is
//   part of no object, or of none any more.
//
//   Every holder tells the master of the object itself, under the one version that the writer has
//   given it: so a removal or an upsert reaches all stripes, as it does all copies of another
//   object, and the first of the holders that the master takes decides between two puts. With it
//   they say which part of the object they have, of how many; the object is there when each has a
//   holder. One that evicts a stripe lets its part go, and removes the object unless other hosts
//   are to have that part too; what nobody can tell the others (a host that is lost) they find out
//   by asking the master from time to time.
// Threads: the agent's loop. Owns: when to do what; sets of stripes are the ClusterTenants'.
// Trusts: what the writer says of an object is compared between its stripes, and at the reader with
//   the checksum.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "agent/cluster/publish/announcer.h"
#include "transport/transport.h"

namespace mc::agent {

struct StripeCounters {
  std::uint64_t sealed = 0;    // parts of objects
  std::uint64_t expired = 0;   // of puts that were not completed
  std::uint64_t broken = 0;    // parts that went because a stripe of theirs was evicted here
  std::uint64_t orphaned = 0;  // dropped, because other parts were missing for too long
};

class StripeHolder {
 public:
  using Tenants = std::vector<std::unique_ptr<ClusterTenant>>;
  using Ended = std::function<void(mc_status)>;  // as Fetcher::hold
  static constexpr std::size_t kMaxOpen = 256;   // sets

  StripeHolder(Tenants& tenants, const Masters& masters, Peers& peers,
               transport::Transport& transport, Announcer& announcer, VersionClock& clock,
               std::uint64_t grace_ns)
      : tenants_(tenants),
        masters_(masters),
        peers_(peers),
        transport_(transport),
        announcer_(announcer),
        clock_(clock),
        grace_ns_(grace_ns) {}

  // A stripe is about to be pulled: of a put, or of a part that is moved here. False: there are too
  // many open sets, or it is of another object.
  bool expect(ClusterTenant& tenant, const PeerMessage& hold, MemberId writer, std::uint64_t now_ns,
              std::uint8_t part = kNoPart);
  void seal(ClusterTenant& tenant, const PeerMessage& message, Ended ended);
  // All stripes of a part are here that was sealed elsewhere; as long as ended is not called, to be
  // said again. Another agent that starts with this memory holds it whatever the master has said.
  void seal_moved(ClusterTenant& tenant, SetId id, std::uint64_t version, std::uint8_t parts,
                  Ended ended);
  // Stripes messages that say where the object's stripes lie.
  std::vector<PeerMessage> places(ClusterTenant& tenant, const PeerMessage& ask) const;
  // The master's word: what is held of the object up to that version goes.
  static void drop(ClusterTenant& tenant, const metadata::KeyHash& name,
                   std::uint64_t up_to_version);
  void flush(std::uint64_t now_ns);
  std::uint64_t next_ns() const;
  const StripeCounters& counters() const { return counters_; }
  // Hears of objects that are sealed here.
  std::function<void(const metadata::KeyHash& name, std::uint64_t version)> on_sealed;

 private:
  static void name(StripeSet& set, std::uint64_t version, std::uint8_t parts);
  void offer(ClusterTenant& tenant, StripeSet& set, metadata::PublishItem::What what, Ended ended);
  void on_verdict(std::uint64_t tenant_id, SetId id, const metadata::PublishItem& item,
                  std::optional<metadata::Verdict> verdict, const Ended& ended);
  static void make_way(ClusterTenant& tenant, const metadata::KeyHash& name, std::uint64_t version);
  void look_at_flagged(ClusterTenant& tenant);
  void look_at_open(ClusterTenant& tenant);
  void ask_for_the_rest(ClusterTenant& tenant);
  void on_located(std::uint64_t tenant_id, const std::vector<SetId>& ids,
                  const metadata::LocateAnswer& answer);
  ClusterTenant* find(std::uint64_t tenant_id) const;
  void remove(const StripeSet& set);

  Tenants& tenants_;
  const Masters& masters_;
  Peers& peers_;
  transport::Transport& transport_;
  Announcer& announcer_;
  VersionClock& clock_;
  const std::uint64_t grace_ns_;
  StripeCounters counters_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_check_ns_ = 0;
  std::uint64_t next_question_ns_ = 0;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
