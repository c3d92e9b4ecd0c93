// SPDX-License-Identifier: Apache-2.0
//
// Reads an object whose stripes lie on several hosts. The Gatherer asks all hosts at
//   once for the places of the stripes, reserves room for the object, reads several stripes at a time
//   and compares the object's checksum.
//
//     begin ──► kAsking ──► kRoom ──► kReading: a Read for each stripe ──► sum ──► end: the parent
//                                        ▲   │                             │       takes the Gather
//                                        └───┴─────────────────────────────┘
//                                 a read failed, or a stripe's own sum is wrong:
//                                 read from the stripe's next holder
//
//     a stripe without a holder, late, no room ──► kEnding: the last Reads end ──► end with an error
//
//   Each stripe is read from a single holder. If that holder fails, another holder of the stripe is
//   used. The Gatherer uses only stripes of the version that the master named, and only if all
//   stripes are there. The result is therefore the complete object of a single put, or nothing.
// Threads: the agent's loop.
// Owns: no state of its own. The OperationTable owns the gathers.
// Trusts: a place is checked by the holder's transport; the bytes are checked by the checksum.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "agent/cluster/fetch/object_reader.h"
#include "agent/cluster/operations/operation_table.h"

namespace mc::agent {

struct GatherCounters {
  std::uint64_t gathered = 0, gathered_bytes = 0, asked = 0, stripes_read = 0;
  std::uint64_t failed_over = 0;  // stripes read again from another holder
  std::uint64_t lacking = 0, late = 0, no_room = 0, failed = 0, corrupt = 0;
};

class Gatherer;

struct Gather final : Operation {
  static constexpr OperationKind kKind = OperationKind::kGather;
  enum class Step : std::uint8_t { kAsking, kRoom, kReading, kEnding };
  struct Wanted {
    metadata::KeyHash name;
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
    std::vector<MemberId> holders;  // may include this host
    std::uint64_t deadline_ns = 0;
  };
  struct Stripe {
    std::vector<Location> sources;  // once chosen, the source in use is the front
    bool chosen = false;
    bool here = false;
    bool left = false;     // a source has been given up
    bool corrupt = false;  // the stripe's own sum is wrong
    OperationId read;
    std::uint64_t copied_bytes = 0;  // of a stripe that lies on this host
  };

  explicit Gather(Gatherer& with) : gatherer(with) {}
  // The status if a stripe is missing.
  mc_status lacks() const { return holder_away ? MC_HOLDER_AWAY : MC_NOT_FOUND; }

  // The result. MC_OK: object.entry has the object's bytes. MC_NO_SPACE: there is no room here.
  // MC_NOT_FOUND: a stripe is missing or damaged. MC_HOLDER_AWAY: a host that may hold the missing stripe could not
  // be reached. MC_TIMEOUT.
  mc_status status = MC_OK;
  FetchedObject object;
  StripeFacts facts;

  Gatherer& gatherer;
  Wanted wanted;
  Step at = Step::kAsking;
  std::vector<MemberId> to_ask;
  std::map<MemberId, std::uint16_t> rows_due;  // of hosts that have been asked; 0: not known yet
  std::uint64_t answers_by_ns = 0;
  std::map<std::uint16_t, Stripe> stripes;
  std::map<MemberId, unsigned> chosen;  // count of stripes read from each node
  std::size_t reads_open = 0;
  // Of the object from the beginning; while stripes are checked, of the stripe.
  std::uint64_t sum = 0;
  std::uint64_t summed_bytes = 0;  // from the object's beginning
  bool checks_stripes = false;     // the object's sum was wrong
  bool holder_away = false;        // a holder could not be reached

 private:
  void step() override;
  void on_event(const transport::Event& event) override;
  void cancel() override;
};

class Gatherer {
 public:
  Gatherer(OperationTable& operations, Peers& peers, ObjectReader& reader, MemberId self)
      : operations_(operations), peers_(peers), reader_(reader), self_(self) {}

  OperationId begin(ClusterTenant& tenant, Gather::Wanted wanted, OperationId parent);
  void on_answer(MemberId from, const StripesAnswer& answer);
  const GatherCounters& counters() const { return counters_; }

 private:
  friend struct Gather;
  using Step = Gather::Step;
  using Stripe = Gather::Stripe;

  void step(Gather& gather);
  void ask(Gather& gather);
  void unreached(Gather& gather, MemberId node);
  bool take_rows(Gather& gather, MemberId from, transport::RemoteRegionId region,
                 const StripeFacts& facts, const std::vector<PlaceRow>& rows);
  void take_own(Gather& gather);
  void look_at_answers(Gather& gather);
  void seek_room(Gather& gather);
  bool more_may_answer(const Gather& gather) const;
  void read(Gather& gather);
  void take_read(Gather& gather, Stripe& stripe);
  bool choose(Gather& gather, Stripe& stripe);
  void begin_read(Gather& gather, std::uint16_t number, Stripe& stripe);
  bool copy_own(Gather& gather, std::uint16_t number, Stripe& stripe);
  static void leave(Stripe& stripe);
  void add_up(Gather& gather);
  void check_stripes(Gather& gather);
  void fail(Gather& gather, mc_status status, std::uint64_t& reason);
  void end(Gather& gather);

  OperationTable& operations_;
  Peers& peers_;
  ObjectReader& reader_;
  const MemberId self_;
  GatherCounters counters_;
};

}  // namespace mc::agent
