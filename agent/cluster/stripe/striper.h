// SPDX-License-Identifier: Apache-2.0
//
// What it is: the writer's side of objects in stripes: cuts a put, has each stripe held by another
//   host, and has them sealed when all are.
//
//     begin ──► kSumming ──► kChoosing ──► kHolding ──all held──► kSealing ──all sealed──► done
//                                │             │ a stripe that nobody takes    │ a host that fails
//                                └─ nobody ────┴──► what is held is dropped ◄──┘ kBehind: once
//                                more,
//                                                                                with a later
//                                                                                version
//
//   Nobody can read or locate anything of it before kSealing, so that a writer that dies leaves
//   stripes which their holders drop. From the first Seal on there is no way back, for what the put
//   replaces may be gone: Seals are said again until all hosts have answered, even when the client
//   waits no more. Only when a host has lost its stripes, or is lost itself, all others are told to
//   drop theirs.
// Threads: the agent's loop. Owns: puts that are being cut. Trusts: what it is told of outcomes, as
//   any peer; the stripes' sums are made here and compared there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "agent/cluster/place/placer.h"

namespace mc::agent {

struct StripeRules {
  std::uint64_t above_bytes = 0;  // larger objects go in stripes of that size; 0: only if they must
  std::uint64_t unit_bytes = kLeastStripeBytes;  // stripes are multiples of this
  std::uint64_t grace_ns = 60'000'000'000;       // for objects of which a host is missing
};

struct StriperCounters {
  std::uint64_t asked = 0;  // puts
  std::uint64_t put = 0, put_bytes = 0, stripes = 0;
  std::uint64_t nobody = 0, failed = 0, behind = 0;
};

class Striper {
 public:
  static constexpr std::size_t kMaxStripings = 16;
  static constexpr std::size_t kMaxOpen = 16;  // stripes of one put that are on their way at once

  Striper(const Masters& masters, Peers& peers, VersionClock& clock, Placer& placer, MemberId self,
          const StripeRules& rules)
      : masters_(masters),
        peers_(peers),
        clock_(clock),
        placer_(placer),
        self_(self),
        rules_(rules) {}

  bool wants(std::uint64_t bytes) const {
    return rules_.above_bytes != 0 && bytes > rules_.above_bytes;
  }
  // False: it is too small, or too much is under way.
  bool stripe(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
              transport::RegionId region, bool must);
  // False: not an answer to this class.
  bool on_held(MemberId from, const PeerMessage& message);
  void forget(const ClusterTenant& tenant);
  void forget_session(std::uint64_t session);
  void flush(std::uint64_t now_ns);
  std::uint64_t next_ns() const;
  bool take_ended() { return std::exchange(ended_, false); }
  const StriperCounters& counters() const { return counters_; }
  // Hears of objects that are sealed.
  std::function<void(const metadata::KeyHash& name)> on_placed;

 private:
  enum class Step : std::uint8_t { kSumming, kChoosing, kHolding, kSealing };
  struct Part {
    enum class State : std::uint8_t { kWaiting, kOffered, kHeld };
    State state = State::kWaiting;
    std::uint64_t sum = 0;
    std::uint64_t placement = 0;
    MemberId node = metadata::kNoNode;  // that holds it
    std::vector<MemberId> nodes;        // to be asked
  };
  struct Host {
    enum class State : std::uint8_t { kToTell, kTold, kSealed, kBehind };
    State state = State::kToTell;
    std::uint64_t again_ns = 0;
    std::uint64_t lost_since_ns = 0;  // it cannot be reached; 0: it can
    std::uint64_t stripes = 0;        // a bit for each
    std::uint8_t part = 0;            // that they are
  };
  struct Striping {
    std::uint32_t id = 0;
    std::shared_ptr<RemoteRequest> remote_request;
    ClusterTenant* tenant = nullptr;
    metadata::KeyHash name;
    transport::RegionId region = transport::kNoRegion;
    StripeFacts facts;
    std::uint64_t version = 0;
    unsigned versions = 0;
    Step step = Step::kSumming;
    std::vector<Part> parts;
    std::uint64_t summed_bytes = 0;
    std::map<MemberId, Host> hosts;
    std::uint64_t seal_by_ns = 0;
  };

  Striping* find(std::uint32_t id);
  void sum(Striping& striping);
  void choose(Striping& striping);
  void assign(Striping& striping, const std::vector<std::vector<MemberId>>& nodes);
  void hold(Striping& striping);
  void on_part(std::uint32_t id, std::uint16_t number, mc_status status, MemberId node);
  void begin_sealing(Striping& striping);
  void tell(Striping& striping);
  bool is_gone(Host& host, MemberId node) const;
  void look_at_hosts(Striping& striping);
  void give_up(Striping& striping);
  void fail(Striping& striping, mc_status status, std::uint64_t& reason);
  void settle(Striping& striping, mc_status status);

  const Masters& masters_;
  Peers& peers_;
  VersionClock& clock_;
  Placer& placer_;
  const MemberId self_;
  const StripeRules rules_;
  StriperCounters counters_;
  std::map<std::uint32_t, Striping> stripings_;
  std::uint32_t next_id_ = 1u << 31;  // placements are below
  std::uint64_t now_ns_ = 0;
  bool ended_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
