// SPDX-License-Identifier: Apache-2.0
//
// The serving side: the links that peers dialed. The provider carries out reads and
//   writes.
// Threads: the transport's.
// Owns: the links.
// Trusts: no message before decode_body().
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/fabric/domain_registrar.h"
#include "transport/flow/edges.h"
#include "transport/flow/inbox.h"
#include "transport/one_sided/control_link.h"
#include "transport/one_sided/local_regions.h"

namespace mc::transport::fabric {

inline constexpr std::uint32_t kMaxServedLinks = 4096;

class Responder {
 public:
  Responder(const DomainSlots& domains, const LocalRegions& regions, Edges& edges)
      : domains_(domains), regions_(regions), edges_(edges) {}
  ~Responder();

  Status attach(Link link);
  // Tells every peer the serving endpoints of this host.
  void announce();
  // Whether a peer has announced requests.
  bool is_attentive(std::uint64_t now_ns) const { return now_ns < attentive_until_ns_; }
  // Serving endpoints that peers want closed, by slot, with epochs; the caller takes the entries.
  std::map<std::size_t, std::uint64_t>& moves() { return moves_; }
  // The notifications that arrived; the caller empties the inbox.
  Inbox& arrived() { return arrived_; }
  const Inbox& arrived() const { return arrived_; }

 private:
  class ServedLink : public Watched {
   public:
    ServedLink(Responder& owner, Link from)
        : node(from.node), link(std::move(from.socket), kProtocol), owner_(owner) {}
    void on_edge(std::uint64_t now_ns) override;

    const NodeId node;
    ControlLink link;
    bool greeted = false;

   private:
    Responder& owner_;
  };

  bool take(ServedLink& link, const Message& message, std::uint64_t now_ns);
  bool take_notification(ServedLink& link, const Message& message);
  std::vector<DomainEntry> entries() const;

  const DomainSlots& domains_;
  const LocalRegions& regions_;
  Edges& edges_;
  std::unordered_map<ServedLink*, std::unique_ptr<ServedLink>> links_;
  Inbox arrived_;
  std::map<std::size_t, std::uint64_t> moves_;
  std::uint64_t attentive_until_ns_ = 0;
};

}  // namespace mc::transport::fabric
