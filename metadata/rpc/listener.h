// SPDX-License-Identifier: Apache-2.0
//
// The one port of a process. The listener accepts connections, runs handshakes, and
//   gives proven links to a handler.
// Threads: the io_context's thread.
// Owns: the socket and the connections without a proof. Links own themselves. The handler must
//   outlive all of them.
// Trusts: no peer. Connections without a proof are few (a newer connection takes the oldest place,
//   so idle connections block no other), short (2 s) and small (104 bytes).
#pragma once

#include <boost/asio/io_context.hpp>
#include <list>
#include <memory>
#include <string>

#include "metadata/rpc/rpc_handshake.h"
#include "metadata/rpc/rpc_link.h"
#include "metadata/rpc/tls.h"

namespace mc::metadata::rpc {

struct ListenerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port
  auth::ClusterHello own;
  auth::ClusterKey key;
  bool insecure = false;  // other hosts may connect without a key
  TlsOptions tls;
  RpcLinkOptions link;
  std::uint32_t max_links = 8192;
  std::uint32_t max_unproven = 64;
  std::uint64_t handshake_timeout_ns = 2'000'000'000;
};

class ListenerHandler : public RpcLinkHandler {
 public:
  virtual void on_link(const std::shared_ptr<RpcLink>& link) = 0;
  virtual void on_refused(const Status& why, const std::string& address) = 0;
};

class Listener {
 public:
  // Errors: MC_INVALID_ARGUMENT: the address is reachable from other hosts and there is no key, or
  // a bad certificate. MC_AGENT_UNAVAILABLE: the address cannot be used.
  static Result<std::unique_ptr<Listener>> create(boost::asio::io_context& io,
                                                  const ListenerOptions& options,
                                                  ListenerHandler& handler);
  ~Listener();

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::uint32_t link_count() const { return *link_count_; }
  [[nodiscard]] std::uint64_t refused_count() const { return refused_; }
  void stop();

 private:
  struct Unproven {
    std::shared_ptr<RpcHandshake> handshake;
  };

  Listener(boost::asio::io_context& io, const ListenerOptions& options, TlsContext tls,
           ListenerHandler& handler);
  void accept();
  void greet(boost::asio::ip::tcp::socket socket);

  boost::asio::io_context& io_;
  const ListenerOptions options_;
  TlsContext tls_;
  ListenerHandler& handler_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::list<Unproven> unproven_;  // the oldest first
  std::shared_ptr<std::uint32_t> link_count_ = std::make_shared<std::uint32_t>(0);
  std::uint64_t refused_ = 0;
};

}  // namespace mc::metadata::rpc
