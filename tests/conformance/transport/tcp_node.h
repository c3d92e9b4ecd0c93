// SPDX-License-Identifier: Apache-2.0
//
// What it is: a host of the data network on loopback, without keys: a TCP transport with a listener
//   and a dialer that looks ports up in a book. For tests and benchmarks.
// Threads: one. Owns transport, listener and sockets under way.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/one_sided/one_sided.h"
#include "transport/tcp/handshakes.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/tls/identity.h"

namespace mc::transport::testing {

// Where nodes listen. Outlives them.
using PortBook = std::map<NodeId, std::uint16_t>;

class TcpNode : public Dialer, public tcp::LinkSink {
 public:
  // port 0: any free one. tls: of the lanes, outlives this; null: plain.
  TcpNode(PortBook& book, const tcp::TcpOptions& options, std::uint16_t port = 0,
          const tls::Identity* tls = nullptr);
  ~TcpNode() override;

  tcp::TcpTransport& transport() { return *transport_; }
  std::unique_ptr<tcp::TcpTransport> take_transport() { return std::move(transport_); }
  // Links go to that transport, which has taken ours; those of the one-sided one, which peers are
  // told of, to it.
  void drive(Transport& transport, OneSidedTransport& direct);
  // Accepts, dials, shakes hands.
  void step(std::uint64_t now_ns);
  // Ends the connection of a lane under both sides' feet.
  void break_lane(std::uint32_t lane);
  // From now on calls are not answered.
  void stop_listening() { listener_.reset(); }
  std::size_t links() const { return sockets_.size(); }
  // Why the last handshake failed, and how many have.
  const Status& refusal() const { return refusal_; }
  std::size_t refusals() const { return refusals_; }

  void dial(const DialRequest& request) override;
  void on_link(Link link) override;
  void on_failed(std::optional<DialRequest> dialed, const Status& status) override;

 private:
  PortBook& book_;
  tcp::Self self_;
  const tls::Identity* tls_;
  std::uint64_t now_ns_ = 0;
  std::unique_ptr<tcp::TcpTransport> transport_;
  Transport* driven_ = nullptr;
  Transport* direct_ = nullptr;
  Transport& transport_of(LinkProtocol protocol) {
    return protocol == LinkProtocol::kTcp ? *driven_ : *direct_;
  }
  std::unique_ptr<tcp::Listener> listener_;
  std::unique_ptr<tcp::Handshakes> handshakes_;
  Status refusal_;
  std::size_t refusals_ = 0;
  std::map<std::uint32_t, Fd> sockets_;  // second descriptors of the lanes we dialed
};

}  // namespace mc::transport::testing
