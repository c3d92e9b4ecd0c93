// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/redis_store.h"

#include "metadata/store/checks.h"
#include "metadata/store/redis/redis_answer.h"
#include "metadata/store/redis/redis_script.h"
#include "metadata/store/retry.h"

namespace mc::metadata {

namespace {

Result<Reply> run_script(RedisConnection& connection, const std::string& base,
                         const std::vector<std::string_view>& arguments,
                         std::uint64_t deadline_ns) {
  std::vector<std::string_view> words = {"EVALSHA", redis_script_sha(), "1", base};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto reply = connection.call(words, deadline_ns);
  if (reply && is_no_script(*reply)) {
    words[0] = "EVAL";
    words[1] = kRedisScript;
    reply = connection.call(words, deadline_ns);
  }
  if (reply && reply->kind == Reply::Kind::kError) return fail(decode_redis_error(*reply));
  return reply;
}

}  // namespace

Result<std::unique_ptr<ClusterStore>> RedisStore::create(const StoreUrl& url,
                                                         std::string_view cluster_id) {
  auto locator = RedisLocator::create(url);
  if (!locator) return fail(locator.error());
  const bool sentinels = !url.sentinel_name.empty();
  std::string name = (sentinels ? "redis sentinels " : "redis ") + text_of(url.endpoints);
  return std::unique_ptr<ClusterStore>(
      new RedisStore(std::move(name), cluster_prefix(cluster_id), *std::move(locator)));
}

Result<Reply> RedisStore::run(Repeatable repeatable, const std::vector<std::string_view>& arguments,
                              std::uint64_t deadline_ns) {
  const auto attempt = [&](std::uint64_t until_ns) -> Result<Reply> {
    auto line = locator_->take(until_ns);
    if (!line) return fail(line.error());
    auto reply = run_script(line->connection, base_, arguments, until_ns);
    if (reply) {
      locator_->give_back(*std::move(line));
      return reply;
    }
    const mc_status code = reply.error().code();
    if (code == kStoreUnavailable || code == kOutcomeUnknown) locator_->forsake(line->era);
    return reply;
  };
  return until_deadline<Reply>(name_, repeatable == Repeatable::kYes, deadline_ns, attempt);
}

Result<Entry> RedisStore::get(std::string_view key, std::uint64_t deadline_ns) {
  if (Status status = check_key(key); !status.ok()) return fail(status);
  const auto reply = run(Repeatable::kYes, {"get", key}, deadline_ns);
  if (!reply) return fail(reply.error());
  auto entry = decode_redis_entry(*reply);
  if (!entry && entry.error().code() == MC_NOT_FOUND) return fail(MC_NOT_FOUND, no_such_key(key));
  if (entry) entry->key = key;
  return entry;
}

Result<Swap> RedisStore::write(std::string_view key, std::string_view value, LeaseId lease,
                               std::string_view expected, std::uint64_t deadline_ns) {
  if (Status status = check_write(key, value); !status.ok()) return fail(status);
  const auto reply =
      run(Repeatable::kNo, {"write", key, value, std::to_string(lease), expected}, deadline_ns);
  if (!reply) return fail(reply.error());
  auto swap = decode_redis_swap(*reply);
  if (!swap && swap.error().code() == MC_NOT_FOUND) return fail(MC_NOT_FOUND, no_such_lease(lease));
  return swap;
}

Result<Revision> RedisStore::put(std::string_view key, std::string_view value, LeaseId lease,
                                 std::uint64_t deadline_ns) {
  const auto swap = write(key, value, lease, "", deadline_ns);
  if (!swap) return fail(swap.error());
  return swap->revision;
}

Result<Swap> RedisStore::compare_and_set(std::string_view key, Revision expected,
                                         std::string_view value, LeaseId lease,
                                         std::uint64_t deadline_ns) {
  return write(key, value, lease, std::to_string(expected), deadline_ns);
}

Status RedisStore::remove(std::string_view key, std::uint64_t deadline_ns) {
  if (Status status = check_key(key); !status.ok()) return status;
  const auto reply = run(Repeatable::kNo, {"remove", key}, deadline_ns);
  if (!reply) return reply.error();
  const auto found = decode_redis_number(*reply);
  if (!found) return found.error();
  return *found == 1 ? Status() : Status(MC_NOT_FOUND, no_such_key(key));
}

Result<std::vector<Entry>> RedisStore::list(std::string_view prefix, std::uint64_t deadline_ns) {
  if (Status status = check_prefix(prefix); !status.ok()) return fail(status);
  const auto reply =
      run(Repeatable::kYes,
          {"list", prefix, std::to_string(kMaxListEntries), std::to_string(kMaxListBytes)},
          deadline_ns);
  if (!reply) return fail(reply.error());
  auto listing = decode_redis_listing(*reply);
  if (!listing && listing.error().code() == MC_TOO_LARGE) return fail(list_too_large(prefix));
  return listing;
}

Result<Lease> RedisStore::grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) {
  if (Status status = check_ttl(ttl_ms); !status.ok()) return fail(status);
  // Repeatable, because a lease with a lost id ends by itself.
  const auto reply = run(Repeatable::kYes, {"grant", std::to_string(ttl_ms)}, deadline_ns);
  if (!reply) return fail(reply.error());
  const auto id = decode_redis_number(*reply);
  if (!id) return fail(id.error());
  return Lease{*id, ttl_ms};
}

Status RedisStore::keep_alive(LeaseId lease, std::uint64_t deadline_ns) {
  const auto reply = run(Repeatable::kYes, {"keep", std::to_string(lease)}, deadline_ns);
  if (!reply) return reply.error();
  const auto found = decode_redis_number(*reply);
  if (!found) return found.error();
  return *found == 1 ? Status() : Status(MC_NOT_FOUND, no_such_lease(lease));
}

Status RedisStore::revoke(LeaseId lease, std::uint64_t deadline_ns) {
  const auto reply = run(Repeatable::kNo, {"revoke", std::to_string(lease)}, deadline_ns);
  if (!reply) return reply.error();
  const auto found = decode_redis_number(*reply);
  if (!found) return found.error();
  return *found == 1 ? Status() : Status(MC_NOT_FOUND, no_such_lease(lease));
}

}  // namespace mc::metadata
