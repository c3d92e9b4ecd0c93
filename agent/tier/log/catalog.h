// SPDX-License-Identifier: Apache-2.0
//
// Everything that the agent knows about the objects of the tier: the index, the puts and removals that
//   are under way, and the live bytes of each segment.
//
//   An object is in the catalog from the durable end of its write until a removal, a later put, or the
//   cleaner takes the object away. A record on a disk that could come back at the next start is in the
//   catalog, or a removal of its key with a higher order is on the same disk.
// Threads: the agent's loop.
// Owns: the index.
// Trusts: its caller. Headers come from a disk, and their checksums were right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "agent/tier/index/tier_index.h"

namespace mc::tier {

class Catalog {
 public:
  // The latest put or removal of a key that is under way.
  struct Unfinished {
    std::uint64_t order = 0;
    std::uint64_t disks = 0;  // that are being written, a bit each
    bool is_put = false;
    std::uint64_t version = 0;  // of a put
  };

  // ---- Objects
  // The entry of an object that may be read now, or kNoEntry.
  std::uint32_t find(const TierKey& key) const;
  // As find(), with objects that are damaged or not yet known to be the latest ones.
  std::uint32_t find_any(const TierKey& key) const { return index_.find(key); }
  TierEntry& at(std::uint32_t number) { return index_.at(number); }
  const TierEntry& at(std::uint32_t number) const { return index_.at(number); }
  std::uint32_t size() const { return index_.size(); }
  // TierEntry::name_space of this namespace.
  std::uint8_t number_namespace(std::uint64_t id);
  // The namespace of an entry, or nothing if there are too many namespaces to remember all.
  std::optional<std::uint64_t> namespace_of(const TierEntry& entry) const {
    if (entry.name_space == kOtherNamespaces) return std::nullopt;
    return namespaces_[entry.name_space];
  }
  // Goes on with a walk over the objects that may be read now: visit(const TierEntry&) for up to `most` numbers
  // from `from` on. Returns the next number, or kNoEntry at the end. An object that stays is visited.
  template <typename Visit>
  std::uint32_t walk(std::uint32_t from, std::uint32_t most, Visit visit) const {
    const std::uint32_t end = std::min(index_.end(), from + most);
    for (std::uint32_t number = from; number < end; ++number) {
      if (index_.exists(number) && may_be_read(number)) visit(index_.at(number));
    }
    return end == index_.end() ? kNoEntry : end;
  }
  // No room for further objects, with those under way.
  bool full() const { return index_.size() + unfinished_.size() >= kMaxEntries; }
  std::uint64_t memory_bytes() const;
  void erase(std::uint32_t number);
  // Goes on with a walk over all entries, for up to `most` numbers from `from` on: erases the entries
  // in this segment, or with number kAllSegments on this disk. Returns the next number, or kNoEntry at
  // the end.
  static constexpr std::uint32_t kAllSegments = 0xffffff;
  std::uint32_t erase_some(std::uint32_t segment, std::uint32_t from, std::uint32_t most,
                           std::vector<TierEntry>& erased);

  // ---- Puts and removals
  // The number of the next put, removal or opened segment in the history of the tier.
  std::uint64_t take_order() { return next_order_++; }
  std::uint64_t next_order() const { return next_order_; }
  // Orders of this run are higher than those of all runs before.
  void begin_run(std::uint64_t run) { next_order_ = (run << kRunShift) + 1; }
  // The disks of an earlier one that is under way count on.
  void begin(const TierKey& key, Unfinished what) {
    Unfinished& known = unfinished_[key];
    what.disks |= known.disks;
    known = what;
  }
  const Unfinished* unfinished(const TierKey& key) const;
  void end(const TierKey& key, std::uint64_t order);
  // A record of a put is durable. False: a later put or removal has begun.
  bool commit(const RecordHeader& header);
  // A copy is durable. False: the object is no longer at `from`.
  bool commit_copy(const RecordHeader& header, Place from);
  // A record of a removal is on the disk, and stays until its segment is cleaned.
  void count_removal(const RecordHeader& header) { add_live(header.segment, record_units(header)); }

  // Takes back count_removal() for this many removals of the segment.
  void forget_removals(std::uint32_t segment, std::uint32_t removals) {
    take_live(segment, removals * record_units(RecordHeader{.kind = RecordKind::kRemoval}));
  }

