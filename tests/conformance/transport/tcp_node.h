// SPDX-License-Identifier: Apache-2.0
//
// A host of the data network on loopback, without keys: a TCP transport with a listener
//   and a dialer that looks ports up in a book. For tests and benchmarks.
// Threads: a single thread.
// Owns: the transport, the listener and the sockets under way.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/one_sided/one_sided.h"
#include "transport/tcp/handshakes.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/tls/identity.h"

namespace mc::transport::testing {

// The ports on which nodes listen. Outlives the nodes.
using PortBook = std::map<NodeId, std::uint16_t>;

class TcpNode : public Dialer, public tcp::LinkSink {
 public:
  // port 0: any free port. tls: of the lanes, outlives the node; null: plain.
  TcpNode(PortBook& book, const tcp::TcpOptions& options, std::uint16_t port = 0,
          const tls::Identity* tls = nullptr);
  ~TcpNode() override;

  tcp::TcpTransport& transport() { return *transport_; }
  std::unique_ptr<tcp::TcpTransport> take_transport() { return std::move(transport_); }
  // Hands links to the given transport, which has taken this node's transport. Links of the
  // one-sided transport, which is announced to peers, go to that transport.
  void drive(Transport& transport, OneSidedTransport& direct);
  // Accepts, dials, shakes hands.
  void step(std::uint64_t now_ns);
  // Ends the connection of a lane without the knowledge of either side.
  void break_lane(std::uint32_t lane);
  // From now on connections are not answered.
  void stop_listening() { listener_.reset(); }
  std::size_t links() const { return sockets_.size(); }
  // The cause of the last failed handshake, and the number of failures.
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
  std::map<std::uint32_t, Fd> sockets_;  // second descriptors of dialed lanes
};

}  // namespace mc::transport::testing
