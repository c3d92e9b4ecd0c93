// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/client/master_client.h"

#include <sys/epoll.h>

#include <algorithm>

#include <boost/asio/post.hpp>

#include "libmc/base/clock.h"
#include "libmc/base/host_port.h"
#include "metadata/store/cluster_store.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

using wire::Method;

namespace {

constexpr std::uint64_t kDialNs = 1'000 * kMs;
constexpr std::uint64_t kStepNs = 5'000 * kMs;  // join, report
constexpr std::uint64_t kMaxPauseMs = 200;
constexpr std::size_t kReportWindow = 32;  // batches
// How often kCaller must poll for timers: heartbeats and deadlines; pauses and name resolution;
// unsent bytes.
constexpr std::uint64_t kUsablePollNs = 20 * kMs;
constexpr std::uint64_t kSeekingPollNs = 4 * kMs;
constexpr std::uint64_t kUnsentPollNs = kMs;

}  // namespace

template <typename Answer>
void MasterClient::ask(Method method, std::string body, std::uint64_t deadline_ns,
                       Done<Answer> done) {
  submit({.method = method,
          .body = std::move(body),
          .publish = std::nullopt,
          .deadline_ns = deadline_ns,
          .done = [done = std::move(done)](Result<std::string_view> bytes) {
            if (!bytes) {
              done(fail(bytes.error()));
              return;
            }
            Answer answer;
            const Status status = wire::decode(*bytes, answer);
            done(status.ok() ? Result<Answer>(std::move(answer)) : fail(status));
          }});
}

void MasterClient::publish(std::vector<PublishItem> items, std::uint64_t removals_seen,
                           std::uint64_t deadline_ns, Done<std::vector<Verdict>> done) {
  const std::size_t count = items.size();
  Raw take = [count, done = std::move(done)](Result<std::string_view> bytes) {
    if (!bytes) {
      done(fail(bytes.error()));
      return;
    }
    wire::PublishAnswer answer;
    const Status status = wire::decode(*bytes, answer);
    if (!status.ok()) {
      done(fail(status));
      return;
    }
    if (answer.verdicts.empty()) answer.verdicts.assign(count, Verdict::kAccepted);
    if (answer.verdicts.size() != count) {
      done(fail(MC_CORRUPT, "the number of verdicts differs from the number of items"));
      return;
    }
    done(std::move(answer.verdicts));
  };
  if (member_ == nullptr || count > wire::kMaxItems) {
    post([take = std::move(take)] {
      take(fail(MC_INVALID_ARGUMENT, "only members may publish, at most 1,024 items at once"));
    });
    return;
  }
  submit({.method = Method::kPublish,
          .body = {},
          .publish = wire::Publish{0, removals_seen, std::move(items)},
          .deadline_ns = deadline_ns,
          .done = std::move(take)});
}

void MasterClient::locate(const wire::Locate& request, std::uint64_t deadline_ns,
                          Done<LocateAnswer> done) {
  ask<LocateAnswer>(
      Method::kLocate, wire::encoded(request), deadline_ns,
      [count = request.keys.size(), done = std::move(done)](Result<LocateAnswer> answer) {
        if (answer && answer->keys.size() != count) {
          answer = fail(MC_CORRUPT, "the master's answer has another number of keys");
        }
        done(std::move(answer));
      });
}

