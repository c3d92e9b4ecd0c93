// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/cluster_node.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "libmc/base/hash.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

// The loop polls this long after the last traffic, as for the clients' rings.
constexpr std::uint64_t kLivelyNs = 30'000;
constexpr std::uint64_t kMembersNs = 1'000 * kMs;
constexpr std::uint64_t kMembersSoonNs = 20 * kMs;
constexpr std::uint64_t kNotifyNs = 1'000 * kMs;
constexpr std::uint64_t kPingNs = 2'000 * kMs;
constexpr std::uint64_t kRemoveAgainNs = 20 * kMs;
constexpr std::uint64_t kNoticeCookie = 1;
constexpr std::size_t kMaxOffers = 64;

// True if the transport's knowledge of the pool's memory is out of date and should be renewed now.
// A loss must be told at once, before the pool reuses the same ranges. A gain is told when the pool
// has stopped growing.
bool memory_has_changed(const ClusterTenant& tenant) {
  const ExtentPool& pool = tenant.store().pool();
  return tenant.told_size_changes != pool.size_changes() &&
         (tenant.told_losses != pool.losses() || !pool.growing());
}

}  // namespace

ClusterNode::ClusterNode(const ClusterIdentity& identity)
    : identity_(identity),
      peers_(identity.node, identity.place),
      hasher_(identity.secret),
      clock_(identity.node) {}

ClusterNode::~ClusterNode() { stop(); }

void ClusterNode::connect(std::vector<MasterPort*> ports, transport::Transport& transport) {
  masters_.set(std::move(ports));
  transport_ = &transport;
  peers_.set_transport(transport);
  announcer_ = std::make_unique<Announcer>(tenants_, masters_, clock_);
  gatherer_ = std::make_unique<Gatherer>(peers_, transport, identity_.node);
  fetcher_ = std::make_unique<Fetcher>(masters_, peers_, transport, *announcer_, *gatherer_,
                                       identity_.place);
  placer_ = std::make_unique<Placer>(masters_, peers_, transport, clock_, identity_.node,
                                     identity_.place);
  striper_ = std::make_unique<Striper>(masters_, peers_, clock_, *placer_, identity_.node,
                                       identity_.stripes);
  keeper_ = std::make_unique<StripeHolder>(tenants_, masters_, peers_, transport, *announcer_,
                                           clock_, identity_.stripes.grace_ns);
  mover_ = std::make_unique<StripeMover>(
      tenants_, peers_, *keeper_,
      [this](ClusterTenant& tenant, const PeerMessage& hold, MemberId writer, std::uint64_t now_ns,
             StripeMover::Ended ended) {
        fetcher_->hold_stripe(tenant, hold, writer, now_ns, std::move(ended));
      });
  placer_->on_placed = [this](const metadata::KeyHash& name) {
    fetcher_->locations().forget(name);
    fetcher_->dropped(name, UINT64_MAX);
  };
  striper_->on_placed = placer_->on_placed;
  placer_->on_large = [this](const std::shared_ptr<RemoteRequest>& remote_request,
                             ClusterTenant& tenant, transport::RegionId region, bool must) {
    return striper_->stripe(remote_request, tenant, region, must);
  };
  keeper_->on_sealed = [this](const metadata::KeyHash& name, std::uint64_t version) {
    fetcher_->locations().forget(name);
    fetcher_->dropped(name, version);
  };
}

void ClusterNode::set_masters(std::vector<MasterPort*> ports) {
  masters_.set(std::move(ports));
  announcer_->begin_streams();
}

void ClusterNode::stop() {
  for (const auto& tenant : tenants_) tenant->store().set_listener(nullptr);
  mover_.reset();
  keeper_.reset();
  striper_.reset();
  placer_.reset();
  fetcher_.reset();
  gatherer_.reset();
  announcer_.reset();
}

// ---- Namespaces ---------------------------------------------------------------------------------

std::uint64_t ClusterNode::hash_seed(std::string_view name_space) const {
  return hasher_.hash(name_space, "seed of the index").hi;
}

