// SPDX-License-Identifier: Apache-2.0
//
// The asking end of a lane: requests go out gathered, answers come back in order, and
//   payload goes straight into the pieces.
//   One receive takes many answers. The vectors are laid out as the answers are expected: frame,
//   pieces, frame, pieces… If an answer is a refusal, the bytes after it in that call lie at wrong
//   places. Those bytes are set aside and copied to the right places (Counters::staged_bytes).
//   Wrong places are always parts of reads that are still in flight.
// Threads: the transport's.
// Owns: the socket and the slices on the lane.
// Trusts: no frame before decode_reply(). A peer that breaks the contract fails the lane.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/flow/queue.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/send_queue.h"
#include "transport/tcp/slice.h"

namespace mc::transport::tcp {

class AskingLane;

// The owner of the lane and of the operations.
class SliceSink {
 public:
  virtual ~SliceSink() = default;
  virtual OperationState* find_operation(OperationId id) = 0;
  virtual void on_slice(AskingLane& lane, const Slice& slice, Outcome outcome,
                        std::uint64_t now_ns) = 0;
  virtual void on_lane_failed(AskingLane& lane, std::uint64_t now_ns) = 0;
  // The answer to the oldest cut() of this lane.
  virtual void on_cut(AskingLane& lane, Outcome outcome) = 0;
  virtual Counters& lane_counters() = 0;
};

class AskingLane : public Lane {
 public:
  // serial: higher than the serial of any earlier lane.
  AskingLane(Fd socket, std::shared_ptr<TlsSession> tls, SliceSink& sink, PeerId peer,
             std::uint32_t index, std::uint32_t serial, std::uint64_t now_ns)
      : Lane(std::move(socket), std::move(tls)),
        sink_(sink),
        peer_(peer),
        index_(index),
        serial_(serial),
        heard_ns_(now_ns) {
    out_.use_tls(tls_.get());
  }

  // No byte leaves from pieces afterwards.
  ~AskingLane() override;

  PeerId peer() const { return peer_; }
  std::uint32_t index() const { return index_; }
  std::uint32_t serial() const { return serial_; }
  std::uint64_t heard_ns() const { return heard_ns_; }
  std::size_t open_requests() const { return open_.size(); }
  Queue<Slice>& open() { return open_; }

  // Requests a slice of the operation, and sends the slice's payload if the operation is a write.
  void ask(const OperationState& operation, Slice slice, std::uint64_t now_ns);
  // Whether a byte of the request may have reached the peer.
  bool has_begun(const Slice& slice) const { return out_.has_begun(slice.expected.id); }
  // Asks the peer to let no byte of another lane land any more.
  void cut_lane(std::uint32_t lane, std::uint32_t serial, std::uint64_t now_ns);
  void ping(std::uint64_t now_ns);
  bool pinging() const { return pings_ > 0; }
  std::uint64_t pinged_ns() const { return pinged_ns_; }
  // The last sign of life of a lane that owes an answer; 0: the lane owes no answer.
  std::uint64_t silent_since_ns() const;
  void forgive(std::uint64_t now_ns) { heard_ns_ = now_ns; }
  // Sends the queued requests. False: the lane has failed.
  bool flush();
  bool can_send() const { return writable_ && !out_.empty(); }

  Turn work(std::uint64_t now_ns) override;
  void on_failed(std::uint64_t now_ns) override { sink_.on_lane_failed(*this, now_ns); }

 private:
  enum class Take { kGood, kMisplaced, kBroken };
  static constexpr std::size_t kMaxFrames = 64;

  Turn receive(std::uint64_t now_ns);
  std::uint64_t plan();
  std::uint64_t plan_payload(const Slice& slice);
  bool consume(std::uint64_t bytes, std::uint64_t now_ns);
  Take take_frame(std::span<const std::byte> bytes, std::uint64_t now_ns);
  void take_payload(std::uint64_t bytes, std::uint64_t now_ns);
  bool feed(std::span<const std::byte> bytes, std::uint64_t now_ns);
  void finish(Outcome outcome, std::uint64_t now_ns);

  SliceSink& sink_;
  const PeerId peer_;
  const std::uint32_t index_;
  const std::uint32_t serial_;
  Queue<Slice> open_;
  SendQueue out_;
  std::uint64_t next_id_ = 1;
  std::uint32_t pings_ = 0;
  std::uint64_t pinged_ns_ = 0;
  std::uint64_t heard_ns_;

  // The received bytes of the oldest slice's frame; the frames of one receive.
  std::size_t frame_bytes_ = 0;
  std::array<std::array<std::byte, kFrameBytes>, kMaxFrames> frames_;
  std::vector<iovec> vectors_;
  std::vector<std::uint8_t> is_frame_;
  std::vector<std::byte> aside_;
};

}  // namespace mc::transport::tcp
