// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/sessions.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "shm/beacon.h"
#include "shm/messages.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kMaxReservationCacheBytes = 4u << 20;
constexpr std::uint64_t kDefaultStagingBytes = 64u << 20;
// A process that dies shows the same signs as a process that calls exec. The pidfd reports the death
// soon after, and transfers of the process end in the meantime.
constexpr std::uint64_t kLeftNs = 1'000'000'000;

// "session.<id>.<uid>.<pid>.<kind>.<namespace>"
struct SessionName {
  std::uint64_t id = 0;
  std::uint32_t uid = 0;
  int pid = 0;
  std::string kind;
  std::string tenant;
};

std::optional<SessionName> parse_session_name(const std::string& name) {
  SessionName result;
  char kind[16] = {};
  char tenant[MC_MAX_NAMESPACE_BYTES + 1] = {};
  unsigned long id = 0;
  if (std::sscanf(name.c_str(), "session.%lu.%u.%d.%15[a-z].%64s", &id, &result.uid, &result.pid,
                  kind, tenant) != 5) {
    return std::nullopt;
  }
  result.id = id;
  result.kind = kind;
  result.tenant = tenant;
  return result;
}

std::string kept_name(const Session& session, std::string_view kind) {
  return "session." + std::to_string(session.id) + "." + std::to_string(session.uid) + "." +
         std::to_string(session.pid) + "." + std::string(kind) + "." + session.tenant->name;
}

}  // namespace

Sessions::Sessions(const Options& options, NodeState& node, KeptFiles& kept, EventLoop& events,
                   Server& server, int wake, Release release)
    : options_(options),
      node_(node),
      kept_(kept),
      events_(events),
      server_(server),
      wake_(wake),
      release_(std::move(release)),
      beacons_(std::make_unique<shm::BeaconWatch>([this](std::uint64_t session_id) {
        {
          MutexLock lock(suspicions_mutex_);
          suspicions_.push_back(session_id);
        }
        signal_eventfd(wake_);
      })) {}

Sessions::~Sessions() = default;

Session* Sessions::find(std::uint64_t id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() || found->second->ending ? nullptr : found->second.get();
}

void Sessions::collect_pins(const std::string& tenant, std::vector<std::uint64_t>& pins) const {
  for (const auto& [id, session] : sessions_) {
    if (session->tenant->name == tenant) session->collect_pins(pins);
  }
}

Result<Session*> Sessions::begin(const PeerCredentials& peer, int socket,
                                 std::shared_ptr<Tenant> tenant, std::uint32_t channel_count,
                                 const std::string& label) {
  if (sessions_.size() >= MC_MAX_SESSIONS) {
    return fail(MC_BUSY, "the agent has reached its limit of sessions (" +
                             std::to_string(MC_MAX_SESSIONS) + "); close some");
  }
  const auto of_user = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second->uid == peer.uid;
  });
  if (static_cast<std::uint64_t>(of_user) >= options_.max_sessions_per_user) {
    return fail(MC_BUSY, "uid " + std::to_string(peer.uid) +
                             " has reached the limit of sessions of a user (" +
                             std::to_string(options_.max_sessions_per_user) +
                             "); close some, or raise max_sessions_per_user");
  }
  auto pidfd = peer_pidfd(socket, peer.pid);
  if (!pidfd) return fail(pidfd.error());
  const std::uint64_t id = node_.take_session_id();
  auto created = Session::create(id, node_.session_secret(id), channel_count, node_.node_id(),
                                 node_.incarnation());
  if (!created) return fail(created.error());
  Session& session = **created;
  session.unused = true;
  session.uid = peer.uid;
  session.pid = peer.pid;
  session.label = label;
  session.tenant = std::move(tenant);
  session.pidfd = std::move(*pidfd);
  session.opened_ns = now_ns();
  if (Status watched = watch_process(session); !watched.ok()) return fail(watched);
  // The next agent would not honour the pins of a session that is not kept.
  Status kept = kept_.try_keep(kept_name(session, "file"), session.file().fd());
  if (kept.ok()) {
    kept = kept_.try_keep(kept_name(session, "pidfd"), session.pidfd.get());
    if (!kept.ok()) kept_.forget(kept_name(session, "file"));
  }
  if (!kept.ok()) {
    events_.unwatch(session.pidfd.get());
    return fail(kept);
  }
  sessions_[id] = std::move(*created);
  MC_FAILPOINT("connect.session_made");
  return &session;
}

