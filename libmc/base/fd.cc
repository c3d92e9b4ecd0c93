// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "libmc/base/clock.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace mc {

void Fd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<Fd> Fd::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail(MC_NO_MEMORY, errno_text("duplicate a descriptor", errno));
  return Fd(copy);
}

std::string errno_text(std::string_view what, int error) {
  return std::string(what) + ": " + std::strerror(error);
}

Status send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    if (fds.size() > kMaxFdsPerMessage) return {MC_INTERNAL, "too many descriptors in a message"};
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {MC_BUSY, "the peer does not read"};
    return {MC_AGENT_UNAVAILABLE, errno_text("send", errno)};
  }
  return {};
}

Result<Message> receive_message(int socket, std::size_t max_bytes) {
  Message result;
  result.bytes.resize(max_bytes);
  iovec vector{result.bytes.data(), result.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  while ((received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return fail(MC_BUSY, "no message waits");
    // Reported once, if the peer closed without reading everything. Earlier messages of the peer
    // follow.
    if (errno == ECONNRESET) continue;
    return fail(MC_AGENT_UNAVAILABLE, errno_text("receive", errno));
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      result.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return fail(MC_INVALID_ARGUMENT, "a message longer than the protocol allows");
  }
  result.bytes.resize(received > 0 ? static_cast<std::size_t>(received) : 0);
  return result;
}

bool wait_readable(int fd, std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  for (;;) {
    const std::uint64_t now = now_ns();
    const std::uint64_t left = now < deadline_ns ? deadline_ns - now : 0;
    timespec timeout{static_cast<time_t>(left / 1000000000u),
                     static_cast<long>(left % 1000000000u)};
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::ppoll(&entry, 1, &timeout, nullptr);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return fail(MC_PERMISSION_DENIED, errno_text("read the peer's credentials", errno));
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Result<Fd> peer_pidfd(int socket, int pid) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) return Fd(fd);
  fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return fail(MC_PERMISSION_DENIED, errno_text("pidfd_open of the peer", errno));
  Fd result(fd);
  // The pid may have been reused since connect. A peer that still holds the end has not exited, so
  // the pid still names this peer.
  pollfd entry{socket, POLLIN, 0};
  if (::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0) {
    return fail(MC_PERMISSION_DENIED, "the peer ended while it connected");
  }
  return result;
}

namespace {

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return fail(MC_INVALID_ARGUMENT, "socket path '" + path + "' must have 1 to " +
                                         std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool admits_owner_alone(const std::string& path) {
  constexpr mode_t kOthersMayConnect = 0022;
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && (facts.st_mode & kOthersMayConnect) == 0;
}

Result<Fd> seqpacket_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return fail(MC_NO_MEMORY, errno_text("create a socket", errno));
  return fd;
}

}  // namespace

Result<Fd> connect_unix(const std::string& path, std::uint64_t timeout_ns) {
  auto address = unix_address(path);
  if (!address) return fail(address.error());
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  for (;;) {
    auto fd = seqpacket_socket();
    if (!fd) return fd;
    // A full backlog would otherwise block a connect without bound.
    const timeval wait{1, 0};
    ::setsockopt(fd->get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (::connect(fd->get(), reinterpret_cast<sockaddr*>(&*address), sizeof *address) == 0) {
      return fd;
    }
    const int error = errno;
    if (error == EACCES || error == EPERM) {
      return fail(MC_PERMISSION_DENIED,
                  "no right to connect to " + path + "; " +
                      (admits_owner_alone(path) ? "set socket_mode (of mc-agent.socket: "
                                                  "SocketMode) to 0660, and list the user in "
                                                  "allow_uids"
                                                : "join the group that owns the socket, and log "
                                                  "in again"));
    }
    if (now_ns() >= deadline_ns ||
        (error != ENOENT && error != ECONNREFUSED && error != EAGAIN && error != EINTR)) {
      return fail(MC_AGENT_UNAVAILABLE, errno_text("connect to " + path, error) +
                                            "; start mc-agent, or name its socket in MC_AGENT");
    }
    const timespec pause{0, 2000000};
    ::nanosleep(&pause, nullptr);
  }
}

Result<Fd> listen_unix(const std::string& path, unsigned mode) {
  auto address = unix_address(path);
  if (!address) return fail(address.error());
  if (connect_unix(path, 0)) {
    return fail(MC_BUSY, "another process listens on " + path);
  }
  ::unlink(path.c_str());
  auto fd = seqpacket_socket();
  if (!fd) return fd;
  const mode_t previous = ::umask(0777 & ~mode);
  const int bound = ::bind(fd->get(), reinterpret_cast<sockaddr*>(&*address), sizeof *address);
  const int error = errno;
  ::umask(previous);
  if (bound != 0) {
    return fail(MC_PERMISSION_DENIED,
                errno_text("bind " + path, error) + "; the directory must exist and be writable");
  }
  if (::listen(fd->get(), 128) != 0) return fail(MC_INTERNAL, errno_text("listen", errno));
  return fd;
}

Result<Fd> make_eventfd() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return fail(MC_NO_MEMORY, errno_text("create an eventfd", errno));
  return fd;
}

void signal_eventfd(int fd) {
  const std::uint64_t one = 1;
  // A full counter already wakes the reader, so a failed write loses nothing.
  if (::write(fd, &one, sizeof one) < 0) return;
}

void drain_eventfd(int fd) {
  std::uint64_t count = 0;
  if (::read(fd, &count, sizeof count) < 0) return;
}

}  // namespace mc
