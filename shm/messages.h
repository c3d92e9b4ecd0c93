// SPDX-License-Identifier: Apache-2.0
//
// The contract between client and agent: messages in the rings and on the socket.
// Threads: values only.
// Trusts: nothing. The agent receives bytes only through decode_request(), ArgumentReader and
//   decode_control(), which copy, check, and return a value or nothing.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "mc/mc.h"
#include "shm/layout.h"
#include "shm/ring.h"

namespace mc::shm {

// ---- Rings ------------------------------------------------------------------------------------

enum class Op : std::uint16_t {
  kNoop = 0,
  kReserve = 1,    // a: bytes of each of item_count reservations. Answer: ReservedItem[]
  kPut = 2,        // PutItem[]: publish reservations the client has written
  kPutStaged = 3,  // PutItem[]: copy from staging, then publish. a: node id of the host that shall
                   // hold the objects, or 0
  kAbandon = 4,    // PutItem[] with entry and generation only: give reservations back
  kRemove = 5,     // PutItem[] with key only
  kSetPin = 6,     // PutItem[] with key, pin, pin_ttl_s
  kCancel = 7,     // a: request id
  // In a namespace of a cluster:
  kFetch = 8,   // PutItem[] with key and pin_slot: objects of other hosts. Answer: their entries,
                // pinned in those slots
  kExists = 9,  // PutItem[] with key only: anywhere in the cluster
  kCheck = 10,  // a: entry of a live object whose bytes, as the client read them, do not match
};
inline constexpr std::uint16_t kLastOp = 10;
// True for requests about several items. The other requests have no arguments.
inline constexpr bool has_items(Op op) {
  return op != Op::kNoop && op != Op::kCancel && op != Op::kCheck;
}

// Request::flags
inline constexpr std::uint16_t kFlagUpsert = 1;
inline constexpr std::uint16_t kFlagGroup = 2;  // all items or none
inline constexpr std::uint16_t kFlagLocal = 4;  // puts: do not wait for the cluster to know
// Reservations: do not wait for room until the deadline. If the pool is full, the client offers the
// bytes in its staging memory, for another host to hold.
inline constexpr std::uint16_t kFlagElsewhere = 8;
// Puts: wait until as many hosts hold the object as PutItem::replicas says.
inline constexpr std::uint16_t kFlagReplicated = 16;
inline constexpr std::uint16_t kKnownFlags = 31;

// Reservations of the same number of units are interchangeable: a client's reservation cache has
// one list for each number.
//
// An entry and a generation name a reservation. The agent grants an entry again and again, each time
// with a new generation. A request that names an earlier generation has no effect: a client may
// repeat the request after a restart of the agent, when the entry is another thread's reservation.
inline constexpr std::uint64_t kReservationUnitBytes = 256;
// Number of bytes to reserve for a value of this length.
inline constexpr std::uint64_t reservation_bytes(std::uint64_t length) {
  return (length + kReservationUnitBytes - 1) / kReservationUnitBytes * kReservationUnitBytes;
}

// Keys with this prefix belong to the cluster: stripes of large objects. A request with such a key is
// malformed.
inline constexpr std::string_view kStripePrefix{"\0mc stripe ", 11};

struct Request {
  std::uint64_t request_id;
  std::uint16_t op;
  std::uint16_t flags;
  std::uint32_t item_count;
  std::uint32_t argument_offset;  // in Channel::arguments
  std::uint32_t argument_bytes;
  std::uint32_t touch_head;  // the agent first drains touches up to this count
  std::uint32_t reserved;
  std::uint64_t deadline_ns;
  std::uint64_t a;
  std::uint64_t b;
};
static_assert(sizeof(Request) == sizeof(RecordWords));

// The result of one item. If item_count is 1, the completion holds the result; otherwise an array
// at the start of the arguments holds the results.
struct ItemResult {
  std::int32_t status;
  std::uint32_t refill_entry;   // a new reservation of the size just used, or kNoRefill
  std::uint64_t refill_offset;  // offset of the only extent; kExists: length of the object, or 0
  std::uint64_t refill_generation;
};
inline constexpr std::uint32_t kNoRefill = 0xffffffff;

struct Completion {
  std::uint64_t request_id;
  std::int32_t status;  // MC_OK, or the first failure
  std::uint32_t item_count;
  ItemResult first;
  std::uint64_t reserved[2];
};
static_assert(sizeof(Completion) == sizeof(RecordWords));

struct PutItem {
  std::uint32_t entry;  // the reservation; kPutStaged: 0
  std::uint16_t key_bytes;
  std::uint8_t pin;
  std::uint8_t want_refill;
  std::uint64_t length;
  std::uint64_t checksum;
  std::uint64_t parent_hash;
  union {
    std::uint64_t generation;      // kPut, kAbandon
    std::uint64_t staging_offset;  // kPutStaged
    std::uint64_t pin_slot;        // kFetch
  };
  std::uint32_t pin_ttl_s;
  std::uint32_t replicas;  // number of replicas in the cluster; 0 means 1
  // key bytes follow, padded to 8
};
static_assert(sizeof(PutItem) == 48);

// One granted reservation.
struct ReservedItem {
  std::uint32_t entry;
  std::uint32_t extent_count;
  std::uint64_t generation;
  std::uint64_t length;
  ExtentRecord extents[MC_MAX_EXTENTS];
};
static_assert(sizeof(ReservedItem) == 24 + 16 * MC_MAX_EXTENTS);

inline std::uint32_t padded_key_bytes(std::uint32_t key_bytes) { return (key_bytes + 7u) & ~7u; }
inline std::uint32_t result_bytes(std::uint32_t item_count) {
  return item_count > 1 ? item_count * static_cast<std::uint32_t>(sizeof(ItemResult)) : 0;
}

inline RecordWords to_words(const Request& request) { return std::bit_cast<RecordWords>(request); }
inline RecordWords to_words(const Completion& c) { return std::bit_cast<RecordWords>(c); }

// A status from another process. An unknown number becomes MC_INTERNAL.
inline constexpr std::int32_t known_status(std::int32_t status) {
  return status >= MC_OK && status <= MC_NOT_ADVERTISED ? status : MC_INTERNAL;
}

// Checks operation, flags, counts and argument range of a copied record.
std::optional<Request> decode_request(const RecordWords& words);
std::optional<Completion> decode_completion(const RecordWords& words);

// Reads the items of a request. The client may change the memory at any time, so next() copies an
// item and its key before checking the copy.
class ArgumentReader {
 public:
  // arguments: the whole arena; request: as decode_request() returned it.
  ArgumentReader(const unsigned char* arguments, const Request& request)
      : at_(arguments + request.argument_offset + result_bytes(request.item_count)),
        end_(arguments + request.argument_offset + request.argument_bytes) {}

