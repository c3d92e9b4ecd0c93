// SPDX-License-Identifier: Apache-2.0
//
// A client as its agent sees it: the shared session file, the channels, and the ledger
//   of the client's reservations.
//
//   connected ──socket closed──► detached ──hello with id and secret──► connected
//       └──goodbye, or the process ended (pidfd)──► ended: all reservations go back at once
//
// Threads: the agent's loop.
// Owns: descriptors and mappings.
// Trusts: nothing in the session file; see shm/messages.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/unordered/unordered_flat_set.hpp>

#include "agent/server/tenant.h"
#include "libmc/base/fd.h"
#include "libmc/base/memory_file.h"
#include "shm/layout.h"
#include "shm/messages.h"
#include "shm/ring.h"
#include "shm/touch_ring.h"

namespace mc::agent {

struct ChannelState {
  shm::Channel* shared = nullptr;
  shm::RingConsumer requests;
  shm::RingProducer completions;
  shm::TouchReader touches;
  bool open = false;
  bool opened_once = false;  // the pin slots may be in use, even if the channel is closed
  bool active = false;       // polled in every round; otherwise the client rings first
  bool needs_wake = false;   // got a completion in this round
  std::uint64_t last_work_ns = 0;
  std::uint32_t waiting = 0;  // requests of this channel that wait in the Server
  ReadCounts counted;         // of the client's counts, for the namespace
  DeviceCounts counted_copies;
  shm::OwnCopies own_copies = shm::OwnCopies::kNone;  // as the client says
};

// Only root and the agent's user may change pools.
bool may_change_pools(std::uint32_t uid);

class Session {
 public:
  // Creates a session file for this many channels. Errors: MC_NO_MEMORY.
  static Result<std::unique_ptr<Session>> create(std::uint64_t id, std::uint64_t secret,
                                                 std::uint32_t channel_count, std::uint64_t node_id,
                                                 std::uint64_t incarnation);
  // Takes over the file of an earlier agent. Errors: MC_CORRUPT.
  static Result<std::unique_ptr<Session>> adopt(std::uint64_t id, std::uint64_t secret,
                                                MemoryFile file);

  // Reserves memory for the channel and restarts its rings under epoch().
  Status open_channel(std::uint32_t number);
  // Reserves memory for staging. Errors: MC_QUOTA_EXCEEDED, MC_NO_MEMORY, MC_BUSY if the session
  // already has staging memory.
  Status open_staging(std::uint64_t bytes);
  Status adopt_staging(MemoryFile file);
  // Takes back what open_staging() made.
  void close_staging() { staging_mapping_ = {}, staging_file_ = {}; }
  // Closes all channels and increments the epoch of the rings.
  void restart_rings(std::uint64_t incarnation);
  void collect_pins(std::vector<std::uint64_t>& pins) const;
  std::uint64_t pinned_count() const;
  // Bytes of the session's reservations in the tail of a shrinking pool.
  std::uint64_t reserved_in_tail_bytes() const;
  // The channels whose pins may be in use.
  std::size_t opened_channels() const;
  // Passes the uses that the thread of a channel noted since the last call to the policy, and returns
  // their count.
  std::size_t take_touches(std::uint32_t channel);
  // Adds the reads that the thread of a channel counted since the last call to the namespace's reads.
  void take_read_counts(std::uint32_t channel);

  // ---- The ledger: the reservations of the session, in granules, as the pool counts. A thousand
  // reservations of 1 byte hold a thousand granules.
  void enter(std::uint32_t entry, std::uint64_t bytes);
  void drop_from_ledger(std::uint32_t entry, std::uint64_t bytes);
  // True if a further reservation of this size would exceed the quota.
  bool over_quota(std::uint64_t bytes) const;
  const boost::unordered_flat_set<std::uint32_t>& reserved() const { return reserved_; }
  std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  // The entry that the client names, or kNoEntry: the reservation is gone, and the entry is another
  // reservation of the session now.
  std::uint32_t named_entry(const shm::PutItem& fields) const;
  // Gives back a reservation. Returns false if the session does not hold the entry.
  bool give_back(std::uint32_t entry);
  void give_back_all();
  // The client has reconnected: its reservations may have been granted by answers that were lost.
  void expect_repeats();
  // The client repeats this request, so the answer was lost: the reservations of the answer go back.
  void take_back_unheard(std::uint32_t channel, std::uint64_t request_id);

  shm::SessionHeader* header() const {
    return reinterpret_cast<shm::SessionHeader*>(mapping_.data());
  }
  std::uint32_t epoch() const { return epoch_; }
  std::uint64_t staging_bytes() const { return staging_mapping_.size_bytes(); }
  const std::byte* staging() const { return staging_mapping_.data(); }
  const MemoryFile& file() const { return file_; }
  const MemoryFile& staging_file() const { return staging_file_; }

  const std::uint64_t id;
  const std::uint64_t secret;
  std::uint32_t uid = 0;
  int pid = 0;
  std::string label;
  std::shared_ptr<Tenant> tenant;
  int connection_fd = -1;  // -1: detached
  bool beacon_watched = false;
  bool unused = false;  // created by this agent, and never had a channel or staging memory
  Fd pidfd;
  Fd agent_event;   // the client signals this eventfd
  Fd client_event;  // the agent signals this eventfd
  std::vector<ChannelState> channels;
  bool suspected = false;
  bool ending = false;  // a GPU worker may still copy for the session (agent/devices/gpu_workers.h)
  DeviceCounts device_counts;
  std::uint64_t left_ns = 0;  // time since when the beacon is lost and the socket closed, or 0
  std::uint64_t opened_ns = 0;
  std::uint64_t request_count = 0;
  std::uint64_t bad_request_count = 0;

 private:
  Session(std::uint64_t session_id, std::uint64_t session_secret)
      : id(session_id), secret(session_secret) {}

  MemoryFile file_;
  Mapping mapping_;
  MemoryFile staging_file_;
  Mapping staging_mapping_;
  std::uint32_t epoch_ = 0;
  std::uint32_t restarts_ = 0;
  boost::unordered_flat_set<std::uint32_t> reserved_;
  std::uint64_t reserved_bytes_ = 0;
  // Reservations from before a reconnect, by the request whose answer may be lost.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::uint32_t>> unheard_;
};

// The pool's room for so many bytes.
constexpr std::uint64_t round_to_granules(std::uint64_t bytes) {
  return (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
}

}  // namespace mc::agent
