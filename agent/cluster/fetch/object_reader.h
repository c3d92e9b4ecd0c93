// SPDX-License-Identifier: Apache-2.0
//
// Reads an object of another host into a reservation of this host's pool and compares
//   the checksum. A large object is read in parts, several at a time. The reader sums each part
//   while the next parts arrive.
//
//     read ──► kRoom ──reserved──► kReading: parts ──► sum ──► done
//                                     └──cancelled──► kDraining ──last part──► reservation freed
//
//   All reads that are due in a turn of the loop go to the transport in a single call.
// Threads: the agent's loop.
// Owns: the reads under way, and the reservations. A cancelled read keeps the reservation until
//   the transport no longer writes there.
// Trusts: a location is checked by the holder and by the checksum.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/cluster/fetch/fetch_counters.h"
#include "agent/cluster/fetch/location_cache.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "transport/transport.h"

namespace mc::agent {

// An object of another host on the way into this host's pool.
struct FetchedObject {
  ClusterTenant* tenant = nullptr;
  metadata::KeyHash name;
  std::string key{};
  Location from{};                 // the row has the object's length, version and checksum
  std::vector<std::byte> bytes{};  // bytes that came with the holder's answer
  std::uint32_t entry = kNoEntry;  // a reservation of kClusterSession

  // Frees the reservation, if there is one.
  void give_back();
};

struct ReadTerms {
  std::uint64_t deadline_ns = 0;
  std::uint64_t try_until_ns = 0;  // when another holder should be tried
  std::uint64_t label_bytes = 0;   // room behind the object
  bool waited_for = false;         // false: the read has the priority of a migration
  bool room_must_come = false;     // fail if no eviction under way can make room
};

class ObjectReader {
 public:
  // The cookie bit of this class' reads.
  static constexpr std::uint64_t kReadCookie = 1ull << 62;
  // The least time that a holder gets before the next is tried.
  static constexpr std::uint64_t kLeastTryNs = 50'000'000;

  enum class End : std::uint8_t { kRead, kFailed, kNoRoom };
  // kRead: object.entry holds the object's bytes. Otherwise the reservation has been freed. Called
  // once per read, perhaps from within read(). Not called for a cancelled read.
  using Done = std::function<void(std::uint64_t id, End end, FetchedObject object)>;

  ObjectReader(Peers& peers, transport::Transport& transport, FetchCounters& counters, Done done)
      : peers_(peers), transport_(transport), counters_(counters), done_(std::move(done)) {}

  void read(std::uint64_t id, FetchedObject object, const ReadTerms& terms);
  void update(std::uint64_t id, std::uint64_t deadline_ns, bool waited_for);
  bool waits_for_room(std::uint64_t id) const;
  // abort: also asks the transport to end the reads early.
  void cancel(std::uint64_t id, bool abort = false);
  // True while the transport may write to the namespace's pool.
  bool reads_into(const ClusterTenant& tenant) const;
  void on_event(const transport::Event& event);
  void flush(std::uint64_t now_ns);
  // True if flush() has bytes to sum.
  bool has_sums() const { return !to_sum_.empty(); }

 private:
  enum class State : std::uint8_t { kRoom, kReading, kDraining };
  struct Part {
    transport::OperationId id = transport::kNoOperation;
    std::uint64_t bytes = 0;
    bool in = false;
  };
  struct Read {
    std::uint64_t id = 0;
    FetchedObject object;
    ReadTerms terms;
    State state = State::kRoom;
    std::deque<Part> parts;        // asked for and not summed, in the object's order
    std::uint32_t reads_open = 0;  // parts that have not arrived
    std::uint64_t asked_bytes = 0, summed_bytes = 0;  // from the object's beginning
    std::uint64_t sum = 0;
    transport::Outcome outcome = transport::Outcome::kDone;
  };
  // The reads of one turn. The memory is reused.
  struct Plan {
    std::vector<transport::Operation> operations;
    std::vector<std::size_t> piece_counts;  // of each operation
    std::vector<transport::Piece> pieces;
    std::vector<std::pair<std::uint64_t, std::size_t>> reads;  // id, operation count
    void clear() { operations.clear(), piece_counts.clear(), pieces.clear(), reads.clear(); }
  };

  Read* find(std::uint64_t id);
  static bool may_submit(const Read& read);
  void seek_room(Read& read);
  void begin(Read& read);
  void take_bytes(Read& read);
  void submit(std::uint64_t now_ns);
  void plan(const Read& read, std::uint64_t now_ns);
  std::size_t append_pieces(const Read& read, std::uint64_t from, std::uint64_t bytes);
  void sum_parts();
  static void sum_next(Read& read, std::uint64_t bytes);
  void on_read(Read& read);
  void end(Read& read, End result);

  Peers& peers_;
  transport::Transport& transport_;
  FetchCounters& counters_;
  const Done done_;
  std::unordered_map<std::uint64_t, Read> reads_;
  std::vector<std::uint64_t> want_room_, to_submit_, to_sum_;
  Plan plan_;
};

}  // namespace mc::agent
