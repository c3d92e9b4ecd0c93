// SPDX-License-Identifier: Apache-2.0
//
// A connection in the transport's loop. The poller reports edges. A lane remembers
//   whether the socket may be read and written, and works a bounded turn at a time, so that no lane
//   starves another.
// Threads: the transport's.
// Owns: the socket, and the TLS session over the socket.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>

#include "libmc/base/fd.h"
#include "transport/tcp/wire.h"

namespace mc::transport::tcp {

class Lane {
 public:
  enum class Turn { kWaits, kGoesOn, kFailed };

  // tls: null: plain.
  Lane(Fd socket, std::shared_ptr<TlsSession> tls)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  virtual ~Lane() = default;

  // Receives and sends as far as possible, up to the turn's budget.
  virtual Turn work(std::uint64_t now_ns) = 0;
  // The loop saw the turn fail.
  virtual void on_failed(std::uint64_t now_ns) = 0;

  void on_edge(std::uint32_t events) {
    if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) readable_ = true;
    if ((events & EPOLLOUT) != 0) writable_ = true;
    if ((events & EPOLLERR) != 0) has_notice_ = true;
  }
  int socket() const { return socket_.get(); }
  Wire wire() const { return {socket_.get(), tls_.get()}; }

  bool listed = false;  // in the loop's list of lanes with work

 protected:
  Fd socket_;
  const std::shared_ptr<TlsSession> tls_;
  bool readable_ = true;
  bool writable_ = true;
  bool has_notice_ = false;
};

// The calls of a lane to the loop.
class LaneLoop {
 public:
  virtual ~LaneLoop() = default;
  virtual Status watch(Lane* lane) = 0;
  // Gives the lane a turn in this poll.
  virtual void wake(Lane* lane) = 0;
  // Does not touch the lane after the call.
  virtual void forget(Lane* lane) = 0;
};

inline constexpr std::uint64_t kTurnBytes = 1024 * 1024;

}  // namespace mc::transport::tcp
