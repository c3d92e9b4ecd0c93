// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer_server.h"

#include <utility>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

constexpr std::size_t kMaxWaiting = 64;
constexpr std::uint64_t kAskWaitsNs = 300 * kMs;  // then the reader asks again
// The bytes of objects that come with the answers to an Ask. The loop must not copy for longer.
constexpr std::uint64_t kMostBytesOfAnAsk = 256 << 10;

}  // namespace

// True if the message waits until a list of members names the peer. Without the peer's address no
// answer can be sent.
template <typename Message>
bool PeerServer::waits_for_member(MemberId from, const Message& message, std::uint64_t most_ns) {
  if (peers_.id_of(from)) return false;
  peers_.missed();
  if (waiting_.size() < kMaxWaiting) {
    waiting_.push_back({from, message, operations_.now_ns() + most_ns});
  }
  return true;
}

void PeerServer::serve(MemberId from, const AskRequest& ask) {
  if (waits_for_member(from, ask, kAskWaitsNs)) return;
  AskAnswer answer;
  answer.request = ask.request;
  const std::size_t most_bytes = transport_.capabilities().max_notification_bytes;
  std::size_t bytes = kAnswerHeadBytes;
  std::uint64_t bytes_of_objects = 0;
  const ClusterTenant* of = nullptr;
  const auto send = [&] {
    if (answer.rows.empty()) return;
    if (of != nullptr) {
      answer.name_space = of->id();
      if (auto text = transport_.describe(of->region)) answer.region = std::move(*text);
    }
    peers_.tell(from, answer, operations_.now_ns());
    answer.rows.clear();
    bytes = kAnswerHeadBytes;
  };
  for (std::size_t i = 0; i < ask.keys.size(); ++i) {
    // Without the lease, the object may have been replaced or removed elsewhere. The asker asks again.
    if (!masters_.readable(ask.keys[i], peers_.self())) continue;
    ++asks_served_;
    PlaceRow row;
    const ClusterTenant* holder = nullptr;
    for (const auto& tenant : tenants_) {
      if (ask.name_space != 0 && tenant->id() != ask.name_space) continue;
      const std::uint32_t entry = tenant->find(ask.keys[i]);
      if (entry == kNoEntry) continue;
      row = tenant->place_of(entry);
      if (ask.wants_keys) row.key = std::string(tenant->store().index().key_of(entry));
      holder = tenant.get();
      break;
    }
    row.number = static_cast<std::uint16_t>(i);
    std::size_t row_bytes = encoded_row_bytes(row);
    if (ask.wants_bytes && holder != nullptr &&
        bytes_of_objects + row.length <= kMostBytesOfAnAsk && bytes_fit_answer(row, most_bytes)) {
      bytes_of_objects += row.length;
      row.bytes = holder->bytes_of(row);
      row_bytes = encoded_row_bytes(row);
    }
    const bool other = holder != nullptr && of != nullptr && holder != of;
    if (other || bytes + row_bytes > most_bytes) send();
    if (holder != nullptr) of = holder;
    answer.rows.push_back(std::move(row));
    bytes += row_bytes;
  }
  send();
}

void PeerServer::serve(MemberId from, const HoldRequest& hold) {
  if (waits_for_member(from, hold, hold.share_ms * kMs)) return;
  const auto answer = answer_to(from, hold.request);
  ClusterTenant* const tenant = find_tenant(tenants_, hold.name_space);
  if (tenant == nullptr) {
    answer(MC_NO_SUCH_NAMESPACE);
  } else if (!hold.stripe) {
    copies_.hold(*tenant, hold, from, answer);
  } else if (stripes_.expect(*tenant, hold, from)) {
    copies_.hold_stripe(*tenant, hold, from, answer);
  } else {
    answer(MC_BUSY);
  }
}

void PeerServer::poll() {
  for (std::size_t left = waiting_.size(); left > 0; --left) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    if (operations_.now_ns() >= next.until_ns) continue;
    if (!peers_.id_of(next.from)) {
      peers_.missed();
      waiting_.push_back(std::move(next));
      continue;
    }
    std::visit([&](const auto& message) { serve(next.from, message); }, next.message);
  }
}

std::function<void(mc_status)> PeerServer::answer_to(MemberId node, std::uint32_t request) {
  return [this, node, request](mc_status status) {
    HoldAnswer answer;
    answer.request = request;
    answer.outcome = status == MC_OK          ? HoldOutcome::kHeld
                     : status == MC_NO_SPACE  ? HoldOutcome::kNoRoom
                     : status == MC_CANCELLED ? HoldOutcome::kBehind
                                              : HoldOutcome::kFailed;
    answer.refused_up_to = masters_.refused_up_to();
    peers_.tell(node, answer, operations_.now_ns());
  };
}

void PeerServer::serve(MemberId from, const SealRequest& seal) {
  const auto answer = answer_to(from, seal.request);
  if (ClusterTenant* const tenant = find_tenant(tenants_, seal.name_space)) {
    stripes_.seal(*tenant, seal, answer);
  } else {
    answer(MC_NO_SUCH_NAMESPACE);
  }
}

void PeerServer::serve(MemberId from, const StripesRequest& ask) {
  ++asks_served_;
  for (const auto& tenant : tenants_) {
    // A host that moves a part knows only the object's name, not the namespace.
    const bool has =
        ask.name_space == 0 && ask.part && !tenant->stripes().sealed(ask.key, ask.version).empty();
    if (tenant->id() != ask.name_space && !has) continue;
    for (const StripesAnswer& answer : stripes_.places(*tenant, ask)) {
      peers_.tell(from, answer, operations_.now_ns());
    }
    return;
  }
  StripesAnswer none;
  none.request = ask.request;
  peers_.tell(from, none, operations_.now_ns());
}

void PeerServer::serve(MemberId from, const Ping& ping) {
  peers_.tell(from, Pong{ping.request}, operations_.now_ns());
}

}  // namespace mc::agent