  struct Item {
    Item() : fields{} {}  // clearing the 1-KiB key for every request would cost time
    PutItem fields;
    alignas(8) unsigned char key[MC_MAX_KEY_BYTES];
  };
  // False: the arguments end early or an item is malformed; the caller must not use the item.
  bool next(Item& item);

 private:
  const unsigned char* at_;
  const unsigned char* end_;
};

// ---- Socket -----------------------------------------------------------------------------------

enum class ControlType : std::uint32_t {
  kHello = 1,        // client: open or resume a session
  kWelcome = 2,      // agent: the answer, with descriptors
  kOpenChannel = 3,  // client: value = channel number
  kOpenStaging = 4,  // client: value = bytes
  kAnswer = 5,       // agent: to 3 and 4; kOpenStaging carries a descriptor
  kAdmin = 6,        // client: JSON text follows
  kGoodbye = 8,      // client: the client uses nothing of this session any more
  kAdminAnswer = 7,  // agent: a part of the JSON answer follows; value = 1: more parts come
  // agent, unasked: the pool shrinks; the client must return its cached reservations
  kReservationCacheWanted = 9,
  // client: the UUID of a device follows. The answer has five descriptors, and the worker's number as
  // value
  kOpenLane = 10,
  kGpuWorker = 11,  // a worker of a device: this connection is its link from now on
};

inline constexpr std::uint32_t kControlVersion = 5;
inline constexpr std::size_t kMaxControlBytes = 64 * 1024;

struct ControlHeader {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kControlVersion;
  std::uint32_t type = 0;
  std::uint64_t value = 0;
  std::int32_t status = 0;
  std::uint32_t text_bytes = 0;  // text that follows the fixed part
};
static_assert(sizeof(ControlHeader) == 32);

struct ClientHello {
  ControlHeader header;
  std::uint32_t layout_version = kLayoutVersion;
  std::uint32_t channel_count = 0;
  std::uint64_t resume_session = 0;  // 0: a new one
  std::uint64_t resume_secret = 0;
  char name_space[MC_MAX_NAMESPACE_BYTES + 8] = {};
  char label[64] = {};
};

// Places of descriptors in a welcome. From kFirstPartFd on: the parts of the index (read),
// the parts of the pool (read), and in a direct namespace the parts of the pool for writing. A part is a
// file that ends where the agent has reserved memory. The parts of the pool have equal largest sizes.
inline constexpr std::size_t kSessionFd = 0, kAgentEventFd = 1, kClientEventFd = 2,
                             kFirstPartFd = 3;
inline constexpr std::uint32_t kMaxIndexParts = 8;
struct Welcome {
  ControlHeader header;
  std::uint64_t session_id = 0;
  std::uint64_t session_secret = 0;
  std::uint64_t node_id = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t index_part_bytes[kMaxIndexParts] = {};  // largest sizes
  std::uint64_t pool_max_bytes = 0;                     // of all parts
  std::uint64_t session_bytes = 0;
  std::uint64_t reservation_cache_bytes = 0;  // limit of a channel's reservation cache
  std::uint32_t epoch = 0;                    // epoch of the rings
  std::uint32_t channel_count = 0;
  std::uint32_t isolated = 0;
  std::uint32_t resumed = 0;
  std::uint32_t clustered = 0;  // other hosts may hold an object: kFetch, kExists
  std::uint32_t index_parts = 0;
  std::uint32_t pool_parts = 0;
  std::uint32_t on_disks = 0;  // local disks may hold an object: kFetch, kExists
};

// Decodes the fixed part of a message of type T; nullopt if the bytes are no such message. text:
// receives the text behind the fixed part.
template <typename T>
std::optional<T> decode_control(std::span<const std::byte> bytes, ControlType type,
                                std::string_view* text = nullptr) {
  T message;
  if (bytes.size() < sizeof(T)) return std::nullopt;
  std::memcpy(static_cast<void*>(&message), bytes.data(), sizeof(T));
  ControlHeader header;
  std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof header);
  if (header.magic != kMagic || header.version != kControlVersion ||
      header.type != static_cast<std::uint32_t>(type) ||
      header.text_bytes != bytes.size() - sizeof(T)) {
    return std::nullopt;
  }
  if (text != nullptr) {
    *text = {reinterpret_cast<const char*>(bytes.data()) + sizeof(T), header.text_bytes};
  }
  return message;
}

}  // namespace mc::shm
