// SPDX-License-Identifier: Apache-2.0
//
// What it is: the one way for agents and tools to talk to the master of a partition: finds its leader,
//   proves the key, joins, reports, heartbeats, and does it all again when link or leader are lost.
//   Calls wait meanwhile, in order, until their deadlines.
//
//     seek ──► dial ──► attend ──► join ──► report ──► (calls) ──link lost, NOT_LEADER, old
//     epoch──► seek
//                          └─ tools: (calls) at once
//
//   Fencing: the highest epoch ever heard is kept; an answer or order of a lower one is refused and
//   its link dropped, so that a leader of the past is neither believed nor obeyed.
//   Back-pressure: at most kMaxInFlight calls are sent and kMaxQueued wait; more are MC_BUSY.
// Threads: kOwnThread: public functions from any; callbacks and AgentSide's functions come from the
//   client's own thread and must not block. kCaller: all from the one that calls poll().
// Owns: its thread, if any, link and cluster store. Destruction fails what is open with MC_CLOSED.
// Trusts: the leader, as far as codec.h checks.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "libmc/base/fd.h"
#include "metadata/master/client/leader_finder.h"
#include "metadata/membership/epoch_fence.h"
#include "metadata/rpc/dialer.h"
#include "metadata/wire/messages.h"
#include "metadata/wire/method.h"

namespace mc::metadata {

// What an agent does for the master. Replies may come later, once each, from any thread (kCaller:
// from the caller's).
class AgentSide {
 public:
  template <typename Answer>
  using Reply = std::function<void(Result<Answer>)>;
  using Done = std::function<void(Status)>;

  virtual ~AgentSide() = default;
  // The cluster's keys are in so many partitions; said before the first report, and when it changes.
  virtual void on_partitions(std::uint32_t /*partitions*/) {}
  virtual Load load() = 0;
  // The next of all objects of the partition that it holds, 1 to MC_MAX_BATCH_ITEMS; none: that was
  // all. first: begin again. An object dropped before it is named must not be named; one dropped
  // later is published as dropped afterwards.
  virtual void next_report(bool first, std::vector<PublishItem>& items) = 0;
  // What the directory did not accept of a report: drop it, but keep what is kFull, and publish
  // that again later.
  virtual void on_report_verdict(const PublishItem& item, Verdict verdict) = 0;
  // Done when it does not hold these any more and no reader is given them.
  virtual void on_drop(const wire::Drop& order, Done done) = 0;
  virtual void on_drop_matching(const wire::Match& match,
                                Reply<wire::RemoveMatchingAnswer> reply) = 0;
  virtual void on_list(const wire::Match& match, Reply<wire::ListAnswer> reply) = 0;
  // Done after the copy is held and its publish() was accepted.
  virtual void on_copy(const wire::Copy& order, Done done) = 0;
  // A master is not reached, and why: said once for each reason, until one is reached.
  virtual void on_unreachable(const Status& why) { static_cast<void>(why); }
  // A newer incarnation of this node has joined: this one must stop serving.
  virtual void on_fenced() = 0;
};

struct MasterClientOptions {
  std::vector<std::string> masters;  // addresses to try, beside what the store says
  std::string store;                 // cluster store's URL; empty: only `masters`
  std::string cluster_id = "default";
  rpc::ClusterKey key;
  rpc::TlsOptions tls;
  rpc::Role role = rpc::Role::kTool;
  Descriptor descriptor;  // of a member
  std::uint32_t partition = 0;
  std::uint32_t partitions = 0;  // of the cluster; 0: not known, for partition 0 only
};

class MasterClient final : rpc::LinkHandler {
 public:
  static constexpr std::size_t kMaxInFlight = 192;  // below a link's max_requests
  static constexpr std::size_t kMaxQueued = 4096;

  template <typename Answer>
  using Done = std::function<void(Result<Answer>)>;

  // Who runs it: a thread of its own, or a loop that calls poll(), and saves two changes of thread
  // a call.
  enum class Drive : std::uint8_t { kOwnThread, kCaller };

  // member: null for tools; else it must outlive the client. Errors: MC_INVALID_ARGUMENT,
  // MC_NO_MEMORY.
  static Result<std::unique_ptr<MasterClient>> create(const MasterClientOptions& options,
                                                      AgentSide* member,
                                                      Drive drive = Drive::kOwnThread);
  ~MasterClient() override;

  // kCaller: does what can be done without waiting. True: there was something.
  bool poll();
  // Readable when there is something to do for poll(), but for time, and names being resolved.
  [[nodiscard]] int wait_fd() const { return epoll_.get(); }
  // When to call poll() though nothing was readable.
  [[nodiscard]] std::uint64_t next_poll_ns() const { return next_poll_ns_; }

