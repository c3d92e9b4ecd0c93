// SPDX-License-Identifier: Apache-2.0
//
// Copies a part of an object in stripes from another host, on a master's order. The
//   mover asks that host for the places of the part's stripes, pulls each stripe, and seals the
//   part here under the same version.
//
//     Copy ──► kAsking ──all rows in──► kPulling ──all here──► kSealing ──the master knows──► done
//                 ▲                        │ a stripe cannot be read; a few times
//                 └────────────────────────┘
//
//   Until the master accepts the part, readers do not learn of this host. Until then the stripes
//   are an open set, which is dropped if the copy fails or this agent ends. The other host stays a
//   holder unless the master orders a drop there.
// Threads: the agent's loop.
// Owns: moves under way. The ClusterTenant owns the set of stripes.
// Trusts: a place is checked by the transport; a stripe's bytes are checked by the checksum.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "agent/cluster/stripe/stripe_holder.h"

namespace mc::agent {

struct MoveCounters {
  std::uint64_t asked = 0, moved = 0, moved_bytes = 0;
  std::uint64_t no_room = 0, refused = 0, late = 0, failed = 0;
};

class StripeMover {
 public:
  using Ended = std::function<void(mc_status)>;
  static constexpr std::size_t kMaxMoves = 64;
  static constexpr std::size_t kMaxOpen = 4;  // stripes of a part that are read at once

  // CopyKeeper::hold_stripe().
  using HoldStripe =
      std::function<void(ClusterTenant&, const HoldRequest&, MemberId writer, Ended)>;

  StripeMover(StripeHolder::Tenants& tenants, Peers& peers, StripeHolder& keeper, HoldStripe hold)
      : tenants_(tenants), peers_(peers), keeper_(keeper), hold_stripe_(std::move(hold)) {}

  // If the same move is under way, the move continues: the earlier `ended` gets MC_BUSY, and the
  // new `ended` is called at the end. REQUIRES: order.parts != 0.
  void move(const metadata::wire::Copy& order, std::uint64_t now_ns, Ended ended);
  // False: the message is not an answer to this class.
  bool on_answer(MemberId from, const StripesAnswer& answer);
  void forget(const ClusterTenant& tenant);
  void flush(std::uint64_t now_ns);
  std::uint64_t next_ns() const;
  const MoveCounters& counters() const { return counters_; }

 private:
  enum class Step : std::uint8_t { kAsking, kPulling, kSealing, kFailed };
  struct Row {
    PlaceRow lies;
    bool asked = false;
    std::uint64_t again_ns = 0;
  };
  struct Move {
    std::uint32_t id = 0;
    metadata::wire::Copy order;
    Ended ended;
    Step step = Step::kAsking;
    mc_status failure = MC_OK;
    unsigned tries = 0;
    std::uint64_t deadline_ns = 0;
    std::uint64_t again_ns = 0;  // when to repeat the question or the Seal
    ClusterTenant* tenant = nullptr;
    StripeFacts facts;
    std::vector<std::byte> region;
    std::map<std::uint16_t, Row> rows;
    SetId set() const { return {facts.put, order.part}; }
  };

  Move* find(std::uint32_t id);
  void ask(Move& move);
  void pull(Move& move);
  void pull_one(Move& move, std::uint16_t number, Row& row);
  void on_pulled(Move& move, mc_status status);
  void seal(Move& move);
  bool is_offered(const Move& move) const;
  void fail(Move& move, mc_status status);
  void end(Move& move, mc_status status, std::uint64_t& reason);

  StripeHolder::Tenants& tenants_;
  Peers& peers_;
  StripeHolder& keeper_;
  const HoldStripe hold_stripe_;
  MoveCounters counters_;
  std::map<std::uint32_t, Move> moves_;
  std::uint32_t next_id_ = 1u << 31;  // the Gatherer's request numbers are lower
  std::uint64_t now_ns_ = 0;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
