// SPDX-License-Identifier: Apache-2.0
//
// The keeper's process: one thread and one loop. Agents come and go, and the descriptors stay. The
// keeper maps no memory and reads no byte of the kept files.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <optional>

#include "agent/keeper/descriptor_store.h"
#include "agent/keeper/keeper_protocol.h"
#include "libmc/base/clock.h"

namespace mc::agent {
namespace {

// One agent at a time, plus a few agents that are just leaving.
constexpr std::size_t kMaxConnections = 16;
// Descriptors beside the kept ones: standard streams, lock, listener, connections, and an incoming
// descriptor.
constexpr std::size_t kOwnDescriptors = 32;
constexpr std::uint64_t kSecond = 1'000'000'000;

void pause_briefly() {
  const timespec pause{0, 2'000'000};
  ::nanosleep(&pause, nullptr);
}

std::size_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxKeptDescriptors;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const std::size_t room = limit.rlim_max > kOwnDescriptors
                               ? static_cast<std::size_t>(limit.rlim_max) - kOwnDescriptors
                               : 0;
  return std::min(room, kMaxKeptDescriptors);
}

void leave_the_agents_world() {
  // Blocked and ignored signals survive exec.
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);
  ::close_range(3, ~0u, 0);
  ::prctl(PR_SET_NAME, "mc-keeper");
  ::umask(077);
}

void close_standard_streams() {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int stream = 0; null && stream <= 2; ++stream) ::dup2(null.get(), stream);
  if (::chdir("/") != 0) return;  // a failure only keeps a directory from being unmounted
}

class Keeper {
 public:
  Keeper(const std::string& runtime_dir, std::uint32_t keep_seconds, std::size_t max_kept)
      : socket_path_(runtime_dir + std::string(kKeeperSocketName)),
        pid_path_(runtime_dir + "/keeper.pid"),
        keep_seconds_(keep_seconds),
        max_kept_(max_kept) {}

  // Returns false without an error if a living keeper already serves.
  Result<bool> start();
  void serve();

 private:
  Result<bool> lock();
  void accept_agent();
  // Returns false when the connection is over.
  bool handle(int agent);
  KeeperMessage apply(KeeperMessage request, std::vector<Fd> fds);
  bool send_kept(int agent);
  void leave();

  const std::string socket_path_;
  const std::string pid_path_;
  std::uint64_t keep_seconds_;
  const std::size_t max_kept_;
  Fd lock_;
  Fd listener_;
  std::vector<Fd> agents_;
  std::map<std::string, Fd> kept_;
  bool told_to_end_ = false;
};

// The lock on keeper.pid decides which process is the keeper, since the kernel releases a lock at
// the end of its holder. The file stays: after an unlink, two keepers could each lock a file of
// that name.
Result<bool> Keeper::lock() {
  lock_.reset(::open(pid_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_) return fail(MC_PERMISSION_DENIED, errno_text("open " + pid_path_, errno));
  // The holder of the lock either serves or is about to end.
  const std::uint64_t deadline_ns = now_ns() + kSecond;
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (connect_unix(socket_path_, 0) || now_ns() >= deadline_ns) return false;
    pause_briefly();
  }
  return true;
}

Result<bool> Keeper::start() {
  const auto locked = lock();
  if (!locked || !*locked) return locked;
  auto listener = listen_unix(socket_path_, 0600);
  if (!listener && listener.error().code() == MC_BUSY) return false;
  if (!listener) return fail(listener.error());
  listener_ = std::move(*listener);
  ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock_.get(), 0) != 0 ||
      ::pwrite(lock_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return fail(MC_NO_SPACE, errno_text("write " + pid_path_, errno));
  }
  return true;
}

void Keeper::leave() {
  ::unlink(socket_path_.c_str());
  listener_.reset();
  // Last step: the process that gets the lock must find the name free.
  if (::ftruncate(lock_.get(), 0) != 0) return;
  lock_.reset();
}

