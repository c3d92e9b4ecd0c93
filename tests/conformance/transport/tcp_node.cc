// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/tcp_node.h"

#include <sys/socket.h>

#include "libmc/base/clock.h"
#include "transport/tcp/socket.h"

namespace mc::transport::testing {

TcpNode::TcpNode(PortBook& book, const tcp::TcpOptions& options, std::uint16_t port,
                 const tls::Identity* tls)
    : book_(book), self_{options.node, options.incarnation, 0}, tls_(tls) {
  transport_ = tcp::TcpTransport::create(options, *this).value();
  driven_ = transport_.get();
  Fd socket = tcp::listen_tcp("127.0.0.1", port).value();
  book_[options.node] = tcp::local_port(socket.get()).value();
  tcp::Listener::MakeSession make_session;
  if (tls_ != nullptr) make_session = [this](int peer) { return tls_->accept(peer); };
  listener_ = std::make_unique<tcp::Listener>(
      std::move(socket), [this] { return tcp::make_accepting_handshake(self_); },
      std::move(make_session));
  handshakes_ = std::make_unique<tcp::Handshakes>(tcp::Handshakes::create(*this).value());
}

TcpNode::~TcpNode() = default;

void TcpNode::drive(Transport& transport, OneSidedTransport& direct) {
  driven_ = &transport;
  direct_ = &direct;
  self_.features |= feature_of(direct.protocol());
}

void TcpNode::step(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (listener_) listener_->poll(*handshakes_, now_ns);
  handshakes_->poll(now_ns);
}

void TcpNode::dial(const DialRequest& request) {
  const auto port = book_.find(request.node);
  if (port == book_.end()) {
    transport_of(request.protocol).dial_failed(request.peer, request.lane);
    return;
  }
  auto socket = tcp::start_connect("127.0.0.1", port->second);
  if (!socket) {
    transport_of(request.protocol).dial_failed(request.peer, request.lane);
    return;
  }
  std::shared_ptr<tcp::TlsSession> session;
  if (tls_ != nullptr) session = tls_->dial(socket->get(), "127.0.0.1");
  const Status status =
      handshakes_->add(std::move(*socket), tcp::make_dialing_handshake(self_, request), request,
                       now_ns_, std::move(session));
  if (!status.ok()) transport_of(request.protocol).dial_failed(request.peer, request.lane);
}

void TcpNode::on_link(Link link) {
  Transport& transport = transport_of(link.protocol);
  const bool dialed = !link.accepted && link.protocol == LinkProtocol::kTcp;
  const std::uint32_t lane = link.lane;
  Fd second(::dup(link.socket.get()));
  if (transport.attach(std::move(link)).ok() && dialed) sockets_[lane] = std::move(second);
}

void TcpNode::on_failed(std::optional<DialRequest> dialed, const Status& status) {
  refusal_ = status;
  ++refusals_;
  if (dialed) transport_of(dialed->protocol).dial_failed(dialed->peer, dialed->lane);
}

void TcpNode::break_lane(std::uint32_t lane) {
  const auto at = sockets_.find(lane);
  if (at == sockets_.end()) return;
  ::shutdown(at->second.get(), SHUT_RDWR);
  sockets_.erase(at);
}

}  // namespace mc::transport::testing
