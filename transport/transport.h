// SPDX-License-Identifier: Apache-2.0
//
// What it is: the one interface by which bytes move between registered memory of two hosts. Six
//   calls: capabilities, register (and import), connect (and attach), submit, poll, close (of a
//   region, a peer, an operation).
//
//     serving side                                    asking side
//     register_region ── describe ──► any way ──►     import_region
//     RegionGuard.pin ◄─────────────────────────────  submit(read: peer, region, generation, range)
//     bytes ───────────────────────────────────────►  pieces                poll ─► Event
//
//   Reads are pulls: one-sided where the hardware can, else answered by the serving transport from
//   memory that was registered for remote reading. Writes need a region registered for them.
//   Every operation that submit() took gives exactly one kCompleted event, by its deadline at the
//   latest. After the event of a read nothing lands in its pieces any more, whatever its outcome;
//   they hold the bytes that were asked for if it is kDone, and anything if not.
// Threads: one thread drives a transport: submit() and poll() are called by it alone. A transport
//   calls its guard, dialer and no other code, from within these calls. It reads no clock: now_ns
//   is a parameter, so a simulator can own time.
// Owns: its links. Pieces, regions and what they point to belong to the caller, until the event of
//   the operation or close_region().
// Trusts: the caller. Nothing that a peer sends is believed before it was checked.
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
#include "transport/rails/rails.h"
#include "transport/region.h"

namespace mc::transport {

enum class Verb : std::uint8_t { kRead, kWrite, kNotify };

// What a transport can do. A bit that is set is tested by tests/conformance; one that is not set
// means that such operations complete with kUnsupported.
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

// A part of local memory that bytes are scattered to (read) or gathered from (write, notify).
struct Piece {
  std::byte* data = nullptr;
  std::uint64_t size_bytes = 0;
  RegionId region = kNoRegion;  // where it lies; needed with Capabilities::registers_pieces
};

// Index and generation of a slot: an id of an operation that has ended names nothing.
using OperationId = std::uint64_t;
using PeerId = std::uint64_t;
using RemoteRegionId = std::uint64_t;
inline constexpr OperationId kNoOperation = 0;
inline constexpr PeerId kNoPeer = 0;

struct Operation {
  Verb verb = Verb::kRead;
  PeerId peer = kNoPeer;
  std::uint64_t cookie = 0;  // comes back in the event
  std::uint64_t deadline_ns = 0;
  Priority priority = Priority::kForeground;  // large ones of a higher one go first
  // Read, write: where in the peer's memory. The generation is what the peer said the bytes were
  // when it told their place; a guard that has another one there answers kStale.
  RemoteRegionId region = 0;
  std::uint64_t generation = 0;
  std::uint64_t offset_bytes = 0;
  std::span<const Piece> pieces;  // copied by submit()
  OperationId id = kNoOperation;  // set by submit()
};

struct Event {
  enum class Kind : std::uint8_t {
    kCompleted,  // an operation of ours has ended
    kNotified,   // a peer sent payload
    kPeerLost,   // no path to peer is left; later operations fail at once until it is back
    kPeerBack,
  };
  Kind kind = Kind::kCompleted;
  Outcome outcome = Outcome::kDone;
  Verb verb = Verb::kRead;
  OperationId id = kNoOperation;
  std::uint64_t cookie = 0;
  std::uint64_t bytes = 0;               // moved; all of them exactly if kDone
  PeerId peer = kNoPeer;                 // ours; kNoPeer in kNotified
  NodeId from{};                         // kNotified: who sent it
  std::span<const std::byte> payload{};  // kNotified: valid until the next poll()
};

// What a metric may tell.
struct Counters {
  std::uint64_t read_bytes = 0;     // arrived in pieces
  std::uint64_t written_bytes = 0;  // acknowledged by peers
  std::uint64_t served_bytes = 0;   // sent from regions
  std::uint64_t taken_bytes = 0;    // written by peers into regions
  std::uint64_t staged_bytes = 0;   // copied once more than the promise of one copy says
  std::uint64_t resent_slices = 0;  // asked for again after a lane failed
  std::uint64_t lanes_failed = 0;
  std::uint64_t refused_requests = 0;  // of peers: stale, out of bounds, no rights
  std::uint64_t broken_frames = 0;     // of peers: their lanes were cut
  std::uint64_t zero_copy_sends = 0;
  std::uint64_t zero_copy_copied = 0;  // the kernel copied all the same
  std::uint64_t pinned_bytes = 0;      // now, on their way out
  std::uint64_t send_calls = 0;
  std::uint64_t receive_calls = 0;
};

// One way to a peer, as mcctl shows it.
struct RailReport {
  PeerId peer = kNoPeer;
  std::string_view transport;  // Capabilities::name of whose it is
  std::string name;
  RailStatus status;
  std::string note{};  // why it is not up; empty: nothing to say
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
  // What a peer needs to name the region: opaque, at most kMaxDescriptorBytes.
  virtual Result<std::vector<std::byte>> describe(RegionId region) const = 0;
  // The name for a region of peer from what it described. Trusts nothing in it.
  virtual Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text) = 0;

  // Which parts of a sparse region have memory from now on, in order. What is missing must have
  // been left by all objects; it is given back to the system only when this has returned, or is not
  // read before it came anew. A transport that does not pin memory need not know.
  virtual void set_backed(RegionId, std::span<const MemoryRange>) {}

  // Starts connecting; operations may be submitted at once and wait for the first lane.
  virtual Result<PeerId> connect(const PeerSpec& spec) = 0;
  // A link whose handshake is over: a lane that the dialer was asked for, or one a peer dialed.
  virtual Status attach(Link link) = 0;
  // The dialer could not make that lane now; it is asked again later.
  virtual void dial_failed(PeerId peer, std::uint32_t lane) = 0;

  // Takes operations from the front, as many as there is room for, sets their ids and starts them;
  // returns how many. The rest met back-pressure: submit them again after a poll(). What is
  // wrong with an operation itself is told by its event.
  virtual std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns) = 0;

  // Moves what can be moved without waiting, and appends what happened.
  virtual void poll(std::uint64_t now_ns, std::vector<Event>& events) = 0;
  // Readable when poll() has something to do; -1: this transport has no descriptor.
  virtual int wait_fd() const = 0;
  // poll() wants to be called at this time even if nothing arrives; never later than needed for
  // deadlines. 0: at once, there is work left.
  virtual std::uint64_t next_poll_ns() const = 0;

  // Peers can no longer reach it. Accesses that hold a pin end first: false while there are some
  // (poll and call again); the memory is the caller's when it is true.
  virtual bool close_region(RegionId region) = 0;
  // Ends all operations to the peer with kCancelled (events come with the next poll()).
  virtual void close_peer(PeerId peer) = 0;
  // Asks an operation to end early. Its event still comes, once, and is final.
  virtual void cancel(OperationId operation) = 0;

  virtual const Counters& counters() const = 0;
  // Appends the rails to all peers; a transport without rails has none.
  virtual void report_rails(std::vector<RailReport>&) const {}
};

}  // namespace mc::transport
