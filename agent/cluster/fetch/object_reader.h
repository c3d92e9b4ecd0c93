// SPDX-License-Identifier: Apache-2.0
//
// Reads an object of another host into a reservation of this host's pool and compares
//   the checksum. A large object is read in parts, several at a time. The reader sums each part
//   while the next parts arrive.
//
//     begin ──► kRoom ──reserved──► kReading: parts ──► sum ──► end: the parent takes the Read
//                                    ▲ │ └──cancelled──► kDraining ──last part──► reservation freed
//                                    │ └──the holder is busy──► kPausing
//                                    └────────a moment later───────┘
//
//   All reads that are due in a turn of the loop go to the transport in a single call.
// Threads: the agent's loop.
// Owns: the reservations of reads under way. A cancelled read keeps the reservation until
//   the transport no longer writes there.
// Trusts: a location is checked by the holder and by the checksum.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/cluster/fetch/fetch_counters.h"
#include "agent/cluster/fetch/location_cache.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/operations/operation_table.h"
#include "agent/cluster/peer/peers.h"
#include "transport/transport.h"

namespace mc::agent {

// An object of another host on the way into this host's pool. Owns the reservation.
struct FetchedObject {
  FetchedObject() = default;
  FetchedObject(ClusterTenant* of, const metadata::KeyHash& called, std::string with_key = {})
      : tenant(of), name(called), key(std::move(with_key)) {}
  FetchedObject(FetchedObject&& other) noexcept { *this = std::move(other); }
  FetchedObject& operator=(FetchedObject&& other) noexcept;
  ~FetchedObject() { give_back(); }
  // Frees the reservation, if there is one.
  void give_back();

  ClusterTenant* tenant = nullptr;
  metadata::KeyHash name;
  std::string key;
  Location from;                   // the row has the object's length, version and checksum
  std::vector<std::byte> bytes;    // bytes that came with the holder's answer
  std::uint32_t entry = kNoEntry;  // a reservation of kClusterSession
};

struct ReadTerms {
  std::uint64_t deadline_ns = 0;
  std::uint64_t try_until_ns = 0;  // when another holder should be tried
  std::uint64_t label_bytes = 0;   // room behind the object
  bool waited_for = false;         // false: the read has the priority of a migration
  bool room_must_come = false;     // fail if no eviction under way can make room
  // A reservation of the parent, and where in it the bytes go. The parent compares the checksum, and
  // keeps the reservation until the Read has ended.
  std::uint32_t into = kNoEntry;
  std::uint64_t at_bytes = 0;
};

class ObjectReader;

// The reading of one object. The parent takes the Read at the end.
struct Read final : Operation {
  static constexpr OperationKind kKind = OperationKind::kRead;
  // kRead: object.entry holds the object's bytes. Otherwise the reservation has been freed.
  enum class End : std::uint8_t { kRead, kFailed, kNoRoom };
  enum class State : std::uint8_t { kRoom, kReading, kPausing, kDraining };
  struct Part {
    transport::OperationId id = transport::kNoOperation;
    std::uint64_t bytes = 0;
    bool in = false;
  };

  explicit Read(ObjectReader& with) : reader(with) {}
  bool is_part() const { return terms.into != kNoEntry; }
  // After a failure: the holder did not answer, or not in time.
  bool holder_away() const {
    return outcome == transport::Outcome::kPeerLost || outcome == transport::Outcome::kTimedOut;
  }

  ObjectReader& reader;
  FetchedObject object;
  ReadTerms terms;
  State state = State::kRoom;
  End end = End::kFailed;
  std::deque<Part> parts;        // asked for and not summed, in the object's order
  std::uint32_t reads_open = 0;  // parts that have not arrived
  std::uint64_t asked_bytes = 0, summed_bytes = 0;  // from the object's beginning
  std::uint64_t sum = 0;
  transport::Outcome outcome = transport::Outcome::kDone;

 private:
  void step() override;
  void on_event(const transport::Event& event) override;
  void cancel() override;
};

class ObjectReader {
 public:
  // The least time that a holder gets before the next is tried.
  static constexpr std::uint64_t kLeastTryNs = 50'000'000;

  ObjectReader(OperationTable& operations, Peers& peers, transport::Transport& transport,
               FetchCounters& counters)
      : operations_(operations), peers_(peers), transport_(transport), counters_(counters) {}

  OperationId begin(FetchedObject object, const ReadTerms& terms, OperationId parent);
  // The end of a read of an object whose bytes came with the holder's answer. nullopt: there is no room at
  // once; begin() waits for room.
  std::optional<Read::End> read_now(FetchedObject& object);
  void update(OperationId id, std::uint64_t deadline_ns, bool waited_for);
  bool waits_for_room(OperationId id) const;
  // Before the steps of a turn: sums a part of each read, and tries again to get room.
  void prepare();
  // After the steps: passes all reads that are due to the transport.
  void submit();
  // True if prepare() has bytes to sum.
  bool has_sums() const { return !to_sum_.empty(); }

 private:
  friend struct Read;
  // The reads of one turn. The memory is reused.
  struct Plan {
    std::vector<transport::Operation> operations;
    std::vector<std::size_t> piece_counts;  // of each operation
    std::vector<transport::Piece> pieces;
    std::vector<std::pair<OperationId, std::size_t>> reads;  // with their count of operations
    void clear() { operations.clear(), piece_counts.clear(), pieces.clear(), reads.clear(); }
  };

  static bool may_submit(const Read& read);
  void seek_room(Read& read);
  void on_event(Read& read, const transport::Event& event);
  void cancel(Read& read);
  void begin_transfers(Read& read);
  bool put_bytes(FetchedObject& object);
  bool is_sound(const FetchedObject& object, std::uint64_t sum);
  void plan(const Read& read);
  std::size_t append_pieces(const Read& read, std::uint64_t from, std::uint64_t bytes);
  void sum_parts();
  static void sum_next(Read& read, std::uint64_t bytes);
  void on_read(Read& read);
  void end(Read& read, Read::End result);

  OperationTable& operations_;
  Peers& peers_;
  transport::Transport& transport_;
  FetchCounters& counters_;
  std::vector<OperationId> want_room_, to_submit_, to_sum_;
  Plan plan_;
};

}  // namespace mc::agent
