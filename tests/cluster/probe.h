// SPDX-License-Identifier: Apache-2.0
//
// What it is: a client that does one kind of call again and again, a few milliseconds apart, each
//   with a key of its own, and notes when each began, how long it took and how it ended. What a cut
//   did is read from the notes.
// Threads: one of its own until stop(); the others call what it says. Owns: its client, the notes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mc/mc.h"

namespace mc::cluster {

class Probe {
 public:
  struct Note {
    std::uint64_t began_ns;
    std::uint64_t took_ns;
    mc_status status;
  };
  // The number of the call, from 0.
  using Call = std::function<mc_status(mc_client*, std::uint64_t)>;
  static constexpr std::uint64_t kTimeoutNs = 12'000'000'000;

  Probe(const std::string& socket, Call call);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Any thread: whether a call that began since then has ended well.
  bool succeeded_since(std::uint64_t since_ns) const { return good_began_ns_ >= since_ns; }
  std::uint64_t count() const { return count_; }
  void stop();

  // After stop().
  const std::vector<Note>& notes() const { return notes_; }
  std::uint64_t longest_ns() const;
  // How much longer it slept between its calls than it wanted: the machine did not run it.
  std::uint64_t away_ns() const { return away_ns_; }
  std::uint64_t errors() const;
  // How long the first call took that began between these and ended badly.
  std::optional<std::uint64_t> first_error_ns(std::uint64_t from_ns, std::uint64_t to_ns) const;
  // From then on until a call that began from then on had ended well.
  std::optional<std::uint64_t> success_after_ns(std::uint64_t from_ns) const;

 private:
  void run();

  const Call call_;
  mc_client* client_ = nullptr;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> good_began_ns_{0};
  std::vector<Note> notes_;
  std::uint64_t away_ns_ = 0;
  std::thread thread_;
};

}  // namespace mc::cluster