void MasterClient::choose_holders(const wire::ChooseHolders& request, std::uint64_t deadline_ns,
                                  Done<wire::ChooseHoldersAnswer> done) {
  ask<wire::ChooseHoldersAnswer>(Method::kChooseHolders, wire::encoded(request), deadline_ns,
                                 std::move(done));
}
void MasterClient::remove(const wire::Remove& request, std::uint64_t deadline_ns,
                          Done<wire::RemoveReply> done) {
  ask<wire::RemoveReply>(Method::kRemove, wire::encoded(request), deadline_ns, std::move(done));
}
void MasterClient::remove_matching(const wire::Match& match, std::uint64_t deadline_ns,
                                   Done<wire::RemoveMatchingAnswer> done) {
  ask<wire::RemoveMatchingAnswer>(Method::kRemoveMatching, wire::encoded(match), deadline_ns,
                                  std::move(done));
}
void MasterClient::list(const wire::Match& match, std::uint64_t deadline_ns,
                        Done<wire::ListAnswer> done) {
  ask<wire::ListAnswer>(Method::kList, wire::encoded(match), deadline_ns, std::move(done));
}
void MasterClient::members(std::uint64_t deadline_ns, Done<wire::MembersAnswer> done) {
  ask<wire::MembersAnswer>(Method::kMembers, {}, deadline_ns, std::move(done));
}
void MasterClient::stats(std::uint64_t deadline_ns, Done<wire::StatsAnswer> done) {
  ask<wire::StatsAnswer>(Method::kStats, {}, deadline_ns, std::move(done));
}
void MasterClient::drain(const wire::Drain& request, std::uint64_t deadline_ns,
                         Done<wire::DrainAnswer> done) {
  ask<wire::DrainAnswer>(Method::kDrain, wire::encoded(request), deadline_ns, std::move(done));
}

void MasterClient::relocate(const wire::Relocate& request, std::uint64_t deadline_ns,
                            Done<wire::RelocationId> done) {
  ask<wire::RelocationId>(Method::kRelocate, wire::encoded(request), deadline_ns, std::move(done));
}
void MasterClient::relocation(const wire::RelocationId& id, std::uint64_t deadline_ns,
                              Done<wire::RelocationAnswer> done) {
  ask<wire::RelocationAnswer>(Method::kRelocation, wire::encoded(id), deadline_ns, std::move(done));
}

void MasterClient::await_replicas(const wire::AwaitReplicas& request, std::uint64_t deadline_ns,
                                  Done<wire::AwaitReplicasAnswer> done) {
  ask<wire::AwaitReplicasAnswer>(Method::kAwaitReplicas, wire::encoded(request), deadline_ns,
                                 std::move(done));
}

void MasterClient::submit(Call call) {
  const auto pointer = std::make_shared<Call>(std::move(call));
  const bool room = open_calls_.fetch_add(1) < kMaxQueued;
  post([this, pointer, room] {
    Status refused;
    if (!room) refused = {MC_BUSY, "too many calls already wait for the master"};
    if (stopping_) refused = {MC_CLOSED, "the client is closed"};
    if (now_ns() >= pointer->deadline_ns) {
      refused = {MC_TIMEOUT, "the deadline passed before the call"};
    }
    if (!refused.ok()) {
      --open_calls_;
      pointer->done(fail(refused));
      return;
    }
    queue_.push_back(pointer);
    pump();
  });
}

void MasterClient::pump() {
  while (usable_ && link_ != nullptr && !queue_.empty() &&
         sent_.size() + report_in_flight_ < kMaxInFlight) {
    const CallPointer call = queue_.front();
    queue_.pop_front();
    send(call);
  }
}

