// SPDX-License-Identifier: Apache-2.0
#include "agent/admin/control.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace mc::agent {

namespace {

constexpr std::size_t kMaxConnections = MC_MAX_SESSIONS + 256;
constexpr std::uint64_t kReservationCacheQuestionPeriodNs = 1000000000;
constexpr std::uint64_t kRefusalLogPeriodNs = 10000000000;
constexpr unsigned kRefusalLinesPerPeriod = 10;

Status no_session() {
  return {MC_INVALID_ARGUMENT, "this connection has no session; send a hello first"};
}

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

void answer_admin(int fd, const std::string& reply) {
  constexpr std::size_t kPart = shm::kMaxControlBytes - sizeof(shm::ControlHeader);
  for (std::size_t at = 0; at == 0 || at < reply.size(); at += kPart) {
    shm::ControlHeader part;
    part.type = static_cast<std::uint32_t>(shm::ControlType::kAdminAnswer);
    part.value = at + kPart < reply.size() ? 1 : 0;
    send_text(fd, part, std::string_view(reply).substr(at, kPart));
  }
}

}  // namespace

// ---- Connections --------------------------------------------------------------------------------

Status Control::listen(Fd listener) {
  listener_ = std::move(listener);
  if (!listener_) {
    auto made = listen_unix(options_.socket, options_.socket_mode);
    if (!made) return made.error();
    listener_ = std::move(*made);
  }
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
  return events_.watch(listener_.get(), [this] { accept_clients(); });
}

void Control::add_connection(Fd socket, const PeerCredentials& peer) {
  const int fd = socket.get();
  if (Status status = events_.watch(fd, [this, fd] { on_message(fd); }); !status.ok()) {
    log_refusal(peer, status);
    answer(fd, shm::ControlType::kAnswer, status);
    return;
  }
  connections_[fd] = Connection{std::move(socket), peer, 0, now_ns()};
}

// The spare descriptor carries the refusal. Otherwise the client would stay in the backlog and keep
// the loop awake.
void Control::refuse_without_descriptor() {
  spare_.reset();
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) {
    answer(socket.get(), shm::ControlType::kAnswer,
           {MC_BUSY, "the agent has no free file descriptors; raise LimitNOFILE of its unit"});
  }
  socket.reset();
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Control::accept_clients() {
  for (;;) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EMFILE || errno == ENFILE) && spare_) {
      refuse_without_descriptor();
      return;
    }
    if (!socket) return;
    auto peer = peer_credentials(socket.get());
    const bool allowed = peer && namespaces_.admits(*peer, nullptr);
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
    add_connection(std::move(socket), *peer);
    MC_FAILPOINT("connect.accepted");
  }
}

// Makes room for a new connection by closing the oldest connection without a session. Returns false
// if all connections have sessions.
bool Control::close_idle_connection() {
  const Connection* oldest = nullptr;
  for (const auto& [fd, connection] : connections_) {
    if (sessions_.find(connection.session_id) != nullptr) continue;
    if (oldest == nullptr || connection.opened_ns < oldest->opened_ns) oldest = &connection;
  }
  if (oldest == nullptr) return false;
  close_connection(oldest->socket.get());
  return true;
}

Result<Fd> Control::connect_embedded() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(MC_NO_MEMORY, errno_text("create a socket pair", errno));
  }
  Fd mine(ends[0]);
  Fd theirs(ends[1]);
  ::fcntl(mine.get(), F_SETFL, O_NONBLOCK);
  MutexLock lock(embedded_mutex_);
  embedded_pending_.push_back(std::move(mine));
  signal_eventfd(wake_);
  return theirs;
}

void Control::adopt_embedded() {
  MutexLock lock(embedded_mutex_);
  for (Fd& socket : embedded_pending_) {
    add_connection(std::move(socket), {::getpid(), ::geteuid(), ::getegid()});
  }
  embedded_pending_.clear();
}

void Control::close_connection(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  events_.unwatch(fd);
  const std::uint64_t session_id = found->second.session_id;
  connections_.erase(found);
  Session* const session = sessions_.find(session_id);
  if (session == nullptr) return;
  session->connection_fd = -1;
  // The session stays, detached, until its process ends, since the process may still read and write
  // in place. A session that never had a channel holds nothing; most likely the client never read
  // the welcome.
  if (session->unused) sessions_.end(session_id, Sessions::End::kGoodbye);
}