  // At most MC_MAX_BATCH_ITEMS items each. done comes exactly once, with the answer or:
  // MC_TIMEOUT (changes may still take effect), MC_BUSY, MC_CLOSED, or what the master refused
  // with. publish(): members only; verdicts are one an item. One that has no answer when the link
  // is lost fails with MC_CLOSED: it is made good by the next report.
  void publish(std::vector<PublishItem> items, std::uint64_t removals_seen,
               std::uint64_t deadline_ns, Done<std::vector<Verdict>> done);
  void locate(const wire::Locate& request, std::uint64_t deadline_ns, Done<LocateAnswer> done);
  void place(const wire::Place& request, std::uint64_t deadline_ns, Done<wire::PlaceAnswer> done);
  void remove(const wire::Remove& request, std::uint64_t deadline_ns, Done<wire::RemoveReply> done);
  void remove_matching(const wire::Match& match, std::uint64_t deadline_ns,
                       Done<wire::RemoveMatchingAnswer> done);
  void list(const wire::Match& match, std::uint64_t deadline_ns, Done<wire::ListAnswer> done);
  void members(std::uint64_t deadline_ns, Done<wire::MembersAnswer> done);
  void stats(std::uint64_t deadline_ns, Done<wire::StatsAnswer> done);
  void drain(const wire::Drain& request, std::uint64_t deadline_ns, Done<wire::DrainAnswer> done);
  // Says farewell as a member; nothing is joined again. Done<> also when no master is there.
  void leave(std::uint64_t deadline_ns, AgentSide::Done done);
  // A peer that could not be reached, for the next heartbeat.
  void report_unreachable(wire::Unreachable peer);

  // The latest removal this node has heard of; to be read before a change is begun.
  [[nodiscard]] std::uint64_t removals_seen() const { return removals_seen_; }
  // The latest version that something published was too old for; known before its verdict.
  [[nodiscard]] std::uint64_t refused_up_to() const { return refused_up_to_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  // Of the master that it talks to, or dials. REQUIRES: kCaller.
  [[nodiscard]] const std::string& leader() const { return leader_; }
  // All that it held when this leader came has been reported, or it is a tool with a link.
  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] std::uint64_t refused_epochs() const { return refused_epochs_; }

 private:
  using Raw = std::function<void(Result<std::string_view>)>;
  struct Call {
    wire::Method method{};
    std::string body;
    std::optional<wire::Publish> publish;  // encoded when sent, with its sequence
    std::uint64_t deadline_ns = 0;
    Raw done;
  };
  using CallPointer = std::shared_ptr<Call>;

  MasterClient(const MasterClientOptions& options, AgentSide* member, Drive drive);
  void watch(int fd);
  // Runs it in the next poll(), or in the thread, soon.
  template <typename What>
  void post(What what);

  template <typename Answer>
  void ask(wire::Method method, std::string body, std::uint64_t deadline_ns, Done<Answer> done);
  void submit(Call call);

  // Life of the link.
  void seek();
  void found(const Result<std::string>& leader);
  void dial_to(const std::string& address);
  void dialled(Result<std::shared_ptr<rpc::Link>> link);
  void attend();
  void attended(std::uint32_t partitions);
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
  // False: of an old leader; the link is gone now.
  bool believe(const rpc::Answer& answer);
  void internal_call(wire::Method method, std::string body,
                     std::function<void(const rpc::Answer&)> take);

  void on_request(rpc::Link& link, const rpc::Request& request) override;
  void on_cancel(rpc::Link&, std::uint32_t) override {}
  void on_closed(rpc::Link& link, const Status& why) override;
  template <typename Order, typename Start>
  void order(const rpc::Request& request, Start start);
  void reply(std::weak_ptr<rpc::Link> link, std::uint32_t id, Result<std::string> body);

  const MasterClientOptions options_;
  AgentSide* const member_;
  const Drive drive_;
  Fd epoll_;  // kCaller: the link's socket, and woken_
  Fd woken_;  // by the finder's thread
  std::uint64_t next_poll_ns_ = 0;
  rpc::TlsContext tls_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer seek_timer_;
  boost::asio::steady_timer heartbeat_timer_;
  boost::asio::steady_timer expire_timer_;
  std::unique_ptr<LeaderFinder> finder_;

  std::shared_ptr<rpc::Link> link_;
  bool seeking_ = false;
  bool usable_ = false;  // joined, or a tool's
  bool stopping_ = false;
  bool left_ = false;
  std::string leader_;                          // dialed last
  std::string dial_failure_;                    // the last one; empty: it did not fail
  std::map<std::string, std::string> said_of_;  // why masters are not reached, by their addresses
  std::string hint_;                            // what a standby said
  std::size_t next_master_ = 0;
  std::uint64_t pause_ms_ = 0;
  std::uint64_t generation_ = 0;  // of links: what an older one says is not for this one
  EpochFence fence_;
  std::uint32_t partitions_ = 0;  // as heard
  std::uint64_t sequence_ = 0;
  std::uint32_t heartbeat_ms_ = 200;
  std::size_t report_in_flight_ = 0;
  bool report_named_all_ = false;
  std::vector<PublishItem> report_items_;
  std::uint64_t report_removals_seen_ = 0;
  std::deque<CallPointer> queue_;
  std::deque<CallPointer> sent_;  // in order, so that they go out in order again
  std::vector<wire::Unreachable> unreachable_;

  std::atomic<std::size_t> open_calls_{0};
  std::atomic<std::uint64_t> removals_seen_{0};
  std::atomic<std::uint64_t> refused_up_to_{0};
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> refused_epochs_{0};
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
    std::mutex mutex;
    std::condition_variable wake;
    std::optional<Result<Answer>> result;
  };
  const auto shared = std::make_shared<Shared>();
  start([shared](Result<Answer> result) {
    const std::lock_guard lock(shared->mutex);
    shared->result = std::move(result);
    shared->wake.notify_all();
  });
  std::unique_lock lock(shared->mutex);
  shared->wake.wait(lock, [&] { return shared->result.has_value(); });
  return std::move(*shared->result);
}

}  // namespace mc::metadata