void Sessions::resume(Session& session, const std::string& label) {
  if (session.tenant->isolated) {
    // Only unfinished copies have reservations here, and these copies start again.
    server_.release(session);
  } else {
    server_.forget(session);
    session.expect_repeats();
  }
  channels_.deactivate_all(session);
  session.suspected = false;
  session.restart_rings(node_.incarnation());
  session.label = label;
  MC_FAILPOINT("restart.session_resumed");
}

Status Sessions::welcome(Session& session, int socket, bool resumed) {
  ObjectStore& store = *session.tenant->store;
  auto agent_event = make_eventfd();
  auto client_event = make_eventfd();
  // The client gets an epoll over the bell instead of the eventfd. With the eventfd, a client could
  // fill the counter, clear O_NONBLOCK, and block the agent's loop in a write for ever.
  Fd client_bell(::epoll_create1(EPOLL_CLOEXEC));
  auto index = store.index().file().read_only();
  auto pool = store.pool().file().read_only();
  if (!agent_event || !client_event || !client_bell || !index || !pool) {
    return {MC_NO_MEMORY, "the agent has no free file descriptors; raise LimitNOFILE of its unit"};
  }
  if (session.agent_event) events_.unwatch(session.agent_event.get());
  session.agent_event = std::move(*agent_event);
  session.client_event = std::move(*client_event);
  epoll_event ring{};
  ring.events = EPOLLIN;
  ::epoll_ctl(client_bell.get(), EPOLL_CTL_ADD, session.client_event.get(), &ring);
  // The bell is edge-triggered and never read. The client shares the file description, and could
  // make a read block by clearing O_NONBLOCK.
  Status watched = events_.watch(
      session.agent_event.get(), [this, id = session.id] { activate(id); },
      EventLoop::Trigger::kEdge);
  if (!watched.ok()) return watched;

  shm::Welcome welcome;
  welcome.header.type = static_cast<std::uint32_t>(shm::ControlType::kWelcome);
  welcome.session_id = session.id;
  welcome.session_secret = session.secret;
  welcome.node_id = node_.node_id();
  welcome.incarnation = node_.incarnation();
  const MemoryFile& pool_file = store.pool().file();
  for (const MappablePart& part : store.index().file().mappable_parts()) {
    welcome.index_part_bytes[welcome.index_parts++] = part.bytes;
  }
  welcome.pool_parts = static_cast<std::uint32_t>(pool_file.part_count());
  welcome.pool_max_bytes = pool_file.size_bytes();
  welcome.session_bytes = session.file().size_bytes();
  welcome.reservation_cache_bytes =
      std::min(kMaxReservationCacheBytes, session.tenant->session_quota_bytes() / 64);
  welcome.epoch = session.epoch();
  welcome.channel_count = static_cast<std::uint32_t>(session.channels.size());
  welcome.isolated = session.tenant->isolated ? 1 : 0;
  welcome.clustered = session.tenant->clustered ? 1 : 0;
  welcome.on_disks = session.tenant->on_disks ? 1 : 0;
  welcome.resumed = resumed ? 1 : 0;
  std::vector<int> fds{session.file().fd(), session.agent_event.get(), client_bell.get()};
  for (const Fd& part : *index) fds.push_back(part.get());
  for (const Fd& part : *pool) fds.push_back(part.get());
  if (!session.tenant->isolated) {
    for (const MappablePart& part : pool_file.mappable_parts()) fds.push_back(part.fd);
  }
  return send_message(socket, std::as_bytes(std::span(&welcome, 1)), fds);
}

[[gnu::hot]] void Sessions::activate(std::uint64_t id) {
  Session* const session = find(id);
  if (session == nullptr || session->suspected) return;
  for (std::uint32_t i = 0; i < session->channels.size(); ++i) channels_.activate(*session, i);
}

