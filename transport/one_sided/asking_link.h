// SPDX-License-Identifier: Apache-2.0
//
// What it is: the asking end of the link beside a one-sided transport's own network, to one peer:
//   whether there is one now, whether the peer is heard on it, and when it is dialed again.
//
//     none ─ due(): kDial ─► attach() ─► the peer says what it has ─► introduced()
//      ▲                                                                   │
//      └──── fail() ◄─ due(): kFail, or work() said so ◄───────────────────┘
//
// Threads: the transport's. Owns the link.
#pragma once

#include <memory>
#include <optional>

#include "transport/flow/edges.h"
#include "transport/one_sided/control_link.h"
#include "transport/rails/rails.h"

namespace mc::transport {

class AskingLink {
 public:
  // watched: is told when the link has something. Both outlive it.
  AskingLink(const ControlProtocol& protocol, Edges& edges, Watched& watched)
      : protocol_(protocol), edges_(edges), watched_(watched) {}
  ~AskingLink() { close(); }
  AskingLink(const AskingLink&) = delete;
  AskingLink& operator=(const AskingLink&) = delete;

  // Errors: MC_BUSY: there is one already; MC_NO_MEMORY.
  Status attach(Fd socket, std::uint64_t now_ns);
  void dial_failed(std::uint64_t now_ns);
  // Closes it; it is dialed again after a pause. REQUIRES: there is one.
  void fail(std::uint64_t now_ns);

  explicit operator bool() const { return link_ != nullptr; }
  // REQUIRES: there is one.
  ControlLink* operator->() const { return link_.get(); }

  // The peer has said on this link what it has.
  bool introduced() const { return introduced_; }
  void introduce() { introduced_ = true; }
  void heard(std::uint64_t now_ns) { heard_ns_ = now_ns; }
  void answered() { pinging_ = false; }

  // What is to be done now, and counts as begun. was_away: this side did not look for a while, for
  // which nobody is to blame.
  enum class Due { kNothing, kDial, kPing, kFail };
  Due due(std::uint64_t now_ns, bool was_away);

 private:
  void close();

  const ControlProtocol protocol_;
  Edges& edges_;
  Watched& watched_;
  std::unique_ptr<ControlLink> link_;
  Rails rail_{1};  // when it is dialed again
  bool introduced_ = false;
  bool pinging_ = false;
  std::uint64_t pinged_ns_ = 0;
  std::uint64_t heard_ns_ = 0;
};

}  // namespace mc::transport
