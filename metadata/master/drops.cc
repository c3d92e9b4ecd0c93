// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/drops.h"

#include <algorithm>
#include <string>
#include <utility>

#include "libmc/base/clock.h"
#include "metadata/wire/codec.h"
#include "metadata/wire/method.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kQuietNs = 10'000 * kMs;
constexpr auto kDropMethod = static_cast<std::uint8_t>(wire::Method::kDrop);

// One order for each host. An order names each key once.
std::map<NodeId, std::string> drop_orders(const Drops::Holdings& holdings, std::uint64_t removal) {
  std::map<NodeId, std::map<KeyHash, std::uint64_t>> of;
  for (const Holding& holding : holdings) {
    std::uint64_t& version = of[holding.node][holding.hash];
    version = std::max(version, holding.version);
  }
  std::map<NodeId, std::string> bodies;
  for (const auto& [node, keys] : of) {
    wire::Drop order;
    order.removal = removal;
    for (const auto& [hash, version] : keys) order.items.push_back({hash, version});
    wire::encode(order, bodies[node]);
  }
  return bodies;
}

}  // namespace

Drops::Drops(Fanout::LinkOf link_of, std::uint64_t epoch, std::uint64_t now_ns)
    : link_of_(link_of),
      epoch_(epoch),
      fanout_(std::move(link_of), epoch, SIZE_MAX),
      now_ns_(now_ns) {}

void Drops::remove(const Holdings& holdings, std::uint64_t removal, std::uint64_t deadline_ns,
                   Fanout::Finish finish) {
  ++removals_;
  order(holdings, removal, deadline_ns,
        [this, holdings, removal, finish = std::move(finish)](std::uint32_t unconfirmed) {
          --removals_;
          if (unconfirmed != 0) go_on(holdings, removal);
          finish(unconfirmed);
        });
}

void Drops::replace(const Holdings& holdings, std::uint64_t deadline_ns,
                    std::function<void()> done) {
  order(holdings, 0, deadline_ns,
        [this, holdings, done = std::move(done)](std::uint32_t unconfirmed) {
          if (unconfirmed != 0) return go_on(holdings, 0);
          done();
        });
}

void Drops::release(const Holdings& holdings) {
  Holdings linked = holdings;
  std::erase_if(linked, [this](const Holding& one) { return link_of_(one.node) == nullptr; });
  if (quiet_ < kMaxQuiet) return order_quietly(linked, 0);
  for (auto& [node, body] : drop_orders(linked, 0)) {
    link_of_(node)->call(kDropMethod, std::move(body), now_ns_ + kQuietNs, epoch_,
                         [](const Result<rpc::Answer>&) {});
  }
}

void Drops::order(Holdings holdings, std::uint64_t removal, std::uint64_t deadline_ns,
                  Fanout::Finish finish) {
  for (const Holding& holding : holdings) ++open_[holding];
  auto bodies = drop_orders(holdings, removal);
  fanout_.start(kDropMethod, std::move(bodies), deadline_ns, nullptr,
                [this, holdings = std::move(holdings),
                 finish = std::move(finish)](std::uint32_t unconfirmed) {
                  for (const Holding& holding : holdings) {
                    const auto at = open_.find(holding);
                    if (--at->second == 0) open_.erase(at);
                  }
                  finish(unconfirmed);
                });
}

void Drops::order_quietly(const Holdings& holdings, std::uint64_t removal) {
  ++quiet_;
  order(holdings, removal, now_ns_ + kQuietNs, [this](std::uint32_t) { --quiet_; });
}

// No caller waits for these orders any more, but a later removal of the same keys must. Other open orders may
// name the same holdings.
void Drops::go_on(Holdings holdings, std::uint64_t removal) {
  std::erase_if(holdings, [this](const Holding& one) { return open_.contains(one); });
  if (!holdings.empty() && quiet_ < kMaxQuiet) order_quietly(holdings, removal);
}

void Drops::add_open(Holdings& holdings, KeyHash hash, std::uint64_t up_to_version) const {
  for (auto at = open_.lower_bound({hash, 0, 0}); at != open_.end(); ++at) {
    const Holding& holding = at->first;
    if (holding.hash != hash || holding.version > up_to_version) return;
    holdings.push_back(holding);
  }
}

void Drops::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  fanout_.tick(now_ns);
}

}  // namespace mc::metadata
