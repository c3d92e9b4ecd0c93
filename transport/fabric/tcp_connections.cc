// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/tcp_connections.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

namespace mc::transport::fabric {

namespace {

// Later fields of a sockaddr_in6 differ between equal addresses.
bool is_same(const sockaddr_storage& one, const sockaddr_storage& other) {
  if (one.ss_family != other.ss_family) return false;
  if (one.ss_family == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(one);
    const auto& b = reinterpret_cast<const sockaddr_in&>(other);
    return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  if (one.ss_family != AF_INET6) return false;
  const auto& a = reinterpret_cast<const sockaddr_in6&>(one);
  const auto& b = reinterpret_cast<const sockaddr_in6&>(other);
  return a.sin6_port == b.sin6_port &&
         std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0;
}

}  // namespace

void end_tcp_connections(std::span<const std::uint8_t> address) {
  sockaddr_storage wanted{};
  if (address.size() > sizeof wanted) return;
  std::memcpy(&wanted, address.data(), address.size());
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir("/proc/self/fd"), ::closedir);
  if (list == nullptr) return;
  while (const dirent* entry = ::readdir(list.get())) {
    const std::string_view name(entry->d_name);
    int fd = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), fd);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (is_same(peer, wanted)) static_cast<void>(::shutdown(fd, SHUT_RDWR));
  }
}

}  // namespace mc::transport::fabric
