// SPDX-License-Identifier: Apache-2.0
//
// What it is: one end of the link of an rdma peer: whole messages in both directions, over a
//   non-blocking stream socket.
// Threads: the transport's. Owns its socket.
// Trusts: nothing that arrives (message.h); a peer that breaks the contract, or that does not take
// what is sent to it, fails the link.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "libmc/base/fd.h"
#include "transport/rdma/message.h"

namespace mc::transport::rdma {

class ControlLink {
 public:
  // asks: this is the end that dialed.
  ControlLink(Fd socket, bool asks) : socket_(std::move(socket)), asks_(asks) {}

  int socket() const { return socket_.get(); }
  // Queues and sends what can be sent. False: the link has failed.
  bool send(std::span<const std::byte> message);
  // After the socket became readable or writable. False: the link has failed, or sink said so.
  bool work(const std::function<bool(const Message&)>& sink);
  bool failed() const { return failed_; }

 private:
  bool flush();
  bool consume(const std::function<bool(const Message&)>& sink);

  Fd socket_;
  const bool asks_;
  bool failed_ = false;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
};

}  // namespace mc::transport::rdma
