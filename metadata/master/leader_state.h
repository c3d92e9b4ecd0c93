// SPDX-License-Identifier: Apache-2.0
//
// All that a master knows while it leads, and all its decisions. This class joins the
//   state machines of directory/, membership/ and placement/ to the links of agents. The state
//   begins empty with each leadership and ends with the leadership.
//
//     requests ──► Directory, Membership ──► answers
//     tick     ──► Membership ──gone──► Directory.leave, Copies, Fanout.fenced
//     publish, locate, tick ──► Copies ──► Copy and Drop orders
//     join     ──► PatternRemovals ──missed removals──► DropMatching orders, then the report
//
// An upsert or a removal is complete when no agent may read the old object any more. Each holder has
// dropped the object or is gone, and the leases that the last leader gave are over.
//
// RECOVERING lasts until recover_ms have passed and all known members have reported. Misses are
// kRecovering meanwhile; a locate may wait for the end. A member whose report makes no progress for 2 s, or
// takes more than 10 s, is waited for no longer. recover_ms become longer by the time of a promise if a member
// of an earlier leader attends and does not join: the member may have to keep its promise to that leader.
// Threads: the master's loop.
// Owns: the state. Links own themselves.
// Trusts: codec.h has checked the limits of all messages; the state machines check the rest. A
//   member that proved the key may claim any node id.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/directory/pattern_removals.h"
#include "metadata/master/absence.h"
#include "metadata/master/copies.h"
#include "metadata/master/drops.h"
#include "metadata/master/elector.h"
#include "metadata/master/fanout.h"
#include "metadata/master/last_leader.h"
#include "metadata/master/master_options.h"
#include "metadata/master/master_report.h"
#include "metadata/master/promises.h"
#include "metadata/master/report_deadlines.h"
#include "metadata/membership/membership.h"
#include "metadata/placement/awaited_replicas.h"
#include "metadata/placement/placement.h"
#include "metadata/rpc/rpc_link.h"
#include "metadata/wire/messages.h"
#include "metadata/wire/method.h"

namespace mc::metadata {

class LeaderState {
 public:
  struct Outside {
    Absence::Save save;
    std::function<std::uint32_t()> link_count;
    std::function<std::uint64_t()> refused_links;
    MasterCounters* counters;  // outlives the leadership
  };

  LeaderState(const MasterOptions& options, const Term& term, Outside outside,
              std::uint64_t now_ns);

  // A link attends this leader and has heard of that epoch; 0: of none.
  void attended(const rpc::RpcLink& link, std::uint64_t heard);
  void on_request(rpc::RpcLink& link, const rpc::Request& request, std::uint64_t now_ns);
  void on_cancel(rpc::RpcLink& link, std::uint32_t id);
  void on_closed(rpc::RpcLink& link);
  void tick(std::uint64_t now_ns);

  // The promises of members let this leader go on without the cluster store.
  void ask_for_promises(bool asks) { promises_.ask(asks); }
  [[nodiscard]] std::uint64_t promised_until_ns() const { return promises_.until_ns(); }

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] bool recovering(std::uint64_t now_ns) const {
    return now_ns < recover_until_ns_ || directory_.recovering();
  }
  [[nodiscard]] wire::StatsAnswer stats() const;
  [[nodiscard]] std::vector<wire::MemberInfo> members() const;
  [[nodiscard]] std::vector<DownMember> down() const;

 private:
  using Act = std::function<void()>;

  // The agent that a link speaks for. Stored in RpcLink::attachment.
  struct Speaker {
    NodeId node = kNoNode;
    Incarnation incarnation = 0;
    const LeaderState* joined_to = nullptr;
  };
  struct Waiting {  // a locate that waits for the end of the recovery
    std::weak_ptr<rpc::RpcLink> link;
    std::uint32_t id = 0;
    std::uint64_t deadline_ns = 0;
    wire::Locate request;
  };
  // A member that has not carried out all removals by pattern. The master sends a few at a time and
  // answers the beginning of the report after the last one, so the report names no removed object.
  struct CatchUp {
    std::weak_ptr<rpc::RpcLink> link;
    // the member had heard of lower numbers only when it joined; 0: it never left
    std::uint64_t removal = 0;
    std::set<std::uint64_t> asked;
    std::optional<std::uint32_t> report;  // the waiting request
  };

