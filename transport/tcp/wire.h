// SPDX-License-Identifier: Apache-2.0
//
// What it is: a connected socket and, where the agents speak TLS, the session over it. Who sends
//   and receives through it sees the kernel's calls: bytes, 0 at the end, or -1 with errno, EAGAIN
//   for "would wait". Without a session they are the kernel's calls.
// Threads: the socket's owner. Owns: nothing.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

#include "mc/status.h"

namespace mc::transport::tcp {

// TLS over a socket that does not block. transport/tls makes it.
class Session {
 public:
  enum class Shaken { kDone, kWaits, kFailed };
  virtual ~Session() = default;

  // Goes on with the handshake until the socket would wait. After kFailed: status().
  virtual Shaken shake() = 0;
  // Decrypts what is there, until the vectors are full or the socket is empty.
  virtual ssize_t receive(std::span<const iovec> to) = 0;
  // Whether receive() has seen the end, or an error, behind bytes that it gave.
  virtual bool has_ended() const = 0;
  // Encrypts and sends. What it says it took it no longer reads, and has sent but for has_unsent().
  virtual ssize_t send(std::span<const iovec> from) = 0;
  virtual bool has_unsent() const = 0;
  // False: the connection is lost.
  virtual bool flush() = 0;
  // What both ends of this session, and nobody else, can name.
  virtual std::string binding() const = 0;
  // Why it failed, with the remedy.
  virtual const Status& status() const = 0;
};

struct Wire {
  Wire(int connected, Session* session = nullptr) : socket(connected), tls(session) {}

  ssize_t receive(std::span<const iovec> to) const {
    if (tls != nullptr) return tls->receive(to);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(to.data());
    message.msg_iovlen = to.size();
    return ::recvmsg(socket, &message, MSG_DONTWAIT);
  }
  ssize_t receive(void* to, std::size_t bytes) const {
    if (tls == nullptr) return ::recv(socket, to, bytes, MSG_DONTWAIT);
    const iovec part{to, bytes};
    return tls->receive({&part, 1});
  }
  ssize_t send(const void* from, std::size_t bytes) const {
    if (tls == nullptr) return ::send(socket, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    const iovec part{const_cast<void*>(from), bytes};
    return tls->send({&part, 1});
  }
  // After a receive that was shorter than wanted: whether there is more to learn at once.
  bool has_ended() const { return tls != nullptr && tls->has_ended(); }

  int socket;
  Session* tls;
};

}  // namespace mc::transport::tcp