Status ClusterNode::add_tenant(const std::shared_ptr<Tenant>& tenant, MemoryFile kept) {
  auto book = VersionBook::open(std::move(kept), tenant->store->index().header().max_entries);
  if (!book) return book.error();
  auto made = std::make_unique<ClusterTenant>(tenant, hasher_, clock_, std::move(*book));
  transport::RegionSpec spec;
  spec.data = tenant->store->pool().data();
  spec.size_bytes = tenant->store->pool().max_bytes();
  spec.rights = transport::kRemoteRead;
  spec.guard = made.get();
  spec.fd = tenant->store->pool().file().fd();
  spec.sparse = true;
  auto region = transport_->register_region(spec);
  if (!region) return region.error();
  made->region = *region;
  // The master does not tell a node which objects the node's put replaced.
  made->on_put = [this](const metadata::PublishItem& put) { fetcher_->put_here(put); };
  tenant->store->set_listener(made.get());
  tenants_.push_back(std::move(made));
  return {};
}

void ClusterNode::tell_backed() {
  for (const auto& tenant : tenants_) {
    if (!memory_has_changed(*tenant)) continue;
    const ExtentPool& pool = tenant->store().pool();
    tenant->told_size_changes = pool.size_changes();
    tenant->told_losses = pool.losses();
    std::vector<transport::MemoryRange> ranges;
    for (const shm::ExtentRecord& range : pool.reserved_ranges()) {
      ranges.push_back({range.offset_bytes, range.length_bytes});
    }
    transport_->set_backed(tenant->region, ranges);
  }
}

void ClusterNode::remove_tenant(const Tenant& tenant) {
  const auto at = std::ranges::find_if(
      tenants_, [&](const auto& one) { return one->tenant().get() == &tenant; });
  if (at == tenants_.end()) return;
  walks_.forget(**at);
  mover_->forget(**at);
  striper_->forget(**at);
  placer_->forget(**at);
  // End all transfers from and into the namespace; a lane that does not end is cut.
  while (!fetcher_->forget(**at) || !transport_->close_region((*at)->region)) poll(now_ns());
  (*at)->store().set_listener(nullptr);
  // The master still names this host as a holder. Peers find these objects missing, and the next
  // report no longer names them.
  tenants_.erase(at);
}

const MemoryFile& ClusterNode::versions_file(const Tenant& tenant) const {
  return find(tenant)->book().file();
}

ClusterTenant* ClusterNode::find(const Tenant& tenant) const {
  for (const auto& one : tenants_) {
    if (one->tenant().get() == &tenant) return one.get();
  }
  return nullptr;
}

ClusterTenant* ClusterNode::find(std::string_view name_space) const {
  for (const auto& one : tenants_) {
    if (one->tenant()->name == name_space) return one.get();
  }
  return nullptr;
}

void ClusterNode::collect_pins(const Tenant& tenant, std::vector<std::uint64_t>& pins) const {
  if (const ClusterTenant* const one = find(tenant)) one->collect_pins(pins);
}

// ---- RemoteRequests ------------------------------------------------------------------------------------

void ClusterNode::begin(const std::shared_ptr<RemoteRequest>& remote_request,
                        std::uint64_t now_ns) {
  lively_until_ns_ = now_ns + kLivelyNs;
  remote_request->open_count = remote_request->items.size();
  ClusterTenant* const tenant = find(*remote_request->tenant);
  if (tenant == nullptr) {
    for (RemoteRequest::Item& item : remote_request->items)
      remote_request->settle(item, MC_NOT_FOUND);
    ended_ = true;
    return;
  }
  switch (remote_request->kind) {
    case RemoteRequest::Kind::kAnnounce:
      announcer_->await(remote_request, *tenant);
      break;
    case RemoteRequest::Kind::kFetch:
      fetcher_->fetch(remote_request, *tenant, now_ns);
      break;
    case RemoteRequest::Kind::kExists:
      fetcher_->exists(remote_request, *tenant, now_ns);
      break;
    case RemoteRequest::Kind::kRemove:
      remove(remote_request, *tenant, now_ns);
      break;
    case RemoteRequest::Kind::kPlace:
      // Announce drops first, so that the master does not name objects that are gone.
      announcer_->flush(now_ns);
      placer_->place(remote_request, *tenant, now_ns);
      break;
  }
}

