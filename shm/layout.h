// SPDX-License-Identifier: Apache-2.0
//
// The byte map of the files that the agent and its clients share. A change here changes
// kLayoutVersion; tests/golden holds a file of each version. Trusts: nothing. A reader checks
// magic, version and size before the reader uses an offset (check_header).
//
//   index file (agent writes, clients map read-only)
//     0        IndexHeader           one page
//     tables   2 x bucket table      64-byte buckets; one current, one growing
//     entries  Entry[]               128 bytes each; the ledger of the pool, with short keys
//     keys     records of longer keys and of extents, 16-byte units
//   session file (one client and the agent write)
//     0        SessionHeader         one page
//     channel  Channel[]             rings, pins, touches, arguments of one thread each
//   pool file: the objects' bytes, nothing else
#pragma once

#include <cstddef>
#include <cstdint>

#include "mc/limits.h"
#include "shm/atomic.h"

namespace mc::shm {

inline constexpr std::uint64_t kMagic = 0x314b56432d636dull;  // "mc-CVK1"
inline constexpr std::uint32_t kLayoutVersion = 2;
inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::size_t kLineBytes = 64;

enum class FileKind : std::uint32_t {
  kIndex = 1,
  kSession = 2,
  kCounters = 3,
  kNode = 4,
  kLane = 5
};

struct FileHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t kind;
  std::uint64_t size_bytes;
  std::uint64_t node_id;
  std::uint64_t incarnation;  // of the agent that created the file
  std::uint64_t reserved[3];
};
static_assert(sizeof(FileHeader) == kLineBytes);

// ---- Index ------------------------------------------------------------------------------------

// State of an entry, in the low byte of the entry's version word. One atomic store of that word
// moves an object to the next state, so a crash always leaves a valid state.
//
//   kFree ──reserve──► kReserved ──commit──► kLive ──evict, remove, replace──► kLimbo ──► kFree
//                          └──────abandon, owner gone──────► kFree   (no reader pins the entry)
enum class EntryState : std::uint8_t { kFree = 0, kReserved = 1, kLive = 2, kLimbo = 3 };

inline constexpr std::uint64_t make_version(std::uint64_t sequence, EntryState state) {
  return (sequence << 8) | static_cast<std::uint64_t>(state);
}
inline constexpr EntryState state_of(std::uint64_t version) {
  return static_cast<EntryState>(version & 0xff);
}
inline constexpr std::uint64_t sequence_of(std::uint64_t version) { return version >> 8; }

// One cache line of fields and one for a short key. A reader loads both lines in parallel.
inline constexpr std::size_t kShortKeyBytes = 64;
struct alignas(2 * kLineBytes) Entry {
  Word64 version;      // kReserved: the sequence is the reservation's generation
  Word64 hash;         // kLive, kLimbo: hash of the key. kReserved: session id of the owner
  Word64 extent;       // one extent: offset in the pool; several: reference to the extent record
  Word64 length;       // bytes of the object; kReserved: bytes reserved
  Word64 checksum;     // kReserved: id of the request that the agent granted
  Word64 key;          // KeyField
  Word64 parent_hash;  // hash of the parent's key; 0: none. kReserved: channel of that request
  Word64 attributes;   // AttributeField
  unsigned char short_key[kShortKeyBytes];
};
static_assert(sizeof(Entry) == 2 * kLineBytes && offsetof(Entry, short_key) == kLineBytes);

// Entry::key: the place of the key. Record numbers count units of 16 bytes.
struct KeyField {
  std::uint32_t record;  // number of a long key's record; 0 for a short key
  std::uint16_t key_bytes;
  std::uint8_t extent_count;
  std::uint8_t pin;  // mc_pin
};
// Entry::attributes. Group and soft pins survive a restart of the agent.
struct AttributeField {
  std::uint32_t soft_pin_until_s;  // steady time of the host
  std::uint32_t group;             // 0: none
};
static_assert(sizeof(KeyField) == 8 && sizeof(AttributeField) == 8);

inline constexpr std::uint64_t kRecordUnitBytes = 16;
inline constexpr std::uint32_t kMaxArenas = 64;

// One of several extents of an object. An extent record is an array of ExtentRecord.
struct ExtentRecord {
  std::uint64_t offset_bytes;
  std::uint64_t length_bytes;
};