void MasterClient::send(const CallPointer& call) {
  std::string body = call->body;
  if (call->publish.has_value()) {
    call->publish->sequence = ++sequence_;
    wire::encode(*call->publish, body);
  }
  sent_.push_back(call);
  link_->call(static_cast<std::uint8_t>(call->method), std::move(body), call->deadline_ns, 0,
              [this, call, generation = generation_](Result<rpc::Answer> answer) {
                // The call was queued again when the link was lost.
                if (generation != generation_) return;
                if (!answer && answer.error().code() == MC_AGENT_UNAVAILABLE) return;
                if (answer && !believe(*answer)) return;
                if (answer && answer->status == rpc::kNotJoined) {
                  lose({MC_CLOSED, "the master no longer knows this member"});
                  return;
                }
                if (answer && answer->status == 0 && call->publish.has_value()) {
                  wire::PublishAnswer published;
                  const bool valid = wire::decode(answer->body, published).ok();
                  refused_up_to_ = std::max(refused_up_to_.load(), published.refused_up_to);
                  if (valid && published.stream != StreamAnswer::kApplied &&
                      published.stream != StreamAnswer::kDuplicate) {
                    on_stream(published.stream);  // the call is queued again, behind a report
                    return;
                  }
                }
                const auto place = std::ranges::find(sent_, call);
                if (place == sent_.end()) return;
                pause_ms_ = 0;
                sent_.erase(place);
                --open_calls_;
                if (!answer) {
                  call->done(fail(answer.error()));
                } else if (answer->status == 0) {
                  call->done(answer->body);
                } else {
                  wire::Refusal refusal;
                  const bool said =
                      wire::decode(answer->body, refusal).ok() && !refusal.text.empty();
                  const auto code = static_cast<mc_status>(answer->status);
                  call->done(fail(said ? Status(code, refusal.text) : Status(code)));
                }
                pump();
              });
}

bool MasterClient::believe(const rpc::Answer& answer) {
  if (answer.status == rpc::kNotLeader) {
    wire::Refusal refusal;
    if (wire::decode(answer.body, refusal).ok()) hint_ = refusal.leader;
    lose({MC_CLOSED, "this master does not lead"});
    return false;
  }
  // The link itself answers without an epoch if it is busy or does not know the method.
  if (answer.epoch == 0 && answer.status != 0) return true;
  if (!fence_.accept(answer.epoch)) {
    ++refused_epochs_;
    const Status why = {MC_NO_MASTER,
                        "the master at " + leader_ + " leads with epoch " +
                            std::to_string(answer.epoch) + ", and this host has heard of epoch " +
                            std::to_string(fence_.highest()) +
                            ": a former leader, or the cluster store has lost its data. A leader "
                            "takes a higher epoch as soon as it hears of this"};
    if (member_ != nullptr && std::exchange(refused_epoch_, answer.epoch) != answer.epoch) {
      member_->on_unreachable(why);
    }
    lose(why);
    return false;
  }
  epoch_ = fence_.highest();
  return true;
}

// Enforces the deadlines of queued calls, and goes on with a report that waits. The link enforces the
// deadlines of sent calls.
void MasterClient::expire() {
  expire_timer_.expires_after(std::chrono::milliseconds(20));
  expire_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const std::uint64_t now = now_ns();
    std::deque<CallPointer> late;
    std::erase_if(queue_, [&](const CallPointer& call) {
      if (call->deadline_ns > now) return false;
      late.push_back(call);
      return true;
    });
    for (const CallPointer& call : late) {
      --open_calls_;
      call->done(fail(no_leader()));
    }
    if (report_waits_ && report_items_.empty()) {
      report_waits_ = !member_->next_report(false, report_items_);
      stream_report();
    }
    expire();
  });
}

// A call that was sent before the link was lost may have taken effect.
Status MasterClient::no_leader() const {
  const std::string what = "no leading master could be reached by the deadline";
  if (trouble_.ok()) return {MC_NO_MASTER, what};
  return {trouble_.code(), what + "; " + std::string(trouble_.text())};
}

void MasterClient::report_unreachable(wire::Unreachable peer) {
  post([this, peer] {
    if (unreachable_.size() < wire::kMaxUnreachable &&
        std::ranges::find(unreachable_, peer) == unreachable_.end()) {
      unreachable_.push_back(peer);
    }
  });
}

void MasterClient::refresh_members() {
  post([this] {
    if (usable_ && member_ != nullptr) heartbeat();
  });
}

void MasterClient::leave(std::uint64_t deadline_ns, AgentSide::Done done) {
  submit({.method = Method::kLeave,
          .body = {},
          .publish = std::nullopt,
          .deadline_ns = deadline_ns,
          .done = [this, done = std::move(done)](const Result<std::string_view>& answer) {
            left_ = true;
            lose({MC_CLOSED, "this member has left"});
            done(answer ? Status() : answer.error());
          }});
}

