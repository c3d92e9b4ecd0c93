// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer_server.h"

#include <algorithm>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

constexpr std::size_t kMaxWaiting = 64;
constexpr std::uint64_t kAskWaitsNs = 300 * kMs;  // then the reader asks again
constexpr std::size_t kMostBringing = 1024;
constexpr std::size_t kMostAnswers = 16;  // about brought objects, in a turn
constexpr std::uint64_t kBringNs = 5'000 * kMs;
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

class PeerServer::Answers {
 public:
  Answers(PeerServer& server, MemberId to, std::uint32_t request)
      : server_(server),
        to_(to),
        most_bytes_(server.transport_.capabilities().max_notification_bytes) {
    answer_.request = request;
  }

  // holder: null if the row holds no object.
  void add(PlaceRow row, const ClusterTenant* holder, bool wants_bytes) {
    std::size_t row_bytes = encoded_row_bytes(row);
    if (wants_bytes && holder != nullptr && bytes_of_objects_ + row.length <= kMostBytesOfAnAsk &&
        bytes_fit_answer(row, most_bytes_)) {
      bytes_of_objects_ += row.length;
      row.bytes = holder->bytes_of(row);
      row_bytes = encoded_row_bytes(row);
    }
    const bool other = holder != nullptr && of_ != nullptr && holder != of_;
    if (other || bytes_ + row_bytes > most_bytes_) send();
    if (holder != nullptr) of_ = holder;
    answer_.rows.push_back(std::move(row));
    bytes_ += row_bytes;
  }

  // unreadable: the object is on a disk that cannot be read now.
  void add_nothing(std::uint16_t number, bool unreadable = false) {
    PlaceRow row;
    row.number = number;
    row.unreadable = unreadable;
    add(std::move(row), nullptr, false);
  }

  void send() {
    if (answer_.rows.empty()) return;
    if (of_ != nullptr) {
      answer_.name_space = of_->id();
      if (auto text = server_.transport_.describe(of_->region)) answer_.region = std::move(*text);
    }
    server_.peers_.tell(to_, answer_, server_.operations_.now_ns());
    answer_.rows.clear();
    bytes_ = kAnswerHeadBytes;
  }

 private:
  PeerServer& server_;
  const MemberId to_;
  const std::size_t most_bytes_;
  AskAnswer answer_;
  std::size_t bytes_ = kAnswerHeadBytes;
  std::uint64_t bytes_of_objects_ = 0;
  const ClusterTenant* of_ = nullptr;
};

void PeerServer::serve(MemberId from, const AskRequest& ask) {
  if (waits_for_member(from, ask, kAskWaitsNs)) return;
  Answers answers(*this, from, ask.request);
  Asked asked{.from = from,
              .request = ask.request,
              .name_space = ask.name_space,
              .wants_keys = ask.wants_keys,
              .wants_bytes = ask.wants_bytes};
  for (std::size_t i = 0; i < ask.keys.size(); ++i) {
    // Without the lease, the object may have been replaced or removed elsewhere. The asker asks again.
    if (!masters_.readable(ask.keys[i], peers_.self())) continue;
    ++asks_served_;
    asked.number = static_cast<std::uint16_t>(i);
    if (!add_place(answers, asked, ask.keys[i]) && !bring(asked, ask.keys[i])) {
      answers.add_nothing(asked.number);
    }
  }
  answers.send();
}

// Returns false if no pool has the object.
bool PeerServer::add_place(Answers& answers, const Asked& asked,
                           const metadata::KeyHash& key) const {
  for (const auto& tenant : tenants_) {
    if (asked.name_space != 0 && tenant->id() != asked.name_space) continue;
    const std::uint32_t entry = tenant->find(key);
    if (entry == kNoEntry) continue;
    PlaceRow row = tenant->place_of(entry);
    row.number = asked.number;
    if (asked.wants_keys) row.key = std::string(tenant->store().index().key_of(entry));
    answers.add(std::move(row), tenant.get(), asked.wants_bytes);
    return true;
  }
  return false;
}

// ---- Objects on disks ---------------------------------------------------------------------------

// Returns false if no disk has the object.
bool PeerServer::bring(const Asked& asked, const metadata::KeyHash& key) {
  LocalDisks* const disks = disks_of(tenants_);
  const auto tenant = disks == nullptr ? nullptr : disks->tenant_of(shared_name_of(key));
  if (tenant == nullptr) return false;
  if (const auto same = bringing_.find({asked.from, key}); same != bringing_.end()) {
    same->second.asked = asked;
    return true;
  }
  if (bringing_.size() >= kMostBringing) return true;  // the asker asks again
  auto request = std::make_shared<RemoteRequest>();
  request->kind = RemoteRequest::Kind::kBring;
  request->tenant = tenant;
  request->deadline_ns = operations_.now_ns() + kBringNs;
  request->items.emplace_back().name = shared_name_of(key);
  request->open_count = 1;
  bringing_[{asked.from, key}] = {asked, request};
  disks->begin_item(request, 0, operations_.now_ns());
  return true;
}

bool PeerServer::has_answers() const {
  return std::ranges::any_of(bringing_, [&](const auto& each) {
    const RemoteRequest& request = *each.second.request;
    return request.over() || operations_.now_ns() >= request.deadline_ns;
  });
}

void PeerServer::answer_brought(const metadata::KeyHash& key, const Bringing& brought) {
  // The lease may be over by now.
  if (!masters_.readable(key, peers_.self())) return;
  const mc_status status = brought.request->items.front().status;
  const bool is_gone = status == MC_OK || status == MC_NOT_FOUND || status == MC_CORRUPT;
  Answers answers(*this, brought.asked.from, brought.asked.request);
  if (!add_place(answers, brought.asked, key)) {
    answers.add_nothing(brought.asked.number, !is_gone);
  }
  answers.send();
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
  std::size_t answers = kMostAnswers;
  for (auto at = bringing_.begin(); at != bringing_.end() && answers > 0;) {
    RemoteRequest& request = *at->second.request;
    const bool late = operations_.now_ns() >= request.deadline_ns;
    if (!late && !request.over()) {
      ++at;
      continue;
    }
    request.abandoned = true;
    if (!late) {
      answer_brought(at->first.second, at->second);
      --answers;
    }
    at = bringing_.erase(at);
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
