// SPDX-License-Identifier: Apache-2.0
//
// An engine's only port, and the dialing of peers' ports. The port accepts and dials,
//   runs the handshakes, gives lanes to the transport and engine descriptors to PortSink.
// Threads: under the engine's lock.
// Owns: the listening socket, and sockets that are not lanes yet.
// Trusts: no peer before the proof of the key. The number and the time of handshakes are limited.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "libmc/auth/cluster_hello.h"
#include "libmc/auth/cluster_key.h"
#include "transport/choice/direct_way.h"
#include "transport/engine/address.h"
#include "transport/engine/wire/engine_descriptor.h"
#include "transport/tcp/handshakes.h"

namespace mc::transfer {

class PortSink {
 public:
  virtual ~PortSink() = default;
  // The listening address of a node that was connected; null: unknown.
  virtual const Address* address_of(transport::NodeId node) const = 0;
  // The result of introduce().
  virtual void on_introduced(std::uint64_t call,
                             const Result<EngineDescriptor>& engine_descriptor) = 0;
};

class Port final : public transport::Dialer, private transport::tcp::LinkSink {
 public:
  // Errors: MC_INVALID_ARGUMENT (an address that other hosts can reach, without a key), MC_BUSY
  // (the port is taken).
  static Result<std::unique_ptr<Port>> open(const Address& listen, const auth::ClusterKey& key,
                                            std::string_view cluster, PortSink& sink);

  // Call before the first poll(). The transport gets the links of TCP; direct gets the links of its own protocol, and
  // peers are told of the protocol. direct may be null.
  void start(transport::Transport& transport, transport::OneSidedTransport* direct,
             const EngineDescriptor& own);
  const Address& address() const { return address_; }
  // Asks the engine at the address for its descriptor. Error: the question was not sent, and no
  // answer comes.
  Status introduce(std::uint64_t call, const Address& to, std::uint64_t now_ns);
  void dial(const transport::DialRequest& request) override;
  void poll(std::uint64_t now_ns);
  // Each descriptor is readable when poll() has work.
  int listening_fd() const { return listener_->wait_fd(); }
  int shaking_fd() const { return handshakes_->wait_fd(); }
  bool shaking() const { return handshakes_->count() != 0; }

 private:
  Port(Address address, auth::ClusterKey key, PortSink& sink)
      : address_(std::move(address)), key_(std::move(key)), sink_(sink) {}
  Status shake(const Address& to, std::unique_ptr<transport::tcp::LaneHandshake> inner,
               const transport::DialRequest& request, std::uint64_t now_ns);
  // Null: no transport has the protocol.
  transport::Transport* transport_of(transport::LinkProtocol protocol) const;
  void on_link(transport::Link link) override;
  void on_failed(std::optional<transport::DialRequest> dialed, const Status& status) override;

  Address address_;
  const auth::ClusterKey key_;
  PortSink& sink_;
  auth::ClusterHello own_hello_;
  EngineDescriptor own_{};
  std::optional<transport::tcp::Handshakes> handshakes_;
  std::optional<transport::tcp::Listener> listener_;
  transport::Transport* transport_ = nullptr;
  transport::OneSidedTransport* direct_ = nullptr;
  transport::tcp::Self self_;
  std::unordered_map<std::uint64_t, std::shared_ptr<EngineDescriptor>> calls_;
};

}  // namespace mc::transfer
