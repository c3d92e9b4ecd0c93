// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/http/drain_jobs.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <optional>
#include <utility>

namespace mc::metadata {

namespace {

std::uint64_t wall_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

}  // namespace

DrainJobs::DrainJobs(boost::asio::io_context& io, Leaders& leaders)
    : io_(io), leaders_(leaders), first_(wall_ms()) {}

void DrainJobs::begin(DrainOrder order, Done done) {
  while (jobs_.size() >= kMaxJobs && jobs_.front()->over()) jobs_.pop_front();
  if (jobs_.size() >= kMaxJobs) return done(fail(MC_BUSY, "too many drain jobs are running"));
  const auto job = std::make_shared<DrainJob>();
  job->id = std::to_string(first_) + "-" + std::to_string(++last_);
  job->order = std::move(order);
  job->created_ms = job->updated_ms = wall_ms();
  job->message = "the drain begins";
  jobs_.push_back(job);
  ask(*job, false, [this, job, done = std::move(done)](const Result<wire::DrainAnswer>& answer) {
    if (answer) return done(*job);
    std::erase(jobs_, job);
    ask(*job, true,
        [why = answer.error(), done](const Result<wire::DrainAnswer>&) { done(fail(why)); });
  });
}

void DrainJobs::query(const std::string& id, Done done) {
  const auto job = find(id);
  if (job == nullptr) return done(fail(MC_NOT_FOUND, "this master knows no such job"));
  if (job->over()) return done(*job);
  ask(*job, false, [job, done = std::move(done)](const Result<wire::DrainAnswer>& answer) {
    if (job->over()) return done(*job);  // cancelled meanwhile
    job->updated_ms = wall_ms();
    if (!answer) {
      job->message = std::string(answer.error().text());
      if (answer.error().code() == MC_NOT_FOUND) job->state = DrainJob::State::kFailed;
      return done(*job);
    }
    job->progress = *answer;
    job->state = answer->done ? DrainJob::State::kSucceeded : DrainJob::State::kRunning;
    job->message = answer->done            ? "the hosts hold no object any more"
                   : answer->unplaced != 0 ? "some objects find no room on other hosts"
                                           : "objects are being copied";
    done(*job);
  });
}

void DrainJobs::cancel(const std::string& id, Done done) {
  const auto job = find(id);
  if (job == nullptr) return done(fail(MC_NOT_FOUND, "this master knows no such job"));
  if (job->over()) return done(fail(MC_CANCELLED, "the job is over"));
  ask(*job, true, [job, done = std::move(done)](const Result<wire::DrainAnswer>& answer) {
    if (!answer) return done(fail(answer.error()));
    job->state = DrainJob::State::kCanceled;
    job->updated_ms = wall_ms();
    job->message = "cancelled; the hosts keep the rest of their objects";
    done(*job);
  });
}

std::shared_ptr<DrainJob> DrainJobs::find(const std::string& id) const {
  const auto found = std::ranges::find(jobs_, id, [](const auto& job) { return job->id; });
  return found == jobs_.end() ? nullptr : *found;
}

void DrainJobs::ask(const DrainJob& job, bool stop,
                    std::function<void(Result<wire::DrainAnswer>)> then) {
  struct Sum {
    std::optional<wire::DrainAnswer> answer;
    Status failure;
    std::size_t open = 0;
  };
  const auto sum = std::make_shared<Sum>();
  sum->open = job.order.nodes.size();
  const auto shared_then = std::make_shared<decltype(then)>(std::move(then));
  for (const NodeId node : job.order.nodes) {
    const wire::Drain request{node, stop, job.order.targets, job.order.max_jobs};
    // The answers come in the threads of the leaders' clients.
    leaders_.drain(request, [this, sum, shared_then](Result<wire::DrainAnswer> answer) {
      boost::asio::post(io_, [sum, shared_then, answer = std::move(answer)] {
        if (!answer) {
          sum->failure = answer.error();
        } else if (sum->answer) {
          sum->answer->add(*answer);
        } else {
          sum->answer = *answer;
        }
        if (--sum->open != 0) return;
        if (!sum->failure.ok()) return (*shared_then)(fail(sum->failure));
        (*shared_then)(*sum->answer);
      });
    });
  }
}

}  // namespace mc::metadata