// ---- Sessions -----------------------------------------------------------------------------------

// The life of the link (seek, dial, attend, join, report, heartbeat) and the master's
// orders.

Result<std::unique_ptr<MasterClient>> MasterClient::create(const MasterClientOptions& options,
                                                           AgentSide* member, Drive drive) {
  if (options.masters.empty() && options.store.empty()) {
    return fail(MC_INVALID_ARGUMENT,
                "there is no master to ask; configure masters' addresses or a store");
  }
  for (const std::string& address : options.masters) {
    if (const auto parts = split_address(address); !parts) return fail(parts.error());
  }
  if (member != nullptr) {
    Descriptor checked;
    const Status status = wire::decode(wire::encoded(options.descriptor), checked);
    if (!status.ok()) return fail(status);
  }
  Outside outside{rpc::dial, nullptr, start_store_thread};
  if (!options.store.empty()) {
    auto opened = open_cluster_store(options.store, options.cluster_id);
    if (!opened) return fail(opened.error());
    outside.store = std::move(*opened);
  }
  return start(options, member, drive, std::move(outside));
}

Result<std::unique_ptr<MasterClient>> MasterClient::create_simulated(
    const MasterClientOptions& options, AgentSide* member, Outside outside) {
  return start(options, member, Drive::kCaller, std::move(outside));
}

Result<std::unique_ptr<MasterClient>> MasterClient::start(const MasterClientOptions& options,
                                                          AgentSide* member, Drive drive,
                                                          Outside outside) {
  auto tls = rpc::dialer_tls(options.tls);
  if (!tls) return fail(tls.error());
  std::unique_ptr<ClusterStore> store = std::move(outside.store);
  std::unique_ptr<MasterClient> client(
      new MasterClient(options, member, drive, std::move(outside)));
  MasterClient* self = client.get();
  if (drive == Drive::kCaller) {
    auto woken = make_eventfd();
    if (!woken) return fail(woken.error());
    client->woken_ = std::move(*woken);
    client->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!client->epoll_) return fail(MC_NO_MEMORY, errno_text("epoll_create1", errno));
    client->watch(client->woken_.get());
  }
  client->tls_ = std::move(*tls);
  if (store != nullptr) {
    const auto found = [self](Result<std::string> leader) {
      if (leader && self->member_ != nullptr) {
        // In the finder's thread, which may block.
        const Status status = rpc::check_advertised(self->options_.descriptor.address, *leader);
        if (!status.ok()) leader = fail(status);
      }
      boost::asio::post(self->io_, [self, leader = std::move(leader)] {
        if (self->woken_) drain_eventfd(self->woken_.get());
        self->found(leader);
      });
      if (self->woken_) signal_eventfd(self->woken_.get());
    };
    client->finder_ = std::make_unique<LeaderFinder>(std::move(store), options.partition, found,
                                                     client->outside_.start_thread);
  }
  self->post([self] {
    self->seek();
    self->expire();
  });
  if (drive == Drive::kOwnThread) client->thread_ = std::thread([self] { self->io_.run(); });
  return client;
}

MasterClient::MasterClient(const MasterClientOptions& options, AgentSide* member, Drive drive,
                           Outside outside)
    : options_(options),
      member_(member),
      drive_(drive),
      outside_(std::move(outside)),
      work_(boost::asio::make_work_guard(io_)),
      seek_timer_(io_),
      heartbeat_timer_(io_),
      expire_timer_(io_) {}

MasterClient::~MasterClient() {
  post([this] {
    stopping_ = true;
    lose({MC_CLOSED, "the client is closed"});
    expire_timer_.cancel();
    for (const CallPointer& call : std::exchange(queue_, {})) {
      call->done(fail(MC_CLOSED, "the client is closed"));
    }
    work_.reset();
    io_.stop();
  });
  if (drive_ == Drive::kCaller) {
    io_.run();
  } else if (thread_.joinable()) {
    thread_.join();
  }
  finder_.reset();  // after the loop, which asks it
}

