// SPDX-License-Identifier: Apache-2.0
//
// MasterClient: its calls.
#include "metadata/master/client/master_client.h"

#include <algorithm>
#include <boost/asio/post.hpp>

#include "libmc/base/clock.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

using wire::Method;

namespace {}  // namespace

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

void MasterClient::place(const wire::Place& request, std::uint64_t deadline_ns,
                         Done<wire::PlaceAnswer> done) {
  ask<wire::PlaceAnswer>(Method::kPlace, wire::encoded(request), deadline_ns, std::move(done));
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
    lose({MC_CLOSED, "the answer came from a former leader"});
    return false;
  }
  epoch_ = fence_.highest();
  return true;
}

// Enforces the deadlines of queued calls. The link enforces the deadlines of sent calls.
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
      call->done(
          fail(MC_TIMEOUT, "no leading master could be reached by the deadline" +
                               (dial_failure_.empty() ? std::string() : "; " + dial_failure_)));
    }
    expire();
  });
}

void MasterClient::report_unreachable(wire::Unreachable peer) {
  post([this, peer] {
    if (unreachable_.size() < wire::kMaxUnreachable &&
        std::ranges::find(unreachable_, peer) == unreachable_.end()) {
      unreachable_.push_back(peer);
    }
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

}  // namespace mc::metadata
