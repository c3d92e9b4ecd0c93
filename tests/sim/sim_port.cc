// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_port.h"

#include <algorithm>

#include "metadata/wire/codec.h"
#include "sim/sim_clock.h"

namespace mc::sim {

namespace rpc = metadata::rpc;
namespace wire = metadata::wire;
using metadata::StreamAnswer;
using metadata::Verdict;
using wire::Method;

namespace {

constexpr std::uint64_t kStepTimeoutNs = 5'000 * kMs;
constexpr std::uint64_t kMaxPauseMs = 200;
constexpr std::size_t kMaxInFlight = 192;
constexpr std::size_t kReportWindow = 32;

}  // namespace

SimPort::~SimPort() {
  alive_.reset();
  ++generation_;
  if (const auto link = std::exchange(link_, nullptr)) link->close({MC_CLOSED, "gone"});
}

void SimPort::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<std::function<void()>> taken;
  taken.swap(inbox_);
  for (const auto& what : taken) what();
  if (!left_ && link_ == nullptr && now_ns >= seek_at_ns_) seek();
  if (link_ != nullptr && now_ns >= heartbeat_at_ns_) heartbeat();
  expire(now_ns);
}

// ---- The life of the link -----------------------------------------------------------------------

void SimPort::seek() {
  link_ = dial_(*this);
  if (link_ == nullptr) {
    seek_at_ns_ = now_ns_ + pause_ms_ * kMs;
    pause_ms_ = std::min(kMaxPauseMs, pause_ms_ * 2 + 10);
    return;
  }
  ++generation_;
  join();
}

// An answer waits for the agent's loop. If the link has been replaced by then, the answer is
// dropped.
void SimPort::call(Method method, std::string body, std::uint64_t deadline_ns,
                   std::function<void(const Heard&)> take) {
  link_->call(static_cast<std::uint8_t>(method), std::move(body), deadline_ns, 0,
              [this, alive = std::weak_ptr(alive_), generation = generation_,
               take = std::move(take)](const Result<rpc::Answer>& answer) {
                if (alive.expired()) return;
                Heard heard;
                if (answer) {
                  heard.status = answer->status;
                  heard.epoch = answer->epoch;
                  heard.body = answer->body;
                } else {
                  heard.error = answer.error();
                }
                inbox_.push_back([this, generation, take, heard] {
                  if (generation == generation_) take(heard);
                });
              });
}

void SimPort::step(Method method, std::string body, std::function<void(const Heard&)> take) {
  call(method, std::move(body), now_ns_ + kStepTimeoutNs, [this, take](const Heard& heard) {
    if (!heard.error.ok() || (heard.status != 0 && heard.status != rpc::kNotLeader)) {
      lose({MC_CLOSED, "the master refused a step of the session"});
    } else if (believe(heard)) {
      pause_ms_ = 0;
      take(heard);
    }
  });
}

void SimPort::join() {
  step(Method::kJoin, wire::encoded(descriptor_), [this](const Heard& heard) {
    wire::JoinAnswer joined;
    if (!wire::decode(heard.body, joined).ok()) return lose({MC_CORRUPT, "no answer to a join"});
    heartbeat_ms_ = joined.heartbeat_ms;
    report_removals_seen_ = removals_seen_;
    removals_seen_ = std::max(removals_seen_, joined.removal);
    heartbeat();
    begin_report();
  });
}

void SimPort::begin_report() {
  ready_ = false;
  report_named_all_ = false;
  report_in_flight_ = 0;
  step(Method::kReport, wire::encoded(wire::Report{++sequence_, false}),
       [this](const Heard& heard) {
         wire::ReportAnswer begun;
         if (!wire::decode(heard.body, begun).ok() || begun.stream != StreamAnswer::kApplied) {
           return on_stream(begun.stream);
         }
         report_items_.clear();
         orders_.next_report(true, report_items_);
         stream_report();
       });
  usable_ = true;
  pump();
}

