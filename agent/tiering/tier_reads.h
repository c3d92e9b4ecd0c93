// SPDX-License-Identifier: Apache-2.0
//
// Reads objects of the tier for readers that wait.
//
//   look ──► in the pool, or on its way to the disk: served at once
//     │ └──► the disks are still being read: looks again, for 2 s after the start at most
//     ▼
//   kRoom ──a reservation of the pool──► kReading ──► first read of the record: served unpublished
//                                          │     └──► later read: published in the pool (a promotion)
//                                          └ damaged, failed, gone
//
//   A read for another host (kBring) or for a pin (kPin) always publishes the object.
//   Readers of the same version of an object share a read. If that version leaves the log during the read,
//   the readers still get the bytes. Nobody joins such a read, and nothing is published.
//   For two seconds, a read for other hosts or for pins loses no object to eviction: the room comes as fast as
//   the disks write.
//   A 16th of the pool, and at most 256 MiB, is being read at a time, in equal shares of the disks: a disk
//   that hangs does not hold up the others.
// Threads: the agent's loop. The tier's threads write to the reservations.
// Owns: the reservations of reads under way.
// Trusts: its caller. The log compares key and checksum of a record with those of the read.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/server/durations.h"
#include "agent/server/local_disks.h"
#include "agent/tier/log/log.h"
#include "agent/tiering/demoter.h"
#include "agent/tiering/tiered_pool.h"

namespace mc::agent {

class TierReads {
 public:
  struct Counters {
    std::uint64_t objects = 0, bytes = 0;  // that were read
    std::uint64_t promoted = 0;            // of these, published in the pool
    std::uint64_t on_the_way = 0;          // served before they were on the disk
    std::uint64_t misses = 0, not_ready = 0, damaged = 0, failed = 0;
    std::uint64_t no_room = 0;
    DurationCounts durations;  // from the request to the end
  };
  TierReads(tier::Log& log, const Demoter& demoter) : log_(log), demoter_(demoter) {}

  // kFetch, kExists, kBring, kPin.
  void begin(TieredPool& pool, const std::shared_ptr<RemoteRequest>& request, std::size_t item,
             std::uint64_t now_ns);
  // Returns false if the ticket is of other work.
  bool end(const tier::LogEnd& end, std::uint64_t now_ns);
  // Looks again, and begins reads that wait for room.
  void advance(std::uint64_t now_ns);
  // When advance() has work that nothing else announces; UINT64_MAX: never.
  std::uint64_t next_ns() const;
  // True if an item has been settled since the last call.
  bool take_settled() { return std::exchange(settled_, false); }
  const Counters& counters() const { return counters_; }

 private:
  struct Reader {
    TieredPool* pool = nullptr;
    std::shared_ptr<RemoteRequest> request;
    std::size_t item = 0;
    std::uint64_t since_ns = 0;

    RemoteRequest::Item& its_item() const { return request->items[item]; }
    bool pins() const { return request->kind == RemoteRequest::Kind::kPin; }
    // The object has to come into the pool.
    bool brings() const { return request->kind == RemoteRequest::Kind::kBring || pins(); }
    tier::ObjectName object() const;
    bool waits() const { return !request->abandoned && its_item().open; }
  };
  struct Lane;
  struct Read {
    TieredPool* pool = nullptr;
    Lane* lane = nullptr;
    std::string key;                     // empty if only other hosts want the object
    std::optional<tier::TierKey> given;  // ObjectName::given
    std::uint64_t name = 0;
    std::uint64_t version = 0;  // of the record
    std::vector<Reader> readers;
    std::uint32_t entry = kNoEntry;
    std::uint64_t length = 0;
    std::uint64_t ticket = 0;  // 0: waits for room
    bool promotes = false;

    tier::ObjectName object() const { return {key, pool->id, given}; }
  };
  using Reads = std::list<Read>;
  // The reads of a pool from one disk.
  struct Lane {
    std::deque<Reads::iterator> want_room = {};
    std::uint64_t reading_bytes = 0;
  };

  void set_now(std::uint64_t now_ns);
  void look_for(const Reader& reader);
  bool look(const Reader& reader);
  void settle(const Reader& reader, mc_status status);
  void serve_entry(const Reader& reader, std::uint32_t entry);
  void settle_all(Read& read, mc_status status);
  void begin_some();
  bool begin_some(Lane& lane);
  bool begin_read(Read& read);
  bool may_evict(const Read& read) const;
  const tier::TierEntry* record_of(const Read& read) const;
  void look_again(Read& read);
  void end_joining(const Read& read);
  void deliver(Read& read, const tier::LogEnd& end);
  static ObjectStore::Put publish(const TieredPool& pool, const PutOrder& order,
                                  const tier::TierEntry& record);
  static bool brings(const Read& read);
  void forget(Reads::iterator read);

  tier::Log& log_;
  const Demoter& demoter_;
  std::uint64_t look_until_ns_ = 0;
  std::deque<Reader> looking_;
  Reads reads_;
  std::map<std::pair<TieredPool*, std::uint32_t>, Lane> lanes_;  // by pool and disk
  std::unordered_map<std::uint64_t, Reads::iterator> by_ticket_;
  std::unordered_map<std::uint64_t, Reads::iterator> joinable_;  // by Read::name
  bool room_is_short_ = false;                                   // each read that waits has tried
  bool settled_ = false;
  std::uint64_t now_ns_ = 0;
  Counters counters_;
};

}  // namespace mc::agent
