// SPDX-License-Identifier: Apache-2.0
//
// The two ends of links for tests: a loop under a watchdog, handlers that record calls,
//   and a raw socket that sends any bytes.
// Threads: the loop runs in the thread that calls until(). Raw sockets block with a watchdog.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>
#include <vector>

#include "libmc/base/clock.h"
#include "libmc/base/fd.h"
#include "metadata/rpc/dialer.h"
#include "metadata/rpc/listener.h"
#include "patience.h"

namespace mc::metadata::rpc {

inline std::uint64_t soon() { return now_ns() + kWatchdogNs; }

class Loop {
 public:
  boost::asio::io_context& io() { return io_; }
  // Runs the loop until holds() is true. False: the watchdog fired.
  bool until(const std::function<bool()>& holds) {
    const std::uint64_t end_ns = soon();
    while (!holds()) {
      if (now_ns() > end_ns) return false;
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(20));
    }
    return true;
  }

 private:
  boost::asio::io_context io_;
};

struct Ends final : ListenerHandler {
  struct Held {
    std::uint32_t id;
    std::string body;
    std::uint64_t deadline_ns;
  };
  void on_link(const std::shared_ptr<RpcLink>& link) override { links.push_back(link); }
  void on_refused(const Status& why, const std::string&) override { refused.push_back(why); }
  void on_request(RpcLink& link, const Request& request) override {
    held.push_back({request.id, std::string(request.body), request.deadline_ns});
    if (echo) link.answer(request.id, 0, std::string(request.body), 7);
  }
  void on_cancel(RpcLink&, std::uint32_t id) override { cancelled.push_back(id); }
  void on_closed(RpcLink&, const Status& why) override { closed.push_back(why); }

  bool echo = true;
  std::vector<std::shared_ptr<RpcLink>> links;
  std::vector<Status> refused;
  std::vector<Held> held;
  std::vector<std::uint32_t> cancelled;
  std::vector<Status> closed;
};

inline auth::ClusterKey key_of(char letter) {
  return *auth::ClusterKey::from_text(std::string(auth::kMinKeyBytes, letter));
}

// Blocking; every wait ends.
class RawSocket {
 public:
  explicit RawSocket(std::uint16_t port);
  void send(std::string_view bytes);
  // Receives exactly this many bytes, or fewer if the peer closes first.
  std::string receive(std::size_t bytes);
  bool closed_by_peer() { return receive(1).empty(); }

 private:
  Fd socket_;
};

}  // namespace mc::metadata::rpc
