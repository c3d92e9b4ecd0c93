// SPDX-License-Identifier: Apache-2.0
//
// Two hosts with real RDMA devices in a single process, for the tests that run in the
//   machine that tests/run --rdma starts: rail i is the device rxea<i> on the interface a<i>, and
//   rxeb<i> on b<i>.
// Threads: a single thread.
// Owns: the transports. Leaves devices and interfaces in the former state.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "conformance/transport/rdma_pair.h"
#include "conformance/transport/transport_fixture.h"
#include "patience.h"

namespace mc::transport::testing {

// The devices of this machine, from MC_RDMA_DEVICES_A and _B; empty elsewhere.
std::vector<std::string> devices_a();
std::vector<std::string> devices_b();
// An emulated processor answers late: 1 s until a packet is sent again.
inline constexpr std::uint8_t kAckTimeout = 18;

// Runs a shell command. If the command fails, the test fails with the command's output.
void shell(const std::string& command);

class RdmaHostsTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kRegionBytes = 4u << 20;

  void SetUp() override;
  void start();
  Operation read(std::uint64_t offset, const Piece& piece) const;
  OperationId submit(Operation operation);
  void step();
  bool wait_for(const std::function<bool()>& holds, std::uint64_t within_ns = kWatchdogNs);
  const Event* event_of(OperationId id) const;
  Outcome run(const Operation& operation);
  std::string rails() const { return pair_->a().describe_rails(peer_); }
  int up() const;
  void warm_up();

  // Keeps several reads under way until the condition holds or the time is over.
  struct Load {
    std::uint64_t done = 0;
    std::uint64_t failed = 0;
    std::uint64_t wrong = 0;
    std::uint64_t longest_gap_ns = 0;  // between two successful operations
    bool held = false;
  };
  Load read_until(const std::function<bool()>& holds, std::uint64_t within_ns);

  rdma::RdmaOptions options_a_;
  rdma::RdmaOptions options_b_;
  Memory memory_ = pattern(kRegionBytes, 3);
  std::unique_ptr<RdmaPair> pair_;
  PeerId peer_ = kNoPeer;
  RegionId region_ = kNoRegion;
  RemoteRegionId remote_ = 0;
  std::vector<Event> at_a_;
  std::vector<Event> at_b_;
};

}  // namespace mc::transport::testing
