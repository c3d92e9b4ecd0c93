// SPDX-License-Identifier: Apache-2.0
//
// A connected socket and, where agents use TLS, the session over the socket. The calls
//   behave as the kernel's: bytes, 0 at the end, or -1 with errno, EAGAIN for "would wait". Without
//   a session the calls are the kernel's.
// Threads: the socket's owner.
// Owns: nothing.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

#include "mc/status.h"

namespace mc::transport::tcp {

// TLS over a non-blocking socket. transport/tls implements the class.
class TlsSession {
 public:
  enum class Shaken { kDone, kWaits, kFailed };
  virtual ~TlsSession() = default;

  // Goes on with the handshake until the socket would wait. After kFailed: status().
  virtual Shaken shake() = 0;
  // Decrypts received bytes until the vectors are full or the socket is empty.
  virtual ssize_t receive(std::span<const iovec> to) = 0;
  // Whether receive() has seen the end, or an error, behind the returned bytes.
  virtual bool has_ended() const = 0;
  // Encrypts and sends bytes; returns how many. The session does not read those bytes again. While
  // has_unsent() is true, a part of the records waits for flush().
  virtual ssize_t send(std::span<const iovec> from) = 0;
  virtual bool has_unsent() const = 0;
  // False: the connection is lost.
  virtual bool flush() = 0;
  // A value that only the two ends of this session know.
  virtual std::string binding() const = 0;
  // The cause of a failure, with the remedy.
  virtual const Status& status() const = 0;
};

struct Wire {
  Wire(int connected, TlsSession* session = nullptr) : socket(connected), tls(session) {}

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
  // After a short receive: whether the end or an error can be read at once.
  bool has_ended() const { return tls != nullptr && tls->has_ended(); }

  int socket;
  TlsSession* tls;
};

}  // namespace mc::transport::tcp
