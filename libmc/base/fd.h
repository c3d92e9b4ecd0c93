// SPDX-License-Identifier: Apache-2.0
//
// An owned file descriptor, and datagrams with descriptors over a unix socket.
// Threads: an Fd has a single owner.
// Trusts: nothing. Sizes and counts of received messages are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mc/status.h"

namespace mc {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);
  Result<Fd> duplicate() const;

 private:
  int fd_ = -1;
};

// Example: "open /x/y: No such file or directory"
std::string errno_text(std::string_view what, int error);

inline constexpr std::size_t kMaxFdsPerMessage = 160;

// Sends a datagram. Errors: MC_AGENT_UNAVAILABLE if the peer is gone, MC_BUSY if the peer does not
// read.
Status send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {});

struct Message {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};
// Receives a datagram of at most max_bytes. An empty message means that the peer closed. Errors:
// MC_BUSY if no datagram waits (non-blocking sockets), MC_TIMEOUT, MC_INVALID_ARGUMENT if the
// datagram was longer or carried more descriptors than allowed.
Result<Message> receive_message(int socket, std::size_t max_bytes);

// Waits until fd is readable. False: the timeout passed.
bool wait_readable(int fd, std::uint64_t timeout_ns);

struct PeerCredentials {
  int pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};
Result<PeerCredentials> peer_credentials(int socket);
// A descriptor that names the peer process for ever: SO_PEERPIDFD if the kernel has it (6.5), else
// pidfd_open of the peer's pid, after a check that the peer is still connected.
Result<Fd> peer_pidfd(int socket, int pid);

// A SOCK_SEQPACKET connection to path within the timeout. Retries while no process listens at path.
Result<Fd> connect_unix(const std::string& path, std::uint64_t timeout_ns);
// Binds and listens. Replaces a socket file without a listener. mode: of the socket file.
Result<Fd> listen_unix(const std::string& path, unsigned mode);

Result<Fd> make_eventfd();
void signal_eventfd(int fd);
void drain_eventfd(int fd);

}  // namespace mc
