// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/cluster_node.h"

#include <algorithm>
#include <variant>

#include "agent/cluster/cluster_status.h"
#include "libmc/base/clock.h"
#include "libmc/base/hash.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

// The loop polls this long after the last traffic. The longer time holds while an answer is expected, and
// while traffic comes at shorter intervals: waking a sleeping host costs more than many exchanges.
constexpr std::uint64_t kLivelyNs = 30'000;
constexpr std::uint64_t kDenseNs = 200'000;
// RemoteRequest::answer_by_ns comes so long before the deadline, or a quarter of the time.
constexpr std::uint64_t kAnswerEarlierNs = 50'000'000;
// Between two looks at the transfers of removed namespaces.
constexpr std::uint64_t kLeavingNs = 1'000'000;

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;  // Clang 14 does not deduce aggregates

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
      clock_(identity.node),
      members_(masters_, peers_) {}

ClusterNode::~ClusterNode() { stop(); }

void ClusterNode::connect(std::vector<MasterPort*> ports, transport::Transport& transport) {
  masters_.set(std::move(ports));
  transport_ = &transport;
  peers_.set_transport(transport);
  announcer_ = std::make_unique<Announcer>(operations_, tenants_, masters_, clock_);
  fetcher_ = std::make_unique<Fetcher>(operations_, tenants_, masters_, peers_, transport,
                                       *announcer_, identity_.place, identity_.node);
  puts_ =
      std::make_unique<PutsElsewhere>(operations_, masters_, peers_, transport, clock_, *fetcher_,
                                      identity_.node, identity_.place, identity_.stripes);
  stripe_holder_ =
      std::make_unique<StripeHolder>(operations_, tenants_, masters_, peers_, transport,
                                     *announcer_, *fetcher_, clock_, identity_.stripes.grace_ns);
  mover_ = std::make_unique<StripeMover>(operations_, tenants_, peers_, *stripe_holder_,
                                         fetcher_->copies());
  removals_ = std::make_unique<Removals>(operations_, masters_, *announcer_, *fetcher_);
  replica_waits_ = std::make_unique<ReplicaWaits>(operations_, masters_, *announcer_);
  peer_server_ = std::make_unique<PeerServer>(operations_, tenants_, masters_, peers_, transport,
                                              fetcher_->copies(), *stripe_holder_);
  verbs_ = std::make_unique<Verbs>(*this);
}

void ClusterNode::set_masters(std::vector<MasterPort*> ports) {
  masters_.set(std::move(ports));
  announcer_->begin_streams();
}

void ClusterNode::stop() {
  for (const auto& tenant : tenants_) tenant->store().set_listener(nullptr);
  replica_waits_.reset();
  removals_.reset();
  mover_.reset();
  stripe_holder_.reset();
  puts_.reset();
  fetcher_.reset();
  announcer_.reset();
}

// ---- Namespaces ---------------------------------------------------------------------------------

std::uint64_t ClusterNode::hash_seed(std::string_view name_space) const {
  return hasher_.index_seed(name_space);
}

Status ClusterNode::add_tenant(const std::shared_ptr<Tenant>& tenant, MemoryFile kept) {
  auto book = VersionBook::open(std::move(kept), tenant->store->index().header().max_entries);
  if (!book) return book.error();
  auto made = std::make_unique<ClusterTenant>(tenant, hasher_, clock_, std::move(*book), this);
  transport::RegionSpec spec;
  spec.data = tenant->store->pool().data();
  spec.size_bytes = tenant->store->pool().max_bytes();
  spec.rights = transport::kRemoteRead;
  spec.guard = made.get();
  spec.sparse = true;
  auto region = transport_->register_region(spec);
  if (!region) return region.error();
  made->region = *region;
  made->set_disks(disks_);
  tenant->store->set_listener(made.get());
  tenants_.push_back(std::move(made));
  return {};
}

void ClusterNode::on_arrival(const ClusterTenant& tenant, std::uint32_t entry, bool is_put) {
  walks_.arrived(tenant, entry, is_put);
}

// The master does not tell a node which objects the node's put replaced.
void ClusterNode::on_put(const metadata::PublishItem& put) { fetcher_->put_here(put); }

