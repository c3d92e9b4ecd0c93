// SPDX-License-Identifier: Apache-2.0
#include "conformance/tcp_node.h"

#include <sys/socket.h>

#include "libmc/base/clock.h"
#include "transport/tcp/socket.h"

namespace mc::transport::testing {

TcpNode::TcpNode(PortBook& book, const tcp::TcpOptions& options, std::uint16_t port)
    : book_(book), self_{options.node, options.incarnation} {
  transport_ = tcp::TcpTransport::create(options, *this).value();
  driven_ = transport_.get();
  Fd socket = tcp::listen_tcp("127.0.0.1", port).value();
  book_[options.node] = tcp::local_port(socket.get()).value();
  listener_ = std::make_unique<tcp::Listener>(
      std::move(socket), [this] { return tcp::make_accepting_handshake(self_); });
  handshakes_ = std::make_unique<tcp::Handshakes>(tcp::Handshakes::create(*this).value());
}

TcpNode::~TcpNode() = default;

void TcpNode::step(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (listener_) listener_->poll(*handshakes_, now_ns);
  handshakes_->poll(now_ns);
}

void TcpNode::dial(const DialRequest& request) {
  const auto port = book_.find(request.node);
  if (port == book_.end()) {
    driven_->dial_failed(request.peer, request.lane);
    return;
  }
  auto socket = tcp::start_connect("127.0.0.1", port->second);
  if (!socket) {
    driven_->dial_failed(request.peer, request.lane);
    return;
  }
  const Status status = handshakes_->add(
      std::move(*socket), tcp::make_dialing_handshake(self_, request), request, now_ns_);
  if (!status.ok()) driven_->dial_failed(request.peer, request.lane);
}

void TcpNode::on_link(Link link) {
  const bool dialed = !link.accepted;
  const std::uint32_t lane = link.lane;
  Fd second(::dup(link.socket.get()));
  if (driven_->attach(std::move(link)).ok() && dialed) sockets_[lane] = std::move(second);
}

void TcpNode::on_failed(std::optional<DialRequest> dialed, const Status&) {
  if (dialed) driven_->dial_failed(dialed->peer, dialed->lane);
}

void TcpNode::break_lane(std::uint32_t lane) {
  const auto at = sockets_.find(lane);
  if (at == sockets_.end()) return;
  ::shutdown(at->second.get(), SHUT_RDWR);
  sockets_.erase(at);
}

}  // namespace mc::transport::testing