void Control::end_sessions_of(const Tenant& tenant) {
  std::vector<std::uint64_t> users;
  for (const auto& [id, session] : sessions_.all()) {
    if (session->tenant.get() == &tenant && !session->ending) users.push_back(id);
  }
  for (const std::uint64_t id : users) {
    const int fd = sessions_.find(id)->connection_fd;
    sessions_.end(id, Sessions::End::kGoodbye);
    close_connection(fd);
  }
}

void Control::on_message(int fd) {
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
    case shm::ControlType::kOpenLane:
      on_open_lane(connection, text);
      break;
    case shm::ControlType::kGpuWorker:
      on_gpu_worker(fd);
      break;
    case shm::ControlType::kGoodbye:
      sessions_.end(connection.session_id, Sessions::End::kGoodbye);
      answer(fd, shm::ControlType::kAnswer, {});
      break;
    case shm::ControlType::kAdmin:
      on_admin(connection, text);
      break;
    default:
      answer(fd, shm::ControlType::kAnswer,
             {MC_INVALID_ARGUMENT, "the message has an unknown type; upgrade the agent"});
      close_connection(fd);
  }
}

void Control::on_admin(const Connection& connection, std::string_view text) {
  const int fd = connection.socket.get();
  admin_.answer(text, connection.peer,
                [this, fd, opened_ns = connection.opened_ns](const std::string& reply) {
                  // Another connection may have the same descriptor by the time a peer or a master
                  // answers.
                  const auto still = connections_.find(fd);
                  if (still != connections_.end() && still->second.opened_ns == opened_ns) {
                    answer_admin(fd, reply);
                  }
                });
}

// ---- Sessions -----------------------------------------------------------------------------------

void Control::on_hello(Connection& connection, const std::vector<std::byte>& bytes) {
  const int fd = connection.socket.get();
  const auto refuse = [&](const Status& status) {
    log_refusal(connection.peer, status);
    answer(fd, shm::ControlType::kAnswer, status);
    close_connection(fd);
  };
  const auto hello = shm::decode_control<shm::ClientHello>(bytes, shm::ControlType::kHello);
  if (!hello || hello->layout_version != shm::kLayoutVersion) {
    refuse({MC_VERSION_MISMATCH, "libmc and agent differ: the agent has layout version " +
                                     std::to_string(shm::kLayoutVersion) + ", libmc " +
                                     (hello ? std::to_string(hello->layout_version) : "another") +
                                     "; upgrade the older one"});
    return;
  }
  const auto tenant = field_text(hello->name_space, sizeof hello->name_space);
  const auto label = field_text(hello->label, sizeof hello->label);
  if (!tenant || sessions_.find(connection.session_id) != nullptr || hello->channel_count == 0 ||
      hello->channel_count > MC_MAX_CHANNELS) {
    refuse({MC_INVALID_ARGUMENT, "the hello is malformed; use the libmc of this agent's release"});
    return;
  }
  MC_FAILPOINT("connect.hello");
  const bool resuming = hello->resume_session != 0;
  auto session = resuming ? resume_session(connection, *hello, *tenant, label.value_or(""))
                          : begin_session(connection, *hello, *tenant, label.value_or(""));
  if (!session) {
    refuse(session.error());
    return;
  }
  if (Status status = sessions_.welcome(**session, fd, resuming); !status.ok()) {
    if (!resuming) sessions_.end((*session)->id, Sessions::End::kGoodbye);
    refuse(status);
    return;
  }
  connection.session_id = (*session)->id;
  (*session)->connection_fd = fd;
  MC_FAILPOINT("connect.welcomed");
}

