// SPDX-License-Identifier: Apache-2.0
//
// The serving end of a lane: reads requests, asks the region's guard, and sends the
//   bytes straight from memory, in the order of the requests.
//   Bytes are pinned just before they leave, not when requested. A lane pins at most
//   kLanePinBytes and a slice (kLaneZeroCopyPinBytes and a slice where the kernel reads the bytes
//   in place until the acknowledgement). A slice is pinned for at most kMaxPinNs, however slow
//   the peer is.
// Threads: the transport's.
// Owns: the socket and the grants of bytes under way.
// Trusts: no frame before decode_request(). RegionTable checks region, range and rights.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/flow/queue.h"
#include "transport/link.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/send_queue.h"
#include "transport/transport.h"

namespace mc::transport::tcp {

inline constexpr std::uint64_t kLanePinBytes = 512 * 1024;
inline constexpr std::uint64_t kLaneZeroCopyPinBytes = 2 * 1024 * 1024;
// The most that a lane receives into the scratch memory in a call: on the small lane several notifications,
// on others a write of 4 KiB, because larger writes should go straight to the target.
inline constexpr std::size_t kScratchBytes = 64 * 1024;
inline constexpr std::size_t kBulkScratchBytes = 8 * 1024;

class ServingLane;

class ServingSink {
 public:
  virtual ~ServingSink() = default;
  virtual RegionTable& regions() = 0;
  // Memory for received bytes, until the lane's turn ends: kScratchBytes.
  virtual std::byte* scratch() = 0;
  // False: too many notifications wait for poll().
  virtual bool on_notification(NodeId from, std::span<const std::byte> payload) = 0;
  virtual void on_serving_failed(ServingLane& lane) = 0;
  // The lane's peer asks that no byte of another of the peer's lanes lands any more.
  virtual Outcome on_cut(const ServingLane& asker, std::uint32_t lane, std::uint32_t serial) = 0;
  virtual bool is_cut(const ServingLane& lane) const = 0;
  virtual Counters& serving_counters() = 0;
};

class ServingLane : public Lane {
 public:
  ServingLane(Link link, ServingSink& sink, std::uint32_t zero_copy_min_bytes);
  // Cuts the socket, then returns the grants.
  ~ServingLane() override;

  NodeId node() const { return node_; }
  std::uint64_t incarnation() const { return incarnation_; }
  std::uint32_t index() const { return index_; }
  // As the lane's writes say; 0: no write has come.
  std::uint32_t serial() const { return serial_; }
  Turn work(std::uint64_t now_ns) override;
  void on_failed(std::uint64_t) override { sink_.on_serving_failed(*this); }
  // False: the peer sends or receives too slowly, and the lane must be cut.
  bool keeps_pace(std::uint64_t now_ns) const;

 private:
  struct Request {
    Frame frame{};
    std::uint64_t deadline_ns = 0;
    Outcome outcome = Outcome::kDone;  // of a request that is done already: not a read, not a ping
  };
  enum class Incoming { kFrames, kWrite, kNotify, kWaste };
  Turn receive(std::uint64_t now_ns);
  // For both, false: the peer breaks the contract.
  bool take(std::span<const std::byte> bytes, std::uint64_t now_ns);
  bool take_frame(const Frame& frame, std::uint64_t now_ns);
  bool take_serial(std::uint32_t serial);
  void begin_notification();
  void take_payload(const std::byte* bytes, std::uint64_t size);
  void finish_payload(std::span<const std::byte> notification = {});
  Outcome admit(const Frame& frame, std::uint64_t size, bool write, RegionTable::Grant* grant);

  SendQueue::Result send(std::uint64_t now_ns);
  void start_answer(const Request& request, std::uint64_t now_ns);
  void release_sent(std::uint64_t now_ns);

  ServingSink& sink_;
  const NodeId node_;
  const std::uint64_t incarnation_;
  const std::uint32_t index_;
  std::uint32_t serial_ = 0;
  std::uint64_t next_id_ = 1;
  Queue<Request> requests_;
  bool answers_may_wait_ = false;        // requests_ has notifications alone
  std::uint64_t requests_since_ns_ = 0;  // since when requests_ has a request
  SendQueue out_;
  std::uint64_t pinned_bytes_ = 0;
  // The time since which no slice has left, though slices wait; 0: no slice waits.
  std::uint64_t stuck_since_ns_ = 0;
  // The time since which the slice of a write arrives, whose target is pinned.
  std::uint64_t taking_since_ns_ = 0;

  std::array<std::byte, kFrameBytes> partial_{};
  std::size_t partial_bytes_ = 0;  // of a frame, in partial_

  Incoming incoming_ = Incoming::kFrames;
  Request current_;  // the request whose payload arrives
  std::uint64_t payload_left_ = 0;
  RegionTable::Grant grant_;
  std::byte* payload_to_ = nullptr;      // kNotify: null while no payload has come
  std::vector<std::byte> notification_;  // whose payload comes in parts
};

}  // namespace mc::transport::tcp