void SimPort::stream_report() {
  while (!report_named_all_ && report_in_flight_ < kReportWindow) {
    if (report_items_.empty()) {
      report_named_all_ = true;
      break;
    }
    const wire::Publish batch{++sequence_, report_removals_seen_, report_items_};
    note_versions(batch);
    ++report_in_flight_;
    step(Method::kPublish, wire::encoded(batch), [this, named = report_items_](const Heard& heard) {
      wire::PublishAnswer published;
      if (!wire::decode(heard.body, published).ok() || published.stream != StreamAnswer::kApplied) {
        return on_stream(published.stream);
      }
      --report_in_flight_;
      refused_up_to_ = std::max(refused_up_to_, published.refused_up_to);
      for (std::size_t i = 0; i < std::min(named.size(), published.verdicts.size()); ++i) {
        if (published.verdicts[i] == Verdict::kAccepted) continue;
        orders_.on_report_verdict(named[i], published.verdicts[i]);
      }
      stream_report();
      pump();
    });
    report_items_.clear();
    orders_.next_report(false, report_items_);
  }
  if (report_named_all_ && report_in_flight_ == 0) end_report();
}

void SimPort::end_report() {
  step(Method::kReport, wire::encoded(wire::Report{++sequence_, true}), [this](const Heard& heard) {
    wire::ReportAnswer ended;
    if (!wire::decode(heard.body, ended).ok() || ended.stream != StreamAnswer::kApplied) {
      return on_stream(ended.stream);
    }
    ready_ = true;
  });
}

void SimPort::on_stream(StreamAnswer answer) {
  if (answer == StreamAnswer::kStaleIncarnation) {
    left_ = true;
    lose({MC_CLOSED, "a newer incarnation of this node has joined"});
    orders_.on_fenced();
    return;
  }
  lose({MC_CLOSED, "the master asks for a report"});
}

void SimPort::lose(const Status& why) {
  usable_ = false;
  ready_ = false;
  ++generation_;
  heartbeat_at_ns_ = UINT64_MAX;
  queue_.insert(queue_.begin(), sent_.begin(), sent_.end());
  sent_.clear();
  report_in_flight_ = 0;
  if (const auto link = std::exchange(link_, nullptr)) link->close(why);
  std::vector<CallPointer> published;
  std::erase_if(queue_, [&](const CallPointer& pointer) {
    if (!pointer->publish) return false;
    published.push_back(pointer);
    return true;
  });
  for (const CallPointer& pointer : published) {
    pointer->done(
        fail(MC_CLOSED, "the link to the master was lost; the next report names the objects"));
  }
  seek_at_ns_ = now_ns_ + pause_ms_ * kMs;
  pause_ms_ = std::min(kMaxPauseMs, pause_ms_ * 2 + 10);
}

void SimPort::on_closed(rpc::Link& link, const Status& why) {
  if (link_.get() != &link) return;
  inbox_.push_back([this, generation = generation_, why] {
    if (generation == generation_) lose(why);
  });
}

void SimPort::heartbeat() {
  heartbeat_at_ns_ = now_ns_ + heartbeat_ms_ * kMs;
  const wire::Heartbeat beat{orders_.load(), std::exchange(unreachable_, {})};
  call(Method::kHeartbeat, wire::encoded(beat), now_ns_ + 5 * heartbeat_ms_ * kMs,
       [this](const Heard& heard) {
         wire::HeartbeatReply reply;
         if (heard.error.ok() && !believe(heard)) return;
         if (!heard.error.ok() || heard.status != 0 || !wire::decode(heard.body, reply).ok() ||
             reply.answer == metadata::HeartbeatAnswer::kJoinFirst) {
           lose({MC_CLOSED, "the master refuses this member's heartbeats"});
         } else if (reply.answer == metadata::HeartbeatAnswer::kStale) {
           on_stream(StreamAnswer::kStaleIncarnation);
         } else {
           removals_seen_ = std::max(removals_seen_, reply.removal);
         }
       });
}

bool SimPort::believe(const Heard& heard) {
  if (heard.epoch == 0 && heard.status != 0) return true;
  if (fence_.accept(heard.epoch)) return true;
  lose({MC_CLOSED, "the answer came from a former leader"});
  return false;
}

// ---- Calls --------------------------------------------------------------------------------------

template <typename Answer>
void SimPort::ask(Method method, std::string body, std::uint64_t deadline_ns, Done<Answer> done) {
  Call made;
  made.method = method;
  made.body = std::move(body);
  made.deadline_ns = deadline_ns;
  made.done = [done = std::move(done)](Result<std::string_view> bytes) {
    if (!bytes) return done(fail(bytes.error()));
    Answer answer;
    const Status status = wire::decode(*bytes, answer);
    done(status.ok() ? Result<Answer>(std::move(answer)) : fail(status));
  };
  submit(std::move(made));
}

