// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/linked_pair.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "transport/tcp/socket.h"

namespace mc::transport::testing {

LinkEnds make_link(const DialRequest& request, std::uint64_t b_incarnation) {
  const Fd listener = tcp::listen_tcp("127.0.0.1", 0).value();
  LinkEnds ends;
  ends.dialed.socket =
      tcp::start_connect("127.0.0.1", tcp::local_port(listener.get()).value()).value();
  static_cast<void>(wait_readable(listener.get(), 5'000'000'000));
  ends.accepted.socket =
      Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  ends.accepted.accepted = true;
  ends.dialed.peer = request.peer;
  ends.dialed.lane = ends.accepted.lane = request.lane;
  ends.dialed.role = ends.accepted.role = request.role;
  ends.dialed.node = request.node;
  ends.dialed.incarnation = b_incarnation;
  ends.accepted.node = kNodeA;
  ends.accepted.incarnation = 1;
  return ends;
}

void shut_down(const Fd& socket) {
  if (socket) ::shutdown(socket.get(), SHUT_RDWR);
}

void shut_down_beside(const Fd& end) {
  // Both ends of a connection over loopback have the same two ports.
  const auto ports = [](int fd) -> std::optional<std::pair<in_port_t, in_port_t>> {
    sockaddr_in own{}, other{};
    socklen_t own_bytes = sizeof own, other_bytes = sizeof other;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0 ||
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0 ||
        own.sin_family != AF_INET) {
      return std::nullopt;
    }
    return std::minmax<in_port_t>({own.sin_port, other.sin_port});
  };
  const auto spared = ports(end.get());
  for (int fd = 0; fd < 1024; ++fd) {
    const auto of = ports(fd);
    if (of && of != spared) ::shutdown(fd, SHUT_RDWR);
  }
}

}  // namespace mc::transport::testing
