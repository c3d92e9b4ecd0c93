// SPDX-License-Identifier: Apache-2.0
//
// The agent's side of the socket: decides which users may connect, and begins, resumes and ends
// sessions.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/admin/admin.h"
#include "agent/agent.h"
#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "shm/doorbell.h"
#include "shm/messages.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace mc::agent {

namespace {

constexpr std::size_t kMaxConnections = MC_MAX_SESSIONS + 256;
constexpr std::uint64_t kMaxReservationCacheBytes = 4u << 20;
constexpr std::uint64_t kDefaultStagingBytes = 64u << 20;
constexpr std::uint64_t kReservationCacheQuestionPeriodNs = 1000000000;
constexpr std::uint64_t kRefusalLogPeriodNs = 10000000000;
constexpr unsigned kRefusalLinesPerPeriod = 10;

// Text of a fixed field that must end in a zero byte. nullopt if the zero is missing or the text is
// not plain.
std::optional<std::string> field_text(const char* field, std::size_t size) {
  const std::size_t length = ::strnlen(field, size);
  if (length == size) return std::nullopt;
  std::string text(field, length);
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return c >= 0x20 && c < 0x7f && c != '"'; });
  if (!plain) return std::nullopt;
  return text;
}

void send_text(int fd, shm::ControlHeader header, std::string_view text) {
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> bytes(sizeof header + text.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!text.empty()) std::memcpy(bytes.data() + sizeof header, text.data(), text.size());
  // A peer that does not read loses the answer, and closes the connection in the end.
  static_cast<void>(send_message(fd, bytes).ok());
}

void answer(int fd, shm::ControlType type, const Status& status, std::uint64_t value = 0) {
  shm::ControlHeader header;
  header.type = static_cast<std::uint32_t>(type);
  header.status = status.code();
  header.value = value;
  send_text(fd, header, status.ok() ? std::string_view{} : status.text());
}

}  // namespace

struct HelloFacts {
  shm::Hello hello;
  std::string tenant;
  std::string label;
};

// ---- Connections --------------------------------------------------------------------------------

void Agent::accept_clients() {
  for (;;) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EMFILE || errno == ENFILE) && spare_) {
      // No descriptor is free. The spare descriptor carries the refusal. Otherwise the client would
      // stay in the backlog and keep the loop awake.
      spare_.reset();
      socket.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) {
        answer(socket.get(), shm::ControlType::kAnswer,
               {MC_BUSY, "the agent has no free file descriptor; raise LimitNOFILE of its unit"});
      }
      socket.reset();
      spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      return;
    }
    if (!socket) return;
    auto peer = peer_credentials(socket.get());
    const bool allowed = peer && may_connect(*peer, nullptr);
    const bool full = allowed && connections_.size() >= kMaxConnections && !close_idle_connection();
    if (!allowed || full) {
      answer(socket.get(), shm::ControlType::kAnswer,
             full ? Status(MC_BUSY, "the agent has reached its limit of connections; close some")
                  : Status(MC_PERMISSION_DENIED,
                           "this user may not connect to the agent; add the uid to allow_uids"));
      continue;
    }
    const int size = 1 << 20;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    // No message of a client carries descriptors. The agent would have to close a received
    // descriptor, and closing a socket can linger. Kernels before 6.16 ignore the option; the agent
    // then closes received descriptors.
    const int none = 0;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_PASSRIGHTS, &none, sizeof none);
    const int fd = socket.get();
    connections_[fd] = Connection{std::move(socket), *peer, 0, now_ns()};
    watch(fd, {Watch::Kind::kConnection, 0, nullptr});
    MC_FAILPOINT("connect.accepted");
  }
}

// Makes room for a new connection by closing the oldest connection without a session. Returns false
// if all connections have sessions.
bool Agent::close_idle_connection() {
  const Connection* oldest = nullptr;
  for (const auto& [fd, connection] : connections_) {
    if (connection.session_id != 0) continue;
    if (oldest == nullptr || connection.opened_ns < oldest->opened_ns) oldest = &connection;
  }
  if (oldest == nullptr) return false;
  close_connection(oldest->socket.get());
  return true;
}

Result<Fd> Agent::connect_embedded() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(MC_NO_MEMORY, errno_text("create a socket pair", errno));
  }
  Fd mine(ends[0]);
  Fd theirs(ends[1]);
  // Only the loop may change the tables of the loop. The loop takes the new end from the pending
  // list.
  MutexLock lock(embedded_mutex_);
  ::fcntl(mine.get(), F_SETFL, O_NONBLOCK);
  embedded_pending_.push_back(std::move(mine));
  signal_eventfd(wake_.get());
  return theirs;
}