// Asio's own epoll descriptor cannot be watched, but the link's socket can. A dialer always reads,
// so readable bytes are work. Writability has no event here; next_poll_ns_ covers that case.
void MasterClient::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

bool MasterClient::poll() {
  const bool worked = io_.poll() > 0;
  const bool unsent = link_ != nullptr && link_->queued_bytes() > 0;
  const std::uint64_t wait_ns = unsent ? kUnsentPollNs : usable_ ? kUsablePollNs : kSeekingPollNs;
  next_poll_ns_ = now_ns() + wait_ns;
  return worked;
}

// Tries a standby's hint first, then the store's answer, then the configured addresses in turn.
void MasterClient::seek() {
  if (stopping_ || left_ || seeking_) return;
  seeking_ = true;
  seek_timer_.expires_after(std::chrono::milliseconds(pause_ms_));
  pause_ms_ = std::min(kMaxPauseMs, pause_ms_ * 2 + 10);
  seek_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || stopping_) return;
    if (!hint_.empty() && split_address(hint_).has_value()) {
      dial_to(std::exchange(hint_, {}));
    } else if (finder_ != nullptr && (options_.masters.empty() || next_master_ % 2 == 0)) {
      ++next_master_;
      finder_->seek();
    } else {
      dial_to(options_.masters[next_master_++ / (finder_ != nullptr ? 2 : 1) %
                               options_.masters.size()]);
    }
  });
}

void MasterClient::found(const Result<std::string>& leader) {
  if (leader && split_address(*leader).has_value()) {
    dial_to(*leader);
    return;
  }
  if (!leader) {
    const bool vacant = leader.error().code() == MC_NOT_FOUND;
    not_reached("", vacant
                        ? Status(MC_NO_MASTER, "the cluster store names no leader of partition " +
                                                   std::to_string(options_.partition) +
                                                   "; is a master running with the same store and "
                                                   "cluster id?")
                        : leader.error());
    // The last leader may go on although the store is silent.
    if (!vacant && !attended_.empty()) {
      dial_to(attended_);
      return;
    }
  }
  seeking_ = false;
  seek();
}

// where: a master's address; empty: the cluster store.
void MasterClient::not_reached(const std::string& where, const Status& why) {
  const bool own = why.code() == MC_WRONG_KEY || why.code() == MC_NOT_ADVERTISED;
  trouble_ = {own ? why.code() : MC_NO_MASTER, std::string(why.text())};
  std::string& said = said_of_[where];
  if (said == why.text()) return;
  said = why.text();
  if (member_ != nullptr) member_->on_unreachable(trouble_);
}

void MasterClient::dial_to(const std::string& address) {
  if (stopping_) return;
  leader_ = address;
  rpc::DialOptions dialing;
  dialing.address = address;
  dialing.own.role = options_.role;
  dialing.own.node = options_.descriptor.node;
  dialing.own.incarnation = options_.descriptor.incarnation;
  dialing.own.cluster = auth::cluster_tag(options_.cluster_id);
  dialing.key = options_.key;
  dialing.tls = tls_;
  dialing.server_name = options_.tls.server_name;
  outside_.dial(io_.get_executor(), dialing, now_ns() + kDialNs, *this,
                [this](Result<std::shared_ptr<rpc::RpcLink>> link) { dialled(std::move(link)); });
}

void MasterClient::dialled(Result<std::shared_ptr<rpc::RpcLink>> link) {
  seeking_ = false;
  if (stopping_ || left_) {
    if (link) (*link)->close({MC_CLOSED, "the client is closed"});
    return;
  }
  if (!link || !(*link)->open()) {
    if (!link) not_reached(leader_, link.error());
    seek();
    return;
  }
  said_of_.clear();
  link_ = std::move(*link);
  ++generation_;
  if (drive_ == Drive::kCaller) watch(link_->socket());
  attend();
}

