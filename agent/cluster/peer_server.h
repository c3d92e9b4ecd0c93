// SPDX-License-Identifier: Apache-2.0
//
// Answers the requests of peers: the places of objects and stripes, holding objects and
//   stripes for other hosts, and seals. An Ask or a Hold from a peer that no list of members has named
//   yet waits until the member is known. An object on a disk comes into the pool before the answer.
// Threads: The agent's loop.
// Owns: The waiting messages, and the requests to the disks.
// Trusts: No request. Keys are looked up in the index; the bytes of a Hold are compared
//   with their checksum.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "agent/cluster/fetch/fetcher.h"
#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peer_messages.h"
#include "agent/cluster/peer/peers.h"
#include "agent/cluster/stripe/stripe_holder.h"
#include "transport/transport.h"

namespace mc::agent {

class PeerServer {
 public:
  PeerServer(const OperationTable& operations, const ClusterTenants& tenants,
             const Masters& masters, Peers& peers, transport::Transport& transport,
             CopyKeeper& copies, StripeHolder& stripes)
      : operations_(operations),
        tenants_(tenants),
        masters_(masters),
        peers_(peers),
        transport_(transport),
        copies_(copies),
        stripes_(stripes) {}

  void serve(MemberId from, const AskRequest& ask);
  void serve(MemberId from, const HoldRequest& hold);
  void serve(MemberId from, const SealRequest& seal);
  void serve(MemberId from, const StripesRequest& ask);
  void serve(MemberId from, const Ping& ping);

  // Tries the waiting messages again.
  void poll();
  bool idle() const { return waiting_.empty(); }
  // An object has come from a disk, or will not come: poll() answers.
  bool has_answers() const;
  std::uint64_t asks_served() const { return asks_served_; }

 private:
  struct Waiting {
    MemberId from = 0;
    std::variant<AskRequest, HoldRequest> message;
    std::uint64_t until_ns = 0;
  };
  // The place of a key in a question, for the answer.
  struct Asked {
    MemberId from = 0;
    std::uint32_t request = 0;
    std::uint64_t name_space = 0;
    std::uint16_t number = 0;
    bool wants_keys = false, wants_bytes = false;
  };
  // An object on its way from a disk, and the latest question about the object.
  struct Bringing {
    Asked asked;
    std::shared_ptr<RemoteRequest> request;
  };
  // The answers to an Ask, in as few messages as possible.
  class Answers;
  bool add_place(Answers& answers, const Asked& asked, const metadata::KeyHash& key) const;
  bool bring(const Asked& asked, const metadata::KeyHash& key);
  void answer_brought(const metadata::KeyHash& key, const Bringing& brought);
  template <typename Message>
  bool waits_for_member(MemberId from, const Message& message, std::uint64_t most_ns);
  std::function<void(mc_status)> answer_to(MemberId node, std::uint32_t request);

  const OperationTable& operations_;
  const ClusterTenants& tenants_;
  const Masters& masters_;
  Peers& peers_;
  transport::Transport& transport_;
  CopyKeeper& copies_;
  StripeHolder& stripes_;
  std::deque<Waiting> waiting_;
  std::map<std::pair<MemberId, metadata::KeyHash>, Bringing> bringing_;
  std::uint64_t asks_served_ = 0;
};

}  // namespace mc::agent
