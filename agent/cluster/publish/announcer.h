// SPDX-License-Identifier: Apache-2.0
//
// Tells the masters which objects this agent holds. Changes are announced in batches as
//   they happen. A report names all objects when a master asks. Objects that a verdict refuses are
//   dropped here. Each partition's master has a separate stream.
//
//     stores ── changes ──► flush() ──► MasterStream ──► publish ──► verdicts ──► waiting puts
//
//   While no master can be told, puts complete without a master, and the next report names them. A
//   put that no master has accepted yet (Row::unannounced) cannot be the target of a removal,
//   even if the versions say so. A refusal of an unannounced put only means that a clock is behind.
//   The announcer then announces the put again with a later version.
// Threads: The agent's loop.
// Owns: The changes that are on their way to a master.
// Trusts: The verdicts, as long as the entry still holds that version.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/operations/operation_table.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

struct AnnouncerCounters {
  std::uint64_t announced = 0, refused = 0, unannounced_puts = 0, full = 0, retried = 0;
};

class Announcer {
 public:
  using Tenants = std::vector<std::unique_ptr<ClusterTenant>>;
  // Empty: no master answered in time.
  using Verdicts = std::function<void(std::optional<metadata::Verdict>)>;

  Announcer(OperationTable& operations, Tenants& tenants, const Masters& masters,
            VersionClock& clock)
      : operations_(operations), tenants_(tenants), masters_(masters), clock_(clock) {
    begin_streams();
  }
  // The number of masters has changed. All masters will ask for reports.
  void begin_streams();

  // A request of kind kAnnounce, which ends when the master knows the objects.
  void await(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant);
  // Announces an object that this node is about to hold. `done` may run inside this call.
  void offer(const metadata::PublishItem& item, std::uint64_t deadline_ns, Verdicts done);
  // Takes an offer back, unless this node holds that very version by now.
  void withdraw(const metadata::PublishItem& item);
  // Namespaces that hold some version of that object.
  std::vector<ClusterTenant*> tenants_of(const metadata::PublishItem& item) const;
  void flush(std::uint64_t now_ns);

  // See metadata::AgentSide.
  bool next_report(std::uint32_t partition, bool first, std::vector<metadata::PublishItem>& items);
  void on_verdict(const metadata::PublishItem& item, metadata::Verdict verdict);

  const AnnouncerCounters& counters() const { return counters_; }

 private:
  struct Waiter {
    std::shared_ptr<RemoteRequest> remote_request;
    std::size_t item = 0;
  };
  struct Sent {
    ClusterTenant* tenant = nullptr;
    Change change;
    // The put was acknowledged earlier, without a master. A put that began later may be known to the master.
    bool late = false;
  };
  struct MasterStream {  // to the master of one partition
    std::uint32_t partition = 0;
    std::deque<Sent> queue;
    std::size_t in_flight = 0;                            // batches
    std::uint64_t removals_seen = 0;                      // as of the oldest change in the queue
    std::unordered_map<std::uint64_t, Waiter> waiters;    // by version
    std::unordered_map<std::uint64_t, unsigned> retries;  // by the entry's latest version
    std::vector<Sent> later;                              // the verdict was kFull
    std::uint64_t next_later_ns = 0;
    bool was_ready = false;
    // Puts since the last flush may have been acknowledged without a master.
    bool acknowledges = true;
    std::vector<Sent> reported;  // unannounced puts that the current report has named
    bool reporting = false;      // a report has begun; changes must be kept
    std::size_t report_tenant = 0;
    std::uint64_t report_cursor = 0;
    bool report_disks = false;  // the pool of the tenant is named
  };

  MasterStream& stream_of(const metadata::KeyHash& name) const {
    return *streams_[masters_.partition_of(name)];
  }
  MasterPort& port_of(const MasterStream& stream) const { return masters_.at(stream.partition); }
  bool keeps(const MasterStream& stream) const {
    return port_of(stream).ready() || stream.reporting;
  }
  void look(MasterStream& stream);
  void sort_changes();
  void say(MasterStream& stream, const Sent& sent);
  void flush(MasterStream& stream);
  void send(const std::shared_ptr<MasterStream>& stream);
  void judge(MasterStream& stream, const Sent& sent, metadata::Verdict verdict);
  void announce_anew(MasterStream& stream, const Sent& sent, std::uint32_t entry);
  static void wait_once(MasterStream& stream, Sent& sent);
  void settle(MasterStream& stream, std::uint64_t version, mc_status status);
  void settle_all(MasterStream& stream);
  void name_entries(MasterStream& stream, ClusterTenant& tenant,
                    std::vector<metadata::PublishItem>& items);
  bool name_disk_objects(MasterStream& stream, ClusterTenant& tenant,
                         std::vector<metadata::PublishItem>& items);
  static void name_disk_object(MasterStream& stream, ClusterTenant& tenant,
                               metadata::PublishItem item, VersionBook::Unannounced unannounced,
                               std::vector<metadata::PublishItem>& items);
  static void name(MasterStream& stream, ClusterTenant& tenant, const Change& change,
                   VersionBook::Unannounced unannounced, std::vector<metadata::PublishItem>& items);
  bool is_of(const MasterStream& stream, const ClusterTenant& tenant, std::uint32_t entry) const;
  std::uint32_t entry_of(const Sent& sent) const;
  bool on_disk(const metadata::PublishItem& item) const;
  void drop(const Sent& sent);
  void told(const Sent& sent);
  void queue_again(MasterStream& stream, Sent sent) const;
  bool known(const ClusterTenant* tenant) const;

  OperationTable& operations_;
  Tenants& tenants_;
  const Masters& masters_;
  VersionClock& clock_;
  AnnouncerCounters counters_;
  std::vector<std::shared_ptr<MasterStream>> streams_;  // by partition
  std::uint64_t now_ns_ = 0;
};

}  // namespace mc::agent