void ClusterNode::on_not_on_disks(ClusterTenant& tenant,
                                  const std::shared_ptr<RemoteRequest>& request, std::size_t item) {
  fetcher_->look_elsewhere(request, item, tenant);
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

// The clients' own reads ask the agent after this time. All reads load the cache line of the time, so only a
// change is stored.
void ClusterNode::tell_leases() {
  for (const auto& tenant : tenants_) {
    if (!tenant->tenant()->reads_need_lease) continue;
    const std::uint64_t until_ns =
        std::max(shm::kLeaseIsOver, masters_.readable_until_ns(identity_.node));
    shm::Word64& told_ns = tenant->store().index().header().readable_until_ns;
    if (told_ns.load_relaxed() != until_ns) told_ns.store_relaxed(until_ns);
  }
}

void ClusterNode::remove_tenant(const Tenant& tenant) {
  const auto at = std::ranges::find_if(
      tenants_, [&](const auto& one) { return one->tenant().get() == &tenant; });
  if (at == tenants_.end()) return;
  walks_.forget(**at);
  (*at)->store().set_listener(nullptr);
  // The master still names this host as a holder. Peers find these objects missing, and the next
  // report no longer names them.
  leaving_.push_back(std::move(*at));
  tenants_.erase(at);
  end_leaving();
}

// Ends the transfers from and into the removed namespaces; a lane that does not end is cut. The memory of a
// namespace stays until then.
void ClusterNode::end_leaving() {
  std::erase_if(leaving_, [&](const auto& tenant) {
    return fetcher_->forget(*tenant) && transport_->close_region(tenant->region);
  });
}

SharedObjects* ClusterNode::shared_objects(const Tenant& tenant) {
  return find_tenant(tenants_, tenant);
}

const MemoryFile& ClusterNode::versions_file(const Tenant& tenant) const {
  return find_tenant(tenants_, tenant)->book().file();
}

void ClusterNode::collect_pins(const Tenant& tenant, std::vector<std::uint64_t>& pins) const {
  if (const ClusterTenant* const one = find_tenant(tenants_, tenant)) one->collect_pins(pins);
}

// ---- Remote requests ----------------------------------------------------------------------------

void ClusterNode::begin(const std::shared_ptr<RemoteRequest>& remote_request,
                        std::uint64_t now_ns) {
  operations_.set_now(now_ns);
  on_traffic(now_ns);
  remote_request->open_count = remote_request->items.size();
  const std::uint64_t left_ns = std::max(remote_request->deadline_ns, now_ns) - now_ns;
  remote_request->answer_by_ns =
      remote_request->deadline_ns - std::min(kAnswerEarlierNs, left_ns / 4);
  ClusterTenant* const tenant = find_tenant(tenants_, *remote_request->tenant);
  if (tenant == nullptr) {
    for (RemoteRequest::Item& item : remote_request->items)
      operations_.settle(*remote_request, item, MC_NOT_FOUND);
    return;
  }
  switch (remote_request->kind) {
    case RemoteRequest::Kind::kAnnounce:
      announcer_->await(remote_request, *tenant);
      break;
    case RemoteRequest::Kind::kReplicas:
      replica_waits_->begin(remote_request, *tenant);
      break;
    case RemoteRequest::Kind::kFetch:
      fetcher_->fetch(remote_request, *tenant);
      break;
    case RemoteRequest::Kind::kExists:
      fetcher_->exists(remote_request, *tenant);
      break;
    case RemoteRequest::Kind::kRemove:
      removals_->begin(remote_request, *tenant);
      break;
    case RemoteRequest::Kind::kPlace:
      // Announce drops first, so that the master does not name objects that are gone.
      announcer_->flush(now_ns);
      puts_->begin(remote_request, *tenant);
      break;
    case RemoteRequest::Kind::kForget:  // for LocalDisks
    case RemoteRequest::Kind::kBring:
    case RemoteRequest::Kind::kPin:
      for (RemoteRequest::Item& item : remote_request->items)
        operations_.settle(*remote_request, item, MC_UNSUPPORTED);
      break;
  }
}

void ClusterNode::forget_session(std::uint64_t session) { puts_->forget_session(session); }

bool ClusterNode::take_ended() { return operations_.take_settled(); }

// ---- The loop -----------------------------------------------------------------------------------

void ClusterNode::on_traffic(std::uint64_t now_ns) {
  if (now_ns == traffic_ns_) return;  // of the same turn
  traffic_is_dense_ = now_ns < traffic_ns_ + kDenseNs;
  traffic_ns_ = now_ns;
}

bool ClusterNode::lively(std::uint64_t now_ns) const {
  return now_ns < traffic_ns_ + (traffic_is_dense_ || operations_.any() ? kDenseNs : kLivelyNs);
}

bool ClusterNode::poll(std::uint64_t now_ns) {
  operations_.set_now(now_ns);
  const bool heard = poll_masters(now_ns);
  events_.clear();
  transport_->poll(now_ns, events_);
  for (std::size_t i = 0; i < events_.size(); ++i) on_event(events_[i], now_ns);
  puts_->poll();
  end_leaving();
  tell_backed();
  tell_leases();
  peer_server_->poll();
  if (now_ns >= walks_.next_ns()) {
    on_traffic(now_ns);
    walks_.turn(now_ns);
  }
  members_.poll(now_ns);
  verbs_->poll(now_ns);
  return heard || !events_.empty();
}

void ClusterNode::on_event(const transport::Event& event, std::uint64_t now_ns) {
  switch (event.kind) {
    case transport::Event::Kind::kCompleted:
      on_traffic(now_ns);
      if (event.verb == transport::Verb::kNotify) peers_.sent(event.id);
      operations_.on_event(event);
      break;
    case transport::Event::Kind::kNotified:
      on_traffic(now_ns);
      on_message(event);
      break;
    case transport::Event::Kind::kPeerLost: {
      const MemberId node = peers_.node_of(event.peer);
      const wire::MemberInfo* const member = peers_.find(node);
      peers_.lost(node);
      puts_->placer().on_peer_lost(node);
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

void ClusterNode::on_message(const transport::Event& event) {
  auto message = decode_peer_message(event.payload);
  if (!message) return;
  const MemberId from = event.from;
  std::visit(Overloaded{
                 [&](AskAnswer&& answer) { fetcher_->on_answer(from, std::move(answer)); },
                 [&](const HoldAnswer& answer) {
                   puts_->placer().on_held(from, answer);
                   puts_->striper().on_held(from, answer);
                 },
                 [&](const StripesAnswer& answer) {
                   mover_->on_answer(from, answer);
                   fetcher_->gatherer().on_answer(from, answer);
                 },
                 [&](const Pong& pong) { verbs_->on_pong(from, pong); },
                 [&](const auto& request) { peer_server_->serve(from, request); },
             },
             std::move(*message));
}

void ClusterNode::advance(std::uint64_t now_ns) {
  operations_.set_now(now_ns);
  fetcher_->prepare();
  operations_.run();
  // Changes are announced before questions about objects go out.
  announcer_->flush(now_ns);
  fetcher_->send();
  stripe_holder_->flush();
}

std::uint64_t ClusterNode::next_poll_ns() const {
  for (const auto& tenant : tenants_) {
    // The disks change objects in their own time.
    if (memory_has_changed(*tenant) || !tenant->changes().empty()) return 0;
  }
  if (peer_server_->has_answers() || verbs_->has_answers()) return 0;
  const std::uint64_t now_ns = operations_.now_ns();
  const std::uint64_t leaving_ns = leaving_.empty() ? UINT64_MAX : now_ns + kLeavingNs;
  const std::uint64_t peers_ns =
      peer_server_->idle() ? UINT64_MAX : now_ns + MemberRefresh::kSoonNs;
  return std::min({walks_.next_ns(), leaving_ns, peers_ns, transport_->next_poll_ns(),
                   operations_.next_ns(), fetcher_->next_ns(), puts_->next_ns(),
                   stripe_holder_->next_ns(), members_.next_ns()});
}

// ---- mcctl --------------------------------------------------------------------------------------

// The removal must also end copies under way: both earlier copies and copies that begin during the
// walk.
void ClusterNode::drop_matching(ClusterTenant& tenant, const wire::Match& match,
                                IndexWalks::Partition partition,
                                MasterOrders::Reply<wire::RemoveMatchingAnswer> reply) {
  fetcher_->dropped(tenant);
  walks_.remove(tenant, match, partition,
                [this, name = match.name_space,
                 reply = std::move(reply)](const Result<wire::RemoveMatchingAnswer>& removed) {
                  if (const ClusterTenant* const of = find_tenant(tenants_, name)) {
                    fetcher_->dropped(*of);
                  }
                  reply(removed);
                });
}

std::string ClusterNode::status_text() { return verbs_->status_text(); }

bool ClusterNode::ask(std::string_view verb, std::string_view request, Answer done) {
  return verbs_->ask(verb, request, std::move(done));
}

}  // namespace mc::agent