  // A function for each method. Each answers, now or later.
  template <typename Message, typename Handle>
  void decoded(rpc::RpcLink& link, const rpc::Request& request, Message& message, Handle handle);
  void join(rpc::RpcLink& link, const rpc::Request& request, const Descriptor& descriptor);
  void tell_changes(std::uint64_t known_version, wire::HeartbeatReply& reply) const;
  void heartbeat(rpc::RpcLink& link, const rpc::Request& request, const wire::Heartbeat& beat);
  void leave(rpc::RpcLink& link, const rpc::Request& request);
  void report(rpc::RpcLink& link, const rpc::Request& request, const wire::Report& report);
  void publish(rpc::RpcLink& link, const rpc::Request& request);
  void locate(rpc::RpcLink& link, const rpc::Request& request);
  void choose_holders(rpc::RpcLink& link, const rpc::Request& request,
                      const wire::ChooseHolders& wanted);
  void remove(rpc::RpcLink& link, const rpc::Request& request, const wire::Remove& wanted);
  void await_replicas(rpc::RpcLink& link, const rpc::Request& request,
                      const wire::AwaitReplicas& wanted);
  void remove_matching(rpc::RpcLink& link, const rpc::Request& request, const wire::Match& match);
  void list(rpc::RpcLink& link, const rpc::Request& request, const wire::Match& match);
  void drain(rpc::RpcLink& link, const rpc::Request& request, const wire::Drain& wanted);
  void give_up(rpc::RpcLink& link, const rpc::Request& request, NodeId node);
  void relocate(rpc::RpcLink& link, const rpc::Request& request, const wire::Relocate& wanted);
  void relocation(rpc::RpcLink& link, const rpc::Request& request, const wire::RelocationId& id);

  Speaker* speaker(rpc::RpcLink& link, const rpc::Request& request);
  void answer_locate(rpc::RpcLink& link, std::uint32_t id, const wire::Locate& request);
  template <typename Message>
  void answer(rpc::RpcLink& link, std::uint32_t id, const Message& message);
  void refuse(rpc::RpcLink& link, std::uint32_t id, std::uint16_t status, std::string text);
  [[nodiscard]] std::map<NodeId, std::string> to_all(const std::string& body) const;

  // leader_state.cc
  void handle(const Membership::Events& events);
  void gone(NodeId node, Incarnation incarnation);
  void give_up(NodeId node);
  void expire_expected();
  void expire_reports();
  void heard_version(std::uint64_t version) {
    if (version <= kLatestVersion) latest_version_ = std::max(latest_version_, version);
  }
  [[nodiscard]] std::uint64_t awake_ns() const { return now_ns_ - membership_.paused_ns(); }
  void answer_waiting();
  void refresh_views();
  void catch_up(NodeId node);
  void catch_all_up();
  void tell_the_late();
  bool must_forget(const Speaker& who);
  [[nodiscard]] std::uint32_t promise_ms() const {
    return static_cast<std::uint32_t>(promises_.asked_ns() / kMs);
  }
  void wait_for_open_drops();
  void answer_in_time(rpc::RpcLink& link, const rpc::Request& request, wire::PublishAnswer result);
  void when_old_leases_are_over(Act act);
  void note_removals();
  std::shared_ptr<rpc::RpcLink> link_of(NodeId node) const;

  const MasterOptions options_;
  const std::uint64_t epoch_;
  const Outside outside_;
  std::uint64_t recover_until_ns_;
  const std::uint64_t last_promise_ns_;  // as recover_until_ns_, with the time of a promise
  // Until then, agents may read objects of members that only an earlier leader heard.
  const std::uint64_t old_leases_until_ns_;
  std::uint64_t now_ns_;
  Directory directory_;
  Membership membership_;
  Fanout fanout_;  // removals by pattern, and listings
  Drops drops_;
  PatternRemovals patterns_;
  ReportDeadlines reports_;
  Promises promises_;
  std::map<NodeId, CatchUp> catching_up_;
  std::map<NodeId, std::weak_ptr<rpc::RpcLink>> links_;
  std::set<const rpc::RpcLink*>
      of_earlier_leaders_;                 // links of their members, which have not joined
  std::map<NodeId, Descriptor> expected_;  // members of the last leader that have not joined yet
  LastLeader last_leader_;
  Absence absence_;
  std::vector<NodeView> views_;
  std::vector<NodeId> places_;  // the nodes that take copies, by node id
  Copies copies_;
  AwaitedReplicas awaited_{directory_};
  std::list<Waiting> waiting_;
  std::vector<Act> after_old_leases_;
  std::uint64_t removals_saved_;
  std::uint64_t latest_version_ = 0;  // that a member has given or heard
  std::uint64_t lost_up_to_ = 0;      // latest_version_ when the last member was gone
  std::uint64_t published_ = 0;
  std::uint64_t located_ = 0;
  // Answers to copies may arrive after this leadership has ended. The weak pointer is empty then.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  // Buffers that are reused.
  wire::Publish publish_;
  BatchAnswer batch_answer_;
  wire::Locate locate_;
  LocateAnswer locate_answer_;
};

}  // namespace mc::metadata
