// SPDX-License-Identifier: Apache-2.0
//
// Hosts with several NICs behind switches, in simulated time. A receiver pulls objects
//   from the hosts by the rules of transport/rails/rails.h, credits.h and priority.h, as a
//   transport does.
//
//     sender s, NIC i ──► line ──► switch port of the receiver's NIC i: a buffer that overflows
//                                   └──► line ──► slice done
//
//   Bytes move in packets of 16 KiB. A packet that finds the buffer full is lost. The slice is sent
//   again after a time-out, as hardware does. A dead line swallows all packets.
// Threads: One. Deterministic: the same options give the same events.
// Owns: Its hosts.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "transport/rails/rails.h"

namespace mc::sim {

struct RailModelOptions {
  std::uint32_t senders = 1;
  std::uint32_t nics = 8;
  double line_bytes_per_ns = 50;  // 400 Gb/s
  std::uint64_t one_way_ns = 1'500;
  std::uint64_t port_buffer_bytes = 8u << 20;
  std::uint64_t retransmit_ns = 1'000'000;
  double lost_packets = 0;  // lost fraction of all packets, by a fixed sequence
  bool credits = true;
};

class RailModel {
 public:
  explicit RailModel(const RailModelOptions& options);

  // Keeps `objects` reads of `bytes` each under way. near: see Rails::choose().
  void keep_reading(transport::Priority priority, std::uint32_t objects, std::uint64_t bytes,
                    std::uint64_t near = transport::Rails::kAllNear);
  // From at_ns on, the sender's NIC sends at this fraction of its line rate. 0: all packets are
  // lost.
  void set_speed(std::uint64_t at_ns, std::uint32_t sender, std::uint32_t nic, double share);
  void run_until(std::uint64_t until_ns);
  // The counters below count from this call on.
  void mark();

  struct Result {
    std::uint64_t objects = 0;
    std::uint64_t bytes = 0;
    double bytes_per_ns = 0;
    std::uint64_t p50_ns = 0;
    std::uint64_t p99_ns = 0;
    std::uint64_t max_ns = 0;
  };
  Result result(transport::Priority priority) const;
  // Bytes that came over one of the receiver's NICs, from all senders.
  std::uint64_t nic_bytes(std::uint32_t nic) const { return nic_bytes_[nic]; }
  std::uint64_t packets_lost() const { return packets_lost_; }
  std::uint64_t slices_resent() const { return slices_resent_; }
  const transport::Rails& rails(std::uint32_t sender) const { return peers_[sender]->rails; }
  std::uint64_t now_ns() const { return now_ns_; }

 private:
  struct Load {
    std::uint64_t bytes = 0;
    std::uint64_t near = 0;
    std::uint64_t done_bytes = 0;
    std::vector<std::uint64_t> latencies_ns;
  };
  struct Object {
    transport::Priority priority{};
    std::uint64_t size = 0;
    std::uint64_t cut = 0;
    std::uint64_t done = 0;
    std::uint64_t begun_ns = 0;
  };
  struct Slice {
    std::shared_ptr<Object> object;  // null: a probe
    transport::RailSlice sent;
    std::uint32_t sender = 0;
    std::uint32_t nic = 0;
    std::uint32_t epoch = 0;  // of its rail: slices of earlier epochs are dropped
    std::uint64_t left = 0;   // bytes that the sender has not sent yet
    std::uint64_t came = 0;
    bool broken = false;  // a packet is missing
  };
  using SlicePtr = std::shared_ptr<Slice>;
  struct Line {
    double share = 1;
    bool sending = false;
    std::deque<SlicePtr> queue;
  };
  struct Peer {
    Peer(std::uint32_t nics)
        : rails(nics, 4, transport::Rails::Paths::kSeparate),
          lines(nics),
          epochs(nics),
          open(nics) {}
    transport::Rails rails;
    transport::Turns turns;
    std::vector<Line> lines;
    std::vector<std::uint32_t> epochs;
    std::vector<std::vector<SlicePtr>> open;  // by rail
    std::deque<std::shared_ptr<Object>> waiting[transport::kPriorityCount];
    std::deque<SlicePtr> resend;
    bool waits_for_credit = false;
  };
  struct Event {
    std::uint64_t at_ns = 0;
    std::uint64_t order = 0;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };

  void at(std::uint64_t when_ns, std::function<void()> what);
  void begin_object(transport::Priority priority);
  void pump(std::uint32_t sender);
  void serve_waiting();
  bool ask(std::uint32_t sender, const SlicePtr& slice);
  void send(const SlicePtr& slice);
  void send_packet(std::uint32_t sender, std::uint32_t nic);
  void arrive(const SlicePtr& slice, std::uint64_t bytes);
  void finish(const SlicePtr& slice);
  void look();
  void fail_rail(std::uint32_t sender, std::uint32_t nic);

  const RailModelOptions options_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  transport::Credits credits_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::deque<std::uint32_t> waiting_for_credit_;  // peers that wait for credit, in order
  // when the switch port of the receiver's NIC has sent its buffer
  std::vector<double> port_free_ns_;
  Load loads_[transport::kPriorityCount];
  std::uint32_t next_sender_ = 0;
  std::uint64_t packets_ = 0;
  std::uint64_t packets_lost_ = 0;
  std::uint64_t slices_resent_ = 0;
  std::uint64_t marked_ns_ = 0;
  std::vector<std::uint64_t> nic_bytes_;
};

}  // namespace mc::sim
