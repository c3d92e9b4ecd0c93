// SPDX-License-Identifier: Apache-2.0
//
// The asking end of the link beside a one-sided transport's own network, to a peer:
//   whether the link exists now, whether the peer answers on the link, and when the peer is dialed
//   again.
//
//     none ─ due(): kDial ─► attach() ─► the peer lists devices ─► introduced()
//      ▲                                                                     │
//      └──── fail() ◄─ due(): kFail, or work() said so ◄─────────────────────┘
//
// Threads: the transport's.
// Owns: the link.
#pragma once

#include <memory>
#include <optional>

#include "transport/flow/edges.h"
#include "transport/one_sided/control_link.h"
#include "transport/rails/rails.h"

namespace mc::transport {

class AskingLink {
 public:
  // watched: called when the link has bytes or room. Both references outlive this object.
  AskingLink(const ControlProtocol& protocol, Edges& edges, Watched& watched)
      : protocol_(protocol), edges_(edges), watched_(watched) {}
  ~AskingLink() { close(); }
  AskingLink(const AskingLink&) = delete;
  AskingLink& operator=(const AskingLink&) = delete;

  // Errors: MC_BUSY: the peer has a link already; MC_NO_MEMORY.
  Status attach(Fd socket, std::uint64_t now_ns);
  void dial_failed(std::uint64_t now_ns);
  // Closes the link; the peer is dialed again after a pause. REQUIRES: the link exists.
  void fail(std::uint64_t now_ns);

  explicit operator bool() const { return link_ != nullptr; }
  // REQUIRES: the link exists.
  ControlLink* operator->() const { return link_.get(); }

  // Whether the peer has listed the devices on this link.
  bool introduced() const { return introduced_; }
  void introduce() { introduced_ = true; }
  void heard(std::uint64_t now_ns) { heard_ns_ = now_ns; }
  void answered() { pinging_ = false; }

  // The next action, which counts as begun. was_away: this side did not look for a while; a silence
  // of that time is not the peer's fault.
  enum class Due { kNothing, kDial, kPing, kFail };
  Due due(std::uint64_t now_ns, bool was_away);

 private:
  void close();

  const ControlProtocol protocol_;
  Edges& edges_;
  Watched& watched_;
  std::unique_ptr<ControlLink> link_;
  Rails rail_{1};  // the pauses between dials
  bool introduced_ = false;
  bool pinging_ = false;
  std::uint64_t pinged_ns_ = 0;
  std::uint64_t heard_ns_ = 0;
};

}  // namespace mc::transport
