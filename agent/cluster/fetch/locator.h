// SPDX-License-Identifier: Apache-2.0
//
// Finds out which hosts hold an object. The Locator remembers locations and holders,
//   and asks the masters about the rest.
//
//     exists ──► master ──► HolderCache ──► known_holders()
//     ask ──► master ──► the Fetch
//     remember ──► LocationCache ──► cached()
//
// Threads: the agent's loop.
// Owns: the location cache, the holder cache.
// Trusts: a location is a hint. The holder refuses a read of a generation that is gone.
#pragma once

#include <memory>
#include <vector>

#include "agent/cluster/fetch/fetch.h"
#include "agent/cluster/fetch/location_cache.h"
#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

class Locator {
 public:
  // A request does not wait longer for an absent master: the engine computes the prompt meanwhile.
  static constexpr std::uint64_t kMostLocateNs = 800'000'000;

  struct Question {
    OperationId fetch;
    metadata::KeyHash name;
    std::uint64_t deadline_ns = 0;
  };

  Locator(OperationTable& operations, const Masters& masters, Peers& peers,
          const metadata::Reader& reader, FetchCounters& counters)
      : operations_(operations),
        masters_(masters),
        peers_(peers),
        reader_(reader),
        counters_(counters) {}

  // The location of the last read, if the host is a peer and readable; else null.
  Location* cached(const metadata::KeyHash& name);
  // Readable holders that exists() has learned, in reading order. Each answer is used once. Empty if the
  // nearest holder is no peer.
  std::vector<MemberId> known_holders(const metadata::KeyHash& name);
  // Whether the object may be read from the host without a question to the master.
  bool readable(const metadata::KeyHash& name, MemberId node) const {
    return masters_.readable(name, node);
  }
  bool master_ready(const metadata::KeyHash& name) const { return masters_.of(name).ready(); }
  // The status of a request about the name while no master tells where the object is.
  mc_status master_away(const metadata::KeyHash& name) const { return masters_.of(name).away(); }
  // The answer is stored in the Fetch. REQUIRES: master_ready() for the name.
  void ask(const Question& question) { questions_.push_back(question); }
  // After the steps of a turn: asks the masters, with a message per partition, or several for many
  // keys.
  void send();
  // Settles the open items of the request: whether each object exists, and how long the object is.
  void exists(const std::shared_ptr<RemoteRequest>& remote_request, const ClusterTenant& tenant);

  LocationCache& locations() { return locations_; }

 private:
  metadata::wire::Locate question() const;
  void send(std::uint32_t partition, std::vector<Question> questions);
  void tell(OperationId id, const metadata::LocateAnswer* answer, std::size_t key);
  void remember_holders(const metadata::KeyHash& name, const metadata::LocateAnswer& answer,
                        const metadata::Located& located);

  OperationTable& operations_;
  const Masters& masters_;
  Peers& peers_;
  const metadata::Reader reader_;
  FetchCounters& counters_;
  LocationCache locations_;
  HolderCache holders_;
  std::vector<Question> questions_;
};

}  // namespace mc::agent
