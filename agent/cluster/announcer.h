// SPDX-License-Identifier: Apache-2.0
//
// What it is: tells the master what this agent holds: each change as it happens, in batches, and
//   all of it when a master asks for a report. What a verdict refuses is dropped here.
//
//     stores ── changes ──► flush() ──► publish ──► verdicts ──► puts that wait for them
//
//   While no master can be told, puts complete without it: its report will name them. A put that no
//   master has taken (Row::untold) is what no removal has meant, whatever their versions say: it is
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

#include "agent/cluster.h"
#include "agent/cluster/cluster_tenant.h"
#include "agent/cluster/master_port.h"

namespace mc::agent {

struct AnnouncerCounters {
  std::uint64_t announced = 0, refused = 0, unannounced_puts = 0, full = 0, retried = 0;
};

class Announcer {
 public:
  using Tenants = std::vector<std::unique_ptr<ClusterTenant>>;
  // None: nobody could be asked in time.
  using Verdicts = std::function<void(std::optional<metadata::Verdict>)>;

  Announcer(Tenants& tenants, MasterPort& port, VersionClock& clock)
      : tenants_(tenants), port_(port), clock_(clock) {}

  // An errand of kAnnounce: ends when the master knows the objects.
  void await(const std::shared_ptr<Errand>& errand, ClusterTenant& tenant);
  // An object that this node is about to hold. done may come from within.
  void offer(const metadata::PublishItem& item, std::uint64_t deadline_ns, Verdicts done);
  // It will not; unless it holds that very version by now.
  void withdraw(const metadata::PublishItem& item);
  // Namespaces that hold some version of that object.
  std::vector<ClusterTenant*> tenants_of(const metadata::PublishItem& item) const;
  void flush(std::uint64_t now_ns);

  void next_report(bool first, std::vector<metadata::PublishItem>& items);
  void on_verdict(const metadata::PublishItem& item, metadata::Verdict verdict);

  bool take_ended() { return std::exchange(ended_, false); }
  const AnnouncerCounters& counters() const { return counters_; }

 private:
  struct Waiter {
    std::shared_ptr<Errand> errand;
    std::size_t item = 0;
  };
  struct Sent {
    ClusterTenant* tenant = nullptr;
    Change change;
  };

  void send(std::uint64_t now_ns);
  void judge(const Sent& sent, metadata::Verdict verdict);
  void announce_anew(const Sent& sent);
  void settle(std::uint64_t version, mc_status status);
  void settle_all();
  bool holds(const Sent& sent) const;
  bool known(const ClusterTenant* tenant) const;

  Tenants& tenants_;
  MasterPort& port_;
  VersionClock& clock_;
  AnnouncerCounters counters_;
  std::deque<Sent> queue_;
  std::size_t in_flight_ = 0;                            // batches
  std::uint64_t removals_seen_ = 0;                      // when the oldest of queue_ was begun
  std::unordered_map<std::uint64_t, Waiter> waiters_;    // by version
  std::unordered_map<std::uint64_t, unsigned> retries_;  // by entry's latest version
  std::vector<Sent> later_;                              // the directory was full
  std::uint64_t next_later_ns_ = 0;
  std::uint64_t now_ns_ = 0;
  bool ended_ = false;
  bool was_ready_ = false;
  std::vector<Sent> reported_;  // untold puts that the report under way has named
  bool reporting_ = false;      // since a report was begun: changes must be kept
  std::size_t report_tenant_ = 0;
  std::uint64_t report_cursor_ = 0;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