void Agent::adopt_embedded_connections() {
  MutexLock lock(embedded_mutex_);
  for (Fd& socket : embedded_pending_) {
    const int fd = socket.get();
    const PeerCredentials self{::getpid(), ::geteuid(), ::getegid()};
    connections_[fd] = Connection{std::move(socket), self, 0, now_ns()};
    watch(fd, {Watch::Kind::kConnection, 0, nullptr});
  }
  embedded_pending_.clear();
}

bool Agent::may_connect(const PeerCredentials& peer, const Tenant* tenant) const {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  const auto listed = [&](const std::vector<std::uint32_t>& uids) {
    return std::find(uids.begin(), uids.end(), peer.uid) != uids.end();
  };
  if (tenant != nullptr) return listed(tenant->allow_uids);
  return listed(options_.allow_uids) ||
         std::any_of(tenants_.begin(), tenants_.end(),
                     [&](const auto& entry) { return listed(entry.second->allow_uids); });
}

void Agent::close_connection(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  unwatch(fd);
  const std::uint64_t session_id = found->second.session_id;
  connections_.erase(found);
  const auto found_session = sessions_.find(session_id);
  if (found_session == sessions_.end()) return;
  Session& session = *found_session->second;
  session.connection_fd = -1;
  // The session stays, detached, until its process ends, since the process may still read and write
  // in place. A session that never had a channel holds nothing; most likely the client never read
  // the welcome.
  if (session.unused) end_session(session_id);
}

void Agent::on_message(int fd) {
  Connection& connection = connections_.at(fd);
  auto message = receive_message(fd, shm::kMaxControlBytes);
  if (!message) {
    if (message.error().code() == MC_BUSY) return;
    answer(fd, shm::ControlType::kAnswer, message.error());
    close_connection(fd);
    return;
  }
  if (message->bytes.size() < sizeof(shm::ControlHeader)) {
    close_connection(fd);
    return;
  }
  shm::ControlHeader header;
  std::memcpy(static_cast<void*>(&header), message->bytes.data(), sizeof header);
  std::string_view text;
  const auto type = static_cast<shm::ControlType>(header.type);
  if (type == shm::ControlType::kHello) {
    on_hello(connection, message->bytes);
    return;
  }
  if (!shm::decode_control<shm::ControlHeader>(message->bytes, type, &text)) {
    answer(fd, shm::ControlType::kAnswer,
           {MC_VERSION_MISMATCH, "not a message of this agent's protocol; upgrade the older side"});
    close_connection(fd);
    return;
  }
  switch (type) {
    case shm::ControlType::kOpenChannel:
      on_open_channel(connection, header.value);
      break;
    case shm::ControlType::kOpenStaging:
      on_open_staging(connection, header.value);
      break;
    case shm::ControlType::kGiveBack:
      on_give_back(connection, text);
      break;
    case shm::ControlType::kGoodbye: {
      const std::uint64_t session_id = connection.session_id;
      end_session(session_id);
      answer(fd, shm::ControlType::kAnswer, {});
      break;
    }
    case shm::ControlType::kAdmin: {
      const std::uint64_t opened_ns = connection.opened_ns;
      Admin(*this).answer(text, connection.peer, [this, fd, opened_ns](const std::string& reply) {
        // Another connection may have the same descriptor by the time a peer or a master answers.
        const auto still = connections_.find(fd);
        if (still != connections_.end() && still->second.opened_ns == opened_ns) {
          answer_admin(fd, reply);
        }
      });
      break;
    }
    default:
      answer(fd, shm::ControlType::kAnswer,
             {MC_INVALID_ARGUMENT, "the message has an unknown type; upgrade the agent"});
      close_connection(fd);
  }
}

void Agent::answer_admin(int fd, const std::string& reply) {
  constexpr std::size_t kPart = shm::kMaxControlBytes - sizeof(shm::ControlHeader);
  for (std::size_t at = 0; at == 0 || at < reply.size(); at += kPart) {
    shm::ControlHeader part;
    part.type = static_cast<std::uint32_t>(shm::ControlType::kAdminAnswer);
    part.value = at + kPart < reply.size() ? 1 : 0;
    send_text(fd, part, std::string_view(reply).substr(at, kPart));
  }
}

// ---- Sessions -----------------------------------------------------------------------------------

