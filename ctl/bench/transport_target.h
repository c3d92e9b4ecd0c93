// SPDX-License-Identifier: Apache-2.0
//
// The other end of `mcctl bench --transport`: memory that is read and written, at one port. A
//   connection begins with the hello of a lane or with a request of 16 bytes. A request asks for
//   the descriptor, or for a bare stream that is measured beside the transport.
// Threads: serve_target() is the loop of the process; each stream has a separate thread.
// Owns: memory, transport, connections.
// Trusts: nothing beyond this memory; each process that reaches the port can read and write it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ctl/bench/transport_node.h"
#include "ctl/bench/transport_plan.h"

namespace mc::ctl {

// The description of a target for clients.
struct TargetDescriptor {
  std::string transport;
  std::string error;  // not empty: the reason why the target cannot serve
  std::uint64_t memory_bytes = 0;
  std::vector<std::byte> region;  // Transport::describe()
};
std::vector<std::byte> encode_descriptor(const TargetDescriptor& descriptor);
// Trusts nothing: checks lengths before copying.
std::optional<TargetDescriptor> decode_descriptor(std::span<const std::byte> bytes);
inline constexpr std::size_t kMaxTargetDescriptorBytes = 64 * 1024;

// Errors: MC_AGENT_UNAVAILABLE: no target answers; or the error that the target reported.
Result<TargetDescriptor> ask_descriptor(const HostPort& target, std::uint64_t timeout_ns);
// A connection that serve_stream() answers.
Result<Fd> open_stream(const HostPort& target, std::uint64_t timeout_ns);

// Serves until a signal ends the process. Errors: the address is not free to listen on.
Status listen_as_target(const TransportPlan& plan, const std::string& host_port);
// Serves until a signal ends the process.
void serve_target(const TransportPlan& plan, const Fd& listener);

// A target in a separate process, on loopback. REQUIRES: no thread runs yet.
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
