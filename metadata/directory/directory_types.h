// SPDX-License-Identifier: Apache-2.0
//
// The inputs and outputs of the directory.
// Threads: values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "metadata/directory/key_hash.h"
#include "metadata/directory/slot.h"
#include "metadata/membership/node.h"

namespace mc::metadata {

// Holders of a key: replicas, and copies of hot objects. Each part of a striped object counts.
inline constexpr unsigned kMaxHolders = 32;
static_assert(kMaxParts < kMaxHolders);  // leaves room to move a part

struct DirectoryOptions {
  std::uint64_t max_entries = 64ull << 20;  // (key, holder) pairs; 40 to 54 bytes each
  std::uint64_t max_tombstones = 1ull << 20;
  std::uint32_t max_nodes = 4096;
  // Removals are numbered from here. A new leader starts above all numbers of earlier leaders;
  // metadata/master keeps a mark in the cluster store.
  std::uint64_t first_removal = 1;
};

// The place of a message in the node's stream.
struct StreamPosition {
  NodeId node = kNoNode;
  Incarnation incarnation = 0;
  std::uint64_t sequence = 0;
};

enum class StreamAnswer : std::uint8_t {
  kApplied,
  kDuplicate,         // repeated: acknowledged, nothing changed
  kReportNeeded,      // a gap, or no report yet: begin a report
  kUnknownNode,       // not a member: join first
  kStaleIncarnation,  // a newer incarnation of the node has joined
  kTooManyItems,      // more than MC_MAX_BATCH_ITEMS
  kBusy,              // all sessions are in use until more is swept: try again
};

struct PublishItem {
  enum class What : std::uint8_t {
    kHolds,    // the node holds this object
    kDropped,  // the node no longer holds the object: evicted or moved away. Other holders stay
    kCreates,  // the node holds the object; kStale if another version has a holder, newer or older
    // As kCreates, but the put was acknowledged earlier, without a master. kFull while another version is
    // incomplete: that version's put may have begun later and be under way.
    kCreated,
  };
  KeyHash hash;
  // Names one completed put of the key. A later put has a greater version. All holders of a put
  // have the same version.
  std::uint64_t version = 0;
  std::uint64_t bytes = 1;  // 1 to MC_MAX_OBJECT_BYTES
  Attributes attributes;
  What what = What::kHolds;
  // The node has the object on a disk, and not in its pool. REQUIRES: not striped.
  bool on_disk = false;

