// SPDX-License-Identifier: Apache-2.0
//
// The keeper's processes, each with one thread and one loop. Agents come and go, and the descriptors
// stay. The keeper maps no memory and reads no byte of the kept files.
//
//   agent ──requests──► active keeper ──requests that change──► standby
//
// The standby begins as a fork of the active keeper, and holds a duplicate of each descriptor. If the
// active keeper dies, the standby takes its place and forks the next standby. The deaths of the agent
// and of one keeper together lose nothing.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
// Descriptors beside the kept ones: standard streams, lock, listener, connections, the standby, and an
// incoming descriptor.
constexpr std::size_t kOwnDescriptors = 32;
constexpr std::uint64_t kSecond = 1'000'000'000;
// A standby that dies at once must not keep the active keeper busy with forks.
constexpr std::uint64_t kForkPauseNs = kSecond / 10;

volatile std::sig_atomic_t terminated = 0;

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
  ::umask(077);
}

// An active keeper ends in order at SIGTERM, and blocks the signal outside of ppoll().
void obey_sigterm(bool active) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  ::sigprocmask(active ? SIG_BLOCK : SIG_UNBLOCK, &set, nullptr);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  if (active) action.sa_handler = [](int) { terminated = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
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
  // Serves agents until the end. Returns false in a new standby.
  bool serve();
  // In a standby: holds the descriptors until the active keeper dies, and takes its place. Returns
  // false if the standby cannot serve.
  bool stand_by();

 private:
  Result<bool> lock();
  Status open_for_agents();
  bool fork_standby();
  void end_standby();
  void tell_standby(const Message& request);
  void serve_agents(std::span<const pollfd> polled);
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
  pid_t standby_ = -1;  // -1: none
  Fd to_standby_;       // requests that change
  Fd from_active_;      // in a standby: the other end
  std::uint64_t next_fork_ns_ = 0;
};

// The lock on keeper.pid decides which process is the keeper, since the kernel releases a lock at
// the end of its holder. The file stays: after an unlink, two keepers could each lock a file of
// that name. A standby is a fork and so shares the lock.
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
  if (Status status = open_for_agents(); !status.ok()) return fail(status);
  return true;
}

// The lock is held, so a listener of that name belongs to a keeper that has died: the kernel may end
// its other descriptors earlier than the listener.
Status Keeper::open_for_agents() {
  ::prctl(PR_SET_NAME, "mc-keeper");
  ::unlink(socket_path_.c_str());
  auto listener = listen_unix(socket_path_, 0600);
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock_.get(), 0) != 0 ||
      ::pwrite(lock_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return {MC_NO_SPACE, errno_text("write " + pid_path_, errno)};
  }
  obey_sigterm(true);
  return {};
}

// Returns true in the standby.
bool Keeper::fork_standby() {
  const std::uint64_t now = now_ns();
  if (now < next_fork_ns_) return false;
  next_fork_ns_ = now + kForkPauseNs;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  Fd mine(ends[0]);
  Fd other(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    from_active_ = std::move(other);
    listener_.reset();
    agents_.clear();
    return true;
  }
  if (pid < 0) return false;
  ::fcntl(mine.get(), F_SETFL, O_NONBLOCK);
  to_standby_ = std::move(mine);
  standby_ = pid;
  return false;
}

void Keeper::end_standby() {
  if (standby_ < 0) return;
  ::kill(standby_, SIGKILL);
  while (::waitpid(standby_, nullptr, 0) < 0 && errno == EINTR) {
  }
  to_standby_.reset();
  standby_ = -1;
}

// A standby that does not read is replaced. The next standby begins with all descriptors.
void Keeper::tell_standby(const Message& request) {
  if (standby_ < 0) return;
  std::vector<int> fds;
  for (const Fd& fd : request.fds) fds.push_back(fd.get());
  if (!send_message(to_standby_.get(), request.bytes, fds).ok()) end_standby();
}

bool Keeper::stand_by() {
  ::prctl(PR_SET_NAME, "mc-keeper-2");
  obey_sigterm(false);
  for (;;) {
    auto datagram = receive_message(from_active_.get(), sizeof(KeeperFrame));
    // The active keeper replaces a standby that missed a request.
    if (!datagram) return false;
    if (datagram->bytes.empty()) break;
    auto request = decode_keeper_message(datagram->bytes, datagram->fds.size());
    if (!request) return false;
    apply(std::move(*request), std::move(datagram->fds));
  }
  from_active_.reset();
  next_fork_ns_ = 0;
  return open_for_agents().ok();
}

void Keeper::leave() {
  end_standby();
  ::unlink(socket_path_.c_str());
  listener_.reset();
  // Last step: the process that gets the lock must find the name free.
  if (::ftruncate(lock_.get(), 0) != 0) return;
  lock_.reset();
}

bool Keeper::serve() {
  sigset_t none;
  sigemptyset(&none);
  std::uint64_t alone_since_ns = now_ns();
  while (!told_to_end_ && terminated == 0) {
    if (standby_ < 0 && fork_standby()) return false;
    std::vector<pollfd> polled;
    for (const Fd& agent : agents_) polled.push_back({agent.get(), POLLIN, 0});
    polled.push_back({listener_.get(), POLLIN, 0});
    // A standby sends nothing; the socket becomes readable at its end. poll() ignores -1.
    polled.push_back({to_standby_.get(), POLLIN, 0});
    const std::uint64_t now = now_ns();
    const std::uint64_t end_ns = alone_since_ns + keep_seconds_ * kSecond;
    if (agents_.empty() && now >= end_ns) break;
    std::uint64_t wait_ns = agents_.empty() ? end_ns - now : ~std::uint64_t{0};
    if (standby_ < 0) wait_ns = std::min(wait_ns, kForkPauseNs);
    const timespec timeout{static_cast<time_t>(wait_ns / kSecond),
                           static_cast<long>(wait_ns % kSecond)};
    if (::ppoll(polled.data(), polled.size(), &timeout, &none) <= 0) continue;
    const bool had_agents = !agents_.empty();
    if (polled.back().revents != 0) end_standby();
    polled.pop_back();
    const bool new_agent = polled.back().revents != 0;
    polled.pop_back();
    serve_agents(polled);
    if (told_to_end_) return true;
    if (new_agent) accept_agent();
    if (had_agents && agents_.empty()) alone_since_ns = now_ns();
  }
  leave();
  return true;
}

// polled: in the order of the agents.
void Keeper::serve_agents(std::span<const pollfd> polled) {
  std::vector<Fd> staying;
  for (std::size_t i = 0; i < agents_.size() && !told_to_end_; ++i) {
    const bool quiet = polled[i].revents == 0;
    if (quiet || handle(agents_[i].get())) staying.push_back(std::move(agents_[i]));
  }
  agents_ = std::move(staying);
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
  tell_standby(*datagram);
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
  while (!keeper.serve()) {
    if (!keeper.stand_by()) return 1;
  }
  return 0;
}

}  // namespace mc::agent
