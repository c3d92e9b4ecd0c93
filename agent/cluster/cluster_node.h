// SPDX-License-Identifier: Apache-2.0
//
// This agent as a member of the cluster. The node composes the classes of this folder,
//   and answers peers and masters.
//
//     Server ── RemoteRequests ──► Fetcher ──► Masters, Peers, Transport
//     stores ── changes ──► Announcer ──► Masters
//     puts without room ──► PutsElsewhere ──► Placer, Striper;   peers' Hold ──► CopyKeeper
//     stripes ──► Striper ──► Placer;   peers' Hold, Seal ──► CopyKeeper, StripeHolder
//     parts on a draining host ──► StripeMover ──► CopyKeeper, StripeHolder
//     peers ── Ask ──► ClusterTenant ── Place ──► peers;   peers' reads: ClusterTenant is the guard
//     master of a partition ── drop, copy, list ──► Orders ──► ClusterTenant, Fetcher
// Threads: The agent's loop.
// Owns: All cluster state but the stores. The agent builds the node; a simulator builds a node with
//   other ports and another transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/cluster/fetch/fetcher.h"
#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/index_walks.h"
#include "agent/cluster/operations/operation_table.h"
#include "agent/cluster/peer/member_refresh.h"
#include "agent/cluster/peer/peers.h"
#include "agent/cluster/peer_server.h"
#include "agent/cluster/place/puts_elsewhere.h"
#include "agent/cluster/publish/announcer.h"
#include "agent/cluster/publish/replica_waits.h"
#include "agent/cluster/removals.h"
#include "agent/cluster/stripe/stripe_holder.h"
#include "agent/cluster/stripe/stripe_mover.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

struct ClusterIdentity {
  MemberId node = 0;
  metadata::Incarnation incarnation = 0;
  std::string secret;  // the cluster's key; without a key the cluster's name
  metadata::Reader place;
  StripeRules stripes;
};

class ClusterNode : public Cluster, public ArrivalListener {
 public:
  ClusterNode(const ClusterIdentity& identity);
  ~ClusterNode() override;

  std::uint64_t hash_seed(std::string_view name_space) const override;
  Status add_tenant(const std::shared_ptr<Tenant>& tenant, MemoryFile kept) override;
  void remove_tenant(const Tenant& tenant) override;
  SharedObjects* shared_objects(const Tenant& tenant) override;
  void set_disks(LocalDisks* disks) override { disks_ = disks; }
  const MemoryFile& versions_file(const Tenant& tenant) const override;
  void collect_pins(const Tenant& tenant, std::vector<std::uint64_t>& pins) const override;
  void begin(const std::shared_ptr<RemoteRequest>& remote_request, std::uint64_t now_ns) override;
  void forget_session(std::uint64_t session) override;
  bool in_stripes(std::uint64_t bytes) const override { return puts_->striper().wants(bytes); }
  bool take_ended() override;
  bool poll(std::uint64_t now_ns) override;
  void advance(std::uint64_t now_ns) override;
  std::uint64_t next_poll_ns() const override;
  bool lively(std::uint64_t now_ns) const override;
  const Status& fenced() const override { return fenced_; }
  std::string status_text() override;
  bool ask(std::string_view verb, std::string_view request, Answer done) override;

 protected:
  // Orders of a partition's master, to be given to the master's port. Outlives the port.
  class Orders;

  // Call once, before the first tenant. The arguments must live until stop().
  void connect(std::vector<MasterPort*> ports, transport::Transport& transport);
  // Replaces the masters' ports.
  void set_masters(std::vector<MasterPort*> ports);
  void stop();
  std::unique_ptr<MasterOrders> orders_of(std::uint32_t partition);
  // A master tells the number of partitions of the keys.
  virtual void on_partitions(std::uint32_t /*partition*/, std::uint32_t /*partitions*/) {}
  // The agent must not serve any more.
  void set_fenced(const std::string& cause) { fenced_ = {MC_CLOSED, cause}; }
  [[nodiscard]] std::string master_trouble() const;

  // Describes the transport that carries large reads beside TCP.
  struct OneSidedReport {
    std::string_view transport;  // empty: TCP is alone
    std::string devices;
    std::string obstacles;  // why some memory or devices are not used; empty: no obstacle
  };
  virtual OneSidedReport one_sided() const { return {}; }
  // Reads what the masters have sent. Returns false if nothing came.
  virtual bool poll_masters(std::uint64_t /*now_ns*/) { return false; }

  const ClusterIdentity identity_;
  Peers peers_;
  Masters masters_;

 private:
  class Verbs;  // of mcctl; cluster_status.h

  // Drops the matching objects of this host. `partition`: of the keys to look at.
  void drop_matching(ClusterTenant& tenant, const metadata::wire::Match& match,
                     IndexWalks::Partition partition,
                     MasterOrders::Reply<metadata::wire::RemoveMatchingAnswer> reply);
  void on_arrival(const ClusterTenant& tenant, std::uint32_t entry, bool is_put) override;
  void on_put(const metadata::PublishItem& put) override;
  void on_not_on_disks(ClusterTenant& tenant, const std::shared_ptr<RemoteRequest>& request,
                       std::size_t item) override;
  // Tells the transport which ranges of the pools have memory.
  void tell_backed();
  void tell_leases();
  void end_leaving();
  void on_traffic(std::uint64_t now_ns);
  void on_event(const transport::Event& event, std::uint64_t now_ns);
  void on_message(const transport::Event& event);

  metadata::KeyHasher hasher_;
  VersionClock clock_;
  transport::Transport* transport_ = nullptr;
  LocalDisks* disks_ = nullptr;
  ClusterTenants tenants_;
  ClusterTenants leaving_;     // removed namespaces whose memory transfers may still use
  OperationTable operations_;  // after the namespaces, whose reservations it owns
  MemberRefresh members_;
  std::unique_ptr<PeerServer> peer_server_;
  std::unique_ptr<Announcer> announcer_;
  std::unique_ptr<Fetcher> fetcher_;
  std::unique_ptr<PutsElsewhere> puts_;
  std::unique_ptr<StripeHolder> stripe_holder_;
  std::unique_ptr<StripeMover> mover_;
  std::unique_ptr<Removals> removals_;
  std::unique_ptr<ReplicaWaits> replica_waits_;
  std::unique_ptr<Verbs> verbs_;
  IndexWalks walks_;
  std::vector<transport::Event> events_;
  std::uint64_t traffic_ns_ = 0;  // the last traffic
  bool traffic_is_dense_ = false;
  Status fenced_;
};

}  // namespace mc::agent
