// SPDX-License-Identifier: Apache-2.0
//
// The writer's side of objects in stripes. The Striper cuts a put into stripes, has
//   each stripe held by another host, and has all stripes sealed when all are held.
//
//     begin  ─► kSumming ─► kChoosing ──► kHolding ──all held──► kSealing ──all sealed──► done
//                               │ no            │ no host takes      │ a host fails
//                               ▼ host          ▼ a stripe           ▼
//                               └───────────────┴────────────────────┴──► held stripes are dropped
//
//     kSealing ──all hosts: kBehind──► kSealing again, with a later version
//              ──some hosts: kBehind─► these hosts seal again, with the same version
//
//   Before kSealing no other host can locate or read the object. If the writer dies before that,
//   the holders drop the stripes. After the first Seal the put cannot be undone, because the
//   object that the put replaces may be gone. The Striper therefore repeats the Seals until all
//   hosts have answered, even if the client no longer waits. If a host has lost stripes or is lost
//   itself, the Striper tells all other hosts to drop the stripes.
// Threads: the agent's loop.
// Owns: the names of stripings under way. The OperationTable owns the stripings.
// Trusts: peers report outcomes truthfully. The holders compare the stripes' sums.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "agent/cluster/fetch/fetcher.h"
#include "agent/cluster/place/placer.h"
#include "agent/cluster/place/session_memory.h"

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

class Striper;

// The request to all hosts to seal a version. The id is the number of the messages, so that no late answer to an
// earlier Seal counts.
struct Seal final : Operation {
  static constexpr OperationKind kKind = OperationKind::kSeal;

  Seal(OperationTable& all, OperationId of) : operations(all), striping(of) {}

  OperationTable& operations;
  const OperationId striping;

 private:
  void step() override {}
  void cancel() override { operations.end(*this); }
};

struct Striping final : Operation {
  static constexpr OperationKind kKind = OperationKind::kStripe;
  enum class Step : std::uint8_t { kSumming, kChoosing, kHolding, kSealing };
  struct Part {
    enum class State : std::uint8_t { kWaiting, kOffered, kHeld };
    State state = State::kWaiting;
    std::uint64_t sum = 0;
    OperationId placement;
    MemberId node = metadata::kNoNode;  // the holder
    std::vector<MemberId> nodes;        // in the order to ask
  };
  struct Host {
    enum class State : std::uint8_t { kToTell, kTold, kSealed, kBehind, kFailed };
    State state = State::kToTell;
    bool told_again = false;  // after a refusal, because another host has sealed
    std::uint64_t again_ns = 0;
    std::uint64_t lost_since_ns = 0;  // 0: the host can be reached
    std::uint64_t stripes = 0;        // a bit per stripe number
    std::uint8_t part = 0;            // the number of the host's part
  };

  Striping(Striper& with, std::shared_ptr<RemoteRequest> of)
      : striper(with), remote_request(std::move(of)) {}

  Striper& striper;
  const std::shared_ptr<RemoteRequest> remote_request;
  metadata::KeyHash name;
  transport::RegionId region = transport::kNoRegion;
  StripeFacts facts;
  std::uint64_t version = 0;
  unsigned versions = 0;
  Step at = Step::kSumming;
  std::vector<Part> parts;
  std::uint64_t summed_bytes = 0;
  std::map<MemberId, Host> hosts;
  OperationId seal;
  std::uint64_t seal_by_ns = 0;
  bool answered = false;  // by the master
  std::vector<std::vector<MemberId>>
      from_master;  // for each stripe; empty: no master could be asked

 private:
  void step() override;
  void cancel() override;
};

class Striper {
 public:
  static constexpr std::size_t kMaxStripings = 16;
  static constexpr std::size_t kMaxOpen = 16;  // stripes of a put that are being placed

  Striper(OperationTable& operations, const Masters& masters, Peers& peers, VersionClock& clock,
          Placer& placer, const SessionMemory& memory, Fetcher& fetcher, MemberId self,
          const StripeRules& rules)
      : operations_(operations),
        masters_(masters),
        peers_(peers),
        clock_(clock),
        placer_(placer),
        memory_(memory),
        fetcher_(fetcher),
        self_(self),
        rules_(rules) {}

  bool wants(std::uint64_t bytes) const {
    return rules_.above_bytes != 0 && bytes > rules_.above_bytes;
  }
  // must: no host takes the object in one piece. No id: the object is too small, or too many puts
  // are under way.
  OperationId begin(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
                    const metadata::KeyHash& name, transport::RegionId region, bool must);
  // The session has ended. A put that is being sealed goes on: the put cannot be undone.
  void forget_session(std::uint64_t session);
  void on_held(MemberId from, const HoldAnswer& answer);
  const StriperCounters& counters() const { return counters_; }

 private:
  friend struct Striping;
  using Step = Striping::Step;
  using Part = Striping::Part;
  using Host = Striping::Host;

  void step(Striping& striping);
  void sum(Striping& striping);
  void choose(Striping& striping);
  void assign(Striping& striping);
  void hold(Striping& striping);
  void take_placements(Striping& striping);
  void begin_sealing(Striping& striping);
  void new_seal(Striping& striping);
  void tell(Striping& striping);
  bool is_gone(Host& host, MemberId node) const;
  bool tell_again(Striping& striping);
  void look_at_hosts(Striping& striping);
  void fail(Striping& striping, std::uint64_t& reason);
  void give_up(Striping& striping);
  void end(Striping& striping);
  void settle(Striping& striping, mc_status status);

  OperationTable& operations_;
  const Masters& masters_;
  Peers& peers_;
  VersionClock& clock_;
  Placer& placer_;
  const SessionMemory& memory_;
  Fetcher& fetcher_;
  const MemberId self_;
  const StripeRules rules_;
  StriperCounters counters_;
  std::set<OperationId> stripings_;
};

}  // namespace mc::agent
