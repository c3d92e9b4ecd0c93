// SPDX-License-Identifier: Apache-2.0
//
// The client of agents and tools for the master of a partition. The client finds the
//   leader, proves the key, joins, reports and sends heartbeats. After a lost link or leader it
//   repeats all steps. Meanwhile calls wait in order until the deadlines.
//
//     seek ──► dial ──► attend ──► join ──► report ──► (calls) ──link lost, NOT_LEADER, old epoch──► seek
//                          └─ tools: (calls) at once
//
// Fencing: the client keeps the highest epoch that any answer or order carried. The client refuses
// a lower epoch and drops the link, so a former leader is neither believed nor obeyed.
// Back-pressure: at most kMaxInFlight calls are sent and kMaxQueued calls wait. Further calls fail
// with MC_BUSY.
// Threads: kOwnThread: any thread may call public functions. Callbacks and AgentSide's functions
//   run in the client's own thread and must not block. kCaller: only the thread that calls poll().
// Owns: the link, the cluster store and the thread, if any. Destruction fails open calls with
//   MC_CLOSED.
// Trusts: the leader, as far as codec.h checks.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "libmc/base/fd.h"
#include "libmc/base/mutex.h"
#include "metadata/master/client/leader_finder.h"
#include "metadata/master/client/member_list.h"
#include "metadata/membership/epoch_fence.h"
#include "metadata/rpc/dialer.h"
#include "metadata/wire/messages.h"
#include "metadata/wire/method.h"

namespace mc::metadata {

// The work that an agent does for the master. Each Reply comes once, possibly later, from any
// thread (kCaller: from the caller's thread).
class AgentSide {
 public:
  template <typename Answer>
  using Reply = std::function<void(Result<Answer>)>;
  using Done = std::function<void(Status)>;

  virtual ~AgentSide() = default;
  // The number of partitions of the cluster. Called before the first report and after a change.
  virtual void on_partitions(std::uint32_t /*partitions*/) {}
  virtual Load load() = 0;
  // The latest version of an object that the agent has given or heard, or the version of the present time if that is
  // later. The leader answers with the latest of all members. The agent's next version is later than both.
  virtual std::uint64_t latest_version() = 0;
  virtual void heard_version(std::uint64_t version) = 0;
  // The next objects of this partition that the agent holds: 1 to MC_MAX_BATCH_ITEMS. No items end
  // the report, if the agent returns true. False: the agent will know further objects later. first: start
  // from the beginning. An object that is dropped before the report names it must not be named. An object
  // that is dropped later is published as dropped afterwards.
  virtual bool next_report(bool first, std::vector<PublishItem>& items) = 0;
  // An item of a report that the directory did not accept. The agent drops the object, except for
  // kFull: then the agent keeps the object and publishes it again later.
  virtual void on_report_verdict(const PublishItem& item, Verdict verdict) = 0;
  // Done after the agent holds none of these objects and gives none of them to a reader.
  virtual void on_drop(const wire::Drop& order, Done done) = 0;
  virtual void on_drop_matching(const wire::Match& match,
                                Reply<wire::RemoveMatchingAnswer> reply) = 0;
  virtual void on_list(const wire::Match& match, Reply<wire::ListAnswer> reply) = 0;
  // Done after the agent holds the copy and its publish() was accepted.
  virtual void on_copy(const wire::Copy& order, Done done) = 0;
  // No master can be reached. Called once for each reason until a master is reached. The codes are those of
  // MasterClient::trouble().
  virtual void on_unreachable(const Status& why) { static_cast<void>(why); }
  // A newer incarnation of this node has joined. This incarnation must stop serving.
  virtual void on_fenced() = 0;
};

struct MasterClientOptions {
  std::vector<std::string> masters;  // addresses to try in addition to the store's answer
  std::string store;                 // URL of the cluster store; empty: only `masters`
  std::string cluster_id = "default";
  auth::ClusterKey key;
  rpc::TlsOptions tls;
  auth::Role role = auth::Role::kTool;
  Descriptor descriptor;  // members only
  std::uint32_t partition = 0;
  // the cluster's number of partitions; 0: unknown, valid for partition 0 only
  std::uint32_t partitions = 0;
};

class MasterClient final : rpc::RpcLinkHandler {
 public:
  static constexpr std::size_t kMaxInFlight = 192;  // below a link's max_requests
  static constexpr std::size_t kMaxQueued = 4096;

  template <typename Answer>
  using Done = std::function<void(Result<Answer>)>;

  // kOwnThread: the client runs a thread. kCaller: a loop calls poll(), which saves two thread
  // switches for each call.
  enum class Drive : std::uint8_t { kOwnThread, kCaller };

  // The network and the store of a simulator (kCaller only).
  struct Outside {
    // As rpc::dial().
    std::function<void(boost::asio::any_io_executor, const rpc::DialOptions&,
                       std::uint64_t deadline_ns, rpc::RpcLinkHandler&, rpc::Dialled)>
        dial;
    std::unique_ptr<ClusterStore> store;  // null: only `masters` lead to the master
    StartStoreThread start_thread;
  };