Status Sessions::watch_process(const Session& session) {
  return events_.watch(session.pidfd.get(), [this, id = session.id] { end(id, End::kLost); });
}

Status Sessions::open_channel(Session& session, std::uint64_t number) {
  const auto channel = static_cast<std::uint32_t>(std::min<std::uint64_t>(number, 0xffff));
  if (Status status = session.open_channel(channel); !status.ok()) return status;
  session.unused = false;
  // From the first channel on, the client holds its beacon.
  if (!session.beacon_watched) {
    session.beacon_watched = true;
    beacons_->add(session.id, session.header());
  }
  return {};
}

Status Sessions::open_staging(Session& session, std::uint64_t bytes) {
  if (session.staging_file()) return {};
  const std::uint64_t quota = session.tenant->session_quota_bytes();
  if (bytes == 0) bytes = std::min(kDefaultStagingBytes, quota);
  if (bytes <= quota && bytes > available_memory_bytes()) {
    return {MC_NO_MEMORY, "this host has no memory left for staging; lower staging_bytes"};
  }
  session.unused = false;
  if (Status status = session.open_staging(bytes); !status.ok()) return status;
  Status kept = kept_.try_keep(kept_name(session, "staging"), session.staging_file().fd());
  if (!kept.ok()) session.close_staging();
  return kept;
}

void Sessions::end(std::uint64_t id, End how) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  if (session.ending) return;
  MC_FAILPOINT("session.end");
  session.ending = true;
  channels_.deactivate_all(session);
  if (session.beacon_watched) beacons_->remove(id);
  for (std::uint32_t i = 0; i < session.channels.size(); ++i) session.take_read_counts(i);
  if (session.agent_event) events_.unwatch(session.agent_event.get());
  events_.unwatch(session.pidfd.get());
  if (release_(id, [this, id, how] { give_back(id, how); })) give_back(id, how);
}

void Sessions::give_back(std::uint64_t id, End how) {
  const auto found = sessions_.find(id);
  Session& session = *found->second;
  server_.release(session);
  kept_.forget(kept_name(session, "file"));
  kept_.forget(kept_name(session, "pidfd"));
  if (session.staging_file()) kept_.forget(kept_name(session, "staging"));
  spdlog::debug("event=session_ended id={} pid={}", id, session.pid);
  const std::shared_ptr<Tenant> tenant = session.tenant;
  tenant->contributions.end(id, how == End::kLost ? now_ns() + options_.keep_ns() : 0);
  sessions_.erase(found);
  // The pins of the session ended with the session.
  tenant->store->reclaim();
  MC_FAILPOINT("session.ended");
}

void Sessions::handle_suspicions() {
  MutexLock lock(suspicions_mutex_);
  for (const std::uint64_t id : suspicions_) {
    Session* const session = find(id);
    if (session == nullptr) continue;
    session->suspected = true;
    channels_.deactivate_all(*session);
    spdlog::info("event=session_suspected id={} pid={}", id, session->pid);
  }
  suspicions_.clear();
}

void Sessions::end_left(std::uint64_t now) {
  std::vector<std::uint64_t> left;
  for (const auto& [id, session] : sessions_) {
    if (session->ending) continue;
    if (session->connection_fd >= 0 || !shm::beacon_is_lost(*session->header())) {
      session->left_ns = 0;
    } else if (session->left_ns == 0) {
      session->left_ns = now;
    } else if (now - session->left_ns > kLeftNs) {
      left.push_back(id);
    }
  }
  for (const std::uint64_t id : left) {
    spdlog::info("event=session_left id={} pid={} cause=exec", id, find(id)->pid);
    end(id, End::kLost);
  }
}

void Sessions::take_notes() {
  std::size_t work = 0;
  for (std::size_t left = sessions_.size(); left > 0 && work < kMostNotes; --left) {
    auto at = sessions_.lower_bound(next_notes_.session);
    if (at == sessions_.end()) at = sessions_.begin();
    if (at->first != next_notes_.session) next_notes_ = {at->first, 0};
    Session& session = *at->second;
    std::uint32_t& channel = next_notes_.channel;
    for (; channel < session.channels.size() && work < kMostNotes; ++channel) {
      if (session.channels[channel].shared == nullptr) continue;
      session.take_read_counts(channel);
      work += kNotesOfALook;
      if (!options_.repeatable) work += session.take_touches(channel);
    }
    if (channel == session.channels.size()) next_notes_ = {at->first + 1, 0};
  }
}

