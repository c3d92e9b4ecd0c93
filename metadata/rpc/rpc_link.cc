// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/rpc_link.h"

#include <boost/asio/post.hpp>
#include <cstring>

#include "libmc/base/clock.h"

namespace mc::metadata::rpc {

namespace {

constexpr std::size_t kReadBytes = 64u << 10;
constexpr std::size_t kMaxGather = 64;  // frames of one write

std::uint32_t milliseconds_until(std::uint64_t deadline_ns, std::uint64_t now) {
  if (deadline_ns <= now) return 0;
  const std::uint64_t left_ms = (deadline_ns - now) / 1'000'000 + 1;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(left_ms, wire::kMaxWaitMs));
}

}  // namespace

RpcLink::RpcLink(boost::asio::any_io_executor executor, std::shared_ptr<ByteStream> transport,
                 auth::ClusterHello peer, bool dialer, const RpcLinkOptions& options,
                 RpcLinkHandler& handler)
    : executor_(executor),
      transport_(std::move(transport)),
      peer_(peer),
      dialer_(dialer),
      options_(options),
      handler_(handler),
      deadline_timer_(executor),
      ping_timer_(executor) {}

void RpcLink::start() {
  open_ = true;
  in_.resize(kReadBytes);
  heard_ns_ = now_ns();
  arm_ping();
  read();
}

void RpcLink::read() {
  if (!open_ || reading_) return;
  if (!dialer_ && queued_bytes_ > options_.pause_reading_bytes) return;  // write() resumes reading
  reading_ = true;
  transport_->read_some(
      boost::asio::buffer(in_.data() + end_, in_.size() - end_),
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t count) {
        self->reading_ = false;
        if (!self->open_) return;
        if (error) {
          self->close({MC_AGENT_UNAVAILABLE, "the peer closed the connection"});
          return;
        }
        self->heard_ns_ = now_ns();
        self->end_ += count;
        if (self->take_frames()) self->read();
      });
}

// False: the link is closed.
bool RpcLink::take_frames() {
  while (end_ - begin_ >= kFrameHeadBytes) {
    const auto head = decode_frame({in_.data() + begin_, end_ - begin_}, options_.limits_of);
    if (!head) {
      close(head.error());
      return false;
    }
    const std::size_t frame_bytes = kFrameHeadBytes + head->body_bytes;
    if (end_ - begin_ < frame_bytes) {
      // Make room for the whole frame. decode_frame() has checked its length.
      if (in_.size() - begin_ < frame_bytes) {
        std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
        if (in_.size() < frame_bytes) in_.resize(frame_bytes);
      }
      return true;
    }
    const std::string_view body(in_.data() + begin_ + kFrameHeadBytes, head->body_bytes);
    if (!take_frame(*head, body)) return false;
    begin_ += frame_bytes;
  }
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (in_.size() > kReadBytes) std::vector<char>(kReadBytes).swap(in_);
  } else if (in_.size() - begin_ < kFrameHeadBytes) {
    std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return true;
}

bool RpcLink::take_frame(const FrameHead& head, std::string_view body) {
  switch (head.kind) {
    case FrameKind::kRequest:
      take_request(head, body);
      break;
    case FrameKind::kAnswer:
      take_answer(head, body);
      break;
    case FrameKind::kCancel:
      if (requests_.erase(head.id) != 0) handler_.on_cancel(*this, head.id);
      break;
    case FrameKind::kPing:
      // Bounds the answers to a peer that pings and does not read.
      if (queued_bytes_ < options_.max_queued_bytes) send({.kind = FrameKind::kPong}, {});
      break;
    case FrameKind::kPong:
      break;
  }
  return open_;
}

void RpcLink::take_request(const FrameHead& head, std::string_view body) {
  if (requests_.size() >= options_.max_requests || requests_.contains(head.id)) {
    if (queued_bytes_ > options_.max_queued_bytes) {
      close({MC_BUSY, "the peer sends requests but does not read the answers"});
      return;
    }
    send({.kind = FrameKind::kAnswer, .method = head.method, .status = MC_BUSY, .id = head.id}, {});
    return;
  }
  requests_.emplace(head.id, head.method);
  if (!options_.limits_of(head.method).known) {
    answer(head.id, MC_UNSUPPORTED, {}, 0);
    return;
  }
  const std::uint64_t wait_ms = std::min<std::uint64_t>(head.timeout_ms, wire::kMaxWaitMs);
  handler_.on_request(*this, {.id = head.id,
                              .method = head.method,
                              .deadline_ns = heard_ns_ + wait_ms * 1'000'000,
                              .epoch = head.epoch,
                              .body = body});
}

void RpcLink::take_answer(const FrameHead& head, std::string_view body) {
  const auto found = calls_.find(head.id);
  if (found == calls_.end()) return;  // cancelled or late
  if (found->second.method != head.method) {
    close({MC_INVALID_ARGUMENT, "the peer answered a call with another method's answer"});
    return;
  }
  complete(head.id, Answer{head.status, head.epoch, body});
}

void RpcLink::complete(std::uint32_t id, Result<Answer> result) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  const Call call = std::move(found->second);
  calls_.erase(found);
  deadlines_.erase({call.deadline_ns, id});
  call.done(std::move(result));
}

