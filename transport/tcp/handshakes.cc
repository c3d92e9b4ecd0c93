// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/handshakes.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "transport/limits.h"

namespace mc::transport::tcp {

Result<Handshakes> Handshakes::create(LinkSink& sink) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail(MC_NO_MEMORY, errno_text("epoll_create1", errno));
  return Handshakes(sink, std::move(epoll));
}

Status Handshakes::add(Fd socket, std::unique_ptr<LaneHandshake> handshake,
                       std::optional<DialRequest> dialed, std::uint64_t now_ns,
                       std::shared_ptr<TlsSession> tls) {
  if (pending_.size() >= kMaxPendingHandshakes) {
    return {MC_BUSY, "256 handshakes are under way; try again"};
  }
  epoll_event event{};
  // With edges, a handshake must go on until the socket would wait.
  event.events = static_cast<std::uint32_t>(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return {MC_NO_MEMORY, errno_text("epoll_ctl", errno)};
  }
  pending_.push_back({std::move(socket), std::move(handshake), dialed, now_ns + kHandshakeTimeoutNs,
                      std::move(tls)});
  return {};
}

void Handshakes::poll(std::uint64_t now_ns) {
  // The edges only wake the loop. The sockets are few, so the loop tries every socket.
  epoll_event edges[64];
  static_cast<void>(::epoll_wait(epoll_.get(), edges, 64, 0));
  // A sink may add handshakes meanwhile, at the end of the list.
  for (auto at = pending_.begin(); at != pending_.end();) {
    at = advance(*at, now_ns) ? pending_.erase(at) : std::next(at);
  }
}

// First the session, then the handshake inside the session, which may hold the handshake's bytes
// back for a moment.
LaneHandshake::State Handshakes::shake(Pending& pending) {
  TlsSession* const tls = pending.tls.get();
  if (tls != nullptr && !pending.shaken) {
    const TlsSession::Shaken shaken = tls->shake();
    if (shaken == TlsSession::Shaken::kFailed) return LaneHandshake::State::kFailed;
    if (shaken == TlsSession::Shaken::kWaits) return LaneHandshake::State::kWantsRead;
    pending.shaken = true;
  }
  if (tls != nullptr && !tls->flush()) return LaneHandshake::State::kFailed;
  return pending.handshake->advance({pending.socket.get(), tls});
}

bool Handshakes::advance(Pending& pending, std::uint64_t now_ns) {
  const LaneHandshake::State state = shake(pending);
  if (state == LaneHandshake::State::kDone) {
    Link link = pending.handshake->link();
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pending.socket.get(), nullptr);
    link.socket = std::move(pending.socket);
    link.tls = std::move(pending.tls);
    sink_->on_link(std::move(link));
    return true;
  }
  if (state == LaneHandshake::State::kFailed) {
    const Status& own = pending.handshake->status();
    sink_->on_failed(pending.dialed,
                     own.ok() && pending.tls != nullptr ? pending.tls->status() : own);
    return true;
  }
  if (now_ns < pending.deadline_ns) return false;
  sink_->on_failed(pending.dialed, {MC_TIMEOUT, "the handshake did not end within a second"});
  return true;
}

void Listener::poll(Handshakes& handshakes, std::uint64_t now_ns) {
  while (handshakes.count() < kMaxPendingHandshakes) {
    Fd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket) return;
    std::shared_ptr<TlsSession> tls = make_session_ ? make_session_(socket.get()) : nullptr;
    static_cast<void>(
        handshakes.add(std::move(socket), make_(), std::nullopt, now_ns, std::move(tls)));
  }
}

}  // namespace mc::transport::tcp