void Agent::on_hello(Connection& connection, const std::vector<std::byte>& bytes) {
  const int fd = connection.socket.get();
  const auto refuse = [&](const Status& status) {
    log_refusal(connection.peer, status);
    answer(fd, shm::ControlType::kAnswer, status);
    close_connection(fd);
  };
  const auto hello = shm::decode_control<shm::Hello>(bytes, shm::ControlType::kHello);
  if (!hello || hello->layout_version != shm::kLayoutVersion) {
    refuse({MC_VERSION_MISMATCH, "libmc and agent differ: the agent has layout version " +
                                     std::to_string(shm::kLayoutVersion) + ", libmc " +
                                     (hello ? std::to_string(hello->layout_version) : "another") +
                                     "; upgrade the older one"});
    return;
  }
  HelloFacts facts{*hello, {}, {}};
  const auto tenant = field_text(hello->name_space, sizeof hello->name_space);
  const auto label = field_text(hello->label, sizeof hello->label);
  if (!tenant || connection.session_id != 0 || hello->channel_count == 0 ||
      hello->channel_count > MC_MAX_CHANNELS) {
    refuse({MC_INVALID_ARGUMENT, "the hello is malformed; use the libmc of this agent's release"});
    return;
  }
  facts.tenant = *tenant;
  facts.label = label.value_or("");
  MC_FAILPOINT("connect.hello");
  const bool resuming = hello->resume_session != 0;
  auto session = resuming ? resume_session(connection, facts) : new_session(connection, facts);
  if (!session) {
    refuse(session.error());
    return;
  }
  if (Status status = welcome(connection, **session, resuming); !status.ok()) {
    if (!resuming) end_session((*session)->id);
    refuse(status);
  }
}

// A client that repeats a refused request must not fill the log.
void Agent::log_refusal(const PeerCredentials& peer, const Status& status) {
  const std::uint64_t now = now_ns();
  if (now >= next_refusal_line_ns_) {
    next_refusal_line_ns_ = now + kRefusalLogPeriodNs;
    refusal_lines_ = 0;
  }
  if (++refusal_lines_ > kRefusalLinesPerPeriod) {
    ++refusals_unlogged_;
    return;
  }
  spdlog::info("event=client_refused pid={} uid={} cause=\"{}\" unlogged_before={}", peer.pid,
               peer.uid, status.to_string(), std::exchange(refusals_unlogged_, 0));
}

Result<Session*> Agent::new_session(Connection& connection, const HelloFacts& facts) {
  const auto found = tenants_.find(facts.tenant);
  if (found == tenants_.end()) {
    return fail(MC_NO_SUCH_NAMESPACE,
                "this agent has no namespace '" + facts.tenant + "'; see mcctl segment list");
  }
  Tenant& tenant = *found->second;
  if (!may_connect(connection.peer, &tenant)) {
    return fail(MC_PERMISSION_DENIED, "uid " + std::to_string(connection.peer.uid) +
                                          " may not use namespace '" + facts.tenant +
                                          "'; add it to the namespace's allow_uids");
  }
  if (tenant.isolated && connection.peer.uid == ::geteuid() && !embedded_ &&
      !options_.isolated_allow_same_user) {
    return fail(MC_PERMISSION_DENIED,
                "a client with the agent's own user could open an isolated pool for writing; run "
                "the agent as a user of its own, or set isolated_allow_same_user = true");
  }
  if (sessions_.size() >= MC_MAX_SESSIONS) {
    return fail(MC_BUSY, "the agent has reached its limit of sessions (" +
                             std::to_string(MC_MAX_SESSIONS) + "); close some");
  }
  const auto of_user = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second->uid == connection.peer.uid;
  });
  if (static_cast<std::uint64_t>(of_user) >= options_.max_sessions_per_user) {
    return fail(MC_BUSY, "uid " + std::to_string(connection.peer.uid) +
                             " has reached the limit of sessions of a user (" +
                             std::to_string(options_.max_sessions_per_user) +
                             "); close some, or raise max_sessions_per_user");
  }
  auto pidfd = peer_pidfd(connection.socket.get(), connection.peer.pid);
  if (!pidfd) return fail(pidfd.error());
  const std::uint64_t id = node_->take_session_id();
  auto created = Session::create(id, node_->session_secret(id), facts.hello.channel_count,
                                 node_->node_id(), node_->incarnation());
  if (!created) return fail(created.error());
  Session& session = **created;
  session.unused = true;
  session.uid = connection.peer.uid;
  session.pid = connection.peer.pid;
  session.label = facts.label;
  session.tenant = found->second;
  session.pidfd = std::move(*pidfd);
  session.opened_ns = now_ns();
  keep(kept_name(session, "file"), session.file().fd());
  keep(kept_name(session, "pidfd"), session.pidfd.get());
  watch(session.pidfd.get(), {Watch::Kind::kPidfd, id, nullptr});
  sessions_[id] = std::move(*created);
  MC_FAILPOINT("connect.session_made");
  return &session;
}

