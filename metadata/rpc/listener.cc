// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/listener.h"

namespace mc::metadata::rpc {

using boost::asio::ip::tcp;

Result<std::unique_ptr<Listener>> Listener::create(boost::asio::io_context& io,
                                                   const ListenerOptions& options,
                                                   ListenerHandler& handler) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(options.host, error);
  if (error) {
    return fail(
        MC_INVALID_ARGUMENT,
        "'" + options.host + "' is not an IP address to listen on; use 127.0.0.1 or 0.0.0.0");
  }
  if (!address.is_loopback() && !options.key.given() && !options.insecure) {
    return fail(MC_INVALID_ARGUMENT,
                "listening on " + options.host +
                    " without a cluster key would admit any process; give a key file (openssl rand "
                    "-hex 32 > cluster.key; chmod 600 cluster.key), listen on 127.0.0.1, or choose "
                    "--insecure");
  }
  auto tls = listener_tls(options.tls);
  if (!tls) return fail(tls.error());
  std::unique_ptr<Listener> listener(new Listener(io, options, *tls, handler));
  const tcp::endpoint endpoint(address, options.port);
  auto& acceptor = listener->acceptor_;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  if (error) {
    return fail(MC_AGENT_UNAVAILABLE, "cannot listen on " + options.host + " port " +
                                          std::to_string(options.port) + ": " + error.message());
  }
  listener->accept();
  return listener;
}

Listener::Listener(boost::asio::io_context& io, const ListenerOptions& options, TlsContext tls,
                   ListenerHandler& handler)
    : io_(io),
      options_(options),
      tls_(std::move(tls)),
      handler_(handler),
      acceptor_(io),
      pause_(io) {}

Listener::~Listener() { stop(); }

std::uint16_t Listener::port() const {
  boost::system::error_code error;
  return acceptor_.local_endpoint(error).port();
}

void Listener::stop() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  while (!unproven_.empty()) unproven_.front().handshake->abort();
}

void Listener::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (error == boost::asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (!error) {
      greet(std::move(socket));
      accept();
      return;
    }
    // Most likely the process has no free descriptors. Retry soon.
    pause_.expires_after(std::chrono::milliseconds(50));
    pause_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) accept();
    });
  });
}

void Listener::greet(tcp::socket socket) {
  boost::system::error_code error;
  const auto remote = socket.remote_endpoint(error);
  const std::string address =
      error ? std::string("?") : remote.address().to_string() + ":" + std::to_string(remote.port());
  if (unproven_.size() >= options_.max_unproven) unproven_.front().handshake->abort();
  auto transport = make_transport(std::move(socket), tls_, false, {});
  const auto place = unproven_.emplace(unproven_.end());
  const bool full = *link_count_ >= options_.max_links;
  place->handshake = std::make_shared<RpcHandshake>(
      io_.get_executor(), transport, options_.own, options_.key, false, full,
      [this, place, transport, address](Result<auth::ClusterHello> peer) {
        unproven_.erase(place);
        if (!peer) {
          ++refused_;
          handler_.on_refused(peer.error(), address);
          return;
        }
        // The counter falls when the link is destroyed.
        ++*link_count_;
        const std::shared_ptr<RpcLink> link(
            new RpcLink(io_.get_executor(), transport, *peer, false, options_.link, handler_),
            [count = link_count_](RpcLink* gone) {
              delete gone;
              --*count;
            });
        handler_.on_link(link);
        link->start();
      });
  const auto handshake = place->handshake;
  handshake->start(options_.handshake_timeout_ns);
}

}  // namespace mc::metadata::rpc
