// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <array>
#include <charconv>
#include <memory>

namespace mc::transfer {

namespace {

bool is_literal(const std::string& host) {
  in6_addr any{};
  return ::inet_pton(AF_INET, host.c_str(), &any) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

Result<std::string> look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return fail(MC_INVALID_ARGUMENT, "host '" + host + "': " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  // Prefer an IPv4 address: most clusters listen on IPv4.
  const addrinfo* chosen = found;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET) {
      chosen = at;
      break;
    }
  }
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(chosen->ai_addr, chosen->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return fail(MC_INVALID_ARGUMENT, "host '" + host + "' has no IP address");
  }
  return std::string(text.data());
}

}  // namespace

Result<Address> resolve(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  Address address;
  bool valid = colon != std::string_view::npos && colon > 0 && colon + 1 < text.size() &&
               text.size() < NI_MAXHOST && text.find('\0') == std::string_view::npos;
  if (valid) {
    address.host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    valid = error == std::errc() && at == end;
  }
  if (!valid) {
    return fail(MC_INVALID_ARGUMENT,
                "'" + std::string(text.substr(0, 256)) +
                    "' is not an address; write a host and a port, for example "
                    "10.0.0.7:7400, [fd00::7]:7400 or localhost:0");
  }
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  if (address.host == "localhost") address.host = "127.0.0.1";
  if (is_literal(address.host)) return address;
  auto literal = look_up(address.host);
  if (!literal) return fail(literal.error());
  address.host = std::move(*literal);
  return address;
}

std::string text_of(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

bool is_loopback(const Address& address) {
  return address.host.starts_with("127.") || address.host == "::1";
}

bool is_wildcard(const Address& address) {
  in6_addr v6{};
  in_addr v4{};
  if (::inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  return ::inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace mc::transfer