Result<Session*> Agent::resume_session(Connection& connection, const HelloFacts& facts) {
  const auto found = sessions_.find(facts.hello.resume_session);
  if (found == sessions_.end() || found->second->secret != facts.hello.resume_secret ||
      found->second->uid != connection.peer.uid || found->second->tenant->name != facts.tenant) {
    return fail(MC_SESSION_LOST, "this agent does not know the session; open a new client");
  }
  Session& session = *found->second;
  // An unused session would end with its old connection.
  const bool unused = std::exchange(session.unused, false);
  if (session.connection_fd >= 0) close_connection(session.connection_fd);
  session.unused = unused;
  if (session.tenant->isolated) {
    // Only unfinished copies have reservations here, and these copies start again.
    server_.release(session);
  } else {
    server_.forget(session);
    server_.expect_repeats(session);
  }
  deactivate_all(session);
  session.suspected = false;
  session.restart_rings(node_->incarnation());
  session.label = facts.label;
  MC_FAILPOINT("restart.session_resumed");
  return &session;
}

Status Agent::welcome(Connection& connection, Session& session, bool resumed) {
  ObjectStore& store = *session.tenant->store;
  auto agent_event = make_eventfd();
  auto client_event = make_eventfd();
  // The client gets an epoll over the bell instead of the eventfd. With the eventfd, a client could
  // fill the counter, clear O_NONBLOCK, and block the agent's loop in a write for ever.
  Fd client_bell(::epoll_create1(EPOLL_CLOEXEC));
  auto index = store.index().file().read_only();
  auto pool = store.pool().file().read_only();
  if (!agent_event || !client_event || !client_bell || !index || !pool) {
    return {MC_NO_MEMORY, "the agent has no free file descriptor; raise LimitNOFILE of its unit"};
  }
  if (session.agent_event) unwatch(session.agent_event.get());
  session.agent_event = std::move(*agent_event);
  session.client_event = std::move(*client_event);
  epoll_event ring{};
  ring.events = EPOLLIN;
  ::epoll_ctl(client_bell.get(), EPOLL_CTL_ADD, session.client_event.get(), &ring);
  watch(session.agent_event.get(), {Watch::Kind::kRing, session.id, nullptr});

  shm::Welcome welcome;
  welcome.header.type = static_cast<std::uint32_t>(shm::ControlType::kWelcome);
  welcome.session_id = session.id;
  welcome.session_secret = session.secret;
  welcome.node_id = node_->node_id();
  welcome.incarnation = node_->incarnation();
  welcome.index_bytes = store.index().file().size_bytes();
  welcome.pool_max_bytes = store.pool().file().size_bytes();
  welcome.session_bytes = session.file().size_bytes();
  welcome.reservation_cache_bytes =
      std::min(kMaxReservationCacheBytes, session.tenant->session_quota_bytes() / 64);
  welcome.epoch = session.epoch();
  welcome.channel_count = static_cast<std::uint32_t>(session.channels.size());
  welcome.isolated = session.tenant->isolated ? 1 : 0;
  welcome.clustered = session.tenant->clustered ? 1 : 0;
  welcome.resumed = resumed ? 1 : 0;
  std::vector<int> fds{index->get(), pool->get(), session.file().fd(), session.agent_event.get(),
                       client_bell.get()};
  if (!session.tenant->isolated) fds.push_back(store.pool().file().fd());
  const auto bytes = std::as_bytes(std::span(&welcome, 1));
  if (Status status = send_message(connection.socket.get(), bytes, fds); !status.ok())
    return status;
  connection.session_id = session.id;
  session.connection_fd = connection.socket.get();
  MC_FAILPOINT("connect.welcomed");
  return {};
}