void Keeper::serve() {
  std::uint64_t alone_since_ns = now_ns();
  while (!told_to_end_) {
    std::vector<pollfd> polled;
    for (const Fd& agent : agents_) polled.push_back({agent.get(), POLLIN, 0});
    polled.push_back({listener_.get(), POLLIN, 0});
    timespec timeout{};
    if (agents_.empty()) {
      const std::uint64_t end_ns = alone_since_ns + keep_seconds_ * kSecond;
      const std::uint64_t now = now_ns();
      if (now >= end_ns) break;
      timeout = {static_cast<time_t>((end_ns - now) / kSecond),
                 static_cast<long>((end_ns - now) % kSecond)};
    }
    if (::ppoll(polled.data(), polled.size(), agents_.empty() ? &timeout : nullptr, nullptr) <= 0) {
      continue;
    }
    const bool had_agents = !agents_.empty();
    std::vector<Fd> staying;
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      const bool quiet = polled[i].revents == 0;
      if (quiet || handle(agents_[i].get())) staying.push_back(std::move(agents_[i]));
      if (told_to_end_) return;
    }
    agents_ = std::move(staying);
    if (polled.back().revents != 0) accept_agent();
    if (had_agents && agents_.empty()) alone_since_ns = now_ns();
  }
  leave();
}

void Keeper::accept_agent() {
  Fd agent(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!agent) {
    // The system has no free descriptor; poll() would report the listener again at once.
    if (errno != EAGAIN && errno != EINTR) pause_briefly();
    return;
  }
  const auto peer = peer_credentials(agent.get());
  if (!peer || peer->uid != ::geteuid() || agents_.size() >= kMaxConnections) return;
  // An agent that stopped in the middle of a message must not block the next agent for longer.
  const timeval wait{static_cast<time_t>(kKeeperTimeoutNs / kSecond), 0};
  ::setsockopt(agent.get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  ::setsockopt(agent.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  agents_.push_back(std::move(agent));
}

bool send_frame(int agent, const KeeperMessage& message, std::span<const int> fds = {}) {
  const KeeperFrame frame = encode_keeper_message(message);
  return send_message(agent, std::as_bytes(std::span(&frame, 1)), fds).ok();
}

bool Keeper::handle(int agent) {
  auto datagram = receive_message(agent, sizeof(KeeperFrame));
  if (!datagram || datagram->bytes.empty()) return false;
  auto request = decode_keeper_message(datagram->bytes, datagram->fds.size());
  if (!request) return false;
  const KeeperVerb verb = request->verb;
  if (verb == KeeperVerb::kItem || verb == KeeperVerb::kReply) return false;
  if (verb == KeeperVerb::kTakeAll && !send_kept(agent)) return false;
  const bool end = verb == KeeperVerb::kDropAll && request->value == 1;
  const KeeperMessage reply = apply(std::move(*request), std::move(datagram->fds));
  if (end) {
    // Before the answer: an agent that acts on the answer must find the name free.
    leave();
    told_to_end_ = true;
  }
  return send_frame(agent, reply);
}

KeeperMessage Keeper::apply(KeeperMessage request, std::vector<Fd> fds) {
  KeeperMessage reply;
  if (request.verb == KeeperVerb::kPut) {
    if (kept_.size() < max_kept_ || kept_.contains(request.name)) {
      kept_.insert_or_assign(std::move(request.name), std::move(fds.front()));
    } else {
      reply.code = MC_QUOTA_EXCEEDED;
    }
  } else if (request.verb == KeeperVerb::kDrop) {
    kept_.erase(request.name);
  } else if (request.verb == KeeperVerb::kDropAll) {
    kept_.clear();
  } else if (request.verb == KeeperVerb::kTakeAll) {
    keep_seconds_ = request.value;
  }
  reply.value = static_cast<std::uint32_t>(kept_.size());
  return reply;
}

bool Keeper::send_kept(int agent) {
  const std::uint64_t deadline_ns = now_ns() + kKeeperTimeoutNs;
  for (const auto& [name, fd] : kept_) {
    const int number = fd.get();
    const KeeperMessage item{KeeperVerb::kItem, MC_OK, 0, name};
    if (now_ns() >= deadline_ns || !send_frame(agent, item, std::span(&number, 1))) return false;
  }
  return true;
}

}  // namespace

int run_keeper(const std::string& runtime_dir, std::uint32_t keep_seconds) {
  leave_the_agents_world();
  Keeper keeper(runtime_dir, keep_seconds, raise_descriptor_limit());
  const auto started = keeper.start();
  if (!started) {
    // stderr is still the agent's stderr here; this is the last use.
    std::fprintf(stderr, "mc-keeper: %s\n", started.error().to_string().c_str());
    return 1;
  }
  if (!*started) return 0;
  close_standard_streams();
  keeper.serve();
  return 0;
}

}  // namespace mc::agent
