// SPDX-License-Identifier: Apache-2.0
#include "cluster/probe.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>

#include "libmc/base/clock.h"

namespace mc::cluster {

namespace {
constexpr int kPeriodMs = 15;
constexpr std::uint64_t kPeriodNs = kPeriodMs * std::uint64_t{1'000'000};
}  // namespace

Probe::Probe(const std::string& socket, Call call) : call_(std::move(call)) {
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  options.agent = socket.c_str();
  options.timeout_ns = timeout_ns();
  EXPECT_EQ(mc_open(&options, &client_), MC_OK) << mc_last_error();
  thread_ = std::thread([this] { run(); });
}

Probe::~Probe() {
  stop();
  mc_close(client_);
}

void Probe::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Probe::run() {
  for (std::uint64_t number = 0; !stop_; ++number) {
    Note note{now_ns(), 0, MC_OK};
    note.status = call_(client_, number);
    note.took_ns = now_ns() - note.began_ns;
    notes_.push_back(note);
    ++count_;
    if (note.status == MC_OK) good_began_ns_ = note.began_ns;
    const std::uint64_t sleeps_ns = now_ns();
    ::poll(nullptr, 0, kPeriodMs);
    const std::uint64_t slept_ns = now_ns() - sleeps_ns;
    away_ns_ += slept_ns > kPeriodNs ? slept_ns - kPeriodNs : 0;
  }
}

std::uint64_t Probe::longest_ns() const {
  std::uint64_t longest = 0;
  for (const Note& note : notes_) longest = std::max(longest, note.took_ns);
  return longest;
}

std::uint64_t Probe::errors() const {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(notes_, [](const Note& note) { return note.status != MC_OK; }));
}

std::optional<std::uint64_t> Probe::first_error_ns(std::uint64_t from_ns,
                                                   std::uint64_t to_ns) const {
  for (const Note& note : notes_) {
    if (note.began_ns < from_ns || note.began_ns >= to_ns) continue;
    if (note.status != MC_OK) return note.took_ns;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Probe::success_after_ns(std::uint64_t from_ns) const {
  for (const Note& note : notes_) {
    if (note.began_ns < from_ns || note.status != MC_OK) continue;
    return note.began_ns + note.took_ns - from_ns;
  }
  return std::nullopt;
}

}  // namespace mc::cluster