// A bucket: six slots, and the number of entries that overflowed from this bucket into a later
// bucket. A slot also names the place of the object's bytes, so that a reader can load the bytes
// while the entry's cache line is on its way. The place is a hint: the entry decides.
//
//   slot       63 tag: uppermost bits of the hash 48 │ 47 granule 32 │ 31 entry number + 1  0
//   granules   upper 16 bits of the slot's granule: the offset of the only extent, in 256 bytes
inline constexpr std::size_t kBucketSlots = 6;
inline constexpr std::uint64_t kHintUnitBytes = 256;
struct alignas(kLineBytes) Bucket {
  Word64 slots[kBucketSlots];
  Word16 granules[kBucketSlots];
  Word32 passed;
};
static_assert(sizeof(Bucket) == kLineBytes && offsetof(Bucket, granules) == 48 &&
              offsetof(Bucket, passed) == 60);

// Values of IndexHeader::readable_until_ns.
inline constexpr std::uint64_t kNoLeaseNeeded = 0;
inline constexpr std::uint64_t kLeaseIsOver = 1;

struct TableDescriptor {
  Word64 offset_bytes;
  Word64 bucket_count;
};

struct alignas(kLineBytes) IndexHeader {
  FileHeader file;
  // Set once.
  std::uint64_t hash_seed;
  std::uint64_t table_offset[2];
  std::uint64_t table_max_bytes;  // of each
  std::uint64_t entries_offset;
  std::uint64_t max_entries;
  std::uint64_t keys_offset;
  std::uint64_t max_keys_bytes;
  // Facts about the namespace, for an agent that finds the file but no configuration.
  std::uint64_t capacity_bytes;
  std::uint32_t isolated;
  std::uint32_t clustered;
  char policy[16];
  // Written by the agent only.
  alignas(kLineBytes) Word64 generation;  // the lowest bit selects the current table
  TableDescriptor tables[2];
  // The time (now_ns()) until which clients may read without a question to the agent, because the host has
  // the leases of the masters; kNoLeaseNeeded: always.
  Word64 readable_until_ns;
  alignas(kLineBytes) Word64 pool_bytes;  // reserved and usable
  Word64 pool_max_bytes;                  // of the pool file
  Word64 arena_count;
  Word64 next_sequence;        // larger than every version ever published
  Word64 committing_group;     // the group that the agent is publishing; 0: none
  Word64 entry_count;          // entries ever used: recovery reads all of these
  Word64 agent_incarnation;    // incarnation of the agent that serves now
  Word64 keys_reserved_bytes;  // of the key heap
  alignas(kLineBytes) Word64 arena_bytes[kMaxArenas];  // reserved, of each arena
  // The reservation that the agent is publishing: entry number + 1 (0: none) and the owner. The
  // agent overwrites both words of the entry meanwhile.
  alignas(kLineBytes) Word64 publishing_entry;
  Word64 publishing_session;
  // The size that the last resize asked for, and pool_bytes of the configuration at the last start. 0:
  // an earlier agent wrote the file, and the size is unknown.
  Word64 wanted_pool_bytes;
  Word64 configured_pool_bytes;
  // The agent drops the namespace after so many seconds without a session; 0: never.
  Word64 drop_unused_s;
  // The pool's size without the contributions of processes, of the last resize or configuration.
  Word64 own_pool_bytes;
  // The capacity that an operator set last, plus one, and the capacity of the configuration at that time. 0
  // in the first word: no operator has set a capacity.
  Word64 set_capacity;
  Word64 configured_capacity_bytes;
  // Last known processor of the agent's loop, plus one; 0: unknown. A client that waits on this
  // processor yields the processor to the agent.
  alignas(kLineBytes) Word32 agent_core;
  // 1: the loop serves several channels. A client that waits on the loop's processor delays the others.
  Word32 agent_serves_many;
};
static_assert(sizeof(IndexHeader) <= kPageBytes);

// Bytes of reserved memory from this offset of the pool to the end of the arena's reserved memory. The
// agent counts memory here before an entry or a grant names the memory. file_bytes: of all arenas.
inline std::uint64_t reserved_bytes_at(const IndexHeader& header, std::uint64_t file_bytes,
                                       std::uint64_t offset) {
  const std::uint64_t first = header.arena_bytes[0].load_relaxed();
  if (offset < first && first <= file_bytes) return first - offset;  // most pools have one arena
  const std::uint64_t arenas = header.arena_count.load_relaxed();
  if (arenas == 0 || arenas > kMaxArenas || offset >= file_bytes / arenas * arenas) return 0;
  const std::uint64_t arena_bytes = file_bytes / arenas;
  const std::uint64_t in_arena = offset % arena_bytes;
  const std::uint64_t reserved = header.arena_bytes[offset / arena_bytes].load_relaxed();
  return in_arena < reserved && reserved <= arena_bytes ? reserved - in_arena : 0;
}

