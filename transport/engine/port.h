// SPDX-License-Identifier: Apache-2.0
//
// What it is: an engine's one port, and the way to the peers' ports: accepts and dials, shakes
//   hands, gives lanes to the transport and engine descriptors to the engine.
// Threads: under the engine's lock. Owns: the listening socket and those that are not lanes yet.
// Trusts: nobody before the key is proved; their number and their time are limited.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "libmc/auth/cluster_key.h"
#include "metadata/rpc/hello.h"
#include "transport/engine/address.h"
#include "transport/engine/wire/engine_descriptor.h"
#include "transport/tcp/handshakes.h"
#include "transport/transport.h"

namespace mc::transfer {

class PortSink {
 public:
  virtual ~PortSink() = default;
  // Where a node that was connected listens; null: unknown.
  virtual const Address* address_of(transport::NodeId node) const = 0;
  // The answer to introduce().
  virtual void on_introduced(std::uint64_t call,
                             const Result<EngineDescriptor>& engine_descriptor) = 0;
};

class Port final : public transport::Dialer, private transport::tcp::LinkSink {
 public:
  // Errors: MC_INVALID_ARGUMENT (an address that others can reach and no key), MC_BUSY (taken).
  static Result<std::unique_ptr<Port>> open(const Address& listen,
                                            const metadata::rpc::ClusterKey& key,
                                            std::string_view cluster, PortSink& sink);

  // Before the first poll().
  void start(transport::Transport& transport, const EngineDescriptor& own);
  const Address& address() const { return address_; }
  // Asks who listens there. An error: it could not even be asked, and no answer comes.
  Status introduce(std::uint64_t call, const Address& to, std::uint64_t now_ns);
  void dial(const transport::DialRequest& request) override;
  void poll(std::uint64_t now_ns);
  // Each readable when poll() has something to do.
  int listening_fd() const { return listener_->wait_fd(); }
  int shaking_fd() const { return handshakes_->wait_fd(); }
  bool shaking() const { return handshakes_->count() != 0; }

 private:
  Port(Address address, metadata::rpc::ClusterKey key, PortSink& sink)
      : address_(std::move(address)), key_(std::move(key)), sink_(sink) {}
  Status shake(const Address& to, std::unique_ptr<transport::tcp::Handshake> inner,
               const transport::DialRequest& request, std::uint64_t now_ns);
  void on_link(transport::Link link) override;
  void on_failed(std::optional<transport::DialRequest> dialed, const Status& status) override;

  Address address_;
  const metadata::rpc::ClusterKey key_;
  PortSink& sink_;
  metadata::rpc::Hello own_hello_;
  EngineDescriptor own_{};
  std::optional<transport::tcp::Handshakes> handshakes_;
  std::optional<transport::tcp::Listener> listener_;
  transport::Transport* transport_ = nullptr;
  std::unordered_map<std::uint64_t, std::shared_ptr<EngineDescriptor>> calls_;
};

}  // namespace mc::transfer
