// SPDX-License-Identifier: Apache-2.0
//
// The holder's side of objects in stripes. The StripeHolder
//   - records the stripes that a writer brings,
//   - seals a set of stripes when the whole object is held,
//   - tells readers where the stripes lie,
//   - drops stripes without an object.
//
//   A part is the set of stripes that a host holds. Each holder announces the part to the master
//   under the object's name and the writer's version, with the part's number and the part count.
//   The object exists when each part has a holder. The announcements have these effects:
//   - A removal or an upsert reaches all stripes, just as all copies of an ordinary object.
//   - Between two puts, the first announcement that the master accepts decides.
//   - A host that evicts a stripe drops the part. If no other host is to hold that part too, the
//     host also removes the object.
//   - If a host is lost, the other holders notice, because each holder asks the master from time to
//     time.
// Threads: the agent's loop.
// Owns: the times of checks and questions. The ClusterTenants own the sets of stripes.
// Trusts: the writer's description of an object is compared between the stripes. The reader checks
//   the bytes with the checksum.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "agent/cluster/fetch/fetcher.h"
#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "agent/cluster/publish/announcer.h"
#include "transport/transport.h"

namespace mc::agent {

struct StripeCounters {
  std::uint64_t sealed = 0;    // parts of objects
  std::uint64_t expired = 0;   // open sets of incomplete puts
  std::uint64_t broken = 0;    // parts dropped because a stripe was evicted here
  std::uint64_t orphaned = 0;  // parts dropped because other parts were missing for too long
};

class StripeHolder {
 public:
  using Tenants = std::vector<std::unique_ptr<ClusterTenant>>;
  using Ended = std::function<void(mc_status)>;  // as Fetcher::hold
  static constexpr std::size_t kMaxOpen = 256;   // open sets

  StripeHolder(const OperationTable& operations, Tenants& tenants, const Masters& masters,
               Peers& peers, transport::Transport& transport, Announcer& announcer,
               Fetcher& fetcher, VersionClock& clock, std::uint64_t grace_ns)
      : operations_(operations),
        tenants_(tenants),
        masters_(masters),
        peers_(peers),
        transport_(transport),
        announcer_(announcer),
        fetcher_(fetcher),
        clock_(clock),
        grace_ns_(grace_ns) {}

  // A stripe of a put, or of a part that is moved here, is about to be pulled. False: there are too
  // many open sets, or the stripe belongs to another object.
  bool expect(ClusterTenant& tenant, const HoldRequest& hold, MemberId writer,
              std::uint8_t part = kNoPart);
  void seal(ClusterTenant& tenant, const SealRequest& message, Ended ended);
  // Seals a part that was moved here completely. The caller repeats the call until `ended` is
  // called. If this agent restarts on the same memory, the next agent holds the part whatever the
  // verdict was.
  void seal_moved(ClusterTenant& tenant, SetId id, std::uint64_t version, std::uint8_t parts,
                  Ended ended);
  // Messages with the places of the object's stripes.
  std::vector<StripesAnswer> places(ClusterTenant& tenant, const StripesRequest& ask) const;
  // The master has ordered a drop of the object up to that version.
  static void drop(ClusterTenant& tenant, const metadata::KeyHash& name,
                   std::uint64_t up_to_version);
  void flush();
  std::uint64_t next_ns() const;
  const StripeCounters& counters() const { return counters_; }

 private:
  static void name(StripeSet& set, std::uint64_t version, std::uint8_t parts);
  void offer(ClusterTenant& tenant, StripeSet& set, metadata::PublishItem::What what, Ended ended);
  void on_verdict(std::uint64_t tenant_id, SetId id, const metadata::PublishItem& item,
                  std::optional<metadata::Verdict> verdict, const Ended& ended);
  static void make_way(ClusterTenant& tenant, const metadata::KeyHash& name, std::uint64_t version,
                       LocalDisks::Dropped done);
  void look_at_flagged(ClusterTenant& tenant);
  void look_at_open(ClusterTenant& tenant);
  void ask_for_the_rest(ClusterTenant& tenant);
  void on_located(std::uint64_t tenant_id, const std::vector<SetId>& ids,
                  const metadata::LocateAnswer& answer);
  ClusterTenant* find(std::uint64_t tenant_id) const;
  void remove(const StripeSet& set);

  const OperationTable& operations_;
  Tenants& tenants_;
  const Masters& masters_;
  Peers& peers_;
  transport::Transport& transport_;
  Announcer& announcer_;
  Fetcher& fetcher_;
  VersionClock& clock_;
  const std::uint64_t grace_ns_;
  StripeCounters counters_;
  std::uint64_t next_check_ns_ = 0;
  std::uint64_t next_question_ns_ = 0;
};

}  // namespace mc::agent