  // member: null for tools; an agent's must outlive the client. Errors: MC_INVALID_ARGUMENT,
  // MC_NO_MEMORY.
  static Result<std::unique_ptr<MasterClient>> create(const MasterClientOptions& options,
                                                      AgentSide* member,
                                                      Drive drive = Drive::kOwnThread);
  static Result<std::unique_ptr<MasterClient>> create_simulated(const MasterClientOptions& options,
                                                                AgentSide* member, Outside outside);
  ~MasterClient() override;

  // kCaller: does all work that does not block. True: there was work.
  bool poll();
  // Readable when poll() has work. Exceptions: timers and name resolution (see next_poll_ns()).
  [[nodiscard]] int wait_fd() const { return epoll_.get(); }
  // When to call poll() even if wait_fd() is not readable.
  [[nodiscard]] std::uint64_t next_poll_ns() const { return next_poll_ns_; }

  // At most MC_MAX_BATCH_ITEMS items each. done is called exactly once, with the answer or with
  // MC_TIMEOUT (changes may still take effect), MC_BUSY, MC_CLOSED, or the master's refusal.
  // publish(): members only, one verdict for each item. A publish without an answer fails with
  // MC_CLOSED when the link is lost. The next report then names what the member holds.
  void publish(std::vector<PublishItem> items, std::uint64_t removals_seen,
               std::uint64_t deadline_ns, Done<std::vector<Verdict>> done);
  void locate(const wire::Locate& request, std::uint64_t deadline_ns, Done<LocateAnswer> done);
  void choose_holders(const wire::ChooseHolders& request, std::uint64_t deadline_ns,
                      Done<wire::ChooseHoldersAnswer> done);
  void remove(const wire::Remove& request, std::uint64_t deadline_ns, Done<wire::RemoveReply> done);
  void remove_matching(const wire::Match& match, std::uint64_t deadline_ns,
                       Done<wire::RemoveMatchingAnswer> done);
  void list(const wire::Match& match, std::uint64_t deadline_ns, Done<wire::ListAnswer> done);
  void members(std::uint64_t deadline_ns, Done<wire::MembersAnswer> done);
  void stats(std::uint64_t deadline_ns, Done<wire::StatsAnswer> done);
  void drain(const wire::Drain& request, std::uint64_t deadline_ns, Done<wire::DrainAnswer> done);
  // Begins a task that copies or moves an object. Errors: those of Relocations::begin().
  void relocate(const wire::Relocate& request, std::uint64_t deadline_ns,
                Done<wire::RelocationId> done);
  // Errors: MC_NOT_FOUND (another master gave the number, or too many tasks have begun since).
  void relocation(const wire::RelocationId& id, std::uint64_t deadline_ns,
                  Done<wire::RelocationAnswer> done);
  // Ends when each key has the wanted holders or none; at the deadline with kTooFew.
  void await_replicas(const wire::AwaitReplicas& request, std::uint64_t deadline_ns,
                      Done<wire::AwaitReplicasAnswer> done);
  // A member says farewell and does not join again. Done is also called if no master can be
  // reached.
  void leave(std::uint64_t deadline_ns, AgentSide::Done done);
  // Reports an unreachable peer with the next heartbeat.
  void report_unreachable(wire::Unreachable peer);
  // Asks the leader for changes of the list of members before the next heartbeat is due. Tools ask nothing.
  void refresh_members();

