// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/port.h"

#include "libmc/base/clock.h"
#include "transport/engine/wire/introduction.h"
#include "transport/keyed/keyed_handshake.h"
#include "transport/tcp/socket.h"

namespace mc::transfer {

using transport::DialRequest;

Result<std::unique_ptr<Port>> Port::open(const Address& listen, const auth::ClusterKey& key,
                                         std::string_view cluster, PortSink& sink) {
  if (is_wildcard(listen)) {
    return fail(MC_INVALID_ARGUMENT,
                "an engine's address is its name, so an engine listens on one address; give this "
                "host's address instead of " +
                    listen.host);
  }
  if (!is_loopback(listen) && !key.given()) {
    return fail(MC_INVALID_ARGUMENT,
                "listening on " + listen.host +
                    " without a cluster key would let anybody reach registered memory; give a key "
                    "file (openssl rand -hex 32 > cluster.key; chmod 600 cluster.key), or listen "
                    "on 127.0.0.1");
  }
  auto port = std::unique_ptr<Port>(new Port(listen, key, sink));
  port->own_hello_.role = auth::Role::kEngine;
  port->own_hello_.cluster = auth::cluster_tag("mc transfer engines of " + std::string(cluster));
  auto socket = transport::tcp::listen_tcp(listen.host, listen.port);
  if (!socket) return fail(socket.error());
  auto bound = transport::tcp::local_port(socket->get());
  if (!bound) return fail(bound.error());
  port->address_.port = *bound;
  auto handshakes = transport::tcp::Handshakes::create(*port);
  if (!handshakes) return fail(handshakes.error());
  port->handshakes_.emplace(std::move(*handshakes));
  Port* const self = port.get();
  port->listener_.emplace(std::move(*socket), [self] {
    return transport::make_keyed_handshake(self->own_hello_, self->key_, false,
                                           make_reception(self->own_, self->self_.features));
  });
  return port;
}

void Port::start(transport::Transport& transport, transport::OneSidedTransport* direct,
                 const EngineDescriptor& own) {
  transport_ = &transport;
  direct_ = direct;
  own_ = own;
  self_ = {own.node, own.incarnation,
           direct != nullptr ? transport::feature_of(direct->protocol()) : 0};
  own_hello_.node = own.node;
  own_hello_.incarnation = own.incarnation;
}

Status Port::shake(const Address& to, std::unique_ptr<transport::tcp::LaneHandshake> inner,
                   const DialRequest& request, std::uint64_t now_ns) {
  auto socket = transport::tcp::start_connect(to.host, to.port);
  if (!socket) return socket.error();
  return handshakes_->add(std::move(*socket),
                          transport::make_keyed_handshake(own_hello_, key_, true, std::move(inner)),
                          request, now_ns);
}

Status Port::introduce(std::uint64_t call, const Address& to, std::uint64_t now_ns) {
  DialRequest request;
  request.peer = call;
  request.lane = kIntroductionLane;
  auto engine_descriptor = std::make_shared<EngineDescriptor>();
  Status status = shake(to, make_introduction(own_, request, engine_descriptor), request, now_ns);
  if (status.ok()) calls_[call] = std::move(engine_descriptor);
  return status;
}

void Port::dial(const DialRequest& request) {
  const Address* to = sink_.address_of(request.node);
  const bool dialed =
      to != nullptr &&
      shake(*to, transport::tcp::make_dialing_handshake(self_, request), request, now_ns()).ok();
  if (!dialed) transport_of(request.protocol)->dial_failed(request.peer, request.lane);
}

transport::Transport* Port::transport_of(transport::LinkProtocol protocol) const {
  if (protocol == transport::LinkProtocol::kTcp) return transport_;
  return direct_ != nullptr && direct_->protocol() == protocol ? direct_ : nullptr;
}

void Port::poll(std::uint64_t now_ns) {
  listener_->poll(*handshakes_, now_ns);
  handshakes_->poll(now_ns);
}

void Port::on_link(transport::Link link) {
  if (link.lane != kIntroductionLane) {
    // The transport refuses a surplus lane; the peer dials again.
    transport::Transport* const transport = transport_of(link.protocol);
    if (transport != nullptr) static_cast<void>(transport->attach(std::move(link)));
    return;
  }
  if (link.accepted) return;  // the peer has this engine's descriptor and hangs up
  const auto call = calls_.extract(link.peer);
  if (!call.empty()) sink_.on_introduced(link.peer, *call.mapped());
}

void Port::on_failed(std::optional<DialRequest> dialed, const Status& status) {
  if (!dialed) return;
  if (dialed->lane != kIntroductionLane) {
    transport_of(dialed->protocol)->dial_failed(dialed->peer, dialed->lane);
    return;
  }
  if (!calls_.extract(dialed->peer).empty()) sink_.on_introduced(dialed->peer, fail(status));
}

}  // namespace mc::transfer