// ---- Restart ------------------------------------------------------------------------------------

void Sessions::adopt(KeptDescriptors& kept) {
  for (auto& [name, fd] : kept) {
    const auto parsed = parse_session_name(name);
    if (!parsed || parsed->kind != "file") continue;
    auto file = MemoryFile::adopt(std::move(fd));
    if (!file) continue;
    auto adopted = Session::adopt(parsed->id, node_.session_secret(parsed->id), std::move(*file));
    if (!adopted) {
      spdlog::warn("event=session_set_aside id={} cause=\"{}\"", parsed->id,
                   adopted.error().to_string());
      continue;
    }
    Session& session = **adopted;
    session.uid = parsed->uid;
    session.pid = parsed->pid;
    session.opened_ns = now_ns();
    session.tenant = std::make_shared<Tenant>();
    session.tenant->name = parsed->tenant;
    const auto pidfd = kept.find(kept_name(session, "pidfd"));
    // Without a pidfd the end of the process could not be noticed.
    if (pidfd == kept.end() || !pidfd->second) continue;
    session.pidfd = std::move(pidfd->second);
    const auto staging = kept.find(kept_name(session, "staging"));
    if (staging != kept.end()) {
      auto memory = MemoryFile::adopt(std::move(staging->second));
      if (memory && !session.adopt_staging(std::move(*memory)).ok()) continue;
    }
    sessions_[parsed->id] = std::move(*adopted);
  }
}

bool Sessions::belongs_to(std::uint64_t id, const std::string& tenant) const {
  const Session* const session = find(id);
  return session != nullptr && session->tenant->name == tenant;
}

bool Sessions::any_of(const Tenant& tenant) const {
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [&](const auto& entry) { return entry.second->tenant.get() == &tenant; });
}

void Sessions::attach(const FindTenant& find_tenant) {
  std::set<ObjectStore*> stores;
  std::vector<std::uint64_t> unwatched;
  std::erase_if(sessions_, [&](const auto& entry) {
    Session& session = *entry.second;
    auto tenant = find_tenant(session.tenant->name);
    if (!tenant) return true;
    session.tenant = std::move(tenant);
    take_contribution(session);
    stores.insert(session.tenant->store.get());
    if (Status status = watch_process(session); !status.ok()) {
      spdlog::error("event=session_not_resumed id={} pid={} cause=\"{}\"", session.id, session.pid,
                    status.to_string());
      unwatched.push_back(session.id);
    }
    return false;
  });
  for (ObjectStore* const store : stores) {
    for (const ObjectStore::Reservation& found : store->take_recovered_reservations()) {
      Session& session = *find(found.session_id);
      session.enter(found.entry, session.tenant->store->reserved_length(found.entry));
    }
  }
  for (const std::uint64_t id : unwatched) end(id, End::kLost);
}

// The client may have written the words itself. Only users that may change pools contribute.
void Sessions::take_contribution(Session& session) const {
  if (!may_change_pools(session.uid)) return;
  const shm::SessionHeader& header = *session.header();
  const std::uint64_t most = session.tenant->store->pool().max_bytes();
  session.tenant->contributions.set(
      session.id, {std::min(header.contributed_bytes.load_relaxed(), most),
                   std::min(header.contributed_buffer_bytes.load_relaxed(), most)});
}

void Sessions::keep_all() {
  for (const auto& [id, session] : sessions_) {
    kept_.keep(kept_name(*session, "file"), session->file().fd());
    kept_.keep(kept_name(*session, "pidfd"), session->pidfd.get());
    if (session->staging_file()) {
      kept_.keep(kept_name(*session, "staging"), session->staging_file().fd());
    }
  }
}

void Sessions::add_kept_names(std::set<std::string>& names) const {
  for (const auto& [id, session] : sessions_) {
    for (const char* kind : {"file", "pidfd", "staging"}) names.insert(kept_name(*session, kind));
  }
}

}  // namespace mc::agent