void SimPort::publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
                      std::uint64_t deadline_ns, Done<std::vector<Verdict>> done) {
  for (metadata::PublishItem& item : items) {
    if (faults_.takes_a_part_for_the_whole && item.attributes.striped) {
      item.attributes.parts = 1;
      item.attributes.part = 0;
    }
  }
  Call made;
  made.method = Method::kPublish;
  made.deadline_ns = deadline_ns;
  made.done = [count = items.size(), done = std::move(done)](Result<std::string_view> bytes) {
    if (!bytes) return done(fail(bytes.error()));
    wire::PublishAnswer answer;
    if (const Status status = wire::decode(*bytes, answer); !status.ok()) return done(fail(status));
    if (answer.verdicts.empty()) answer.verdicts.assign(count, Verdict::kAccepted);
    done(std::move(answer.verdicts));
  };
  made.publish = wire::Publish{0, removals_seen, std::move(items)};
  submit(std::move(made));
}
void SimPort::locate(const wire::Locate& request, std::uint64_t deadline_ns,
                     Done<metadata::LocateAnswer> done) {
  ask(Method::kLocate, wire::encoded(request), deadline_ns, std::move(done));
}
void SimPort::place(const wire::Place& request, std::uint64_t deadline_ns,
                    Done<wire::PlaceAnswer> done) {
  ask(Method::kPlace, wire::encoded(request), deadline_ns, std::move(done));
}
void SimPort::remove(const wire::Remove& request, std::uint64_t deadline_ns,
                     Done<wire::RemoveReply> done) {
  ask(Method::kRemove, wire::encoded(request), deadline_ns, std::move(done));
}
void SimPort::remove_matching(const wire::Match& match, std::uint64_t deadline_ns,
                              Done<wire::RemoveMatchingAnswer> done) {
  ask(Method::kRemoveMatching, wire::encoded(match), deadline_ns, std::move(done));
}
void SimPort::list(const wire::Match& match, std::uint64_t deadline_ns,
                   Done<wire::ListAnswer> done) {
  ask(Method::kList, wire::encoded(match), deadline_ns, std::move(done));
}
void SimPort::members(std::uint64_t deadline_ns, Done<wire::MembersAnswer> done) {
  ask(Method::kMembers, {}, deadline_ns, std::move(done));
}
void SimPort::stats(std::uint64_t deadline_ns, Done<wire::StatsAnswer> done) {
  ask(Method::kStats, {}, deadline_ns, std::move(done));
}
void SimPort::drain(const wire::Drain& request, std::uint64_t deadline_ns,
                    Done<wire::DrainAnswer> done) {
  ask(Method::kDrain, wire::encoded(request), deadline_ns, std::move(done));
}
void SimPort::report_unreachable(wire::Unreachable peer) {
  if (std::ranges::find(unreachable_, peer) == unreachable_.end()) unreachable_.push_back(peer);
}

void SimPort::submit(Call made) {
  const auto pointer = std::make_shared<Call>(std::move(made));
  // Never answer inside the caller's call; MasterLink does not either.
  inbox_.push_back([this, pointer] {
    if (now_ns_ >= pointer->deadline_ns) {
      pointer->done(fail(MC_TIMEOUT, "the deadline passed before the call"));
      return;
    }
    queue_.push_back(pointer);
    pump();
  });
}

void SimPort::pump() {
  while (usable_ && link_ != nullptr && !queue_.empty() &&
         sent_.size() + report_in_flight_ < kMaxInFlight) {
    const CallPointer next = queue_.front();
    queue_.pop_front();
    send(next);
  }
}

void SimPort::send(const CallPointer& pointer) {
  std::string body = pointer->body;
  if (pointer->publish) {
    pointer->publish->sequence = ++sequence_;
    note_versions(*pointer->publish);
    wire::encode(*pointer->publish, body);
  }
  sent_.push_back(pointer);
  call(pointer->method, std::move(body), pointer->deadline_ns,
       [this, pointer](const Heard& heard) { answered(pointer, heard); });
}

void SimPort::note_versions(const wire::Publish& batch) {
  for (const metadata::PublishItem& item : batch.items) {
    latest_version_ = std::max(latest_version_, item.version);
  }
}

