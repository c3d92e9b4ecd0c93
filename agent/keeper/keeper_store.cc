// SPDX-License-Identifier: Apache-2.0
//
// The store that talks to a keeper, and the start of a keeper.
// Owns: the connection and a pidfd of the keeper.
// Trusts: an answer only after decode_keeper_message().
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "agent/keeper/descriptor_store.h"
#include "agent/keeper/keeper_protocol.h"
#include "libmc/base/clock.h"

namespace mc::agent {
namespace {

using Kept = std::map<std::string, Fd>;

// A missing or malformed answer ends the connection; otherwise a late answer could be taken for the
// answer to the next request. death_fd() then tells the owner, which calls restart().
class KeeperStore final : public DescriptorStore {
 public:
  KeeperStore(std::string path, std::uint32_t keep_seconds, KeeperSpawner spawn, Fd epoll)
      : path_(std::move(path)),
        keep_seconds_(keep_seconds),
        spawn_(std::move(spawn)),
        death_(std::move(epoll)) {}

  Status connect_or_spawn();

  Result<Kept> take_all() override;
  Status put(const std::string& name, int fd) override;
  Status drop(const std::string& name) override;
  Status drop_all() override;
  int death_fd() const override { return death_.get(); }
  Status restart() override;

 private:
  Status adopt(Fd socket);
  Result<Kept> ask(const KeeperMessage& request, std::span<const int> fds = {});
  Result<Kept> read_answer();
  Status give_up(mc_status code, const std::string& why);
  void disconnect();
  Status end_old_keeper();

