// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/asking_lane.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "transport/tcp/socket.h"

namespace mc::transport::tcp {

namespace {

constexpr std::size_t kMaxVectors = 256;
// The target of bytes for operations that have ended. The content is never read.
constexpr std::size_t kWasteBytes = 64 * 1024;
std::byte* waste() {
  static thread_local std::array<std::byte, kWasteBytes> bytes;
  return bytes.data();
}

std::uint32_t left_us(std::uint64_t deadline_ns, std::uint64_t now_ns) {
  const std::uint64_t left = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000 : 0;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(left, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

AskingLane::~AskingLane() { cut(socket_); }

void AskingLane::ask(const OperationState& operation, Slice slice, std::uint64_t now_ns) {
  slice.asked_ns = now_ns;
  slice.received_bytes = 0;
  slice.at = slice.start;
  slice.expected = {FrameKind::kData, next_id_++, slice.size_bytes};
  if (operation.verb != Verb::kRead) {
    slice.expected.kind = FrameKind::kAnswer;
    slice.expected.payload_bytes = 0;
  }
  const FrameKind kind = operation.verb == Verb::kRead    ? FrameKind::kRead
                         : operation.verb == Verb::kWrite ? FrameKind::kWrite
                                                          : FrameKind::kNotify;
  Frame& frame = out_.push(kind, slice.expected.id);
  frame.left_us = left_us(operation.deadline_ns, now_ns);
  if (kind != FrameKind::kNotify) {
    frame.region = operation.region;
    frame.generation = operation.generation;
    frame.offset_bytes = operation.offset_bytes + slice.offset_bytes;
  }
  if (kind == FrameKind::kRead) {
    frame.size_bytes = slice.size_bytes;
  } else {
    frame.payload_bytes = slice.size_bytes;
    if (kind == FrameKind::kWrite) frame.serial = serial_;
    Cursor at = slice.start;
    vectors_.clear();
    append_vectors(operation.pieces, at, slice.size_bytes, std::numeric_limits<std::size_t>::max(),
                   vectors_);
    for (const iovec& part : vectors_) out_.push_payload(part, slice.expected.id);
  }
  open_.push(slice);
}

void AskingLane::cut_lane(std::uint32_t lane, std::uint32_t serial, std::uint64_t now_ns) {
  Slice slice;
  slice.asked_ns = now_ns;
  slice.expected = {FrameKind::kAnswer, next_id_++, 0};
  Frame& frame = out_.push(FrameKind::kCut, slice.expected.id);
  frame.size_bytes = lane;
  frame.serial = serial;
  open_.push(slice);
}

void AskingLane::ping(std::uint64_t now_ns) {
  Slice slice;
  slice.asked_ns = now_ns;
  slice.expected = {FrameKind::kPong, next_id_++, 0};
  out_.push(FrameKind::kPing, slice.expected.id);
  open_.push(slice);
  pinged_ns_ = now_ns;
  ++pings_;
}

std::uint64_t AskingLane::silent_since_ns() const {
  return open_.empty() ? 0 : std::max(heard_ns_, open_[0].asked_ns);
}

bool AskingLane::flush() {
  if (out_.empty() || !writable_) return true;
  const auto result = out_.flush(socket(), kTurnBytes, sink_.lane_counters());
  if (result == SendQueue::Result::kWouldBlock) writable_ = false;
  return result != SendQueue::Result::kFailed;
}

Lane::Turn AskingLane::work(std::uint64_t now_ns) {
  if (!flush()) return Turn::kFailed;
  const Turn turn = readable_ ? receive(now_ns) : Turn::kWaits;
  if (turn == Turn::kWaits && can_send()) return Turn::kGoesOn;
  return turn;
}

Lane::Turn AskingLane::receive(std::uint64_t now_ns) {
  std::uint64_t taken = 0;
  while (taken < kTurnBytes) {
    const std::uint64_t wanted = plan();
    const ssize_t got = wire().receive(vectors_);
    ++sink_.lane_counters().receive_calls;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      readable_ = false;
      return Turn::kWaits;
    }
    if (got <= 0) return Turn::kFailed;
    heard_ns_ = now_ns;
    if (!consume(static_cast<std::uint64_t>(got), now_ns)) return Turn::kFailed;
    taken += static_cast<std::uint64_t>(got);
    // A short read has emptied the socket. The next bytes, or the end, raise another edge.
    if (static_cast<std::uint64_t>(got) < wanted && !wire().has_ended()) {
      readable_ = false;
      return Turn::kWaits;
    }
  }
  return Turn::kGoesOn;
}

// Lays out the next receive as the answers are expected. Returns its size in bytes.
std::uint64_t AskingLane::plan() {
  vectors_.clear();
  is_frame_.clear();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < kMaxFrames && bytes < kTurnBytes; ++i) {
    if (vectors_.size() + 2 > kMaxVectors) break;
    const std::size_t have = i == 0 ? frame_bytes_ : 0;
    if (have < kFrameBytes) {
      vectors_.push_back({frames_[i].data() + have, kFrameBytes - have});
      bytes += kFrameBytes - have;
      is_frame_.push_back(1);
    }
    // One frame beyond the last open request: bytes there break the contract, and an end there says
    // that the peer has gone.
    if (i >= open_.size()) break;
    const std::uint64_t left = open_[i].expected.payload_bytes - open_[i].received_bytes;
    const std::uint64_t planned = plan_payload(open_[i]);
    bytes += planned;
    if (planned < left) break;
  }
  return bytes;
}

std::uint64_t AskingLane::plan_payload(const Slice& slice) {
  const std::uint64_t left = slice.expected.payload_bytes - slice.received_bytes;
  if (left == 0) return 0;
  std::uint64_t planned = std::min<std::uint64_t>(left, kWasteBytes);
  if (const OperationState* operation = sink_.find_operation(slice.operation)) {
    Cursor at = slice.at;
    planned = append_vectors(operation->pieces, at, left, kMaxVectors - 1, vectors_);
  } else {
    vectors_.push_back({waste(), planned});
  }
  is_frame_.resize(vectors_.size(), 0);
  return planned;
}

bool AskingLane::consume(std::uint64_t bytes, std::uint64_t now_ns) {
  for (std::size_t i = 0; bytes > 0; ++i) {
    const std::uint64_t part = std::min<std::uint64_t>(bytes, vectors_[i].iov_len);
    bytes -= part;
    if (is_frame_[i] == 0) {
      take_payload(part, now_ns);
      continue;
    }
    const auto* place = static_cast<const std::byte*>(vectors_[i].iov_base) - frame_bytes_;
    frame_bytes_ += part;
    if (frame_bytes_ < kFrameBytes) {
      if (place != frames_[0].data()) std::memcpy(frames_[0].data(), place, frame_bytes_);
      return true;
    }
    const Take take = take_frame({place, kFrameBytes}, now_ns);
    if (take == Take::kBroken) return false;
    if (take == Take::kGood || bytes == 0) continue;
    aside_.clear();
    for (++i; bytes > 0; ++i) {
      const std::uint64_t size = std::min<std::uint64_t>(bytes, vectors_[i].iov_len);
      const auto* from = static_cast<const std::byte*>(vectors_[i].iov_base);
      aside_.insert(aside_.end(), from, from + size);
      bytes -= size;
    }
    return feed(aside_, now_ns);
  }
  return true;
}

// The answer to the oldest open request.
AskingLane::Take AskingLane::take_frame(std::span<const std::byte> bytes, std::uint64_t now_ns) {
  if (open_.empty()) {
    ++sink_.lane_counters().broken_frames;
    return Take::kBroken;
  }
  const Slice& slice = open_.front();
  const auto frame = decode_reply(bytes, slice.expected);
  // An answer to an unsent request would end an operation whose pieces are still being sent.
  if (!frame || !out_.has_sent(slice.expected.id)) {
    ++sink_.lane_counters().broken_frames;
    return Take::kBroken;
  }
  const auto outcome = static_cast<Outcome>(frame->outcome);
  const bool misplaced = slice.expected.payload_bytes != frame->payload_bytes;
  if (frame->payload_bytes == 0) finish(outcome, now_ns);
  return misplaced ? Take::kMisplaced : Take::kGood;
}

void AskingLane::take_payload(std::uint64_t bytes, std::uint64_t now_ns) {
  Slice& slice = open_.front();
  if (const OperationState* operation = sink_.find_operation(slice.operation)) {
    advance(operation->pieces, slice.at, bytes);
  }
  slice.received_bytes += static_cast<std::uint32_t>(bytes);
  if (slice.received_bytes == slice.expected.payload_bytes) finish(Outcome::kDone, now_ns);
}

// Takes bytes that were received to other places than planned.
bool AskingLane::feed(std::span<const std::byte> bytes, std::uint64_t now_ns) {
  sink_.lane_counters().staged_bytes += bytes.size();
  while (!bytes.empty()) {
    if (frame_bytes_ < kFrameBytes) {
      const std::size_t part = std::min(bytes.size(), kFrameBytes - frame_bytes_);
      std::memcpy(frames_[0].data() + frame_bytes_, bytes.data(), part);
      frame_bytes_ += part;
      bytes = bytes.subspan(part);
      if (frame_bytes_ == kFrameBytes && take_frame(frames_[0], now_ns) == Take::kBroken) {
        return false;
      }
      continue;
    }
    const Slice& slice = open_.front();
    const std::uint64_t part =
        std::min<std::uint64_t>(bytes.size(), slice.expected.payload_bytes - slice.received_bytes);
    if (const OperationState* operation = sink_.find_operation(slice.operation)) {
      vectors_.clear();
      Cursor at = slice.at;
      append_vectors(operation->pieces, at, part, std::numeric_limits<std::size_t>::max(),
                     vectors_);
      const std::byte* from = bytes.data();
      for (const iovec& to : vectors_) {
        std::memcpy(to.iov_base, from, to.iov_len);
        from += to.iov_len;
      }
    }
    take_payload(part, now_ns);
    bytes = bytes.subspan(part);
  }
  return true;
}

void AskingLane::finish(Outcome outcome, std::uint64_t now_ns) {
  const Slice slice = open_.front();
  open_.pop();
  frame_bytes_ = 0;
  if (slice.operation == kNoOperation) {
    if (slice.expected.kind == FrameKind::kAnswer) {
      sink_.on_cut(*this, outcome);
    } else {
      --pings_;
    }
    return;
  }
  sink_.on_slice(*this, slice, outcome, now_ns);
}

}  // namespace mc::transport::tcp
