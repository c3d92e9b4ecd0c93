// SPDX-License-Identifier: Apache-2.0
//
// A client that repeats a kind of call every few milliseconds, each time with another
//   key. The probe notes when each call began, how long the call took, and how the call ended.
//   Tests read the effects of a cut from these notes.
// Threads: the probe's own thread until stop(). Other threads call the functions marked so.
// Owns: the client, the notes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mc/mc.h"
#include "patience.h"

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
  static std::uint64_t timeout_ns() { return 12 * kSecondNs; }

  Probe(const std::string& socket, Call call);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Any thread: whether a call that began since then has succeeded.
  bool succeeded_since(std::uint64_t since_ns) const { return good_began_ns_ >= since_ns; }
  std::uint64_t count() const { return count_; }
  void stop();

  // After stop().
  const std::vector<Note>& notes() const { return notes_; }
  std::uint64_t longest_ns() const;
  // The excess of sleep between calls: the time for which the machine did not run the probe.
  std::uint64_t away_ns() const { return away_ns_; }
  std::uint64_t errors() const;
  // The duration of the first failed call that began between these times.
  std::optional<std::uint64_t> first_error_ns(std::uint64_t from_ns, std::uint64_t to_ns) const;
  // The time from then until a call that began after then had succeeded.
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
