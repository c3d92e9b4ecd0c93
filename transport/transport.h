// SPDX-License-Identifier: Apache-2.0
//
// The interface by which bytes move between registered memory of two hosts. Six
//   calls: capabilities, register (and import), connect (and attach), submit, poll, close (of a
//   region, a peer, an operation).
//
//     serving side                                    asking side
//     register_region ── describe ──► any way ──►     import_region
//     RegionGuard.pin ◄─────────────────────────────  submit(read: peer, region, generation, range)
//     bytes ───────────────────────────────────────►  pieces                poll ─► Event
//
//   A read is a pull: one-sided where the hardware allows this, else the serving transport answers
//   from memory that was registered for remote reading. A write needs a region that was registered
//   for writing.
//   Each operation that submit() took gives exactly one kCompleted event, by the operation's
//   deadline at the latest. After the event of a read, no byte lands in the read's pieces, for any
//   outcome. If the outcome is kDone, the pieces hold the requested bytes; otherwise they hold
//   anything.
// Threads: a single thread drives a transport; only this thread calls submit() and poll(). Within
//   these calls, a transport calls the guard, the dialer and no other code. A transport reads no
//   clock: now_ns is a parameter, so a simulator can own time.
// Owns: the links. Pieces and regions belong to the caller, with their memory. The caller must keep
//   both until the event of the operation, or until close_region().
// Trusts: the caller. Every byte of a peer is checked before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"
#include "transport/limits.h"
#include "transport/link.h"
#include "transport/outcome.h"
#include "transport/priority.h"
#include "transport/rail_status.h"
#include "transport/region.h"

namespace mc::transport {

enum class Verb : std::uint8_t { kRead, kWrite, kNotify };

// The abilities of a transport. tests/conformance tests each bit that is set. If a bit is not set,
// operations of that kind complete with kUnsupported.
struct Capabilities {
  std::string_view name;
  bool write = false;              // into regions registered with kRemoteWrite
  bool notify = false;             // short messages to the peer's poll()
  bool one_sided = false;          // the peer's processor takes no part
  bool checks_generation = false;  // the serving side refuses a stale generation by itself
  bool registers_pieces = false;   // pieces must lie in regions of this transport
  std::uint32_t memory_kinds = 0;  // bits 1 << MemoryKind
  std::uint32_t max_operations = 0;
  std::uint32_t max_pieces = 0;
  std::uint32_t max_notification_bytes = 0;
  std::uint64_t max_operation_bytes = 0;
};

// A part of local memory: the target of a read, or the source of a write or a notification.
struct Piece {
  std::byte* data = nullptr;
  std::uint64_t size_bytes = 0;
  RegionId region = kNoRegion;  // needed with Capabilities::registers_pieces
};

// Index and generation of a slot: the id of an ended operation names no other operation.
using OperationId = std::uint64_t;
using PeerId = std::uint64_t;
using RemoteRegionId = std::uint64_t;
inline constexpr OperationId kNoOperation = 0;
inline constexpr PeerId kNoPeer = 0;

struct Operation {
  Verb verb = Verb::kRead;
  PeerId peer = kNoPeer;
  std::uint64_t cookie = 0;  // returned in the event
  std::uint64_t deadline_ns = 0;
  Priority priority = Priority::kForeground;  // of large operations
  // Read, write: the place in the peer's memory. The peer told the generation with the place of the
  // bytes. If the guard has another generation there, the guard answers kStale.
  RemoteRegionId region = 0;
  std::uint64_t generation = 0;
  std::uint64_t offset_bytes = 0;
  std::span<const Piece> pieces;  // copied by submit()
  OperationId id = kNoOperation;  // set by submit()
};

struct Event {
  enum class Kind : std::uint8_t {
    kCompleted,  // an operation of this transport has ended
    kNotified,   // a peer sent payload
    kPeerLost,   // no path to the peer is left; operations fail at once until kPeerBack
    kPeerBack,
  };
  Kind kind = Kind::kCompleted;
  Outcome outcome = Outcome::kDone;
  Verb verb = Verb::kRead;
  OperationId id = kNoOperation;
  std::uint64_t cookie = 0;
  std::uint64_t bytes = 0;               // moved; if kDone, all bytes of the operation
  PeerId peer = kNoPeer;                 // the asked peer; kNoPeer in kNotified
  NodeId from{};                         // kNotified: the sender
  std::span<const std::byte> payload{};  // kNotified: valid until the next poll()
};

// Counts for metrics.
struct Counters {
  std::uint64_t read_bytes = 0;     // arrived in pieces
  std::uint64_t written_bytes = 0;  // acknowledged by peers
  std::uint64_t served_bytes = 0;   // sent from regions
  std::uint64_t taken_bytes = 0;    // written by peers into regions
  std::uint64_t staged_bytes = 0;   // copied once more than promised
  std::uint64_t resent_slices = 0;  // sent again after a lane failed
  std::uint64_t lanes_failed = 0;
  std::uint64_t refused_requests = 0;  // of peers: stale, out of bounds, no rights
  std::uint64_t broken_frames = 0;     // of peers; each frame ends a lane
  std::uint64_t zero_copy_sends = 0;
  std::uint64_t zero_copy_copied = 0;  // the kernel copied all the same
  std::uint64_t pinned_bytes = 0;      // now, of slices on their way out
  std::uint64_t send_calls = 0;
  std::uint64_t receive_calls = 0;
};

// A path to a peer, for mcctl.
struct RailReport {
  PeerId peer = kNoPeer;
  std::string_view transport;  // Capabilities::name
  std::string name;
  RailStatus status;
  std::string note{};  // why the rail is not up; may be empty
};

// The rails to all peers, for metrics.
struct RailCounts {
  std::string_view transport;  // Capabilities::name
  std::uint64_t up = 0;
  std::uint64_t down = 0;
  std::uint64_t idle = 0;  // closed until the peer is used again
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual const Capabilities& capabilities() const = 0;

