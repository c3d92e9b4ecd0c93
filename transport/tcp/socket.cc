// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "transport/limits.h"

namespace mc::transport::tcp {

namespace {

bool set(int socket, int level, int name, int value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<Address> parse(const std::string& text, std::uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof *v4;
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof *v6;
    return address;
  }
  return fail(MC_INVALID_ARGUMENT, "'" + text + "' is not an IPv4 or IPv6 address");
}

Result<Fd> open_socket(const Address& address) {
  Fd socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) return fail(MC_NO_MEMORY, errno_text("socket", errno));
  return socket;
}

}  // namespace

Status prepare_lane(int socket) {
  const int flags = ::fcntl(socket, F_GETFL);
  if (flags < 0 || ::fcntl(socket, F_SETFL, flags | O_NONBLOCK) != 0) {
    return {MC_INVALID_ARGUMENT, errno_text("fcntl of a lane", errno)};
  }
  const int lost_ms = static_cast<int>(kPeerLostNs / 1'000'000);
  if (!set(socket, IPPROTO_TCP, TCP_NODELAY, 1) ||
      !set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, lost_ms) ||
      !set(socket, SOL_SOCKET, SO_KEEPALIVE, 1) || !set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1) ||
      !set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1) || !set(socket, IPPROTO_TCP, TCP_KEEPCNT, 2)) {
    return {MC_INVALID_ARGUMENT, errno_text("setsockopt of a lane", errno)};
  }
  return {};
}

Status use_congestion_control(int socket, const std::string& name) {
  if (::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                   static_cast<socklen_t>(name.size())) != 0) {
    return {MC_INVALID_ARGUMENT, errno_text("congestion control '" + name + "'", errno)};
  }
  return {};
}

bool enable_zero_copy(int socket) { return set(socket, SOL_SOCKET, SO_ZEROCOPY, 1); }

void cut(Fd& socket) {
  const linger now{1, 0};
  static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now));
  socket.reset();
}

Result<Fd> listen_tcp(const std::string& address, std::uint16_t port) {
  auto parsed = parse(address, port);
  if (!parsed) return fail(parsed.error());
  auto socket = open_socket(*parsed);
  if (!socket) return socket;
  set(socket->get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket->get(), reinterpret_cast<const sockaddr*>(&parsed->storage), parsed->size) !=
          0 ||
      ::listen(socket->get(), 1024) != 0) {
    const int error = errno;
    const mc_status code = error == EADDRINUSE ? MC_BUSY
                           : error == EACCES   ? MC_PERMISSION_DENIED
                                               : MC_INVALID_ARGUMENT;
    return fail(code, errno_text("listen on " + address + " port " + std::to_string(port), error));
  }
  return socket;
}

Result<std::uint16_t> local_port(int socket) {
  Address address;
  address.size = sizeof address.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return fail(MC_INVALID_ARGUMENT, errno_text("getsockname", errno));
  }
  return address.storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

Result<Fd> start_connect(const std::string& address, std::uint16_t port) {
  auto parsed = parse(address, port);
  if (!parsed) return fail(parsed.error());
  auto socket = open_socket(*parsed);
  if (!socket) return socket;
  if (::connect(socket->get(), reinterpret_cast<const sockaddr*>(&parsed->storage), parsed->size) !=
          0 &&
      errno != EINPROGRESS) {
    return fail(MC_AGENT_UNAVAILABLE,
                errno_text("connect to " + address + " port " + std::to_string(port), errno));
  }
  return socket;
}

}  // namespace mc::transport::tcp
