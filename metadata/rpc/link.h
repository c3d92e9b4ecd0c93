// SPDX-License-Identifier: Apache-2.0
//
// What it is: a proven connection on which both sides may call: requests with ids and deadlines,
//   answers in any order, cancels, and pings when nothing else is heard.
//
//   Back-pressure. Calls of this side: at most max_calls, and at most max_queued_bytes unsent; more
//   is MC_BUSY at once. Requests of the peer: at most max_requests unanswered; more are answered
//   MC_BUSY by the link. A listener also stops reading while its answers are not taken; a dialer
//   never does, so the two cannot wait for each other.
// Threads: the io_context's one thread. Owns: itself by shared_ptr while it is open, its transport,
//   its queues. handler must outlive it.
// Trusts: nothing that arrives: lengths are checked before there is room for a body (frame.h), and
//   an answer nobody waits for is dropped. A frame that cannot be ends the link.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metadata/rpc/byte_stream.h"
#include "metadata/rpc/frame.h"
#include "metadata/rpc/hello.h"

namespace mc::metadata::rpc {

struct LinkOptions {
  LimitsOf limits_of = wire::body_limits;
  std::uint32_t max_calls = 1024;
  std::uint32_t max_requests = 256;
  std::uint64_t max_queued_bytes = 8u << 20;
  std::uint64_t pause_reading_bytes = 1u << 20;
  std::uint64_t ping_after_ns = 500'000'000;    // of silence
  std::uint64_t dead_after_ns = 5'000'000'000;  // of silence, pings included
};

struct Request {
  std::uint32_t id = 0;
  std::uint8_t method = 0;
  std::uint64_t deadline_ns = 0;  // of now_ns()
  std::uint64_t epoch = 0;
  std::string_view body;  // until the handler returns
};
struct Answer {
  std::uint16_t status = 0;
  std::uint64_t epoch = 0;
  std::string_view body;  // until the callback returns
};

class Link;

class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // Answer it with link.answer(), now or later, exactly once.
  virtual void on_request(Link& link, const Request& request) = 0;
  // Nobody waits any more; an answer is dropped. May be ignored.
  virtual void on_cancel(Link& link, std::uint32_t id) = 0;
  // Exactly once, after all calls of this side have failed.
  virtual void on_closed(Link& link, const Status& why) = 0;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  using Done = std::function<void(Result<Answer>)>;

  Link(boost::asio::any_io_executor executor, std::shared_ptr<ByteStream> transport, Hello peer,
       bool dialer, const LinkOptions& options, LinkHandler& handler);

  void start();
  // done is called exactly once, never from within call(): with an answer, or with MC_TIMEOUT (it
  // may still take effect), MC_AGENT_UNAVAILABLE (the link broke; the same), MC_CANCELLED, or
  // MC_BUSY (nothing was sent). Returns the id for cancel().
  std::uint32_t call(std::uint8_t method, std::string body, std::uint64_t deadline_ns,
                     std::uint64_t epoch, Done done);
  void cancel(std::uint32_t id);
  // Dropped when the request is not open: cancelled, or answered.
  void answer(std::uint32_t id, std::uint16_t status, std::string body, std::uint64_t epoch);
  void close(const Status& why);

  [[nodiscard]] bool open() const { return open_; }
  [[nodiscard]] const Hello& peer() const { return peer_; }
  [[nodiscard]] std::uint64_t queued_bytes() const { return queued_bytes_; }
  // To be waited for only, by whoever polls the io_context instead of running it.
  [[nodiscard]] int socket() const { return transport_->socket(); }
  // For the handler: what it remembers of this peer.
  std::shared_ptr<void> attachment;

 private:
  struct Call {
    Done done;
    std::uint64_t deadline_ns = 0;
    std::uint8_t method = 0;
  };
  struct Frame {
    FrameHeadBytes head;
    std::string body;
  };

  void read();
  bool take_frames();
  bool take_frame(const FrameHead& head, std::string_view body);
  void take_request(const FrameHead& head, std::string_view body);
  void take_answer(const FrameHead& head, std::string_view body);
  void send(const FrameHead& head, std::string body);
  void write();
  void complete(std::uint32_t id, Result<Answer> result);
  void arm_deadlines();
  void arm_ping();

  boost::asio::any_io_executor executor_;
  std::shared_ptr<ByteStream> transport_;
  const Hello peer_;
  const bool dialer_;
  const LinkOptions options_;
  LinkHandler& handler_;
  bool open_ = false;

  std::vector<char> in_;
  std::size_t begin_ = 0;  // of what is not taken yet, in in_
  std::size_t end_ = 0;
  bool reading_ = false;
  std::uint64_t heard_ns_ = 0;

  std::deque<Frame> queue_;
  std::vector<Frame> writing_;
  std::vector<boost::asio::const_buffer> buffers_;
  std::uint64_t queued_bytes_ = 0;  // writing_ included

  std::uint32_t next_id_ = 1;
  boost::unordered_flat_map<std::uint32_t, Call> calls_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> deadlines_;
  std::uint64_t armed_ns_ = UINT64_MAX;
  boost::asio::steady_timer deadline_timer_;
  boost::asio::steady_timer ping_timer_;
  boost::unordered_flat_map<std::uint32_t, std::uint8_t> requests_;  // open ones: their method
};

}  // namespace mc::metadata::rpc