  const std::string path_;
  const std::uint32_t keep_seconds_;
  const KeeperSpawner spawn_;
  const Fd death_;  // an epoll that watches socket_ for hang-up only
  Fd socket_;
  Fd keeper_;  // pidfd
};

Status KeeperStore::connect_or_spawn() {
  auto socket = connect_unix(path_, 0);
  if (!socket && socket.error().code() == MC_AGENT_UNAVAILABLE) {
    if (auto status = spawn_(); !status.ok()) return status;
    socket = connect_unix(path_, kKeeperStartNs);
  }
  if (!socket) {
    return {socket.error().code(), "no keeper answers at " + path_ + " (" +
                                       std::string(socket.error().text()) +
                                       "); check that the agent may write to the directory"};
  }
  return adopt(std::move(*socket));
}

Status KeeperStore::adopt(Fd socket) {
  const auto peer = peer_credentials(socket.get());
  if (!peer) return peer.error();
  if (peer->uid != ::geteuid()) {
    return {MC_PERMISSION_DENIED, "user " + std::to_string(peer->uid) + " listens on " + path_ +
                                      "; remove the socket and close the directory to other users"};
  }
  const timeval wait{static_cast<time_t>(kKeeperTimeoutNs / 1'000'000'000), 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  epoll_event hang_up{};
  hang_up.events = EPOLLRDHUP;
  if (::epoll_ctl(death_.get(), EPOLL_CTL_ADD, socket.get(), &hang_up) != 0) {
    return {MC_NO_MEMORY, errno_text("watch the keeper", errno)};
  }
  socket_ = std::move(socket);
  // Without a pidfd (the keeper just ended, or lives in another pid namespace), the store can only
  // wait for the hang-up.
  auto keeper = peer_pidfd(socket_.get(), peer->pid);
  keeper_ = keeper ? std::move(*keeper) : Fd();
  return {};
}

Status KeeperStore::give_up(mc_status code, const std::string& why) {
  // The socket stays open: a closed socket leaves the epoll, and death_fd() would stay silent.
  ::shutdown(socket_.get(), SHUT_RDWR);
  return {code, "the keeper at " + path_ + " " + why};
}

Result<Kept> KeeperStore::read_answer() {
  const std::uint64_t deadline_ns = now_ns() + kKeeperTimeoutNs;
  Kept kept;
  for (std::size_t received = 0; received <= kMaxKeptDescriptors; ++received) {
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns || !wait_readable(socket_.get(), deadline_ns - now)) {
      return fail(give_up(MC_TIMEOUT, "did not answer within 2 s; it is stopped or overloaded"));
    }
    auto datagram = receive_message(socket_.get(), sizeof(KeeperFrame));
    if (!datagram) {
      // The kernel drops descriptors when this process has no free descriptor number.
      const bool cut = datagram.error().code() == MC_INVALID_ARGUMENT;
      return fail(give_up(cut ? MC_NO_MEMORY : datagram.error().code(),
                          cut ? "sent more descriptors than this process may open; raise its "
                                "limit (LimitNOFILE, ulimit -n)"
                              : "is gone: " + std::string(datagram.error().text())));
    }
    if (datagram->bytes.empty()) return fail(give_up(MC_AGENT_UNAVAILABLE, "has ended"));
    auto message = decode_keeper_message(datagram->bytes, datagram->fds.size());
    if (!message) {
      return fail(give_up(MC_INTERNAL, "sent " + std::string(message.error().text())));
    }
    if (message->verb == KeeperVerb::kItem) {
      kept.insert_or_assign(std::move(message->name), std::move(datagram->fds.front()));
      continue;
    }
    if (message->verb != KeeperVerb::kReply) break;
    if (message->code == MC_OK) return kept;
    return fail(message->code, "the keeper refuses the descriptor: it holds " +
                                   std::to_string(message->value) + " descriptors, of at most " +
                                   std::to_string(kMaxKeptDescriptors) +
                                   " and what its limit of open files allows");
  }
  return fail(give_up(MC_INTERNAL, "sent an unexpected message; stop the keeper"));
}

Result<Kept> KeeperStore::ask(const KeeperMessage& request, std::span<const int> fds) {
  if (!socket_) return fail(MC_AGENT_UNAVAILABLE, "no keeper is connected; restart it");
  const KeeperFrame frame = encode_keeper_message(request);
  const auto status = send_message(socket_.get(), std::as_bytes(std::span(&frame, 1)), fds);
  if (status.ok()) return read_answer();
  const bool full = status.code() == MC_BUSY;
  return fail(
      give_up(full ? MC_TIMEOUT : status.code(), full ? "does not read; it is stopped or overloaded"
                                                      : "is gone: " + std::string(status.text())));
}

Result<Kept> KeeperStore::take_all() {
  const KeeperMessage request{KeeperVerb::kTakeAll, MC_OK, keep_seconds_, {}};
  auto kept = ask(request);
  if (kept || kept.error().code() != MC_AGENT_UNAVAILABLE) return kept;
  // The keeper reached the end of its time at this moment, or died. This store has put no descriptor
  // yet, so another keeper serves as well.
  disconnect();
  if (auto status = connect_or_spawn(); !status.ok()) return fail(std::move(status));
  return ask(request);
}

Status KeeperStore::put(const std::string& name, int fd) {
  if (auto status = check_store_entry(name, fd); !status.ok()) return status;
  const auto answer = ask({KeeperVerb::kPut, MC_OK, 0, name}, std::span(&fd, 1));
  return answer ? Status() : answer.error();
}

Status KeeperStore::drop(const std::string& name) {
  if (auto status = check_store_name(name); !status.ok()) return status;
  const auto answer = ask({KeeperVerb::kDrop, MC_OK, 0, name});
  return answer ? Status() : answer.error();
}

Status KeeperStore::drop_all() {
  const auto answer = ask({KeeperVerb::kDropAll, MC_OK, 1, {}});
  return answer ? Status() : answer.error();
}

void KeeperStore::disconnect() {
  if (socket_) ::epoll_ctl(death_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
  socket_.reset();
}

// A hanging keeper still owns the name of the socket, so the old keeper must end before a new one
// starts.
Status KeeperStore::end_old_keeper() {
  if (!keeper_) return {};
  ::syscall(SYS_pidfd_send_signal, keeper_.get(), SIGKILL, nullptr, 0);
  if (!wait_readable(keeper_.get(), kKeeperTimeoutNs)) {
    return {MC_TIMEOUT, "the old keeper does not end; it hangs in the kernel"};
  }
  keeper_.reset();
  return {};
}

// A standby that has just begun still holds the listener of the dead keeper, and closes the listener
// with all connections. The answer shows that a keeper serves.
Status KeeperStore::restart() {
  disconnect();
  if (auto status = end_old_keeper(); !status.ok()) return status;
  if (auto status = connect_or_spawn(); !status.ok()) return status;
  const auto kept = take_all();
  return kept ? Status() : kept.error();
}

// Between fork and exec, other threads may hold locks for ever: only system calls are allowed.
[[noreturn]] void report_and_exit(int report_fd, int error) {
  if (::write(report_fd, &error, sizeof error) < 0) ::_exit(2);
  ::_exit(1);
}

[[noreturn]] void become_keeper(int report_fd, char* const* arguments) {
  ::setsid();
  const pid_t keeper = ::fork();
  if (keeper < 0) report_and_exit(report_fd, errno);
  if (keeper > 0) ::_exit(0);
  // The link leads to the running program, even after an upgrade replaced the file.
  ::execv("/proc/self/exe", arguments);
  report_and_exit(report_fd, errno);
}

// Runs this program as "--keeper --runtime-dir DIR --keep-seconds N", in its own session and as a
// child of init. The keeper therefore outlives any end of the agent. Errors: MC_NO_MEMORY,
// MC_INTERNAL.
Status spawn_keeper(const std::string& runtime_dir, std::uint32_t keep_seconds) {
  std::array<std::string, 6> words{"mc-agent",  "--keeper",       "--runtime-dir",
                                   runtime_dir, "--keep-seconds", std::to_string(keep_seconds)};
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();

  std::array<int, 2> pipe_fds{};
  if (::pipe2(pipe_fds.data(), O_CLOEXEC) != 0) {
    return {MC_NO_MEMORY, errno_text("start the keeper: pipe", errno)};
  }
  const Fd report(pipe_fds[0]);
  Fd report_writer(pipe_fds[1]);
  const pid_t child = ::fork();
  if (child < 0) return {MC_NO_MEMORY, errno_text("start the keeper: fork", errno)};
  if (child == 0) become_keeper(report_writer.get(), arguments.data());
  report_writer.reset();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  // exec closes the last writer, so end of file means success.
  int error = 0;
  if (!wait_readable(report.get(), kKeeperStartNs)) {
    return {MC_INTERNAL,
            "the keeper's program did not start within 10 s; check the load of this host"};
  }
  if (::read(report.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error)) {
    return {MC_INTERNAL, errno_text("start the keeper: exec /proc/self/exe", error)};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<DescriptorStore>> make_keeper_store(const std::string& runtime_dir,
                                                           std::uint32_t keep_seconds,
                                                           KeeperSpawner spawn) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail(MC_NO_MEMORY, errno_text("create an epoll", errno));
  auto store = std::make_unique<KeeperStore>(runtime_dir + std::string(kKeeperSocketName),
                                             keep_seconds, std::move(spawn), std::move(epoll));
  if (auto status = store->connect_or_spawn(); !status.ok()) return fail(std::move(status));
  return store;
}

Result<std::unique_ptr<DescriptorStore>> make_keeper_store(const std::string& runtime_dir,
                                                           std::uint32_t keep_seconds) {
  return make_keeper_store(runtime_dir, keep_seconds, [runtime_dir, keep_seconds] {
    return spawn_keeper(runtime_dir, keep_seconds);
  });
}

}  // namespace mc::agent