// The master tells every holder, this host included. Objects that only this host knows are removed
// at once. A recovering master is asked again: otherwise a later put could yield to the removed
// object.
void ClusterNode::remove(const std::shared_ptr<RemoteRequest>& remote_request,
                         ClusterTenant& tenant, std::uint64_t now_ns,
                         std::optional<std::uint32_t> partition) {
  std::vector<metadata::KeyHash> names;
  std::vector<Doomed> doomed;
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    if (!remote_request->items[i].open) continue;
    const metadata::KeyHash name = tenant.name_of(remote_request->items[i].key);
    if (partition && masters_.partition_of(name) != *partition) continue;
    fetcher_->locations().forget(name);
    names.push_back(name);
    const std::uint32_t entry = tenant.find(name);
    const bool here = entry != kNoEntry;
    doomed.push_back(
        {i, here ? tenant.book().row(entry).version : 0, here ? tenant.generation_of(entry) : 0});
  }
  // Announce earlier puts before the removal.
  announcer_->flush(now_ns);
  for (const Masters::Part& part : masters_.split(names)) {
    wire::Remove request;
    std::vector<Doomed> asked;
    for (const std::size_t place : part.places) {
      request.items.push_back({names[place], UINT64_MAX});
      asked.push_back(doomed[place]);
    }
    remove_of_partition(part.partition, remote_request, std::move(asked), request);
  }
}

void ClusterNode::remove_of_partition(std::uint32_t partition,
                                      const std::shared_ptr<RemoteRequest>& remote_request,
                                      std::vector<Doomed> doomed, const wire::Remove& request) {
  masters_.at(partition).remove(
      request, remote_request->deadline_ns,
      [this, partition, remote_request, doomed = std::move(doomed),
       alive = std::weak_ptr(alive_)](const Result<wire::RemoveReply>& reply) {
        if (alive.expired()) return;
        ended_ = true;
        end_removal(*remote_request, doomed, reply);
        const bool undecided = std::ranges::any_of(
            doomed, [&](const Doomed& one) { return remote_request->items[one.item].open; });
        if (undecided) removals_.push_back({remote_request, partition, now_ns_ + kRemoveAgainNs});
      });
}

void ClusterNode::end_removal(RemoteRequest& remote_request, const std::vector<Doomed>& doomed,
                              const Result<wire::RemoveReply>& reply) {
  ClusterTenant* const owner = find(*remote_request.tenant);
  for (std::size_t i = 0; i < doomed.size(); ++i) {
    const Doomed& what = doomed[i];
    RemoteRequest::Item& item = remote_request.items[what.item];
    if (!item.open) continue;
    if (!reply || i >= reply->keys.size()) {
      remote_request.settle(item, reply ? MC_INTERNAL : reply.error().code());
      continue;
    }
    if (reply->keys[i] == metadata::Lookup::kRecovering) continue;
    const bool removed = reply->keys[i] == metadata::Lookup::kFound || what.generation != 0;
    // Keep objects that a later put brought since then. No other host would drop this host's copy.
    const std::uint32_t entry = owner == nullptr ? kNoEntry : owner->find(owner->name_of(item.key));
    if (entry != kNoEntry && (owner->generation_of(entry) == what.generation ||
                              owner->book().row(entry).version <= what.version)) {
      owner->drop(entry);
    }
    const bool unsure = reply->unconfirmed != 0;
    remote_request.settle(item, unsure ? MC_TIMEOUT : removed ? MC_OK : MC_NOT_FOUND);
  }
}

void ClusterNode::forget_session(std::uint64_t session) {
  striper_->forget_session(session);
  placer_->forget_session(session);
}