// Names the link's partition and learns the number of partitions.
void MasterClient::attend() {
  link_->call(
      static_cast<std::uint8_t>(Method::kAttend),
      wire::encoded(wire::Attend{options_.partition, options_.partitions}), now_ns() + kStepNs,
      fence_.highest(), [this, generation = generation_](const Result<rpc::Answer>& answer) {
        if (generation != generation_ || (answer && !believe(*answer))) return;
        wire::AttendAnswer heard;
        // A master that predates partitions has all keys.
        const bool old = answer && answer->status == MC_UNSUPPORTED && options_.partition == 0;
        const bool taken = answer && answer->status == 0 && wire::decode(answer->body, heard).ok();
        if (!old && !taken) return lose({MC_CLOSED, "the master does not have that partition"});
        if (answer->epoch > promised_epoch_ && now_ns() < promised_until_ns_) {
          return lose({MC_CLOSED, "another leader has the promise of this member"});
        }
        attended_ = leader_;
        attended(heard.partitions);
      });
}

void MasterClient::attended(std::uint32_t partitions) {
  trouble_ = {};
  if (member_ == nullptr) {
    usable_ = true;
    ready_ = true;
    pump();
    return;
  }
  if (std::exchange(partitions_, partitions) != partitions) member_->on_partitions(partitions);
  join();
}

// The member attends no leader of a later epoch until then.
void MasterClient::promise(std::uint64_t epoch, std::uint32_t promise_ms) {
  if (promise_ms == 0) return;
  promised_epoch_ = epoch;
  promised_until_ns_ = std::max(promised_until_ns_, now_ns() + promise_ms * kMs);
}

// A step of the session itself. No caller waits for the step, and without an answer the link is
// lost.
void MasterClient::internal_call(Method method, std::string body,
                                 std::function<void(const rpc::Answer&)> take) {
  link_->call(
      static_cast<std::uint8_t>(method), std::move(body), now_ns() + kStepNs, 0,
      [this, generation = generation_, take = std::move(take)](const Result<rpc::Answer>& answer) {
        if (generation != generation_) return;
        if (!answer || (answer->status != 0 && answer->status != rpc::kNotLeader)) {
          lose({MC_CLOSED, "the master refused a step of the session"});
        } else if (believe(*answer)) {
          pause_ms_ = 0;
          take(*answer);
        }
      });
}

void MasterClient::join() {
  internal_call(Method::kJoin, wire::encoded(options_.descriptor),
                [this](const rpc::Answer& answer) {
                  wire::JoinAnswer joined;
                  if (!wire::decode(answer.body, joined).ok()) {
                    lose({MC_CORRUPT, "the answer to the join is invalid"});
                    return;
                  }
                  heartbeat_ms_ = joined.heartbeat_ms;
                  promised_ns_ = 0;
                  promise(answer.epoch, joined.promise_ms);
                  // The member may not have heard of removals while it was away. Those may cover
                  // objects of the coming report, so the report carries the older number.
                  report_removals_seen_ = removals_seen_;
                  removals_seen_ = std::max(removals_seen_.load(), joined.removal);
                  member_list_.begin_anew();
                  heartbeat();
                  begin_report();
                });
}

void MasterClient::begin_report() {
  ready_ = false;
  report_named_all_ = false;
  report_waits_ = false;
  report_in_flight_ = 0;
  const std::uint64_t sequence = ++sequence_;
  internal_call(
      Method::kReport, wire::encoded(wire::Report{sequence, false}),
      [this](const rpc::Answer& answer) {
        wire::ReportAnswer begun;
        if (!wire::decode(answer.body, begun).ok() || begun.stream != StreamAnswer::kApplied) {
          on_stream(begun.stream);
          return;
        }
        report_items_.clear();
        report_waits_ = !member_->next_report(true, report_items_);
        stream_report();
      });
  usable_ = true;  // later publishes follow the beginning of the report
  pump();
}