void SimPort::answered(const CallPointer& pointer, const Heard& heard) {
  if (!heard.error.ok() && heard.error.code() == MC_AGENT_UNAVAILABLE) return;
  if (heard.error.ok() && !believe(heard)) return;
  if (heard.error.ok() && heard.status == rpc::kNotJoined) {
    return lose({MC_CLOSED, "the master no longer knows this member"});
  }
  if (heard.error.ok() && heard.status == 0 && pointer->publish) {
    wire::PublishAnswer published;
    const bool valid = wire::decode(heard.body, published).ok();
    refused_up_to_ = std::max(refused_up_to_, published.refused_up_to);
    if (valid && published.stream != StreamAnswer::kApplied &&
        published.stream != StreamAnswer::kDuplicate) {
      return on_stream(published.stream);  // The call is queued again, after a report.
    }
  }
  const auto place = std::ranges::find(sent_, pointer);
  if (place == sent_.end()) return;
  pause_ms_ = 0;
  sent_.erase(place);
  if (!heard.error.ok()) {
    pointer->done(fail(heard.error));
  } else if (heard.status == 0) {
    pointer->done(std::string_view(heard.body));
  } else {
    pointer->done(fail(Status(static_cast<mc_status>(heard.status))));
  }
  pump();
}

void SimPort::expire(std::uint64_t now_ns) {
  std::vector<CallPointer> late;
  std::erase_if(queue_, [&](const CallPointer& pointer) {
    if (pointer->deadline_ns > now_ns) return false;
    late.push_back(pointer);
    return true;
  });
  for (const CallPointer& pointer : late) {
    pointer->done(fail(MC_TIMEOUT, "no leading master could be reached by the deadline"));
  }
}

// ---- Orders -------------------------------------------------------------------------------------

void SimPort::on_request(rpc::Link& link, const rpc::Request& request) {
  if (&link != link_.get() || !fence_.accept(request.epoch)) {
    link.answer(request.id, MC_PERMISSION_DENIED, {}, 0);
    return;
  }
  // The order is carried out even if the link is lost meanwhile. The reply is then dropped.
  inbox_.push_back([this, generation = generation_, method = request.method,
                    body = std::string(request.body),
                    id = request.id] { carry_out(method, body, id, generation); });
}

void SimPort::reply(std::uint32_t id, Result<std::string> body) {
  if (link_ == nullptr) return;
  if (body) {
    link_->answer(id, 0, std::move(*body), 0);
  } else {
    const wire::Refusal refusal{std::string(body.error().text()), {}};
    link_->answer(id, static_cast<std::uint16_t>(body.error().code()), wire::encoded(refusal), 0);
  }
}

void SimPort::carry_out(std::uint8_t method, const std::string& body, std::uint32_t id,
                        std::uint64_t generation) {
  const auto of_this_link = [this, alive = std::weak_ptr(alive_), generation] {
    return !alive.expired() && generation == generation_;
  };
  const auto done = [this, id, of_this_link](const Status& status) {
    if (of_this_link()) reply(id, status.ok() ? Result<std::string>(std::string()) : fail(status));
  };
  const auto answer = [this, id, of_this_link](const auto& result) {
    if (!of_this_link()) return;
    reply(id, result ? Result<std::string>(wire::encoded(*result)) : fail(result.error()));
  };
  wire::Drop drop;
  wire::Match match;
  wire::Copy copy;
  switch (static_cast<Method>(method)) {
    case Method::kDrop:
      if (!wire::decode(body, drop).ok()) return done({MC_INVALID_ARGUMENT, "no drop"});
      if (faults_.lies_about_drops) return done({});
      return orders_.on_drop(drop, [this, done, removal = drop.removal](const Status& status) {
        if (removal != 0 && status.ok()) removals_seen_ = std::max(removals_seen_, removal);
        done(status);
      });
    case Method::kDropMatching:
      if (!wire::decode(body, match).ok()) return done({MC_INVALID_ARGUMENT, "no pattern"});
      return orders_.on_drop_matching(match, answer);
    case Method::kListLocal:
      if (!wire::decode(body, match).ok()) return done({MC_INVALID_ARGUMENT, "no pattern"});
      return orders_.on_list(match, answer);
    case Method::kCopy:
      if (!wire::decode(body, copy).ok()) return done({MC_INVALID_ARGUMENT, "no copy"});
      return orders_.on_copy(copy, done);
    default:
      return done({MC_UNSUPPORTED, "an agent does not do that"});
  }
}

}  // namespace mc::sim
