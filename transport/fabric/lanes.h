// SPDX-License-Identifier: Apache-2.0
//
// The lanes (endpoints) to all peers: opened, looked at, polled, closed. A peer has
//   places for lanes, and the queues of operations and slices that wait for lanes or link.
//
//     a lane:  down ─► looking (reads the peer's beacon) ─► up ─► down …
//
//   A slice that fails puts its region in doubt: the peer is asked whether the region is still
//   there. Then the slice goes out again, at most kMostTries times. A write goes out again only
//   when the peer has closed the endpoint of its first try; else the write could land again later.
//   A lane that is given up is closed first. After that no byte of a read lands.
// Threads: the transport's. Owns the list of lanes to poll, and the credit of each domain.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/fabric/domain_registrar.h"
#include "transport/fabric/lane.h"
#include "transport/fabric/message.h"
#include "transport/flow/credits.h"
#include "transport/flow/queue.h"
#include "transport/one_sided/requester.h"
#include "transport/rails/rails.h"

namespace mc::transport::fabric {

enum class LaneState : std::uint8_t { kDown, kLooking, kUp };

// The place of a lane, open or not: a rail.
struct LaneRecord {
  std::uint8_t ours = 0;
  std::uint8_t theirs = 0;
  LaneState state = LaneState::kDown;
  std::unique_ptr<Lane> lane;
  std::unique_ptr<Watched> events;  // of the lane's completion queue
  std::uint64_t remote_epoch = 0;
  std::uint64_t since_ns = 0;     // when the state began; while up: the last completion
  std::uint64_t measured_ns = 0;  // when the count of measured_bytes began
  std::uint64_t measured_bytes = 0;
  std::uint32_t failures = 0;  // of requests, since the last success
  bool full = false;           // the provider had no room
  std::string why;             // the lane is down
};

// A write that may still land, until the peer has closed the endpoint that received the request.
struct HeldWrite {
  std::uint8_t slot = 0;  // of the peer
  std::uint64_t epoch = 0;
  Slice slice;
};

struct FabricPeer final : public one_sided::OneSidedPeer {
  using one_sided::OneSidedPeer::OneSidedPeer;
  bool is_up() const override { return rails.up_count() > 0; }
  std::uint64_t remote_slots() const override {
    std::uint64_t slots = 0;
    for (const LaneRecord& place : places) slots |= std::uint64_t{1} << place.theirs;
    return slots;
  }

  std::map<std::uint8_t, DomainEntry> remote;
  std::vector<LaneRecord> places;
  Rails rails{0};
  std::uint64_t attend_again_ns = 0;
  Queue<OperationId> small_waiting;
  Queue<OperationId> bulk_waiting;
  Queue<OperationId> notices_waiting;
  std::set<OperationId> notices_sent;  // and not answered
  Queue<Slice> resend;
  std::vector<HeldWrite> held;
  bool active = false;  // in the list of peers to poll
};

inline FabricPeer& of(one_sided::OneSidedPeer& peer) { return static_cast<FabricPeer&>(peer); }

class Lanes {
 public:
  Lanes(const FabricOptions& options, const DomainSlots& domains, one_sided::Requester& requester)
      : domains_(domains), requester_(requester), credits_(kMaxDomains, options.max_asked_bytes) {}

  // Takes the completions of lanes. True: there was one.
  bool poll(std::uint64_t now_ns);
  bool poll_lane(FabricPeer& peer, std::size_t place, std::uint64_t now_ns);
  // Whether requests are out.
  bool is_busy() const { return !active_.empty(); }
  // Whether each lane with requests out will signal its descriptor.
  bool may_sleep();
  void on_domains(FabricPeer& peer, const std::vector<DomainEntry>& domains, std::uint64_t now_ns);

  // Before a domain of this host is closed; after that, or when a domain was opened.
  void on_closing(std::size_t slot, std::uint64_t now_ns);
  void on_domains_changed(std::uint64_t now_ns);
  // Domains of this host that break, and how this was seen; the caller takes the list.
  struct Broken {
    std::size_t slot = 0;
    std::string why;
  };
  std::vector<Broken>& broken() { return broken_; }

  void look_after(FabricPeer& peer, std::uint64_t now_ns, std::uint64_t away_ns);
  void fail(FabricPeer& peer, std::size_t place, std::string why, std::uint64_t now_ns);
  void fail_all(FabricPeer& peer, const std::string& why, std::uint64_t now_ns);

  // Asks the peer to call its provider often, if the provider works only while called. To be
  // called before each request.
  void attend(FabricPeer& peer, const Domain& domain, std::uint64_t now_ns);
  // Polls the peer's lanes from now on, as long as requests are out.
  void activate(FabricPeer& peer);
  // The provider of a lane had no room for a request.
  void on_full(FabricPeer& peer, LaneRecord& place);
  // Offers again what found no room. The provider has worked since.
  void try_again(std::uint64_t now_ns);
  // Whether try_again() has something to do, a little later.
  bool is_full() const { return is_full_; }

  void report(std::vector<RailReport>& reports) const;
  RailCounts count_rails() const;
  // For operators: each lane of a peer with the state and the last failure.
  std::string describe(const FabricPeer& peer) const;

 private:
  void find_places(FabricPeer& peer, std::uint64_t now_ns);
  void open(FabricPeer& peer, std::size_t place, std::uint64_t now_ns);
  void look(FabricPeer& peer, std::size_t place, std::uint64_t now_ns);
  void on_looked(FabricPeer& peer, std::size_t place, bool came, std::uint64_t now_ns);
  void on_completion(FabricPeer& peer, std::size_t place, const Completion& completion,
                     std::uint64_t now_ns);
  void measure(FabricPeer& peer, LaneRecord& place, std::size_t rail, std::uint64_t now_ns);
  // A slice that failed, or whose lane was closed.
  void take_back(FabricPeer& peer, const LaneRecord& place, Slice slice);
  void release_held(FabricPeer& peer);

  const DomainSlots& domains_;
  one_sided::Requester& requester_;
  Credits credits_;             // by slot
  std::vector<PeerId> active_;  // peers with requests out
  std::vector<Broken> broken_;
  bool is_full_ = false;  // a provider had no room
};

}  // namespace mc::transport::fabric