// ---- Session ----------------------------------------------------------------------------------

inline constexpr std::uint32_t kRingSlots = MC_MAX_OUTSTANDING;
inline constexpr std::uint32_t kPinSlots = MC_MAX_VIEWS_PER_CHANNEL + 1;
inline constexpr std::uint32_t kTouchSlots = 16384;
inline constexpr std::uint64_t kArgumentBytes = 1u << 20;

// A record of a ring: eight words. The first word publishes the others.
struct alignas(kLineBytes) RingSlot {
  Word64 words[8];
};
static_assert(sizeof(RingSlot) == kLineBytes);

// Values of ChannelHeader::client_asleep.
inline constexpr std::uint32_t kClientAwake = 0;
inline constexpr std::uint32_t kClientInFutex = 1;  // wake it with a futex
inline constexpr std::uint32_t kClientInPoll = 2;   // signal its eventfd

// Why a client itself copies large pieces from and to a device, while workers copy for other clients.
enum class OwnCopies : std::uint32_t {
  kNone = 0,           // a worker copies
  kNoWorker = 1,       // no worker serves the device, or the worker has ended
  kNotRegistered = 2,  // mc_register_memory() does not know the memory, or the memory has changed
  kNotShared = 3,      // the driver exports no handle, or the worker cannot open the handle
  kNotPinned = 4,      // the worker has not pinned the memory of the pool
};
inline constexpr std::uint32_t kOwnCopiesKinds = 5;

struct ChannelHeader {
  alignas(kLineBytes) Word32 agent_asleep;   // agent: 1 before the agent stops polling this ring
  Word32 epoch;                              // agent: the rings' epoch; 0: not open
  Word32 touch_round;                        // agent: counts drains of the touch ring
  alignas(kLineBytes) Word32 client_asleep;  // client: see above
  alignas(kLineBytes) Word32 touch_head;     // client: touches ever written
  Word64 hits;                               // client: reads of objects in the pool, ever
  Word64 misses;                             // client: reads of objects that were not there
  Word64 hit_bytes;                          // client: bytes of these objects
  Word64 worker_bytes;                       // client: copied by workers of devices, ever
  Word64 own_bytes;                          // client: copied from and to devices by itself
  Word32 own_copies;                         // client: OwnCopies of the last large copy
  alignas(kLineBytes) Word64 padding;
};
static_assert(sizeof(ChannelHeader) == 4 * kLineBytes);

struct alignas(kPageBytes) Channel {
  ChannelHeader header;
  RingSlot requests[kRingSlots];
  RingSlot completions[kRingSlots];
  alignas(kLineBytes) Word64 pins[kPinSlots];
  alignas(kLineBytes) Word32 touches[kTouchSlots];
  alignas(kPageBytes) unsigned char arguments[kArgumentBytes];
};
static_assert(sizeof(Channel) % kPageBytes == 0);

inline constexpr std::size_t kBeaconBytes = 128;

struct alignas(kPageBytes) SessionHeader {
  FileHeader file;
  std::uint64_t session_id;
  std::uint32_t channel_count;
  std::uint32_t reserved;
  alignas(kLineBytes) unsigned char beacon[kBeaconBytes];  // a robust mutex: see beacon.h
  // The session's contribution to the pool, for the next agent.
  alignas(kLineBytes) Word64 contributed_bytes;
  Word64 contributed_buffer_bytes;
};
static_assert(sizeof(SessionHeader) == kPageBytes);

inline constexpr std::uint64_t channel_offset(std::uint32_t channel) {
  return sizeof(SessionHeader) + std::uint64_t{channel} * sizeof(Channel);
}
inline constexpr std::uint64_t session_file_bytes(std::uint32_t channel_count) {
  return channel_offset(channel_count);
}

// True if header has the magic, the version, the kind, and fits in mapped_bytes.
bool check_header(const FileHeader& header, FileKind kind, std::uint64_t mapped_bytes);
FileHeader make_header(FileKind kind, std::uint64_t size_bytes, std::uint64_t node_id,
                       std::uint64_t incarnation);

}  // namespace mc::shm
