// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/connection.h"

#include "metadata/store/redis/redis_answer.h"

namespace mc::metadata {
namespace {

std::string encoded(const std::vector<std::string_view>& words) {
  std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string_view word : words) {
    bytes += "$" + std::to_string(word.size()) + "\r\n";
    bytes.append(word).append("\r\n");
  }
  return bytes;
}

// REQUIRES: no request has been sent on this connection yet.
Status before_any_effect(Status status) {
  if (status.code() != kOutcomeUnknown) return status;
  return {kStoreUnavailable, std::string(status.text())};
}

}  // namespace

Result<Reply> RedisConnection::call(const std::vector<std::string_view>& words,
                                    std::uint64_t deadline_ns) {
  if (Status status = stream_.write(encoded(words), deadline_ns); !status.ok()) return fail(status);
  std::string bytes;
  for (;;) {
    auto reply = reader_.next();
    if (!reply) return fail(reply.error());
    if (*reply) return std::move(**reply);
    bytes.clear();
    if (Status status = stream_.read(bytes, deadline_ns); !status.ok()) return fail(status);
    if (Status status = reader_.feed(bytes); !status.ok()) return fail(status);
  }
}

Result<RedisConnection> RedisConnection::open(Resolver& resolver, const Target& target,
                                              std::uint64_t deadline_ns) {
  auto stream = Stream::open(resolver, target.endpoint, target.tls, deadline_ns);
  if (!stream) return fail(stream.error());
  RedisConnection connection(*std::move(stream));
  std::vector<std::vector<std::string_view>> greetings;
  const Login& login = target.login;
  if (login.given()) {
    greetings.push_back({"AUTH"});
    if (!login.user.empty()) greetings.back().push_back(login.user);
    greetings.back().push_back(login.password);
  }
  const std::string db = std::to_string(target.db);
  if (target.db != 0) greetings.push_back({"SELECT", db});
  for (const auto& words : greetings) {
    const auto reply = connection.call(words, deadline_ns);
    if (!reply) return fail(before_any_effect(reply.error()));
    if (Status status = decode_redis_ok(*reply); !status.ok()) return fail(status);
  }
  return connection;
}

}  // namespace mc::metadata