void Agent::on_open_channel(Connection& connection, std::uint64_t number) {
  const auto found = sessions_.find(connection.session_id);
  Status status(MC_INVALID_ARGUMENT, "this connection has no session; send a hello first");
  if (found != sessions_.end()) {
    Session& session = *found->second;
    status =
        session.open_channel(static_cast<std::uint32_t>(std::min<std::uint64_t>(number, 0xffff)));
    if (status.ok()) session.unused = false;
    // From the first channel on, the client holds its beacon.
    if (status.ok() && !session.beacon_watched) {
      session.beacon_watched = true;
      beacons_->add(session.id, session.header());
    }
  }
  answer(connection.socket.get(), shm::ControlType::kAnswer, status, number);
}

void Agent::on_give_back(Connection& connection, std::string_view entries) {
  const auto found = sessions_.find(connection.session_id);
  Status status;
  if (found == sessions_.end() || found->second->tenant->isolated ||
      entries.size() % sizeof(std::uint32_t) != 0) {
    status = {
        MC_INVALID_ARGUMENT,
        "the connection has no session with a reservation cache, or the list of reservations is malformed"};
  }
  for (std::size_t at = 0; status.ok() && at < entries.size(); at += sizeof(std::uint32_t)) {
    std::uint32_t entry = 0;
    std::memcpy(&entry, entries.data() + at, sizeof entry);
    // Entries that are not reservations of this session are ignored.
    server_.give_back(*found->second, entry);
  }
  answer(connection.socket.get(), shm::ControlType::kAnswer, status);
}

// A client's reservation cache stays at the granted place. If the cache lies in the tail of a
// shrinking pool, the agent asks the client for it from time to time.
void Agent::ask_for_reservation_cache(std::uint64_t now) {
  for (auto& [name, tenant] : tenants_) {
    if (tenant->isolated || !tenant->store->pool().shrinking()) continue;
    if (now < tenant->next_reservation_cache_question_ns) continue;
    tenant->next_reservation_cache_question_ns = now + kReservationCacheQuestionPeriodNs;
    for (auto& [id, session] : sessions_) {
      if (session->tenant != tenant || session->connection_fd < 0) continue;
      if (server_.reserved_in_tail_bytes(*session) == 0) continue;
      answer(session->connection_fd, shm::ControlType::kReservationCacheWanted, {});
    }
  }
}

void Agent::on_open_staging(Connection& connection, std::uint64_t bytes) {
  const auto found = sessions_.find(connection.session_id);
  if (found == sessions_.end()) {
    answer(connection.socket.get(), shm::ControlType::kAnswer,
           {MC_INVALID_ARGUMENT, "this connection has no session; send a hello first"});
    return;
  }
  Session& session = *found->second;
  if (bytes == 0) bytes = std::min(kDefaultStagingBytes, session.tenant->session_quota_bytes());
  if (!session.staging_file()) {
    if (bytes <= session.tenant->session_quota_bytes() && bytes > available_memory_bytes()) {
      answer(connection.socket.get(), shm::ControlType::kAnswer,
             {MC_NO_MEMORY, "this host has no memory left for staging; lower staging_bytes"});
      return;
    }
    session.unused = false;
    if (Status status = session.open_staging(bytes); !status.ok()) {
      answer(connection.socket.get(), shm::ControlType::kAnswer, status);
      return;
    }
    keep(kept_name(session, "staging"), session.staging_file().fd());
  }
  shm::ControlHeader header;
  header.type = static_cast<std::uint32_t>(shm::ControlType::kAnswer);
  header.value = session.staging_bytes();
  const int fd = session.staging_file().fd();
  static_cast<void>(
      send_message(connection.socket.get(), std::as_bytes(std::span(&header, 1)), std::span(&fd, 1))
          .ok());
}

// Gives back everything that the session held. REQUIRES: the process has ended or the client said
// goodbye.
void Agent::end_session(std::uint64_t session_id) {
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return;
  MC_FAILPOINT("session.end");
  Session& session = *found->second;
  deactivate_all(session);
  if (session.beacon_watched) beacons_->remove(session_id);
  server_.release(session);
  if (session.agent_event) unwatch(session.agent_event.get());
  unwatch(session.pidfd.get());
  forget_kept(kept_name(session, "file"));
  forget_kept(kept_name(session, "pidfd"));
  if (session.staging_file()) forget_kept(kept_name(session, "staging"));
  if (const auto connection = connections_.find(session.connection_fd);
      connection != connections_.end()) {
    connection->second.session_id = 0;
  }
  spdlog::debug("event=session_ended id={} pid={}", session_id, session.pid);
  const std::shared_ptr<Tenant> tenant = session.tenant;
  sessions_.erase(found);
  // The pins of the session ended with the session.
  tenant->store->reclaim();
  MC_FAILPOINT("session.ended");
}

}  // namespace mc::agent