// REQUIRES: report_items_ holds the next batch.
void MasterClient::stream_report() {
  while (!report_named_all_ && report_in_flight_ < kReportWindow) {
    if (report_items_.empty()) {
      if (report_waits_) return;
      report_named_all_ = true;
      break;
    }
    wire::Publish batch{++sequence_, report_removals_seen_, std::move(report_items_)};
    ++report_in_flight_;
    const auto named = std::make_shared<std::vector<PublishItem>>(batch.items);
    internal_call(Method::kPublish, wire::encoded(batch), [this, named](const rpc::Answer& answer) {
      wire::PublishAnswer published;
      if (!wire::decode(answer.body, published).ok() ||
          published.stream != StreamAnswer::kApplied) {
        on_stream(published.stream);
        return;
      }
      --report_in_flight_;
      refused_up_to_ = std::max(refused_up_to_.load(), published.refused_up_to);
      for (std::size_t i = 0; i < std::min(named->size(), published.verdicts.size()); ++i) {
        if (published.verdicts[i] == Verdict::kAccepted) continue;
        member_->on_report_verdict((*named)[i], published.verdicts[i]);
      }
      stream_report();
      pump();
    });
    report_items_ = std::move(batch.items);
    report_items_.clear();
    report_waits_ = !member_->next_report(false, report_items_);
  }
  if (report_named_all_ && report_in_flight_ == 0) end_report();
}

void MasterClient::end_report() {
  internal_call(
      Method::kReport, wire::encoded(wire::Report{++sequence_, true}),
      [this](const rpc::Answer& answer) {
        wire::ReportAnswer ended;
        if (!wire::decode(answer.body, ended).ok() || ended.stream != StreamAnswer::kApplied) {
          on_stream(ended.stream);
          return;
        }
        ready_ = true;
        heartbeat();  // the answer says that peers may read from this member
      });
}

// A new link, a join and a report repair every fault of the stream.
void MasterClient::on_stream(StreamAnswer answer) {
  if (answer == StreamAnswer::kStaleIncarnation) {
    left_ = true;
    lose({MC_CLOSED, "a newer incarnation of this node has joined"});
    member_->on_fenced();
    return;
  }
  lose({MC_CLOSED, "the master asks for a report"});
}

// Sent calls are queued again, before later calls. A sent publish is not: its content may be
// outdated by then, and the report that comes first names what the member holds.
void MasterClient::lose(const Status& why) {
  usable_ = false;
  ready_ = false;
  trouble_ = {MC_NO_MASTER, std::string(why.text())};
  ++generation_;
  heartbeat_timer_.cancel();
  queue_.insert(queue_.begin(), sent_.begin(), sent_.end());
  sent_.clear();
  report_in_flight_ = 0;
  report_waits_ = false;
  if (const auto link = std::exchange(link_, nullptr)) link->close(why);
  std::vector<CallPointer> published;
  std::erase_if(queue_, [&](const CallPointer& call) {
    if (!call->publish.has_value()) return false;
    published.push_back(call);
    return true;
  });
  for (const CallPointer& call : published) {
    --open_calls_;
    call->done(
        fail(MC_CLOSED, "the link to the master was lost; the next report names the objects"));
  }
  seek();
}

void MasterClient::on_closed(rpc::RpcLink& link, const Status& why) {
  if (link_.get() == &link) lose(why);
}