void ClusterNode::remove_again(std::uint64_t now_ns) {
  while (!removals_.empty() && now_ns >= removals_.front().due_ns) {
    const std::shared_ptr<RemoteRequest> remote_request =
        std::move(removals_.front().remote_request);
    const std::uint32_t partition = removals_.front().partition;
    removals_.pop_front();
    ClusterTenant* const tenant = find(*remote_request->tenant);
    if (remote_request->abandoned || remote_request->over()) continue;
    if (tenant != nullptr && now_ns < remote_request->deadline_ns) {
      remove(remote_request, *tenant, now_ns, partition);
      continue;
    }
    for (RemoteRequest::Item& item : remote_request->items)
      remote_request->settle(item, MC_TIMEOUT);
    ended_ = true;
  }
}

bool ClusterNode::take_ended() {
  const bool ended = std::exchange(ended_, false);
  const bool announced = announcer_->take_ended();
  const bool fetched = fetcher_->take_ended();
  const bool placed = placer_->take_ended();
  const bool striped = striper_->take_ended();
  return ended || announced || fetched || placed || striped;
}

// ---- The loop -----------------------------------------------------------------------------------

bool ClusterNode::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  events_.clear();
  transport_->poll(now_ns, events_);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const transport::Event& event = events_[i];
    switch (event.kind) {
      case transport::Event::Kind::kCompleted:
        lively_until_ns_ = now_ns + kLivelyNs;
        if (event.verb == transport::Verb::kNotify) peers_.sent(event.id);
        if ((event.cookie & Placer::kHoldCookie) != 0) {
          placer_->on_event(event);
        } else if ((event.cookie & (Gatherer::kAskCookie | Gatherer::kReadCookie)) != 0) {
          gatherer_->on_event(event);
        } else if (event.cookie > kNoticeCookie) {
          fetcher_->on_event(event);
        }
        break;
      case transport::Event::Kind::kNotified:
        lively_until_ns_ = now_ns + kLivelyNs;
        on_notified(event, now_ns);
        break;
      case transport::Event::Kind::kPeerLost: {
        const MemberId node = peers_.node_of(event.peer);
        const wire::MemberInfo* const member = peers_.find(node);
        peers_.lost(node);
        placer_->on_peer_lost(node);
        if (member != nullptr) {
          masters_.report_unreachable({node, member->descriptor.incarnation});
        }
        break;
      }
      case transport::Event::Kind::kPeerBack:
        peers_.back(peers_.node_of(event.peer));
        break;
    }
  }
  remove_again(now_ns);
  tell_backed();
  if (!offers_.empty()) hold_offers(now_ns);
  if (!walks_.idle()) {
    lively_until_ns_ = now_ns + kLivelyNs;
    walks_.turn(now_ns);
  }
  if (peers_.take_missed()) {
    next_members_ns_ = std::min(next_members_ns_, last_members_ns_ + kMembersSoonNs);
  }
  if (now_ns >= next_members_ns_ && !members_asked_) refresh_members(now_ns);
  for (auto at = pings_.begin(); at != pings_.end();) {
    if (now_ns < at->second.started_ns + kPingNs) {
      ++at;
      continue;
    }
    const Answer done = std::move(at->second.done);
    at = pings_.erase(at);
    done(R"({"error":"MC_TIMEOUT","code":4,"cause":"the peer did not answer within 2 s"})");
  }
  return !events_.empty();
}

void ClusterNode::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  announcer_->flush(now_ns);
  gatherer_->flush(now_ns);
  fetcher_->flush(now_ns);
  placer_->flush(now_ns);
  striper_->flush(now_ns);
  mover_->flush(now_ns);
  keeper_->flush(now_ns);
}

std::uint64_t ClusterNode::next_poll_ns() const {
  for (const auto& tenant : tenants_) {
    if (memory_has_changed(*tenant)) return 0;
  }
  const std::uint64_t removal_ns = removals_.empty() ? UINT64_MAX : removals_.front().due_ns;
  if (!walks_.idle()) return 0;
  if (!offers_.empty()) return now_ns_ + kMembersSoonNs;
  return std::min({transport_->next_poll_ns(), fetcher_->next_ns(), gatherer_->next_ns(),
                   placer_->next_ns(), striper_->next_ns(), keeper_->next_ns(), mover_->next_ns(),
                   next_members_ns_, removal_ns});
}

