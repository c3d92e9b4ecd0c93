// SPDX-License-Identifier: Apache-2.0
//
// Two hosts in a process, stepped by a single thread: two transports of a kind that
//   needs a link to each peer, and these links over loopback.
// Threads: a single thread.
// Owns: the transports.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "conformance/transport/transport_world.h"
#include "transport/transport.h"

namespace mc::transport::testing {

// The two ends of a link that a dialed to b.
struct LinkEnds {
  Link dialed;
  Link accepted;
};
LinkEnds make_link(const DialRequest& request, std::uint64_t b_incarnation);
// Ends a connection without the knowledge of either side.
void shut_down(const Fd& socket);
// All TCP connections of this process, except the connection of the given end.
void shut_down_beside(const Fd& end);

template <typename T>
class LinkedPair : private Dialer {
 public:
  using Make = std::function<std::unique_ptr<T>(Dialer&)>;
  LinkedPair(const Make& a, const Make& b) : a_(a(*this)), b_(b(*this)) {}

  T& a() { return *a_; }
  T& b() { return *b_; }
  bool has_b() const { return b_ != nullptr; }
  void step(std::uint64_t now_ns, std::vector<Event>& at_a, std::vector<Event>& at_b) {
    for (const DialRequest& request : std::exchange(dialed_, {})) {
      if (b_ == nullptr || refuses_) {
        a_->dial_failed(request.peer, request.lane);
        continue;
      }
      LinkEnds ends = make_link(request, b_incarnation_);
      second_ = Fd(::dup(ends.dialed.socket.get()));
      static_cast<void>(b_->attach(std::move(ends.accepted)));
      static_cast<void>(a_->attach(std::move(ends.dialed)));
    }
    a_->poll(now_ns, at_a);
    if (b_) b_->poll(now_ns, at_b);
  }
  void kill_b() { b_.reset(); }
  // Starts another incarnation of b.
  void start_b(const Make& b, std::uint64_t incarnation) {
    b_incarnation_ = incarnation;
    b_ = b(*this);
  }
  void break_link() { shut_down(second_); }
  // The connections that the transports have made by themselves.
  void break_all_but_link() { shut_down_beside(second_); }
  // From now on dialing fails, or works again.
  void refuse_links(bool refuse) { refuses_ = refuse; }

 private:
  void dial(const DialRequest& request) override { dialed_.push_back(request); }

  std::uint64_t b_incarnation_ = 1;
  bool refuses_ = false;
  std::vector<DialRequest> dialed_;
  Fd second_;  // of the link
  std::unique_ptr<T> a_;
  std::unique_ptr<T> b_;
};

}  // namespace mc::transport::testing
