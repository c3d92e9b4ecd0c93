// SPDX-License-Identifier: Apache-2.0
//
// A proven connection on which both sides may call. Requests have ids and deadlines.
//   Answers come in any order. A caller may cancel. Pings detect silence.
//
// Back-pressure: this side may have max_calls open calls and max_queued_bytes unsent bytes. A call
// beyond fails with MC_BUSY at once. The peer may have max_requests unanswered requests. The link
// answers further requests with MC_BUSY. A listener stops reading while the answers are not taken.
// A dialer always reads, so the two sides cannot wait for each other.
// Threads: the io_context's thread.
// Owns: itself by shared_ptr while it is open, the transport and its queues. handler must outlive
//   the link.
// Trusts: nothing. Lengths are checked before there is room for a body (frame.h). An answer without
//   a waiting call is dropped. An invalid frame closes the link.
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

#include "libmc/auth/cluster_hello.h"
#include "metadata/rpc/byte_stream.h"
#include "metadata/rpc/frame.h"

namespace mc::metadata::rpc {

struct RpcLinkOptions {
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
  std::uint64_t deadline_ns = 0;  // compares with now_ns()
  std::uint64_t epoch = 0;
  std::string_view body;  // valid until the handler returns
};
struct Answer {
  std::uint16_t status = 0;
  std::uint64_t epoch = 0;
  std::string_view body;  // valid until the callback returns
};

class RpcLink;

class RpcLinkHandler {
 public:
  virtual ~RpcLinkHandler() = default;
  // The handler answers with link.answer(), now or later, exactly once.
  virtual void on_request(RpcLink& link, const Request& request) = 0;
  // The caller no longer waits; an answer would be dropped. The handler may ignore this call.
  virtual void on_cancel(RpcLink& link, std::uint32_t id) = 0;
  // Called exactly once, after all calls of this side have failed.
  virtual void on_closed(RpcLink& link, const Status& why) = 0;
};

class RpcLink : public std::enable_shared_from_this<RpcLink> {
 public:
  using Done = std::function<void(Result<Answer>)>;

  RpcLink(boost::asio::any_io_executor executor, std::shared_ptr<ByteStream> transport,
          auth::ClusterHello peer, bool dialer, const RpcLinkOptions& options,
          RpcLinkHandler& handler);

  void start();
  // done is called exactly once, never from within call(): with an answer, or with MC_TIMEOUT (the
  // call may still take effect), MC_AGENT_UNAVAILABLE (the link broke; the call may have taken
  // effect), MC_CANCELLED, or MC_BUSY (nothing was sent). Returns the id for cancel().
  std::uint32_t call(std::uint8_t method, std::string body, std::uint64_t deadline_ns,
                     std::uint64_t epoch, Done done);
  void cancel(std::uint32_t id);
  // Ignored if the request is not open: cancelled or already answered.
  void answer(std::uint32_t id, std::uint16_t status, std::string body, std::uint64_t epoch);
  void close(const Status& why);

  [[nodiscard]] bool open() const { return open_; }
  [[nodiscard]] const auth::ClusterHello& peer() const { return peer_; }
  [[nodiscard]] std::uint64_t queued_bytes() const { return queued_bytes_; }
  // For a loop that polls the io_context: wait until this socket is readable. Do not read from it.
  [[nodiscard]] int socket() const { return transport_->socket(); }
  // State that the handler keeps for this peer.
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
  const auth::ClusterHello peer_;
  const bool dialer_;
  const RpcLinkOptions options_;
  RpcLinkHandler& handler_;
  bool open_ = false;

  std::vector<char> in_;
  std::size_t begin_ = 0;  // first byte of in_ that is not parsed yet
  std::size_t end_ = 0;
  bool reading_ = false;
  std::uint64_t heard_ns_ = 0;

  std::deque<Frame> queue_;
  std::vector<Frame> writing_;
  std::vector<boost::asio::const_buffer> buffers_;
  std::uint64_t queued_bytes_ = 0;  // includes writing_

  std::uint32_t next_id_ = 1;
  boost::unordered_flat_map<std::uint32_t, Call> calls_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> deadlines_;
  std::uint64_t armed_ns_ = UINT64_MAX;
  boost::asio::steady_timer deadline_timer_;
  boost::asio::steady_timer ping_timer_;
  // open requests and their methods
  boost::unordered_flat_map<std::uint32_t, std::uint8_t> requests_;
};

}  // namespace mc::metadata::rpc