  // The put yields to an object that is there.
  bool yields() const { return what == What::kCreates || what == What::kCreated; }
};

struct Batch {
  StreamPosition position;
  // The latest removal number that the node had heard when the oldest of these changes began.
  std::uint64_t removals_seen = 0;
  std::span<const PublishItem> items;
  // There were also removals that the node had not heard and that no master can name any more.
  bool may_have_missed = false;
  // Objects of nodes that are gone may have versions up to this one. 0: the batch is of a report.
  std::uint64_t lost_up_to = 0;
};

// No clock reaches a later version for centuries.
inline constexpr std::uint64_t kLatestVersion = UINT64_MAX / 2;

enum class Verdict : std::uint8_t {
  kAccepted,
  kStale,  // a newer version is known, or for a put that yields any other version: drop the object
  kRemoved,  // this version was removed: drop the object
  // this version may have been removed, so long ago that no record is left: drop the object
  kUncertain,
  kFull,         // keep the object, publish it again later: the directory is full, or see kCreated
  kHoldersFull,  // the key has kMaxHolders holders: do not keep this copy
  kInvalid,      // impossible size or attributes, or a size that differs from other holders'
  kNotHeld,      // for kDropped: there was no entry
  // Older than a removed version. Drop the object, unless no master has ever accepted this put.
  // Then the put is younger than the removal but has a slow clock, and needs a later version.
  kBehind,
};

// An order for a holder to drop an object.
struct Holding {
  KeyHash hash;
  std::uint64_t version = 0;
  NodeId node = kNoNode;
  auto operator<=>(const Holding&) const = default;
};

struct BatchAnswer {
  StreamAnswer stream = StreamAnswer::kUnknownNode;
  std::vector<Verdict> verdicts;    // one an item, if kApplied
  std::vector<Holding> drops;       // older versions that a newer version has replaced
  std::uint64_t refused_up_to = 0;  // the latest version that refused an older item
};

enum class Lookup : std::uint8_t {
  kFound,
  kMiss,
  // Unknown, or parts are missing, but not all reports are complete: wait, or say so.
  kRecovering,
};

// A put waits until so many nodes hold the key; of a striped object, each part.
struct AwaitedKey {
  KeyHash hash;
  std::uint8_t replicas = 1;
  bool operator==(const AwaitedKey&) const = default;
};
enum class AwaitedState : std::uint8_t { kTooFew, kEnough, kGone };

struct Located {
  Lookup state = Lookup::kMiss;
  Attributes attributes;
  std::uint32_t first_holder = 0;  // in LocateAnswer::holders
  std::uint32_t holder_count = 0;
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
  std::uint8_t missing_parts = 0;  // of a striped object: number of parts without a holder
  // A bit for each holder that has the object on a disk only, in the order of the holders.
  std::uint32_t on_disk = 0;
  // No part is missing, so the object is readable.
  [[nodiscard]] bool whole() const { return state == Lookup::kFound && missing_parts == 0; }
};

struct LocateAnswer {
  std::vector<Located> keys;  // one for each key asked; of a striped object the part has no meaning
  std::vector<NodeId> holders;  // each once
  [[nodiscard]] std::span<const NodeId> holders_of(const Located& key) const {
    return std::span(holders).subspan(key.first_holder, key.holder_count);
  }
  // REQUIRES: `order` has the holders of the key, each once.
  void reorder(Located& key, std::span<const NodeId> order) {
    const auto before = holders_of(key);
    std::uint32_t on_disk = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto at = std::ranges::find(before, order[i]) - before.begin();
      on_disk |= (key.on_disk >> at & 1u) << i;
    }
    key.on_disk = on_disk;
    std::ranges::copy(order, holders.begin() + key.first_holder);
  }
};

struct RemoveItem {
  KeyHash hash;
  std::uint64_t up_to_version = UINT64_MAX;  // a newer version stays
};

// The next leader buries the versions of this note (Directory::bury()).
struct RemovalNote {
  KeyHash hash;
  std::uint64_t version = 0;  // of the removed object; 0: no node held the key
  // A node that is away may hold the key with a version up to this one. 0: no node does, or all versions are named.
  std::uint64_t unheard_up_to = 0;
  bool operator==(const RemovalNote&) const = default;
};

// Facts that the master knows and the directory does not.
struct RemovalContext {
  // Nodes that are away may hold versions up to this one. 0: no node is away.
  std::uint64_t unheard_up_to = 0;
  bool recovering = false;  // a key without a holder is kRecovering
};

struct RemoveAnswer {
  std::vector<Lookup> keys;  // kFound: removed
  std::vector<Holding> drops;
  std::vector<RemovalNote> notes;
};

enum class ReportState : std::uint8_t { kAwaited, kStreaming, kComplete };

struct NodeCounts {
  NodeId node = kNoNode;
  Incarnation incarnation = 0;
  ReportState report = ReportState::kAwaited;
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t disk_entries = 0;  // of these, on a disk only
};

// All that is known of a key.
struct KeyView {
  KeyHash hash;
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
  Attributes attributes;  // replicas: the highest of all holders; the part has no meaning
  unsigned holder_count = 0;
  std::array<NodeId, kMaxHolders> holders{};
  // The parts of each holder, a bit for each. An object that is not striped is one part.
  std::array<std::uint16_t, kMaxHolders> parts{};
  [[nodiscard]] std::span<const NodeId> all_holders() const {
    return std::span(holders).first(holder_count);
  }
  [[nodiscard]] unsigned part_count() const { return attributes.striped ? attributes.parts : 1u; }
  // The approximate size of one part.
  [[nodiscard]] std::uint64_t part_bytes() const { return (bytes - 1) / part_count() + 1; }
  [[nodiscard]] std::vector<NodeId> holders_of(unsigned part) const {
    std::vector<NodeId> found;
    for (unsigned i = 0; i < holder_count; ++i) {
      if ((parts[i] >> part & 1) != 0) found.push_back(holders[i]);
    }
    return found;
  }
};

}  // namespace mc::metadata
