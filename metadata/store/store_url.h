// SPDX-License-Identifier: Apache-2.0
//
// The location and the login of a cluster store, from one URL:
//     memory://
//     redis://[user:password@]host[:port][,host…][/db][?options]     rediss:// is with TLS
//     etcd://[user:password@]host[:port][,host…][?options]           etcds:// is with TLS
//     http://host[:port]/metadata                                    https:// is with TLS
// Options are joined by '&': user= and password_file= (keep secrets out of command lines), tls=1,
// ca=, cert=, key= (PEM files), server_name= (the name in the certificate; default: the host).
// Redis also has sentinel= (the master's name; the hosts are sentinels), sentinel_user= and
// sentinel_password_file=. Values may be percent-encoded. An IPv6 address stands in brackets.
// Threads: values.
// Trusts: nothing. Any text becomes a value or an error. An error never repeats a user, a password
//   or the URL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"

namespace mc::metadata {

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};
// "10.0.0.1:6379", "[::1]:6379".
std::string text_of(const Endpoint& endpoint);
std::string text_of(const std::vector<Endpoint>& endpoints);
// Returns the status with the endpoint before the text.
Status at(const Endpoint& endpoint, const Status& status);

struct Login {
  std::string user;      // may be empty with a password (Redis' default user)
  std::string password;  // never in a message
  bool given() const { return !user.empty() || !password.empty(); }
};

struct TlsFiles {
  bool enabled = false;
  std::string ca;           // empty: the system's authorities
  std::string cert;         // with key: this side's certificate
  std::string key;          // PEM file
  std::string server_name;  // empty: the host's name or address
};

struct StoreUrl {
  enum class Kind { kMemory, kRedis, kEtcd, kHttp };
  Kind kind = Kind::kMemory;
  std::vector<Endpoint> endpoints;
  Login login;
  TlsFiles tls;
  std::uint32_t db = 0;       // Redis
  std::string sentinel_name;  // Redis; empty: endpoints are servers
  Login sentinel_login;
  std::string path;  // HTTP: "/metadata"
};

inline constexpr std::size_t kMaxUrlBytes = 4096;
inline constexpr std::size_t kMaxEndpoints = 16;

// Reads password files. Errors: MC_INVALID_ARGUMENT with the remedy.
Result<StoreUrl> parse_store_url(std::string_view text);

}  // namespace mc::metadata
