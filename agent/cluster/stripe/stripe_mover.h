// SPDX-License-Identifier: Apache-2.0
//
// Copies a part of an object in stripes from another host, on a master's order. The
//   mover asks that host for the places of the part's stripes, pulls each stripe, and seals the
//   part here under the same version.
//
//     begin ─► kAsking ──all rows in──► kPulling ──all here──► kSealing ──the master knows──► done
//                 ▲                        │ a stripe cannot be read; a few times
//                 └────────────────────────┘
//
//   Until the master accepts the part, readers do not learn of this host. Until then the stripes
//   are an open set, which is dropped if the copy fails or this agent ends. The other host stays a
//   holder unless the master orders a drop there.
// Threads: the agent's loop.
// Owns: the names of moves under way. The OperationTable owns the moves, the ClusterTenant the set of
//   stripes.
// Trusts: a place is checked by the transport; a stripe's bytes are checked by the checksum.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "agent/cluster/fetch/copy_keeper.h"
#include "agent/cluster/operations/operation_table.h"
#include "agent/cluster/stripe/stripe_holder.h"

namespace mc::agent {

struct MoveCounters {
  std::uint64_t asked = 0, moved = 0, moved_bytes = 0;
  std::uint64_t no_room = 0, refused = 0, late = 0, failed = 0;
};

class StripeMover;

struct Move final : Operation {
  static constexpr OperationKind kKind = OperationKind::kMove;
  using Done = MasterOrders::Done;
  enum class Step : std::uint8_t { kAsking, kPulling, kSealing };
  struct Row {
    PlaceRow lies;
    OperationId copy;
    std::uint64_t not_before_ns = 0;
  };

  Move(StripeMover& with, const metadata::wire::Copy& of, Done then)
      : mover(with), order(of), done(std::move(then)) {}
  SetId set() const { return {facts.put, order.part}; }

  StripeMover& mover;
  const metadata::wire::Copy order;
  Done done;  // tells the master
  Step at = Step::kAsking;
  unsigned tries = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t again_ns = 0;  // when to repeat the question or the Seal
  StripeFacts facts;
  std::vector<std::byte> region;
  std::map<std::uint16_t, Row> rows;
  // Stored by others, for the next step.
  std::optional<mc_status> failed;
  std::optional<mc_status> sealed;

 private:
  void step() override;
  void cancel() override;
};

class StripeMover {
 public:
  static constexpr std::size_t kMaxMoves = 64;
  static constexpr std::size_t kMaxOpen = 4;  // stripes of a part that are read at once

  StripeMover(OperationTable& operations, const ClusterTenants& tenants, Peers& peers,
              StripeHolder& holder, CopyKeeper& copies)
      : operations_(operations),
        tenants_(tenants),
        peers_(peers),
        holder_(holder),
        copies_(copies) {}

  // If the same move is under way, the move continues: the earlier `done` gets MC_BUSY, and the new
  // `done` is called at the end. REQUIRES: order.parts != 0.
  void begin(const metadata::wire::Copy& order, Move::Done done);
  void on_answer(MemberId from, const StripesAnswer& answer);
  const MoveCounters& counters() const { return counters_; }

 private:
  friend struct Move;
  using Step = Move::Step;

  void step(Move& move);
  void ask(Move& move);
  void pull(Move& move);
  bool take_copies(Move& move);
  bool pull_one(Move& move, std::uint16_t number, Move::Row& row);
  void seal(Move& move);
  bool is_offered(const Move& move) const;
  void fail(Move& move, mc_status status);
  void end(Move& move, mc_status status, std::uint64_t& reason);

  OperationTable& operations_;
  const ClusterTenants& tenants_;
  Peers& peers_;
  StripeHolder& holder_;
  CopyKeeper& copies_;
  MoveCounters counters_;
  std::set<OperationId> moves_;
};

}  // namespace mc::agent
