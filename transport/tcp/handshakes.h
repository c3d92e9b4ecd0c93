// SPDX-License-Identifier: Apache-2.0
//
// The accepted and dialed sockets whose handshake is under way, driven together.
//
//     accept or dial ─► add ─► LaneHandshake::advance … ─► LinkSink::on_link | on_failed
//
// Threads: a single thread calls poll(). If that is not the transport's thread, the sink must hand
//   the links over.
// Owns: the sockets until the sockets become links.
// Trusts: no peer; the number and the time of handshakes are limited.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "transport/tcp/lane_hello.h"

namespace mc::transport::tcp {

class LinkSink {
 public:
  virtual ~LinkSink() = default;
  virtual void on_link(Link link) = 0;
  // dialed: the request; none for a peer that dialed this side.
  virtual void on_failed(std::optional<DialRequest> dialed, const Status& status) = 0;
};

class Handshakes {
 public:
  static Result<Handshakes> create(LinkSink& sink);

  // tls: the session below the handshake; null: plain.
  Status add(Fd socket, std::unique_ptr<LaneHandshake> handshake, std::optional<DialRequest> dialed,
             std::uint64_t now_ns, std::shared_ptr<TlsSession> tls = nullptr);
  void poll(std::uint64_t now_ns);
  // Readable when poll() has something to do.
  int wait_fd() const { return epoll_.get(); }
  std::size_t count() const { return pending_.size(); }

 private:
  struct Pending {
    Fd socket;
    std::unique_ptr<LaneHandshake> handshake;
    std::optional<DialRequest> dialed;
    std::uint64_t deadline_ns;
    std::shared_ptr<TlsSession> tls;
    bool shaken = false;
  };
  Handshakes(LinkSink& sink, Fd epoll) : sink_(&sink), epoll_(std::move(epoll)) {}
  static LaneHandshake::State shake(Pending& pending);
  // True: the handshake is over, with or without success.
  bool advance(Pending& pending, std::uint64_t now_ns);

  LinkSink* sink_;
  Fd epoll_;
  std::list<Pending> pending_;
};

// The port of the data network.
class Listener {
 public:
  using MakeHandshake = std::function<std::unique_ptr<LaneHandshake>()>;
  using MakeSession = std::function<std::shared_ptr<TlsSession>(int socket)>;
  // make_session: empty if peers speak without TLS.
  Listener(Fd socket, MakeHandshake make, MakeSession make_session = {})
      : socket_(std::move(socket)),
        make_(std::move(make)),
        make_session_(std::move(make_session)) {}
  // Accepts waiting connections, as long as there is room.
  void poll(Handshakes& handshakes, std::uint64_t now_ns);
  int wait_fd() const { return socket_.get(); }

 private:
  Fd socket_;
  MakeHandshake make_;
  MakeSession make_session_;
};

}  // namespace mc::transport::tcp
