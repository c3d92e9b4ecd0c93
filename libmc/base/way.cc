// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/way.h"

#include <netdb.h>
#include <sys/socket.h>

#include <memory>

#include "libmc/base/fd.h"

namespace mc {

namespace {

// Empty: not an IP address.
std::string text_of(const sockaddr* address, socklen_t bytes) {
  char host[NI_MAXHOST] = {};
  if (::getnameinfo(address, bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return address->sa_family == AF_INET6 ? "[" + std::string(host) + "]" : std::string(host);
}

}  // namespace

Result<Way> way_to(const std::string& host, const std::string& port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); error != 0) {
    return fail(MC_AGENT_UNAVAILABLE, host + ": " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  const Fd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t bytes = sizeof own;
  // A connected datagram socket has an address, and no packet is sent.
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    return fail(MC_AGENT_UNAVAILABLE, errno_text("no way to " + host, errno));
  }
  Way way{text_of(reinterpret_cast<sockaddr*>(&own), bytes),
          text_of(found->ai_addr, found->ai_addrlen)};
  if (way.own.empty() || way.other.empty()) {
    return fail(MC_AGENT_UNAVAILABLE, "no IP way to " + host);
  }
  return way;
}

}  // namespace mc
