// SPDX-License-Identifier: Apache-2.0
//
// The writer's side of objects in stripes. The Striper cuts a put into stripes, has
//   each stripe held by another host, and has all stripes sealed when all are held.
//
//     stripe ─► kSumming ─► kChoosing ──► kHolding ──all held──► kSealing ──all sealed──► done
//                               │ no            │ no host takes      │ a host fails
//                               ▼ host          ▼ a stripe           ▼
//                               └───────────────┴────────────────────┴──► held stripes are dropped
//
//     kSealing ──kBehind──► kSealing again, with a later version
//
//   Before kSealing no other host can locate or read the object. If the writer dies before that,
//   the holders drop the stripes. After the first Seal the put cannot be undone, because the
//   object that the put replaces may be gone. The Striper therefore repeats the Seals until all
//   hosts have answered, even if the client no longer waits. If a host has lost stripes or is lost
//   itself, the Striper tells all other hosts to drop the stripes.
// Threads: the agent's loop.
// Owns: the puts under way.
// Trusts: peers report outcomes truthfully. The holders compare the stripes' sums.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "agent/cluster/place/placer.h"

namespace mc::agent {

struct StripeRules {
  std::uint64_t above_bytes = 0;  // larger objects go in stripes of this size; 0: only if no host
                                  // takes the object whole
  std::uint64_t unit_bytes = kLeastStripeBytes;  // stripe sizes are multiples of this
  std::uint64_t grace_ns = 60'000'000'000;       // how long an object may lack a part
};

struct StriperCounters {
  std::uint64_t asked = 0;  // puts
  std::uint64_t put = 0, put_bytes = 0, stripes = 0;
  std::uint64_t nobody = 0, failed = 0, behind = 0;
};

class Striper {
 public:
  static constexpr std::size_t kMaxStripings = 16;
  static constexpr std::size_t kMaxOpen = 16;  // stripes of a put that are being placed

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
  // must: no host takes the object in one piece. False: the object is too small, or too many puts
  // are under way.
  bool stripe(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
              transport::RegionId region, bool must);
  // False: the message is not an answer to this class.
  bool on_held(MemberId from, const HoldAnswer& answer);
  void forget(const ClusterTenant& tenant);
  void forget_session(std::uint64_t session);
  void flush(std::uint64_t now_ns);
  std::uint64_t next_ns() const;
  bool take_ended() { return std::exchange(ended_, false); }
  const StriperCounters& counters() const { return counters_; }
  // Called for each object that is sealed.
  std::function<void(const metadata::KeyHash& name)> on_placed;

 private:
  enum class Step : std::uint8_t { kSumming, kChoosing, kHolding, kSealing };
  struct Part {
    enum class State : std::uint8_t { kWaiting, kOffered, kHeld };
    State state = State::kWaiting;
    std::uint64_t sum = 0;
    std::uint64_t placement = 0;
    MemberId node = metadata::kNoNode;  // the holder
    std::vector<MemberId> nodes;        // in the order to ask
  };
  struct Host {
    enum class State : std::uint8_t { kToTell, kTold, kSealed, kBehind };
    State state = State::kToTell;
    std::uint64_t again_ns = 0;
    std::uint64_t lost_since_ns = 0;  // 0: the host can be reached
    std::uint64_t stripes = 0;        // a bit per stripe number
    std::uint8_t part = 0;            // the number of the host's part
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
  std::uint32_t next_id_ = 1u << 31;  // the Placer's request numbers are lower
  std::uint64_t now_ns_ = 0;
  bool ended_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