void ClusterNode::refresh_members(std::uint64_t now_ns) {
  members_asked_ = true;
  last_members_ns_ = now_ns;
  next_members_ns_ = now_ns + kMembersNs;
  masters_.members(now_ns + kMembersNs, [this, alive = std::weak_ptr(alive_)](
                                            const Result<wire::MembersAnswer>& answer) {
    if (alive.expired()) return;
    members_asked_ = false;
    if (answer) {
      peers_.update(*answer);
      return;
    }
    next_members_ns_ = now_ns_ + kMembersSoonNs;
  });
}

// ---- Peers --------------------------------------------------------------------------------------

void ClusterNode::on_notified(const transport::Event& event, std::uint64_t now_ns) {
  const auto message = decode_peer_message(event.payload);
  if (!message) return;
  switch (message->kind) {
    case PeerMessageKind::kAsk:
      answer_ask(event.from, *message, now_ns);
      break;
    case PeerMessageKind::kPlace:
      fetcher_->on_answer(event.from, *message, tenants_);
      break;
    case PeerMessageKind::kHold:
      hold(event.from, *message, now_ns);
      break;
    case PeerMessageKind::kHeld:
      if (!striper_->on_held(event.from, *message)) placer_->on_held(event.from, *message);
      break;
    case PeerMessageKind::kSeal:
      seal(event.from, *message, now_ns);
      break;
    case PeerMessageKind::kAskStripes:
      tell_stripes(event.from, *message, now_ns);
      break;
    case PeerMessageKind::kStripes:
      if (!mover_->on_answer(event.from, *message)) gatherer_->on_answer(event.from, *message);
      break;
    case PeerMessageKind::kPing: {
      PeerMessage pong;
      pong.kind = PeerMessageKind::kPong;
      pong.request = message->request;
      notify(event.from, pong, now_ns);
      break;
    }
    case PeerMessageKind::kPong: {
      const auto at = pings_.find(message->request);
      if (at == pings_.end() || at->second.node != event.from) break;
      const std::uint64_t took_ns = mc::now_ns() - at->second.started_ns;
      const Answer done = std::move(at->second.done);
      pings_.erase(at);
      done("{\"round_trip_ns\":" + std::to_string(took_ns) + "}");
      break;
    }
  }
}

void ClusterNode::notify(MemberId to, const PeerMessage& message, std::uint64_t now_ns) {
  // If the message cannot be sent, the asker tries another holder. A node that the master has not
  // named yet is named soon.
  if (!peers_.notify(to, message, kNoticeCookie, now_ns + kNotifyNs, now_ns)) peers_.missed();
}

void ClusterNode::answer_ask(MemberId from, const PeerMessage& ask, std::uint64_t now_ns) {
  constexpr std::size_t kHeadBytes = 256;  // head and descriptor
  PeerMessage answer;
  answer.kind = PeerMessageKind::kPlace;
  answer.request = ask.request;
  std::size_t bytes = kHeadBytes;
  const ClusterTenant* of = nullptr;
  const auto send = [&] {
    if (answer.rows.empty()) return;
    if (of != nullptr) {
      answer.name_space = of->id();
      if (auto text = transport_->describe(of->region)) answer.region = std::move(*text);
    }
    notify(from, answer, now_ns);
    answer.rows.clear();
    bytes = kHeadBytes;
  };
  for (std::size_t i = 0; i < ask.keys.size(); ++i) {
    ++asks_served_;
    PlaceRow row;
    const ClusterTenant* holder = nullptr;
    for (const auto& tenant : tenants_) {
      if (ask.name_space != 0 && tenant->id() != ask.name_space) continue;
      const std::uint32_t entry = tenant->find(ask.keys[i]);
      if (entry == kNoEntry) continue;
      row = tenant->place_of(entry);
      if ((ask.flags & kAskForKeys) != 0) {
        row.key = std::string(tenant->store().index().key_of(entry));
      }
      holder = tenant.get();
      break;
    }
    row.number = static_cast<std::uint16_t>(i);
    std::size_t row_bytes = encoded_row_bytes(row);
    if ((ask.flags & kAskForBytes) != 0 && ask.keys.size() == 1 && holder != nullptr &&
        bytes + row_bytes + row.length + sizeof(std::uint64_t) <=
            transport::kMaxNotificationBytes) {
      row.bytes = holder->bytes_of(row);
      row_bytes = encoded_row_bytes(row);
    }
    const bool other = holder != nullptr && of != nullptr && holder != of;
    if (other || bytes + row_bytes > transport::kMaxNotificationBytes) send();
    if (holder != nullptr) of = holder;
    answer.rows.push_back(std::move(row));
    bytes += row_bytes;
  }
  send();
}