  // The latest removal that this node has heard of. Read this number before a change begins.
  [[nodiscard]] std::uint64_t removals_seen() const { return removals_seen_; }
  // The highest version that the directory refused a published item for. Set before the item's
  // verdict arrives.
  [[nodiscard]] std::uint64_t refused_up_to() const { return refused_up_to_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  // The master that this client talks to, or dials. REQUIRES: kCaller.
  [[nodiscard]] const std::string& leader() const { return leader_; }
  // The list stays empty for a tool. REQUIRES: kCaller.
  [[nodiscard]] const MemberList& member_list() const { return member_list_; }
  // A member has reported all objects to this leader; a tool has a link.
  [[nodiscard]] bool ready() const { return ready_; }
  // Why the client has no leader: MC_WRONG_KEY, MC_NOT_ADVERTISED, or MC_NO_MASTER for any other reason. MC_OK: a
  // leader answers, or none has been tried yet. REQUIRES: kCaller.
  [[nodiscard]] const Status& trouble() const { return trouble_; }
  [[nodiscard]] std::uint64_t refused_epochs() const { return refused_epochs_; }

 private:
  using Raw = std::function<void(Result<std::string_view>)>;
  struct Call {
    wire::Method method{};
    std::string body;
    std::optional<wire::Publish> publish;  // encoded when sent, with the sequence number
    std::uint64_t deadline_ns = 0;
    Raw done;
  };
  using CallPointer = std::shared_ptr<Call>;

  MasterClient(const MasterClientOptions& options, AgentSide* member, Drive drive, Outside outside);
  static Result<std::unique_ptr<MasterClient>> start(const MasterClientOptions& options,
                                                     AgentSide* member, Drive drive,
                                                     Outside outside);
  void watch(int fd);
  // Runs the function in the next poll(), or soon in the thread.
  template <typename What>
  void post(What what);

  template <typename Answer>
  void ask(wire::Method method, std::string body, std::uint64_t deadline_ns, Done<Answer> done);
  void submit(Call call);

  // The life of the link.
  void seek();
  void found(const Result<std::string>& leader);
  void not_reached(const std::string& where, const Status& why);
  void dial_to(const std::string& address);
  void dialled(Result<std::shared_ptr<rpc::RpcLink>> link);
  void attend();
  void attended(std::uint32_t partitions);
  void promise(std::uint64_t epoch, std::uint32_t promise_ms);
  void join();
  void begin_report();
  void stream_report();
  void end_report();
  void lose(const Status& why);
  void heartbeat();
  void on_stream(StreamAnswer answer);

  // Calls.
  void pump();
  void send(const CallPointer& call);
  void expire();
  [[nodiscard]] Status no_leader() const;
  // False: the answer came from a former leader, and the link is now closed.
  bool believe(const rpc::Answer& answer);
  void internal_call(wire::Method method, std::string body,
                     std::function<void(const rpc::Answer&)> take);

  void on_request(rpc::RpcLink& link, const rpc::Request& request) override;
  void on_cancel(rpc::RpcLink&, std::uint32_t) override {}
  void on_closed(rpc::RpcLink& link, const Status& why) override;
  template <typename Order, typename Start>
  void order(const rpc::Request& request, Start start);
  void reply(std::weak_ptr<rpc::RpcLink> link, std::uint32_t id, Result<std::string> body);

  const MasterClientOptions options_;
  AgentSide* const member_;
  const Drive drive_;
  Outside outside_;
  Fd epoll_;  // kCaller: watches the link's socket and woken_
  Fd woken_;  // written by the finder's thread
  std::uint64_t next_poll_ns_ = 0;
  rpc::TlsContext tls_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer seek_timer_;
  boost::asio::steady_timer heartbeat_timer_;
  boost::asio::steady_timer expire_timer_;
  std::unique_ptr<LeaderFinder> finder_;

  std::shared_ptr<rpc::RpcLink> link_;
  bool seeking_ = false;
  bool usable_ = false;  // joined, or connected as a tool
  bool stopping_ = false;
  bool left_ = false;
  std::string leader_;    // the latest address dialled
  std::string attended_;  // the address of the latest leader
  Status trouble_;
  // the last reported reason for each address, and for the store (empty)
  std::map<std::string, std::string> said_of_;
  std::string hint_;  // the leader's address, as a standby said
  std::size_t next_master_ = 0;
  std::uint64_t pause_ms_ = 0;
  std::uint64_t generation_ = 0;  // counts links; answers of older links are ignored
  EpochFence fence_;
  std::uint32_t partitions_ = 0;  // as the master said
  std::uint64_t sequence_ = 0;
  std::uint32_t heartbeat_ms_ = 200;
  std::uint64_t promised_epoch_ = 0;  // HeartbeatReply::promise_ms
  std::uint64_t promised_until_ns_ = 0;
  std::uint64_t promised_ns_ = 0;  // HeartbeatReply::asked_ns
  std::size_t report_in_flight_ = 0;
  bool report_named_all_ = false;
  std::vector<PublishItem> report_items_;
  bool report_waits_ = false;  // the agent will know further objects later
  std::uint64_t report_removals_seen_ = 0;
  std::deque<CallPointer> queue_;
  std::deque<CallPointer> sent_;  // in order, so that they can be sent again in order
  std::vector<wire::Unreachable> unreachable_;
  MemberList member_list_;

  std::atomic<std::size_t> open_calls_{0};
  std::atomic<std::uint64_t> removals_seen_{0};
  std::atomic<std::uint64_t> refused_up_to_{0};
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> refused_epochs_{0};
  std::uint64_t refused_epoch_ = 0;  // the last one
  std::atomic<bool> ready_{false};
  std::thread thread_;
};

template <typename What>
void MasterClient::post(What what) {
  boost::asio::post(io_, std::move(what));
  if (drive_ == Drive::kCaller) next_poll_ns_ = 0;
}

// For callers that block: runs start(done) and waits for done.
template <typename Answer, typename Start>
Result<Answer> wait_for(Start start) {
  struct Shared {
    Mutex mutex;
    Condition wake;
    std::optional<Result<Answer>> result MC_GUARDED_BY(mutex);
  };
  const auto shared = std::make_shared<Shared>();
  start([shared](Result<Answer> result) {
    const MutexLock lock(shared->mutex);
    shared->result = std::move(result);
    shared->wake.notify_all();
  });
  const MutexLock lock(shared->mutex);
  while (!shared->result) shared->wake.wait(shared->mutex);
  return std::move(*shared->result);
}

}  // namespace mc::metadata
