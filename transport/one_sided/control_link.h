// SPDX-License-Identifier: Apache-2.0
//
// An end of the link beside a one-sided transport's own network: whole messages in
//   both directions, over a non-blocking stream socket.
// Threads: the transport's.
// Owns: the socket.
// Trusts: nothing that arrives: control_message.h checks headers, and the transport's decoder
//   checks bodies. The link fails if the peer breaks the contract, or does not read the messages.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "libmc/base/fd.h"
#include "transport/one_sided/control_message.h"

namespace mc::transport {

class ControlLink {
 public:
  ControlLink(Fd socket, const ControlProtocol& protocol)
      : socket_(std::move(socket)), protocol_(protocol) {}

  // Takes a message. False: the message breaks the contract.
  using Sink = std::function<bool(const ControlHeader&, std::span<const std::byte> body)>;

  int socket() const { return socket_.get(); }
  // Queues the message and sends as far as possible. False: the link has failed.
  bool send(std::span<const std::byte> message);
  // To be called after the socket became readable or writable. False: the link or the sink has
  // failed.
  bool work(const Sink& sink);
  bool failed() const { return failed_; }
  std::size_t unsent_bytes() const { return out_.size() - sent_; }

 private:
  bool flush();
  bool consume(const Sink& sink);

  Fd socket_;
  const ControlProtocol protocol_;
  bool failed_ = false;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
};

}  // namespace mc::transport
