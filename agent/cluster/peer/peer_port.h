// SPDX-License-Identifier: Apache-2.0
//
// The agent's only listening port, and the dialer of peers' ports. The class accepts
//   and dials, runs the handshake, and gives each link to the link's transport.
// Threads: The agent's loop.
// Owns: The listening socket, and sockets whose handshake is under way.
// Trusts: No peer before transport/keyed/keyed_handshake.h succeeds. Handshakes are limited in
//   number and time.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "libmc/auth/cluster_hello.h"
#include "libmc/auth/cluster_key.h"
#include "transport/tcp/handshakes.h"
#include "transport/tls/identity.h"
#include "transport/transport.h"

namespace mc::agent {

struct PeerPortOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any
  auth::ClusterKey key;
  bool insecure = false;      // other hosts may connect without a key
  auth::ClusterHello own;     // this agent's
  transport::tls::Files tls;  // empty: no TLS
};

class PeerPort final : public transport::Dialer, private transport::tcp::LinkSink {
 public:
  // A node's listening address, "host:port" with a literal address; empty: unknown.
  using AddressOf = std::function<std::string(transport::NodeId)>;

  // Errors: MC_INVALID_ARGUMENT (a port that others can reach without a cluster key; an unusable
  //   certificate), MC_BUSY (the port is taken).
  static Result<std::unique_ptr<PeerPort>> open(const PeerPortOptions& options,
                                                AddressOf address_of);

  // The transport gets the links of this protocol. Peers are told of the protocol from then on.
  void set_transport(transport::LinkProtocol protocol, transport::Transport& transport);
  std::uint16_t port() const { return port_; }
  void dial(const transport::DialRequest& request) override;
  void poll(std::uint64_t now_ns);
  // Each is readable when poll() has work.
  int listening_fd() const { return listener_->wait_fd(); }
  int shaking_fd() const { return handshakes_->wait_fd(); }
  bool shaking() const { return handshakes_->count() != 0; }
  std::uint64_t refused_count() const { return refused_; }

 private:
  PeerPort(const PeerPortOptions& options, AddressOf address_of)
      : options_(options), address_of_(std::move(address_of)) {}
  transport::Transport& transport_of(transport::LinkProtocol protocol) const {
    return *transports_[static_cast<std::size_t>(protocol)];
  }
  void on_link(transport::Link link) override;
  void on_failed(std::optional<transport::DialRequest> dialed, const Status& status) override;

  const PeerPortOptions options_;
  const AddressOf address_of_;
  transport::tcp::Self self_;
  std::uint16_t port_ = 0;
  std::unique_ptr<transport::tls::Identity> tls_;  // null: no TLS
  std::optional<transport::tcp::Handshakes> handshakes_;
  std::optional<transport::tcp::Listener> listener_;
  std::array<transport::Transport*, transport::kLastLinkProtocol + 1> transports_{};
  std::uint64_t now_ns_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t next_line_ns_ = 0;
};

// Parses "host:port" or "[v6]:port" with a literal address. Errors: MC_INVALID_ARGUMENT.
struct Address {
  std::string host;
  std::uint16_t port = 0;
};
Result<Address> parse_address(const std::string& text);
// Of an IP address: only this host can dial it.
bool is_loopback(const std::string& host);

}  // namespace mc::agent
