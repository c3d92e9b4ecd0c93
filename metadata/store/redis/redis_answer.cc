// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/redis_answer.h"

#include <algorithm>
#include <charconv>

#include "metadata/store/checks.h"

namespace mc::metadata {
namespace {

using Kind = Reply::Kind;

template <typename Number>
bool number_of(const Reply& reply, Number& number) {
  const char* const end = reply.text.data() + reply.text.size();
  const auto [at, error] = std::from_chars(reply.text.data(), end, number);
  return reply.kind == Kind::kText && error == std::errc() && at == end;
}

bool text_is(const Reply& reply, std::string_view wanted) {
  return reply.kind == Kind::kText && reply.text == wanted;
}

bool entry_at(const std::vector<Reply>& items, std::size_t at, Entry& entry) {
  const Reply& value = items[at];
  if (value.kind != Kind::kText || value.text.size() > kMaxStoreValueBytes) return false;
  entry.value = value.text;
  return number_of(items[at + 1], entry.revision) && number_of(items[at + 2], entry.lease) &&
         entry.revision != 0;
}

bool key_of(const Reply& reply, std::string& key) {
  key = reply.text;
  return reply.kind == Kind::kText && check_key(key).ok();
}

}  // namespace

Status decode_redis_error(const Reply& reply) {
  if (reply.kind != Kind::kError) {
    return {MC_CORRUPT,
            "the answer does not match mc's script; does another program write below mc/?"};
  }
  const std::string words = quoted(reply.text);
  const auto says = [&](std::string_view what) {
    return reply.text.find(what) != std::string::npos;
  };
  for (const char* code : {"NOAUTH", "WRONGPASS", "NOPERM", "can't run this command",
                           "can't access", "invalid password", "without any password"}) {
    if (says(code)) {
      return {MC_PERMISSION_DENIED,
              words + "; check user and password of the store's URL and the user's ACL"};
    }
  }
  if (says("MOVED ") || says("CLUSTERDOWN") || says("CROSSSLOT")) {
    return {MC_UNSUPPORTED, words +
                                "; Redis Cluster does not serve as a store: name one server, its "
                                "replica set or its sentinels"};
  }
  if (says("OOM ")) return {MC_NO_SPACE, words + "; raise maxmemory"};
  for (const char* code : {"READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "BUSY", "MISCONF",
                           "TRYAGAIN", "max number of clients"}) {
    if (says(code)) return {kStoreUnavailable, words};
  }
  return {MC_UNSUPPORTED, "the server says " + words + "; mc needs Redis 5 or later"};
}

bool is_no_script(const Reply& reply) {
  return reply.kind == Kind::kError && reply.text.starts_with("NOSCRIPT");
}

Status decode_redis_ok(const Reply& reply) {
  return text_is(reply, "OK") ? Status() : decode_redis_error(reply);
}

Result<Entry> decode_redis_entry(const Reply& reply) {
  if (reply.kind == Kind::kArray && reply.items.empty()) return fail(Status(MC_NOT_FOUND));
  Entry entry;
  if (reply.kind != Kind::kArray || reply.items.size() != 3 || !entry_at(reply.items, 0, entry)) {
    return fail(decode_redis_error(reply));
  }
  return entry;
}

Result<Swap> decode_redis_swap(const Reply& reply) {
  if (reply.kind == Kind::kArray && reply.items.empty()) return fail(Status(MC_NOT_FOUND));
  Swap swap;
  if (reply.kind != Kind::kArray || reply.items.size() != 2 ||
      !number_of(reply.items[1], swap.revision)) {
    return fail(decode_redis_error(reply));
  }
  swap.applied = text_is(reply.items[0], "1");
  if (swap.applied && swap.revision == 0) return fail(decode_redis_error(reply));
  return swap;
}

Result<std::vector<Entry>> decode_redis_listing(const Reply& reply) {
  if (text_is(reply, "too large")) return fail(Status(MC_TOO_LARGE));
  if (reply.kind != Kind::kArray || reply.items.size() % 4 != 0) {
    return fail(decode_redis_error(reply));
  }
  std::vector<Entry> listing;
  for (std::size_t at = 0; at < reply.items.size(); at += 4) {
    Entry entry;
    if (!key_of(reply.items[at], entry.key) || !entry_at(reply.items, at + 1, entry)) {
      return fail(decode_redis_error(reply));
    }
    listing.push_back(std::move(entry));
  }
  return listing;
}

Result<std::uint64_t> decode_redis_number(const Reply& reply) {
  std::uint64_t number = 0;
  if (!number_of(reply, number)) return fail(decode_redis_error(reply));
  return number;
}

Result<RedisReplication> decode_redis_replication(const Reply& reply) {
  constexpr std::string_view kReplicas = "\nconnected_slaves:";
  const std::size_t at = reply.text.find(kReplicas);
  if (reply.kind != Kind::kText || at == std::string::npos) return fail(decode_redis_error(reply));
  RedisReplication found;
  const char* const number = reply.text.data() + at + kReplicas.size();
  std::from_chars(number, reply.text.data() + reply.text.size(), found.replicas);
  found.demands_replicas = reply.text.find("\nmin_slaves_good_slaves:") != std::string::npos;
  return found;
}

Result<Endpoint> decode_redis_master(const Reply& reply) {
  if (reply.kind == Kind::kNil) {
    return fail(MC_NOT_FOUND,
                "the sentinel knows no master of that name; check sentinel= in the URL");
  }
  Endpoint endpoint;
  if (reply.kind != Kind::kArray || reply.items.size() != 2 || reply.items[0].kind != Kind::kText ||
      reply.items[0].text.empty() || reply.items[0].text.size() > 255 ||
      !number_of(reply.items[1], endpoint.port)) {
    return fail(decode_redis_error(reply));
  }
  endpoint.host = reply.items[0].text;
  return endpoint;
}

}  // namespace mc::metadata