void ClusterNode::hold_offers(std::uint64_t now_ns) {
  for (std::size_t left = offers_.size(); left > 0; --left) {
    const Offer offer = std::move(offers_.front());
    offers_.pop_front();
    if (now_ns < offer.until_ns) hold(offer.from, offer.message, now_ns);
  }
}

// Holds an object that a client of `from` puts and that has no room there.
void ClusterNode::hold(MemberId from, const PeerMessage& message, std::uint64_t now_ns) {
  if (!peers_.id_of(from)) {
    // The writer joined a moment ago. Without the writer's address no answer can be sent.
    peers_.missed();
    const std::uint64_t until_ns = now_ns + message.share_ms * kMs;
    if (offers_.size() < kMaxOffers) offers_.push_back({from, message, until_ns});
    return;
  }
  const auto answer = answer_held(from, message.request);
  for (const auto& tenant : tenants_) {
    if (tenant->id() != message.name_space) continue;
    if ((message.flags & kHoldStripe) == 0) {
      fetcher_->hold(*tenant, message, from, now_ns, answer);
    } else if (keeper_->expect(*tenant, message, from, now_ns)) {
      fetcher_->hold_stripe(*tenant, message, from, now_ns, answer);
    } else {
      answer(MC_BUSY);
    }
    return;
  }
  answer(MC_NO_SUCH_NAMESPACE);
}

std::function<void(mc_status)> ClusterNode::answer_held(MemberId to, std::uint32_t request) {
  return [this, to, request](mc_status status) {
    PeerMessage held;
    held.kind = PeerMessageKind::kHeld;
    held.request = request;
    held.flags = static_cast<std::uint8_t>(status == MC_OK          ? HoldOutcome::kHeld
                                           : status == MC_NO_SPACE  ? HoldOutcome::kNoRoom
                                           : status == MC_CANCELLED ? HoldOutcome::kBehind
                                                                    : HoldOutcome::kFailed);
    held.refused_up_to = masters_.refused_up_to();
    notify(to, held, now_ns_);
  };
}

void ClusterNode::seal(MemberId from, const PeerMessage& message, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  const auto answer = answer_held(from, message.request);
  for (const auto& tenant : tenants_) {
    if (tenant->id() == message.name_space) return keeper_->seal(*tenant, message, answer);
  }
  answer(MC_NO_SUCH_NAMESPACE);
}

void ClusterNode::tell_stripes(MemberId from, const PeerMessage& ask, std::uint64_t now_ns) {
  ++asks_served_;
  for (const auto& tenant : tenants_) {
    // A host that moves a part knows only the object's name, not the namespace.
    const bool has = ask.name_space == 0 && (ask.flags & kAskForPart) != 0 &&
                     !tenant->stripes().sealed(ask.keys.front(), ask.seal.version).empty();
    if (tenant->id() != ask.name_space && !has) continue;
    for (const PeerMessage& answer : keeper_->places(*tenant, ask)) notify(from, answer, now_ns);
    return;
  }
  PeerMessage none;
  none.kind = PeerMessageKind::kStripes;
  none.request = ask.request;
  notify(from, none, now_ns);
}

}  // namespace mc::agent
