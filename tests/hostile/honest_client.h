// SPDX-License-Identifier: Apache-2.0
//
// A client that puts and gets during an attack and checks every byte and every status.
// Threads: one private thread, from the constructor to stop().
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "mc/mc.h"

namespace mc::hostile {

class HonestClient {
 public:
  explicit HonestClient(const std::string& socket, const std::string& name_space = "default");
  ~HonestClient() { stop(); }

  // Waits until this many more objects were put and read back. False: a call failed.
  bool works_on(std::uint64_t rounds);
  void stop();
  std::uint64_t rounds() const { return rounds_; }
  // "" without a failure.
  std::string trouble() const;

 private:
  void run();
  bool round(std::uint64_t number);
  void note(const std::string& text);

  mc_client* client_ = nullptr;
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::string trouble_;  // stored before failed_
  std::thread thread_;
};

}  // namespace mc::hostile
