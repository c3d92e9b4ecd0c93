// SPDX-License-Identifier: Apache-2.0
//
// What it is: tells the masters what this agent holds: each change as it happens, in batches, and
//   all of it when a master asks for a report. What a verdict refuses is dropped here. With the
//   master of each partition of the keys there is a talk of its own.
//
//     stores ── changes ──► flush() ──► Talk ──► publish ──► verdicts ──► puts that wait for them
//
//   While no master can be told, puts complete without it: its report will name them. A put that no
//   master has taken (Row::unannounced) is what no removal has meant, whatever their versions say: it is
//   refused only because a clock is behind, and announced anew with a later one.
// Threads: the agent's loop. Owns: changes that are on their way. Trusts: verdicts, as far as the
//   entry still holds that version.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

struct AnnouncerCounters {
  std::uint64_t announced = 0, refused = 0, unannounced_puts = 0, full = 0, retried = 0;
};

class Announcer {
 public:
  using Tenants = std::vector<std::unique_ptr<ClusterTenant>>;
  // None: nobody could be asked in time.
  using Verdicts = std::function<void(std::optional<metadata::Verdict>)>;

  Announcer(Tenants& tenants, const Masters& masters, VersionClock& clock)
      : tenants_(tenants), masters_(masters), clock_(clock) {
    begin_streams();
  }
  // There is another number of masters, and all of them will ask for reports.
  void begin_streams();

  // An remote request of kAnnounce: ends when the master knows the objects.
  void await(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant);
  // An object that this node is about to hold. done may come from within.
  void offer(const metadata::PublishItem& item, std::uint64_t deadline_ns, Verdicts done);
  // It will not; unless it holds that very version by now.
  void withdraw(const metadata::PublishItem& item);
  // Namespaces that hold some version of that object.
  std::vector<ClusterTenant*> tenants_of(const metadata::PublishItem& item) const;
  void flush(std::uint64_t now_ns);

  void next_report(std::uint32_t partition, bool first, std::vector<metadata::PublishItem>& items);
  void on_verdict(const metadata::PublishItem& item, metadata::Verdict verdict);

  bool take_ended() { return std::exchange(ended_, false); }
  const AnnouncerCounters& counters() const { return counters_; }

 private:
  struct Waiter {
    std::shared_ptr<RemoteRequest> remote_request;
    std::size_t item = 0;
  };
  struct Sent {
    ClusterTenant* tenant = nullptr;
    Change change;
  };
  struct MasterStream {  // with the master of a partition
    std::uint32_t partition = 0;
    std::deque<Sent> queue;
    std::size_t in_flight = 0;                            // batches
    std::uint64_t removals_seen = 0;                      // when the oldest of queue was begun
    std::unordered_map<std::uint64_t, Waiter> waiters;    // by version
    std::unordered_map<std::uint64_t, unsigned> retries;  // by entry's latest version
    std::vector<Sent> later;                              // the directory was full
    std::uint64_t next_later_ns = 0;
    bool was_ready = false;
    std::vector<Sent> reported;  // unannounced puts that the report under way has named
    bool reporting = false;      // since a report was begun: changes must be kept
    std::size_t report_tenant = 0;
    std::uint64_t report_cursor = 0;
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
  void announce_anew(MasterStream& stream, const Sent& sent);
  void settle(MasterStream& stream, std::uint64_t version, mc_status status);
  void settle_all(MasterStream& stream);
  void name_entries(MasterStream& stream, ClusterTenant& tenant,
                    std::vector<metadata::PublishItem>& items);
  bool is_of(const MasterStream& stream, const ClusterTenant& tenant, std::uint32_t entry) const;
  bool holds(const Sent& sent) const;
  bool known(const ClusterTenant* tenant) const;

  Tenants& tenants_;
  const Masters& masters_;
  VersionClock& clock_;
  AnnouncerCounters counters_;
  std::vector<std::shared_ptr<MasterStream>> streams_;  // of each partition
  std::uint64_t now_ns_ = 0;
  bool ended_ = false;
};

}  // namespace mc::agent
