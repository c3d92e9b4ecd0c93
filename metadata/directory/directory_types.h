// SPDX-License-Identifier: Apache-2.0
//
// What it is: what goes into the directory and what comes out of it.
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "metadata/directory/key_hash.h"
#include "metadata/directory/slot.h"
#include "metadata/membership/node.h"

namespace mc::metadata {

// Of one key: replicas, and copies of hot objects. Of a striped one each part counts.
inline constexpr unsigned kMaxHolders = 32;
static_assert(kMaxParts < kMaxHolders);  // so that one can be moved

struct DirectoryOptions {
  std::uint64_t max_entries = 64ull << 20;  // (key, holder) pairs; 40 to 54 bytes each
  std::uint64_t max_tombstones = 1ull << 20;
  std::uint32_t max_nodes = 4096;
  // Removals are numbered from here. A master that takes over starts above all that its forerunner
  // gave out; metadata/master keeps a mark of that in the cluster store.
  std::uint64_t first_removal = 1;
};

// Where a message stands in its node's stream.
struct StreamPosition {
  NodeId node = kNoNode;
  Incarnation incarnation = 0;
  std::uint64_t sequence = 0;
};

enum class StreamAnswer : std::uint8_t {
  kApplied,
  kDuplicate,         // had come before: acknowledged, nothing changed
  kReportNeeded,      // a gap, or no report yet: begin one
  kUnknownNode,       // not a member: join first
  kStaleIncarnation,  // a newer incarnation of the node has joined
  kTooManyItems,      // more than MC_MAX_BATCH_ITEMS
  kBusy,              // no session free until more is swept: try again
};

struct PublishItem {
  enum class What : std::uint8_t {
    kHolds,    // the node holds this object
    kDropped,  // it no longer does: evicted, moved away. Other holders stay
    kCreates,  // holds it, and nobody may hold another version: else kStale, whichever is newer
  };
  KeyHash hash;
  // Names one completed put of the key: of two, the later one's is greater, and it is the same at
  // every holder.
  std::uint64_t version = 0;
  std::uint64_t bytes = 1;  // 1 to MC_MAX_OBJECT_BYTES
  Attributes attributes;
  What what = What::kHolds;
};

struct Batch {
  StreamPosition position;
  // The latest removal number the node had heard when the oldest of these changes was begun.
  std::uint64_t removals_seen = 0;
  std::span<const PublishItem> items;
  // Besides, there were removals that it had not heard and nobody knows any more.
  bool may_have_missed = false;
};

enum class Verdict : std::uint8_t {
  kAccepted,
  kStale,        // a newer version is known, or to kCreates any other: drop yours
  kRemoved,      // this version was removed: drop it
  kUncertain,    // it may have been removed so long ago that nobody remembers: drop it
  kFull,         // back-pressure: the directory is full; keep the object, publish it again later
  kHoldersFull,  // the key has kMaxHolders holders: do not keep this copy
  kInvalid,      // impossible size or attributes, or another size than other holders say
  kNotHeld,      // to kDropped: nothing to forget
  // Older than a version that was removed. Drop it, unless it is a put that no master has ever
  // taken: that is younger than the removal and has a slow clock, and needs a later version.
  kBehind,
};

// Somebody to be told to drop an object.
struct Holding {
  KeyHash hash;
  std::uint64_t version = 0;
  NodeId node = kNoNode;
  bool operator==(const Holding&) const = default;
};

struct BatchAnswer {
  StreamAnswer stream = StreamAnswer::kUnknownNode;
  std::vector<Verdict> verdicts;    // one an item, when kApplied
  std::vector<Holding> drops;       // older versions that a newer one has replaced
  std::uint64_t refused_up_to = 0;  // the latest version that some item was too old for
};

enum class Lookup : std::uint8_t {
  kFound,
  kMiss,
  kRecovering,  // not known, but not all reports are in: wait or say so
};

struct Located {
  Lookup state = Lookup::kMiss;
  Attributes attributes;
  std::uint32_t first_holder = 0;  // in LocateAnswer::holders
  std::uint32_t holder_count = 0;
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
  std::uint8_t missing_parts = 0;  // of a striped object: how many of its parts nobody holds
  // Nothing of it is missing: it can be read.
  [[nodiscard]] bool whole() const { return state == Lookup::kFound && missing_parts == 0; }
};

struct LocateAnswer {
  std::vector<Located> keys;    // one for each asked; of a striped object the part means nothing
  std::vector<NodeId> holders;  // each once
  [[nodiscard]] std::span<const NodeId> holders_of(const Located& key) const {
    return std::span(holders).subspan(key.first_holder, key.holder_count);
  }
};

struct RemoveItem {
  KeyHash hash;
  std::uint64_t up_to_version = UINT64_MAX;  // a newer one stays
};

struct RemoveAnswer {
  std::vector<Lookup> keys;  // kFound: removed
  std::vector<Holding> drops;
};

enum class ReportState : std::uint8_t { kAwaited, kStreaming, kComplete };

struct NodeCounts {
  NodeId node = kNoNode;
  Incarnation incarnation = 0;
  ReportState report = ReportState::kAwaited;
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
};

// All that is known of one key.
struct KeyView {
  KeyHash hash;
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
  Attributes attributes;  // replicas: the most that any holder says; the part means nothing
  unsigned holder_count = 0;
  std::array<NodeId, kMaxHolders> holders{};
  // Which parts each of them has, a bit for each; what is not striped is one part.
  std::array<std::uint16_t, kMaxHolders> parts{};
  [[nodiscard]] std::span<const NodeId> all_holders() const {
    return std::span(holders).first(holder_count);
  }
  [[nodiscard]] unsigned part_count() const { return attributes.striped ? attributes.parts : 1u; }
  // About as much as one part is.
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
