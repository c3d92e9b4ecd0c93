// SPDX-License-Identifier: Apache-2.0
//
// One end of `mcctl bench --transport`: a transport with its links, without keys, and
//   page-aligned memory to move.
// Threads: one thread drives a node.
// Owns: the transport, the memory, and links that are being opened.
// Trusts: the peer; a link proves nothing here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ctl/bench/transport_plan.h"
#include "libmc/base/fd.h"
#include "transport/tcp/handshakes.h"
#include "transport/transport.h"

namespace mc::ctl {

inline constexpr transport::NodeId kTargetNode = 1;

// Memory whose pages are allocated.
class BenchMemory {
 public:
  static Result<BenchMemory> map(std::uint64_t bytes);
  BenchMemory(BenchMemory&& other) noexcept;
  BenchMemory& operator=(BenchMemory&&) = delete;
  ~BenchMemory();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit BenchMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
// "10.0.0.1:7000", "[::1]:7000". Nullopt: the text has another form.
std::optional<HostPort> parse_host_port(const std::string& text);

class TransportNode : private transport::Dialer, private transport::tcp::LinkSink {
 public:
  // target: the address to connect to; nullopt: the node only accepts. Errors: MC_UNSUPPORTED: the
  // text names the thing that this host lacks.
  static Result<std::unique_ptr<TransportNode>> create(const TransportPlan& plan,
                                                       transport::NodeId node,
                                                       std::optional<HostPort> target);
  TransportNode(const TransportNode&) = delete;
  TransportNode& operator=(const TransportNode&) = delete;

  transport::Transport& transport() { return *transport_; }
  // An accepted connection that begins with a lane's hello.
  void accept(Fd socket, std::uint64_t now_ns);
  // Makes progress on links and transfers, once.
  void step(std::uint64_t now_ns, std::vector<transport::Event>& events);

 private:
  TransportNode(const transport::tcp::Self& self, std::optional<HostPort> target)
      : self_(self), target_(std::move(target)) {}
  Status start(const TransportPlan& plan);
  void dial(const transport::DialRequest& request) override;
  void on_link(transport::Link link) override;
  void on_failed(std::optional<transport::DialRequest> dialed, const Status& status) override;

  transport::tcp::Self self_;
  const std::optional<HostPort> target_;
  std::uint64_t now_ns_ = 0;
  std::optional<transport::tcp::Handshakes> handshakes_;
  std::unique_ptr<transport::Transport> transport_;
};

}  // namespace mc::ctl
