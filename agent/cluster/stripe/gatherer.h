// SPDX-License-Identifier: Apache-2.0
//
// Reads an object whose stripes lie on several hosts. The Gatherer asks all hosts at
//   once for the places of the stripes, reserves room for the object, reads all stripes in parallel
//   and compares the object's checksum.
//
//     gather ──► AskStripes ──► room ──► reads ──► sum ──► done
//                                        ▲   │      │
//                                        └───┴──────┘  a read failed, or a stripe's own sum is
//                                                      wrong: read from the stripe's next holder
//
//     a stripe without a holder, late, no room ──► done with an error
//
//   Each stripe is read from a single holder. If that holder fails, another holder of the stripe is
//   used. The Gatherer uses only stripes of the version that the master named, and only if all
//   stripes are there. The result is therefore the complete object of a single put, or nothing.
// Threads: the agent's loop.
// Owns: gathers under way, and the reservations until `done`.
// Trusts: a place is checked by the holder's transport; the bytes are checked by the checksum.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "agent/cluster/stripe/reservation.h"
#include "transport/transport.h"

namespace mc::agent {

struct GatherCounters {
  std::uint64_t gathered = 0, gathered_bytes = 0, asked = 0, stripes_read = 0;
  std::uint64_t failed_over = 0;  // stripes read again from another holder
  std::uint64_t lacking = 0, late = 0, no_room = 0, failed = 0, corrupt = 0;
};

class Gatherer {
 public:
  static constexpr std::uint64_t kAskCookie = 1ull << 59;
  static constexpr std::uint64_t kReadCookie = 1ull << 58;

  // MC_OK: entry is a reservation of kClusterSession with the object's bytes. The caller owns it
  // now. MC_NO_SPACE: there is no room here. MC_NOT_FOUND: a stripe is missing or unreadable.
  using Done = std::function<void(mc_status, std::uint32_t entry, const StripeFacts&)>;
  struct Wanted {
    metadata::KeyHash name;
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
    std::vector<MemberId> holders;  // may include this host
    std::uint64_t deadline_ns = 0;
  };

  Gatherer(Peers& peers, transport::Transport& transport, MemberId self)
      : peers_(peers), transport_(transport), self_(self) {}

  // Calls `done` later, from within one of the functions below. Returns the gather's id.
  std::uint64_t gather(ClusterTenant& tenant, Wanted wanted, Done done);
  // Does not call `done`.
  void cancel(std::uint64_t id);
  void on_answer(MemberId from, const StripesAnswer& answer);
  void on_event(const transport::Event& event);
  void flush(std::uint64_t now_ns);
  std::uint64_t next_ns() const;
  // True while the transport may write to the namespace's pool.
  bool reads_into(const ClusterTenant& tenant) const;
  const GatherCounters& counters() const { return counters_; }

 private:
  enum class Step : std::uint8_t { kAsking, kRoom, kReading, kCancelled };
  // A holder of a stripe.
  struct Source {
    MemberId node = metadata::kNoNode;
    transport::RemoteRegionId region = 0;
    PlaceRow row;
  };
  struct Stripe {
    std::vector<Source> sources;  // once chosen, the source in use is the front
    bool chosen = false;
    std::size_t operations_begun = 0;  // of the operations for this stripe
    std::uint32_t reads_open = 0;
    bool failed = false;  // an operation failed; another source is used when all have ended
    bool left = false;    // a source has been given up
  };
  struct Gather {
    std::uint64_t id = 0;
    ClusterTenant* tenant = nullptr;
    Wanted wanted;
    Done done;
    Step step = Step::kAsking;
    std::vector<MemberId> to_ask;
    std::map<MemberId, std::uint16_t> rows_due;  // rows to come from hosts that have answered
    std::size_t answers_due = 0;
    std::uint64_t answers_by_ns = 0;
    StripeFacts facts;
    std::map<std::uint16_t, Stripe> stripes;
    std::vector<std::uint16_t> to_read;   // of stripes
    std::map<MemberId, unsigned> chosen;  // count of stripes read from each node
    std::uint32_t entry = kNoEntry;
    std::unordered_map<transport::OperationId, std::uint16_t> reads;  // open operations
    bool lost = false;  // a stripe has no holder left; the gather ends with the last open read
  };

  Gather* find(std::uint64_t id);
  void ask(Gather& gather);
  bool take_rows(Gather& gather, MemberId from, std::uint64_t region_of, const StripeFacts& facts,
                 const std::vector<PlaceRow>& rows);
  void take_own(Gather& gather);
  void look_at_answers(Gather& gather);
  void seek_room(Gather& gather);
  bool more_may_answer(const Gather& gather) const;
  bool choose(Gather& gather, Stripe& stripe);
  void read(Gather& gather);
  bool submit(Gather& gather, std::uint16_t number, Stripe& stripe, transport::PeerId peer);
  bool copy_own(Gather& gather, std::uint16_t number);
  void fail(Gather& gather, std::uint16_t number, Stripe& stripe);
  void leave(Gather& gather, std::uint16_t number, Stripe& stripe);
  void lose(Gather& gather);
  bool leave_corrupt(Gather& gather);
  void on_read(Gather& gather);
  void end(Gather& gather, mc_status status, std::uint64_t& reason);

  Peers& peers_;
  transport::Transport& transport_;
  const MemberId self_;
  GatherCounters counters_;
  std::map<std::uint64_t, Gather> gathers_;
  struct Ask {
    std::uint64_t gather = 0;
    MemberId node = metadata::kNoNode;
  };
  std::unordered_map<std::uint32_t, Ask> asks_;
  std::uint64_t next_id_ = 1;
  std::uint32_t next_ask_ = 1;
  std::uint64_t now_ns_ = 0;
};

}  // namespace mc::agent