  // Errors: MC_INVALID_ARGUMENT, MC_NO_MEMORY, MC_UNSUPPORTED (memory kind).
  virtual Result<RegionId> register_region(const RegionSpec& spec) = 0;
  // The bytes by which a peer names the region: opaque, at most kMaxDescriptorBytes.
  virtual Result<std::vector<std::byte>> describe(RegionId region) const = 0;
  // The id for a region that the peer described. The text is not trusted.
  virtual Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text) = 0;

  // The parts of a sparse region that have memory from now on, in order. No object may be left in
  // the missing parts. The caller returns that memory to the system only after this call, or does
  // not read these parts until they come anew. A transport without pinning may ignore the call.
  virtual void set_backed(RegionId, std::span<const MemoryRange>) {}

  // Starts connecting; operations may be submitted at once and wait for the first lane.
  virtual Result<PeerId> connect(const PeerSpec& spec) = 0;
  // A link whose handshake is over: a lane that this side asked the dialer for, or that a peer
  // dialed.
  virtual Status attach(Link link) = 0;
  // The dialer could not make the lane now. The transport asks for the lane again later.
  virtual void dial_failed(PeerId peer, std::uint32_t lane) = 0;

  // Takes operations from the front while there is room: sets the id and starts the operation.
  // Returns the count. The rest met back-pressure: submit the rest again after a poll(). An invalid
  // operation ends with an event.
  virtual std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns) = 0;

  // Moves the bytes that can be moved without waiting, and appends the events.
  virtual void poll(std::uint64_t now_ns, std::vector<Event>& events) = 0;
  // A descriptor that is readable when poll() has work; -1: this transport has no descriptor.
  virtual int wait_fd() const = 0;
  // The time by which poll() must be called even if nothing arrives, never later than the next
  // deadline. 0: at once, there is work left.
  virtual std::uint64_t next_poll_ns() const = 0;

  // Peers can no longer reach the region. Accesses that hold a pin end first. False while there are
  // pins: call poll(), then call again. True: the memory belongs to the caller.
  virtual bool close_region(RegionId region) = 0;
  // Why a part of the region cannot be reached by each way of this transport. MC_BUSY: devices are still registering
  // the memory.
  virtual Status backing(RegionId) const { return {}; }
  // Ends all operations to the peer with kCancelled (events come with the next poll()).
  virtual void close_peer(PeerId peer) = 0;
  // Asks an operation to end early. The operation still gives the event, which is final.
  virtual void cancel(OperationId operation) = 0;

  virtual const Counters& counters() const = 0;
  // Appends the rails to all peers. A transport without rails appends nothing.
  virtual void report_rails(std::vector<RailReport>&) const {}
  // Appends an entry for each transport with rails. The cost follows the number of peers, not rails.
  virtual void count_rails(std::vector<RailCounts>&) const {}
};

}  // namespace mc::transport
