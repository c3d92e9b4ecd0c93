// SPDX-License-Identifier: Apache-2.0
//
// Finds out which hosts hold an object. The Locator remembers locations and holders,
//   and asks the masters about the rest.
//
//     exists ──► master ──► HolderCache ──► known_holders()
//     locate ──► master ──► answer
//     remember ──► LocationCache ──► cached()
//
// Threads: the agent's loop.
// Owns: the location cache, the holder cache.
// Trusts: a location is a hint. The holder refuses a read of a generation that is gone.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "agent/cluster/fetch/fetch_counters.h"
#include "agent/cluster/fetch/location_cache.h"
#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

class Locator {
 public:
  // An absent master is a miss, not a wait: the engine computes the prompt meanwhile.
  static constexpr std::uint64_t kMostLocateNs = 800'000'000;

  struct Question {
    std::uint64_t id = 0;
    metadata::KeyHash name;
    std::uint64_t deadline_ns = 0;
  };
  // The answer to a question. located is null if the master did not answer.
  using Answer = std::function<void(std::uint64_t id, const metadata::Located* located,
                                    std::span<const MemberId> holders)>;

  Locator(const Masters& masters, Peers& peers, const metadata::Reader& reader,
          FetchCounters& counters, Answer answer)
      : masters_(masters),
        peers_(peers),
        reader_(reader),
        counters_(counters),
        answer_(std::move(answer)) {}

  // The location of the last read, if the host is still a peer; else null.
  Location* cached(const metadata::KeyHash& name);
  // Holders that exists() has learned, in reading order. Each answer is used once. Empty if the
  // nearest holder is no peer.
  std::vector<MemberId> known_holders(const metadata::KeyHash& name);
  bool master_ready(const metadata::KeyHash& name) const { return masters_.of(name).ready(); }
  // Asks the masters: a message per partition, or several for many keys.
  // REQUIRES: master_ready() for each name.
  void locate(const std::vector<Question>& questions, std::uint64_t now_ns);
  // Settles the open items of the request: whether each object exists, and how long the object is.
  void exists(const std::shared_ptr<RemoteRequest>& remote_request, const ClusterTenant& tenant,
              std::uint64_t now_ns);
  // True if exists() has completed a request since the last call.
  bool take_ended() { return std::exchange(ended_, false); }

  LocationCache& locations() { return locations_; }

 private:
  metadata::wire::Locate question() const;
  void send(std::uint32_t partition, std::vector<Question> questions, std::uint64_t now_ns);
  void remember_holders(const metadata::KeyHash& name, const metadata::LocateAnswer& answer,
                        const metadata::Located& located);

  const Masters& masters_;
  Peers& peers_;
  const metadata::Reader reader_;
  FetchCounters& counters_;
  const Answer answer_;
  LocationCache locations_;
  HolderCache holders_;
  bool ended_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