// A client that repeats a refused request must not fill the log.
void Control::log_refusal(const PeerCredentials& peer, const Status& status) {
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

Result<Session*> Control::begin_session(const Connection& connection, const shm::ClientHello& hello,
                                        const std::string& name, const std::string& label) {
  const std::shared_ptr<Tenant> tenant = namespaces_.find(name);
  if (!tenant) {
    return fail(MC_NO_SUCH_NAMESPACE,
                "this agent has no namespace '" + name + "'; see mcctl namespace list");
  }
  if (!namespaces_.admits(connection.peer, tenant.get())) {
    return fail(MC_PERMISSION_DENIED, "uid " + std::to_string(connection.peer.uid) +
                                          " may not use namespace '" + name +
                                          "'; add it to the namespace's allow_uids");
  }
  if (tenant->isolated && connection.peer.uid == ::geteuid() && !embedded_ &&
      !options_.isolated_allow_same_user) {
    return fail(MC_PERMISSION_DENIED,
                "a client with the agent's own user could open an isolated pool for writing; run "
                "the agent as a user of its own, or set isolated_allow_same_user = true");
  }
  return sessions_.begin(connection.peer, connection.socket.get(), tenant, hello.channel_count,
                         label);
}

Result<Session*> Control::resume_session(const Connection& connection,
                                         const shm::ClientHello& hello, const std::string& tenant,
                                         const std::string& label) {
  Session* const session = sessions_.find(hello.resume_session);
  if (session == nullptr || session->secret != hello.resume_secret ||
      session->uid != connection.peer.uid || session->tenant->name != tenant) {
    return fail(MC_SESSION_LOST, "this agent does not know the session; open a new client");
  }
  // An unused session would end with its old connection.
  const bool unused = std::exchange(session->unused, false);
  if (session->connection_fd >= 0) close_connection(session->connection_fd);
  session->unused = unused;
  sessions_.resume(*session, label);
  return session;
}

void Control::on_open_channel(const Connection& connection, std::uint64_t number) {
  Session* const session = sessions_.find(connection.session_id);
  const Status status =
      session != nullptr ? sessions_.open_channel(*session, number) : no_session();
  answer(connection.socket.get(), shm::ControlType::kAnswer, status, number);
}

// A client's reservation cache stays at the granted place. If the cache lies in the tail of a
// shrinking pool, the agent asks the client for it from time to time.
void Control::ask_for_reservation_cache(std::uint64_t now) {
  for (const auto& [name, tenant] : namespaces_.all()) {
    if (tenant->isolated || !tenant->store->pool().shrinking()) continue;
    if (now < tenant->next_reservation_cache_question_ns) continue;
    tenant->next_reservation_cache_question_ns = now + kReservationCacheQuestionPeriodNs;
    for (const auto& [id, session] : sessions_.all()) {
      if (session->tenant != tenant || session->connection_fd < 0) continue;
      if (session->reserved_in_tail_bytes() == 0) continue;
      answer(session->connection_fd, shm::ControlType::kReservationCacheWanted, {});
    }
  }
}

void Control::on_open_staging(const Connection& connection, std::uint64_t bytes) {
  Session* const session = sessions_.find(connection.session_id);
  const Status status = session != nullptr ? sessions_.open_staging(*session, bytes) : no_session();
  if (!status.ok()) {
    answer(connection.socket.get(), shm::ControlType::kAnswer, status);
    return;
  }
  shm::ControlHeader header;
  header.type = static_cast<std::uint32_t>(shm::ControlType::kAnswer);
  header.value = session->staging_bytes();
  const int fd = session->staging_file().fd();
  static_cast<void>(
      send_message(connection.socket.get(), std::as_bytes(std::span(&header, 1)), std::span(&fd, 1))
          .ok());
}

void Control::on_open_lane(const Connection& connection, std::string_view device) {
  const int socket = connection.socket.get();
  Session* const session = sessions_.find(connection.session_id);
  device::Uuid uuid{};
  if (session == nullptr || device.size() != sizeof uuid) {
    answer(socket, shm::ControlType::kAnswer,
           session == nullptr ? no_session() : MC_INVALID_ARGUMENT);
    return;
  }
  std::memcpy(&uuid, device.data(), sizeof uuid);
  const auto files = gpu_workers_.open_lane(*session, uuid);
  if (!files) {
    answer(socket, shm::ControlType::kAnswer, files.error());
    return;
  }
  shm::ControlHeader header;
  header.type = static_cast<std::uint32_t>(shm::ControlType::kAnswer);
  header.value = files->number;
  const int fds[] = {files->lane.get(), files->worker_bell.get(), files->client_bell.get(),
                     files->socket.get(), files->worker.get()};
  static_cast<void>(send_message(socket, std::as_bytes(std::span(&header, 1)), fds).ok());
}

// The connection becomes the worker's link.
void Control::on_gpu_worker(int fd) {
  const auto found = connections_.find(fd);
  const PeerCredentials peer = found->second.peer;
  auto pidfd = peer_pidfd(fd, peer.pid);
  Status status = pidfd ? Status{} : pidfd.error();
  if (peer.uid != 0 && peer.uid != ::geteuid()) {
    status = {MC_PERMISSION_DENIED, "a worker of a device runs as root or as the agent's user"};
  }
  if (!status.ok()) {
    log_refusal(peer, status);
    answer(fd, shm::ControlType::kAnswer, status);
    close_connection(fd);
    return;
  }
  events_.unwatch(fd);
  Fd link = std::move(found->second.socket);
  connections_.erase(found);
  status = gpu_workers_.attach(std::move(link), std::move(*pidfd), peer.pid);
  if (!status.ok()) log_refusal(peer, status);
}

}  // namespace mc::agent