std::uint32_t RpcLink::call(std::uint8_t method, std::string body, std::uint64_t deadline_ns,
                            std::uint64_t epoch, Done done) {
  const std::uint32_t id = next_id_++;
  const std::uint64_t now = now_ns();
  Status refused;
  if (!open_) {
    refused = {MC_AGENT_UNAVAILABLE, "the connection is closed"};
  } else if (now >= deadline_ns) {
    refused = {MC_TIMEOUT, "the deadline passed before the call"};
  } else if (calls_.size() >= options_.max_calls || calls_.contains(id) ||
             queued_bytes_ + body.size() > options_.max_queued_bytes) {
    refused = {MC_BUSY, "too many calls already wait for the peer"};
  }
  if (!refused.ok()) {
    boost::asio::post(executor_, [done = std::move(done), refused] { done(fail(refused)); });
    return id;
  }
  calls_.emplace(id, Call{std::move(done), deadline_ns, method});
  deadlines_.emplace(deadline_ns, id);
  arm_deadlines();
  send({.kind = FrameKind::kRequest,
        .method = method,
        .id = id,
        .timeout_ms = milliseconds_until(deadline_ns, now),
        .epoch = epoch},
       std::move(body));
  return id;
}

void RpcLink::cancel(std::uint32_t id) {
  if (!calls_.contains(id)) return;
  if (open_) send({.kind = FrameKind::kCancel, .id = id}, {});
  complete(id, fail(MC_CANCELLED, "the call was cancelled"));
}

void RpcLink::answer(std::uint32_t id, std::uint16_t status, std::string body,
                     std::uint64_t epoch) {
  const auto found = requests_.find(id);
  if (!open_ || found == requests_.end()) return;
  const std::uint8_t method = found->second;
  requests_.erase(found);
  if (queued_bytes_ + body.size() > options_.max_queued_bytes) {
    status = MC_BUSY;
    body.clear();
  }
  send({.kind = FrameKind::kAnswer, .method = method, .status = status, .id = id, .epoch = epoch},
       std::move(body));
}

void RpcLink::send(const FrameHead& head, std::string body) {
  FrameHead with_length = head;
  with_length.body_bytes = static_cast<std::uint32_t>(body.size());
  queued_bytes_ += kFrameHeadBytes + body.size();
  queue_.push_back({encode_frame(with_length), std::move(body)});
  if (!writing_.empty()) return;
  // Write later in this turn of the loop, so that frames queued together are written together.
  if (queue_.size() == 1) {
    boost::asio::post(executor_, [self = shared_from_this()] { self->write(); });
  }
}

void RpcLink::write() {
  if (!open_ || !writing_.empty() || queue_.empty()) return;
  const std::size_t count = std::min(queue_.size(), kMaxGather);
  buffers_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    writing_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  for (const Frame& frame : writing_) {
    buffers_.push_back(boost::asio::buffer(frame.head));
    if (!frame.body.empty()) buffers_.push_back(boost::asio::buffer(frame.body));
  }
  transport_->write(buffers_, [self = shared_from_this()](const boost::system::error_code& error,
                                                          std::size_t count_bytes) {
    self->writing_.clear();
    if (!self->open_) return;
    if (error) {
      self->close({MC_AGENT_UNAVAILABLE, "the peer closed the connection"});
      return;
    }
    self->queued_bytes_ -= count_bytes;
    self->write();
    self->read();
  });
}

void RpcLink::close(const Status& why) {
  if (!open_) return;
  open_ = false;
  const auto self = shared_from_this();
  transport_->close();
  deadline_timer_.cancel();
  ping_timer_.cancel();
  while (!calls_.empty()) {
    complete(calls_.begin()->first,
             fail(MC_AGENT_UNAVAILABLE, "the connection ended: " + std::string(why.text())));
  }
  requests_.clear();
  handler_.on_closed(*this, why);
}

void RpcLink::arm_deadlines() {
  if (!open_ || deadlines_.empty() || deadlines_.begin()->first >= armed_ns_) return;
  armed_ns_ = deadlines_.begin()->first;
  const std::uint64_t now = now_ns();
  deadline_timer_.expires_after(std::chrono::nanoseconds(armed_ns_ > now ? armed_ns_ - now : 0));
  deadline_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error || !self->open_) return;
    self->armed_ns_ = UINT64_MAX;
    const std::uint64_t passed_ns = now_ns();
    while (!self->deadlines_.empty() && self->deadlines_.begin()->first <= passed_ns) {
      const std::uint32_t id = self->deadlines_.begin()->second;
      self->send({.kind = FrameKind::kCancel, .id = id}, {});
      self->complete(id, fail(MC_TIMEOUT, "the peer did not answer by the deadline"));
    }
    self->arm_deadlines();
  });
}

void RpcLink::arm_ping() {
  ping_timer_.expires_after(std::chrono::nanoseconds(options_.ping_after_ns));
  ping_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error || !self->open_) return;
    const std::uint64_t silent_ns = now_ns() - self->heard_ns_;
    // A listener that has stopped reading, because the peer does not take the answers, also counts
    // as silent.
    if (silent_ns >= self->options_.dead_after_ns) {
      self->close({MC_AGENT_UNAVAILABLE, "the peer was silent for too long"});
      return;
    }
    if (silent_ns >= self->options_.ping_after_ns &&
        self->queued_bytes_ < self->options_.max_queued_bytes) {
      self->send({.kind = FrameKind::kPing}, {});
    }
    self->arm_ping();
  });
}

}  // namespace mc::metadata::rpc
