// SPDX-License-Identifier: Apache-2.0
//
// One logged-in connection to a Redis server or sentinel: a command, then its reply.
// Threads: a single thread at a time.
// Owns: the stream and the unread bytes in it.
// Trusts: as reply.h. After any error except an error reply the caller must discard the connection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "metadata/store/redis/reply.h"
#include "metadata/store/redis/stream.h"

namespace mc::metadata {

class RedisConnection {
 public:
  struct Target {
    Endpoint endpoint;
    Login login;
    std::uint32_t db = 0;
    const StreamTls* tls = nullptr;
  };
  // Errors: kStoreUnavailable, MC_PERMISSION_DENIED, or the server's error.
  static Result<RedisConnection> open(Resolver& resolver, const Target& target,
                                      std::uint64_t deadline_ns);

  // Whether an idle connection still looks usable, without a call to the server.
  bool quiet() const { return stream_.quiet(); }
  // An error reply is a reply, not an error of this function.
  Result<Reply> call(const std::vector<std::string_view>& words, std::uint64_t deadline_ns);

 private:
  explicit RedisConnection(Stream stream) : stream_(std::move(stream)) {}

  Stream stream_;
  ReplyReader reader_;
};

}  // namespace mc::metadata
