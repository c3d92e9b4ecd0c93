// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/bare_stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>

namespace mc::ctl {

namespace {
constexpr std::uint64_t kWrite = std::uint64_t{1} << 63;
}  // namespace

bool receive_all(int fd, void* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = ::recv(fd, static_cast<char*>(data) + done, bytes - done, 0);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

bool send_all(int fd, const void* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t put =
        ::send(fd, static_cast<const char*>(data) + done, bytes - done, MSG_NOSIGNAL);
    if (put <= 0) return false;
    done += static_cast<std::size_t>(put);
  }
  return true;
}

void set_no_delay(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

bool become_blocking(int fd, std::uint64_t timeout_ns) {
  const timeval limit{static_cast<time_t>(timeout_ns / 1'000'000'000),
                      static_cast<suseconds_t>(timeout_ns % 1'000'000'000 / 1000)};
  pollfd what{fd, POLLOUT, 0};
  if (::poll(&what, 1, static_cast<int>(timeout_ns / 1'000'000)) != 1) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0 &&
         ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
         ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
         ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0;
}

bool stream_read(int fd, std::span<std::byte> to) {
  const std::uint64_t word = to.size();
  return send_all(fd, &word, sizeof word) && receive_all(fd, to.data(), to.size());
}

bool stream_write(int fd, std::span<const std::byte> from) {
  std::uint64_t word = from.size() | kWrite;
  return send_all(fd, &word, sizeof word) && send_all(fd, from.data(), from.size()) &&
         receive_all(fd, &word, sizeof word);
}

void serve_stream(int fd, std::span<std::byte> memory) {
  set_no_delay(fd);
  std::uint64_t word = 0;
  while (receive_all(fd, &word, sizeof word)) {
    for (std::uint64_t left = word & ~kWrite; left > 0;) {
      const std::size_t part = std::min<std::uint64_t>(left, memory.size());
      const bool moved = (word & kWrite) != 0 ? receive_all(fd, memory.data(), part)
                                              : send_all(fd, memory.data(), part);
      if (!moved) return;
      left -= part;
    }
    if ((word & kWrite) != 0 && !send_all(fd, &word, sizeof word)) return;
  }
}

}  // namespace mc::ctl
