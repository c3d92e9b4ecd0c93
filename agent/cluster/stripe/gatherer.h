// SPDX-License-Identifier: Apache-2.0
//
// What it is: reads an object that lies in stripes on several hosts: asks all of them at once where
//   theirs are, reserves room for the whole here, reads all stripes in parallel, each to its place,
//   and compares the object's checksum.
//
//     gather ──► AskStripes ──► room ──► reads ──► sum ──► done
//                                        ▲   │      │
//                                        └───┴──────┘  one failed, or its own sum is wrong: of the
//                                                      stripe's next holder
//
//     a stripe that nobody has (any more), late, no room ──► done, without
//
//   Each stripe is read once, from one of its holders; those that answer later are for when that
//   one fails. Only stripes of the one version that the master has named are used, and only if all
//   are there, so that what is read is one put's object, whole, or nothing.
// Threads: the agent's loop. Owns: gathers under way, their reservations until they are done.
// Trusts: what holders say of places is checked by their transport; of the object, by the checksum.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "transport/transport.h"

namespace mc::agent {

// Reservations of the cluster's own; a restarted agent knows no such session, and frees them.
inline constexpr std::uint64_t kClusterSession = 0x6d63636c7573746dull;

struct GatherCounters {
  std::uint64_t gathered = 0, gathered_bytes = 0, asked = 0, stripes_read = 0;
  std::uint64_t failed_over = 0;  // stripes that were read once more, from another holder
  std::uint64_t lacking = 0, late = 0, no_room = 0, failed = 0, corrupt = 0;
};

class Gatherer {
 public:
  static constexpr std::uint64_t kAskCookie = 1ull << 59;
  static constexpr std::uint64_t kReadCookie = 1ull << 58;

  // MC_OK: entry is a reservation of kClusterSession with the object's bytes, now the caller's.
  // MC_NO_SPACE: there is no room here. MC_NOT_FOUND: a stripe is missing, or could not be read.
  using Done = std::function<void(mc_status, std::uint32_t entry, const StripeFacts&)>;
  struct Wanted {
    metadata::KeyHash name;
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
    std::vector<MemberId> holders;  // this host too, if it is one
    std::uint64_t deadline_ns = 0;
  };

  Gatherer(Peers& peers, transport::Transport& transport, MemberId self)
      : peers_(peers), transport_(transport), self_(self) {}

  // done comes later, from within one of the calls below. Returns the gather's name.
  std::uint64_t gather(ClusterTenant& tenant, Wanted wanted, Done done);
  // Nobody waits for it; done is not called.
  void cancel(std::uint64_t id);
  void on_answer(MemberId from, const PeerMessage& message);
  void on_event(const transport::Event& event);
  void flush(std::uint64_t now_ns);
  std::uint64_t next_ns() const;
  // Something is still being read into the namespace's pool.
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
    std::vector<Source> sources;  // the front one is read once it has been chosen
    bool chosen = false;
    std::size_t operations_begun = 0;  // of those that it takes to read it
    std::uint32_t reads_open = 0;
    bool failed = false;  // one of them has; to be read elsewhere when all have ended
    bool left = false;    // for another holder, at least once
  };
  struct Gather {
    std::uint64_t id = 0;
    ClusterTenant* tenant = nullptr;
    Wanted wanted;
    Done done;
    Step step = Step::kAsking;
    std::vector<MemberId> to_ask;
    std::map<MemberId, std::uint16_t> rows_due;  // hosts that have answered, and what is to come
    std::size_t answers_due = 0;
    std::uint64_t answers_by_ns = 0;
    StripeFacts facts;
    std::map<std::uint16_t, Stripe> stripes;
    std::vector<std::uint16_t> to_read;   // of stripes
    std::map<MemberId, unsigned> chosen;  // how many stripes are read there
    std::uint32_t entry = kNoEntry;
    std::unordered_map<transport::OperationId, std::uint16_t> reads;  // that are open
    bool lost = false;  // a stripe that nobody has any more: the reads that are open are its end
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
  std::uint64_t sum_of(const Gather& gather, std::uint64_t seed, std::uint64_t from,
                       std::uint64_t bytes) const;
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
