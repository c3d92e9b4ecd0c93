// SPDX-License-Identifier: Apache-2.0
#include "master/rpc_ends.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace mc::metadata::rpc {

RawSocket::RawSocket(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const timeval watchdog{.tv_sec = static_cast<time_t>(kWatchdogNs / 1'000'000'000), .tv_usec = 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &watchdog, sizeof(watchdog));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

void RawSocket::send(std::string_view bytes) {
  // In some tests the peer has already closed.
  static_cast<void>(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

std::string RawSocket::receive(std::size_t bytes) {
  std::string got(bytes, '\0');
  std::size_t filled = 0;
  while (filled < bytes) {
    const ssize_t count = ::recv(socket_.get(), got.data() + filled, bytes - filled, 0);
    EXPECT_FALSE(count < 0 && errno == EAGAIN) << "the watchdog bit";
    if (count <= 0) break;
    filled += static_cast<std::size_t>(count);
  }
  got.resize(filled);
  return got;
}

}  // namespace mc::metadata::rpc
