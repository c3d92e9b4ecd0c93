// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/serving_lane.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/tcp/socket.h"

namespace mc::transport::tcp {

namespace {

// The answers to notifications leave after the messages that the notifications cause, and together.
constexpr std::uint64_t kAnswersWaitNs = 50'000;
constexpr std::size_t kMostWaitingAnswers = 64;

}  // namespace

ServingLane::ServingLane(Link link, ServingSink& sink, std::uint32_t zero_copy_min_bytes)
    : Lane(std::move(link.socket), std::move(link.tls)),
      sink_(sink),
      node_(link.node),
      incarnation_(link.incarnation),
      index_(link.lane) {
  out_.use_tls(tls_.get());
  if (tls_ == nullptr && zero_copy_min_bytes > 0 && enable_zero_copy(socket_.get())) {
    out_.use_zero_copy(zero_copy_min_bytes);
  }
}

ServingLane::~ServingLane() {
  // First the socket: a byte that leaves after the unpin may belong to another object.
  cut(socket_);
  out_.abandon();
  release_sent(0);
  if (incoming_ == Incoming::kWrite) sink_.regions().release(grant_);
}

bool ServingLane::keeps_pace(std::uint64_t now_ns) const {
  const bool taking = incoming_ == Incoming::kWrite;
  if (taking && now_ns >= taking_since_ns_ + kMaxPinNs) return false;
  return out_.idle() || stuck_since_ns_ == 0 || now_ns < stuck_since_ns_ + kMaxPinNs;
}

Lane::Turn ServingLane::work(std::uint64_t now_ns) {
  if (has_notice_) {
    has_notice_ = false;
    int error = 0;
    socklen_t size = sizeof error;
    if (!out_.take_notices(socket(), sink_.serving_counters()) &&
        (::getsockopt(socket(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)) {
      return Turn::kFailed;
    }
    release_sent(now_ns);
  }
  Turn turn = Turn::kWaits;
  if (requests_.empty()) {
    answers_may_wait_ = true;
    requests_since_ns_ = now_ns;
  }
  if (readable_) turn = receive(now_ns);
  if (turn == Turn::kFailed) return turn;
  if (answers_may_wait_ && !requests_.empty() && requests_.size() < kMostWaitingAnswers &&
      now_ns < requests_since_ns_ + kAnswersWaitNs) {
    return Turn::kGoesOn;
  }
  const SendQueue::Result sent = writable_ ? send(now_ns) : SendQueue::Result::kWouldBlock;
  if (sent == SendQueue::Result::kFailed) return Turn::kFailed;
  if (sent == SendQueue::Result::kBudgetSpent) turn = Turn::kGoesOn;
  return turn;
}

Lane::Turn ServingLane::receive(std::uint64_t now_ns) {
  std::uint64_t taken = 0;
  while (taken < kTurnBytes) {
    std::byte* const scratch = sink_.scratch();
    std::byte* to = scratch + partial_bytes_;
    std::uint64_t room = (index_ == 0 ? kScratchBytes : kBulkScratchBytes) - partial_bytes_;
    std::memcpy(scratch, partial_.data(), partial_bytes_);
    const bool direct = incoming_ == Incoming::kWrite || incoming_ == Incoming::kNotify;
    if (direct) {
      if (incoming_ == Incoming::kNotify && payload_to_ == nullptr) begin_notification();
      to = payload_to_;
      room = payload_left_;
    } else if (incoming_ == Incoming::kWaste) {
      room = std::min<std::uint64_t>(room, payload_left_);
    }
    const ssize_t got = wire().receive(to, room);
    ++sink_.serving_counters().receive_calls;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      readable_ = false;
      return Turn::kWaits;
    }
    if (got <= 0) return Turn::kFailed;
    const auto size = static_cast<std::uint64_t>(got);
    taken += size;
    if (direct) {
      take_payload(nullptr, size);
      if (payload_left_ == 0) finish_payload(notification_);
    } else if (!take({scratch, partial_bytes_ + size}, now_ns)) {
      ++sink_.serving_counters().broken_frames;
      return Turn::kFailed;
    }
    if (size < room && !wire().has_ended()) {
      readable_ = false;
      return Turn::kWaits;
    }
  }
  return Turn::kGoesOn;
}

// Takes frames, and payload of the same call.
bool ServingLane::take(std::span<const std::byte> bytes, std::uint64_t now_ns) {
  while (!bytes.empty()) {
    if (incoming_ == Incoming::kFrames) {
      if (bytes.size() < kFrameBytes) break;
      const auto frame = decode_request(bytes.first(kFrameBytes), next_id_);
      if (!frame || !take_frame(*frame, now_ns)) return false;
      bytes = bytes.subspan(kFrameBytes);
      continue;
    }
    const std::uint64_t part = std::min<std::uint64_t>(bytes.size(), payload_left_);
    if (incoming_ == Incoming::kNotify && payload_to_ == nullptr) {
      if (part == payload_left_) {
        finish_payload(bytes.first(part));
        bytes = bytes.subspan(part);
        continue;
      }
      begin_notification();
    }
    take_payload(bytes.data(), part);
    if (payload_left_ == 0) finish_payload(notification_);
    bytes = bytes.subspan(part);
  }
  partial_bytes_ = bytes.size();
  std::ranges::copy(bytes, partial_.begin());
  return true;
}

bool ServingLane::take_frame(const Frame& frame, std::uint64_t now_ns) {
  // The asking side also counts requests whose answers are under way, so an honest peer stays
  // below.
  if (requests_.size() >= kMaxLaneRequests) return false;
  ++next_id_;
  Request request{frame, now_ns + std::uint64_t{frame.left_us} * 1000, Outcome::kDone};
  const auto kind = static_cast<FrameKind>(frame.kind);
  if (kind == FrameKind::kCut)
    request.outcome = sink_.on_cut(*this, frame.size_bytes, frame.serial);
  answers_may_wait_ &= kind == FrameKind::kNotify;
  if (kind == FrameKind::kRead || kind == FrameKind::kPing || kind == FrameKind::kCut) {
    requests_.push(request);
    return true;
  }
  if (kind == FrameKind::kWrite && !take_serial(frame.serial)) return false;
  current_ = request;
  payload_left_ = frame.payload_bytes;
  if (kind == FrameKind::kNotify) {
    incoming_ = Incoming::kNotify;
    payload_to_ = nullptr;
    return true;
  }
  current_.outcome = admit(frame, frame.payload_bytes, true, &grant_);
  incoming_ = current_.outcome == Outcome::kDone ? Incoming::kWrite : Incoming::kWaste;
  payload_to_ = grant_.data;
  taking_since_ns_ = now_ns;
  return true;
}

// False: the lane has been cut, although the peer's bytes still arrive; or the lane has two
// serials.
bool ServingLane::take_serial(std::uint32_t serial) {
  if (serial_ != 0 && serial != serial_) return false;
  serial_ = serial;
  return serial == 0 || !sink_.is_cut(*this);
}

void ServingLane::begin_notification() {
  notification_.resize(payload_left_);
  payload_to_ = notification_.data();
}

// bytes null: the payload is in place already.
void ServingLane::take_payload(const std::byte* bytes, std::uint64_t size) {
  payload_left_ -= size;
  if (incoming_ == Incoming::kWaste) return;
  if (bytes != nullptr) {
    std::memcpy(payload_to_, bytes, size);
    if (incoming_ == Incoming::kWrite) sink_.serving_counters().staged_bytes += size;
  }
  payload_to_ += size;
}

void ServingLane::finish_payload(std::span<const std::byte> notification) {
  if (incoming_ == Incoming::kWrite) {
    current_.outcome = sink_.regions().settle(grant_);
    sink_.regions().release(grant_);
    sink_.serving_counters().taken_bytes += current_.frame.payload_bytes;
  } else if (incoming_ == Incoming::kNotify && !sink_.on_notification(node_, notification)) {
    current_.outcome = Outcome::kBusy;
  }
  notification_ = {};
  incoming_ = Incoming::kFrames;
  requests_.push(current_);
}

Outcome ServingLane::admit(const Frame& frame, std::uint64_t size, bool write,
                           RegionTable::Grant* grant) {
  const Outcome outcome = sink_.regions().admit(
      {node_, frame.region, frame.generation, frame.offset_bytes, size, write}, grant);
  if (outcome != Outcome::kDone) ++sink_.serving_counters().refused_requests;
  return outcome;
}

SendQueue::Result ServingLane::send(std::uint64_t now_ns) {
  std::uint64_t spent = 0;
  while (spent < kTurnBytes) {
    while (!requests_.empty() && out_.queued_bytes() < kLanePinBytes &&
           pinned_bytes_ < kLaneZeroCopyPinBytes) {
      start_answer(requests_.front(), now_ns);
      requests_.pop();
    }
    if (out_.empty()) return SendQueue::Result::kDrained;
    if (stuck_since_ns_ == 0) stuck_since_ns_ = now_ns;
    const std::uint64_t before = out_.queued_bytes();
    const auto result = out_.flush(socket(), kTurnBytes - spent, sink_.serving_counters());
    const std::uint64_t sent = before - out_.queued_bytes();
    spent += sent;
    release_sent(now_ns);
    if (result == SendQueue::Result::kWouldBlock) writable_ = false;
    if (result != SendQueue::Result::kDrained) return result;
  }
  return out_.empty() && (requests_.empty() || pinned_bytes_ >= kLaneZeroCopyPinBytes)
             ? SendQueue::Result::kDrained
             : SendQueue::Result::kBudgetSpent;
}

void ServingLane::start_answer(const Request& request, std::uint64_t now_ns) {
  const auto kind = static_cast<FrameKind>(request.frame.kind);
  if (kind == FrameKind::kPing) {
    out_.push(FrameKind::kPong, request.frame.id);
    return;
  }
  Outcome outcome = request.outcome;
  RegionTable::Grant grant;
  if (kind == FrameKind::kRead) {
    outcome = now_ns >= request.deadline_ns
                  ? Outcome::kTimedOut
                  : admit(request.frame, request.frame.size_bytes, false, &grant);
  }
  if (kind != FrameKind::kRead || outcome != Outcome::kDone) {
    const FrameKind said = kind == FrameKind::kRead ? FrameKind::kData : FrameKind::kAnswer;
    out_.push(said, request.frame.id).outcome = static_cast<std::uint8_t>(outcome);
    return;
  }
  const std::uint32_t size = request.frame.size_bytes;
  sink_.serving_counters().pinned_bytes += size;
  pinned_bytes_ += size;
  out_.push(FrameKind::kData, request.frame.id, {grant.data, size}, &grant).payload_bytes = size;
}

void ServingLane::release_sent(std::uint64_t now_ns) {
  if (!out_.released().empty()) stuck_since_ns_ = now_ns;
  if (out_.idle()) stuck_since_ns_ = 0;
  for (const RegionTable::Grant& grant : out_.released()) {
    sink_.regions().release(grant);
    sink_.serving_counters().pinned_bytes -= grant.size_bytes;
    pinned_bytes_ -= grant.size_bytes;
    sink_.serving_counters().served_bytes += grant.size_bytes;
  }
  out_.released().clear();
}

}  // namespace mc::transport::tcp