  // ---- The live bytes of segments, in kUnitBytes
  void add_disk(std::uint32_t disk, std::uint32_t segments);
  std::uint32_t live_units(std::uint32_t segment) const {
    return live_[disk_of(segment)][number_of(segment)];
  }
  std::uint64_t live_units_of_disk(std::uint32_t disk) const { return disk_live_[disk]; }
  void forget_segment(std::uint32_t segment);
  void forget_disk(std::uint32_t disk);

  // ---- Recovery. Records come in any order; the highest order counts.
  bool recovering() const { return recovering_; }
  // kReplaced: a later put is known. kOutdated: a later removal is known. kSame: another record with this
  // order is known; a copy was made before the agent ended.
  enum class Found { kLatest, kOutdated, kReplaced, kSame, kFull };
  Found recover(const RecordHeader& header);
  // The known record of kSame gives way to this one.
  void recover_instead(const RecordHeader& header);
  // A removal that is on this disk, or will be. False: there are too many.
  bool recover_removal(const RecordHeader& header, std::uint32_t disk);
  // A segment of the disk with a record that does not count, and that no removal on the same disk keeps from
  // counting. REQUIRES: all removals of the disk are known. Nothing: none, or none among the first records.
  std::optional<std::uint32_t> next_shadowed(std::uint32_t disk);
  bool has_shadowed(std::uint32_t disk) const { return !shadowed_[disk].empty(); }
  // The disk has failed, and does not come back with these records.
  void forget_shadowed(std::uint32_t disk) { shadowed_[disk].clear(); }
  // Every record with a higher order has been recovered, so that an entry with a higher order counts.
  void set_unread_order(std::uint64_t order) { unread_order_ = order; }
  void end_recovery() { recovering_ = false; }
  // Frees memory of the recovery. Returns false when none is left.
  bool free_some();

 private:
  static std::uint32_t record_units(const RecordHeader& header) {
    return static_cast<std::uint32_t>(header.record_bytes() / kUnitBytes);
  }
  static std::uint32_t record_units(const TierEntry& entry) {
    return static_cast<std::uint32_t>(entry.record_bytes() / kUnitBytes);
  }
  void add_live(std::uint32_t segment, std::uint32_t units) {
    live_[disk_of(segment)][number_of(segment)] += units;
    disk_live_[disk_of(segment)] += units;
  }
  void take_live(std::uint32_t segment, std::uint32_t units) {
    live_[disk_of(segment)][number_of(segment)] -= units;
    disk_live_[disk_of(segment)] -= units;
  }
  bool insert(const RecordHeader& header);
  bool may_be_read(std::uint32_t number) const {
    if ((index_.at(number).flags & kEntryDamaged) != 0) return false;
    return !recovering_ || order_of(number) > unread_order_;
  }

  // ---- Recovery
  struct Shadowed {
    TierKey key;
    std::uint64_t order = 0;
    std::uint32_t segment = 0;
  };
  static constexpr std::uint8_t kOtherNamespaces = 255;
  static constexpr std::uint32_t kBlockOrders = 4096;
  std::uint64_t& order_of(std::uint32_t number) {
    return orders_[number / kBlockOrders][number % kBlockOrders];
  }
  std::uint64_t order_of(std::uint32_t number) const {
    return orders_[number / kBlockOrders][number % kBlockOrders];
  }
  static TierKey removal_key(const TierKey& key, std::uint32_t disk) {
    return {.hash = key.hash, .more = key.more + disk};
  }
  // The order of the latest removal of the key on the disk; 0: none is known.
  std::uint64_t removal_on(const TierKey& key, std::uint32_t disk) const;
  void shadow(const Shadowed& record);

  std::uint64_t next_order_ = 1;
  TierIndex index_;
  std::vector<std::uint64_t> namespaces_;  // by TierEntry::name_space
  std::unordered_map<TierKey, Unfinished, TierKeyHash> unfinished_;
  std::vector<std::vector<std::uint32_t>> live_;  // by disk and number
  std::vector<std::uint64_t> disk_live_;
  bool recovering_ = true;
  std::uint64_t unread_order_ = UINT64_MAX;
  std::vector<std::unique_ptr<std::uint64_t[]>> orders_;  // by entry number, in blocks
  TierIndex removals_;                          // by removal_key(): the version is the order
  std::vector<std::deque<Shadowed>> shadowed_;  // by disk
};

}  // namespace mc::tier
