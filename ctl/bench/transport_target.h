// SPDX-License-Identifier: Apache-2.0
//
// What it is: the other end of `mcctl bench --transport`: memory that is read and written, at one
//   port. A connection begins with a lane's hello, or with a question of 16 bytes: for the descriptor, or
//   for a bare stream beside which the transport is measured.
// Threads: serve_target() is the process's loop; streams have threads of their own.
// Owns: memory, transport, connections.
// Trusts: nobody with more than this memory; whoever reaches the port can read and write it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ctl/bench/transport_node.h"
#include "ctl/bench/transport_plan.h"

namespace mc::ctl {

// What a target says of itself.
struct TargetDescriptor {
  std::string transport;
  std::string error;  // not empty: it cannot serve, and why
  std::uint64_t memory_bytes = 0;
  std::vector<std::byte> region;  // Transport::describe()
};
std::vector<std::byte> encode_descriptor(const TargetDescriptor& descriptor);
// Trusts nothing: lengths are checked before anything is taken.
std::optional<TargetDescriptor> decode_descriptor(std::span<const std::byte> bytes);
inline constexpr std::size_t kMaxDescriptorBytes = 64 * 1024;

// Errors: MC_AGENT_UNAVAILABLE: nobody answers there; what the target said.
Result<TargetDescriptor> ask_descriptor(const HostPort& target, std::uint64_t timeout_ns);
// A connection that serve_stream() answers.
Result<Fd> open_stream(const HostPort& target, std::uint64_t timeout_ns);

// Serves until the process is ended by a signal.
void serve_target(const TransportPlan& plan, const Fd& listener);

// A target in a process of its own, on loopback. REQUIRES: no thread runs yet.
class TargetProcess {
 public:
  static Result<TargetProcess> start(const TransportPlan& plan);
  TargetProcess(TargetProcess&& other) noexcept;
  TargetProcess& operator=(TargetProcess&&) = delete;
  ~TargetProcess();
  const HostPort& address() const { return address_; }

 private:
  TargetProcess(pid_t pid, HostPort address) : pid_(pid), address_(std::move(address)) {}
  pid_t pid_;
  HostPort address_;
};

}  // namespace mc::ctl
