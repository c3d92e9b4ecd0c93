// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/peer_port.h"

#include <arpa/inet.h>
#include <spdlog/spdlog.h>

#include <charconv>

#include "libmc/base/clock.h"
#include "transport/keyed/keyed_handshake.h"
#include "transport/tcp/socket.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kLinePeriodNs = 1'000'000'000;

}  // namespace

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

Result<Address> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Address address;
  if (colon != std::string::npos) {
    address.host = text.substr(0, colon);
    if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
      address.host = address.host.substr(1, address.host.size() - 2);
    }
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    in6_addr any{};
    const bool literal = ::inet_pton(AF_INET, address.host.c_str(), &any) == 1 ||
                         ::inet_pton(AF_INET6, address.host.c_str(), &any) == 1;
    if (error == std::errc() && at == end && colon + 1 < text.size() && literal) return address;
  }
  return fail(MC_INVALID_ARGUMENT, "'" + text +
                                       "' is not an address; say an IP address and a port, as in "
                                       "10.0.0.7:7400 or [fd00::7]:7400");
}

Result<std::unique_ptr<PeerPort>> PeerPort::open(const PeerPortOptions& options,
                                                 AddressOf address_of) {
  if (!is_loopback(options.host) && !options.key.given() && !options.insecure) {
    return fail(MC_INVALID_ARGUMENT,
                "listening on " + options.host +
                    " without a cluster key would let anybody read the pool; give cluster_key_file "
                    "(openssl rand -hex 32 > cluster.key; chmod 600 cluster.key), listen on "
                    "127.0.0.1, or choose insecure");
  }
  auto peer_port = std::unique_ptr<PeerPort>(new PeerPort(options, std::move(address_of)));
  peer_port->self_ = {options.own.node, options.own.incarnation, 0};
  if (options.tls.wanted()) {
    auto identity = transport::tls::Identity::open(options.tls, [](const Status& status) {
      spdlog::warn("event=certificates_refused cause=\"{}\" effect=\"peers see those before\"",
                   status.text());
    });
    if (!identity) return fail(identity.error());
    peer_port->tls_ = std::move(*identity);
  }
  auto socket = transport::tcp::listen_tcp(options.host, options.port);
  if (!socket) return fail(socket.error());
  auto port = transport::tcp::local_port(socket->get());
  if (!port) return fail(port.error());
  peer_port->port_ = *port;
  auto handshakes = transport::tcp::Handshakes::create(*peer_port);
  if (!handshakes) return fail(handshakes.error());
  peer_port->handshakes_.emplace(std::move(*handshakes));
  PeerPort* const self = peer_port.get();
  transport::tcp::Listener::MakeSession make_session;
  if (peer_port->tls_) make_session = [self](int peer) { return self->tls_->accept(peer); };
  peer_port->listener_.emplace(
      std::move(*socket),
      [self] {
        return transport::make_keyed_handshake(
            self->options_.own, self->options_.key, false,
            transport::tcp::make_accepting_handshake(self->self_));
      },
      std::move(make_session));
  return peer_port;
}

void PeerPort::set_transport(transport::LinkProtocol protocol, transport::Transport& transport) {
  transports_[static_cast<std::size_t>(protocol)] = &transport;
  self_.features |= transport::feature_of(protocol);
}

void PeerPort::dial(const transport::DialRequest& request) {
  const auto address = parse_address(address_of_(request.node));
  Status status = address ? Status() : address.error();
  if (address) {
    auto socket = transport::tcp::start_connect(address->host, address->port);
    if (socket) {
      std::shared_ptr<transport::tcp::TlsSession> tls;
      if (tls_) tls = tls_->dial(socket->get(), address->host);
      status = handshakes_->add(
          std::move(*socket),
          transport::make_keyed_handshake(options_.own, options_.key, true,
                                          transport::tcp::make_dialing_handshake(self_, request)),
          request, now_ns(), std::move(tls));
    } else {
      status = socket.error();
    }
  }
  if (!status.ok()) transport_of(request.protocol).dial_failed(request.peer, request.lane);
}

void PeerPort::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  listener_->poll(*handshakes_, now_ns);
  handshakes_->poll(now_ns);
}

void PeerPort::on_link(transport::Link link) {
  const transport::NodeId node = link.node;
  transport::Transport& transport = transport_of(link.protocol);
  if (const Status status = transport.attach(std::move(link)); !status.ok()) {
    spdlog::warn("event=lane_refused node={} cause=\"{}\"", node, status.to_string());
  }
}

void PeerPort::on_failed(std::optional<transport::DialRequest> dialed, const Status& status) {
  if (dialed) {
    transport_of(dialed->protocol).dial_failed(dialed->peer, dialed->lane);
  } else {
    ++refused_;
  }
  // Limit the log: an absent peer is dialed again and again, and a stranger may connect at any
  // rate.
  if (now_ns_ < next_line_ns_) return;
  next_line_ns_ = now_ns_ + kLinePeriodNs;
  spdlog::info("event=handshake_failed node={} cause=\"{}\"", dialed ? dialed->node : 0,
               status.to_string());
}

}  // namespace mc::agent