void MasterClient::heartbeat() {
  const wire::Heartbeat beat{member_->load(), std::exchange(unreachable_, {}),
                             member_list_.version(), member_->latest_version(), promised_ns_};
  const std::uint64_t sent_ns = now_ns();
  link_->call(static_cast<std::uint8_t>(Method::kHeartbeat), wire::encoded(beat),
              sent_ns + 5 * heartbeat_ms_ * kMs, 0,
              [this, sent_ns, generation = generation_](const Result<rpc::Answer>& answer) {
                if (generation != generation_) return;
                wire::HeartbeatReply heard;
                if (answer && !believe(*answer)) return;
                if (!answer || answer->status != 0 || !wire::decode(answer->body, heard).ok() ||
                    heard.answer == HeartbeatAnswer::kJoinFirst) {
                  lose({MC_CLOSED, "the master refuses this member's heartbeats"});
                } else if (heard.answer == HeartbeatAnswer::kStale) {
                  on_stream(StreamAnswer::kStaleIncarnation);
                } else {
                  removals_seen_ = std::max(removals_seen_.load(), heard.removal);
                  member_list_.take(heard, sent_ns);
                  promise(answer->epoch, heard.promise_ms);
                  if (heard.promise_ms != 0) promised_ns_ = heard.asked_ns;
                  member_->heard_version(heard.latest_version);
                }
              });
  heartbeat_timer_.expires_after(std::chrono::milliseconds(heartbeat_ms_));
  heartbeat_timer_.async_wait(
      [this, generation = generation_](const boost::system::error_code& error) {
        if (!error && generation == generation_ && link_ != nullptr) heartbeat();
      });
}

void MasterClient::reply(std::weak_ptr<rpc::RpcLink> link, std::uint32_t id,
                         Result<std::string> body) {
  post([link = std::move(link), id, body = std::move(body)]() mutable {
    const auto open = link.lock();
    if (open == nullptr) return;
    if (body) {
      open->answer(id, 0, std::move(*body), 0);
    } else {
      open->answer(id, static_cast<std::uint16_t>(body.error().code()),
                   wire::encoded(wire::Refusal{std::string(body.error().text()), {}}), 0);
    }
  });
}

template <typename Order, typename Start>
void MasterClient::order(const rpc::Request& request, Start start) {
  Order decoded;
  const Status status = wire::decode(request.body, decoded);
  if (status.ok()) {
    start(decoded);
  } else {
    reply(link_, request.id, fail(status));
  }
}

void MasterClient::on_request(rpc::RpcLink& link, const rpc::Request& request) {
  if (&link != link_.get() || member_ == nullptr || !fence_.accept(request.epoch)) {
    if (&link == link_.get()) ++refused_epochs_;
    link.answer(request.id, MC_PERMISSION_DENIED, {}, 0);
    return;
  }
  const std::weak_ptr<rpc::RpcLink> asker = link_;
  const std::uint32_t id = request.id;
  const auto done = [this, asker, id](const Status& status) {
    reply(asker, id, status.ok() ? Result<std::string>(std::string()) : fail(status));
  };
  const auto answer = [this, asker, id](const auto& result) {
    reply(asker, id, result ? Result<std::string>(wire::encoded(*result)) : fail(result.error()));
  };
  switch (static_cast<Method>(request.method)) {
    case Method::kDrop:
      return order<wire::Drop>(request, [&](const wire::Drop& drop) {
        member_->on_drop(drop, [this, done, removal = drop.removal](const Status& status) {
          if (removal != 0 && status.ok()) {
            std::uint64_t seen = removals_seen_;
            while (seen < removal && !removals_seen_.compare_exchange_weak(seen, removal)) continue;
          }
          done(status);
        });
      });
    case Method::kDropMatching:
      return order<wire::Match>(
          request, [&](const wire::Match& match) { member_->on_drop_matching(match, answer); });
    case Method::kListLocal:
      return order<wire::Match>(request,
                                [&](const wire::Match& match) { member_->on_list(match, answer); });
    case Method::kCopy:
      return order<wire::Copy>(request,
                               [&](const wire::Copy& copy) { member_->on_copy(copy, done); });
    default:
      link.answer(id, MC_UNSUPPORTED, {}, 0);
  }
}

}  // namespace mc::metadata
