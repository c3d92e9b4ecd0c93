// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/redis_store.h"

#include <openssl/evp.h>

#include "metadata/store/checks.h"
#include "metadata/store/redis/redis_answer.h"
#include "metadata/store/retry.h"

namespace mc::metadata {

namespace {

// Redis 5 is required, because the script reads the clock before it writes. Numbers stay below
// 2^53, where Lua's doubles count exactly, until the year 2255.
constexpr std::string_view kScript = R"LUA(
local base, op = KEYS[1], ARGV[1]
local meta, names, leases = base .. 'meta', base .. 'keys', base .. 'leases'
local ttls = base .. 'ttl'
-- A first write that changes nothing: a replica refuses it, so that nobody reads old state there.
-- What needs room begins with one that a full server refuses too; after a script's first write
-- Redis refuses nothing, so nothing is ever half done.
if op == 'write' or op == 'guarded write' or op == 'grant' then
  redis.call('HSETNX', meta, 'revision', '0')
else
  redis.call('PERSIST', meta)
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end
local function entry(key) return base .. 'entry/' .. key end
local function keys_of(lease) return base .. 'lease/' .. lease end

local revision = tonumber(redis.call('HGET', meta, 'revision') or '0')
if revision == 0 then
  revision = now
  redis.call('HSET', meta, 'revision', text(now))
end

local function change()
  revision = math.max(revision + 1, now)
  redis.call('HSET', meta, 'revision', text(revision))
end

local function leave_lease(key)
  local lease = redis.call('HGET', entry(key), 'l')
  if lease and lease ~= '0' then redis.call('SREM', keys_of(lease), key) end
end

local function drop(key)
  change()
  leave_lease(key)
  redis.call('DEL', entry(key))
  redis.call('ZREM', names, key)
end

local function set(key, value, lease)
  change()
  leave_lease(key)
  if lease ~= '0' then redis.call('SADD', keys_of(lease), key) end
  redis.call('HSET', entry(key), 'v', value, 'r', text(revision), 'l', lease)
  redis.call('ZADD', names, 0, key)
end

local function end_lease(id)
  for _, key in ipairs(redis.call('SMEMBERS', keys_of(id))) do drop(key) end
  redis.call('DEL', keys_of(id))
  redis.call('ZREM', leases, id)
  redis.call('HDEL', ttls, id)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', text(now))) do end_lease(id) end

if op == 'get' then
  local held = redis.call('HMGET', entry(ARGV[2]), 'v', 'r', 'l')
  if not held[1] then return {} end
  return held

elseif op == 'write' then
  local key, value, lease, expected = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  if lease ~= '0' and not redis.call('ZSCORE', leases, lease) then return {} end
  local there = redis.call('HGET', entry(key), 'r') or '0'
  if expected ~= '' and expected ~= there then return {'0', there} end
  set(key, value, lease)
  return {'1', text(revision)}

elseif op == 'guarded write' or op == 'guarded remove' then
  local guard, expected, key, value = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  if (redis.call('HGET', entry(guard), 'r') or '0') ~= expected then return '0' end
  if op == 'guarded write' then
    set(key, value, '0')
  elseif redis.call('HGET', entry(key), 'r') then
    drop(key)
  end
  return '1'

elseif op == 'remove' then
  if not redis.call('HGET', entry(ARGV[2]), 'r') then return '0' end
  drop(ARGV[2])
  return '1'

elseif op == 'list' then
  local prefix, most, bytes_left = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local found = redis.call('ZRANGEBYLEX', names, '[' .. prefix, '(' .. prefix .. '\255',
    'LIMIT', 0, most + 1)
  if #found > most then return 'too large' end
  local answer = {}
  for _, key in ipairs(found) do
    local held = redis.call('HMGET', entry(key), 'v', 'r', 'l')
    bytes_left = bytes_left - #key - #held[1]
    if bytes_left < 0 then return 'too large' end
    answer[#answer + 1] = key
    for i = 1, 3 do answer[#answer + 1] = held[i] end
  end
  return answer

elseif op == 'grant' then
  local id = math.max(tonumber(redis.call('HGET', meta, 'lease') or '0') + 1, now)
  redis.call('HSET', meta, 'lease', text(id))
  redis.call('HSET', ttls, text(id), ARGV[2])
  redis.call('ZADD', leases, text(now + ARGV[2] * 1000), text(id))
  return text(id)

elseif op == 'keep' then
  local ttl = redis.call('HGET', ttls, ARGV[2])
  if not ttl then return '0' end
  redis.call('ZADD', leases, text(now + ttl * 1000), ARGV[2])
  return '1'

elseif op == 'revoke' then
  if not redis.call('ZSCORE', leases, ARGV[2]) then return '0' end
  end_lease(ARGV[2])
  return '1'
end
return redis.error_reply('ERR unknown operation')
)LUA";

// The script's SHA-1 in hex, by which EVALSHA names the script.
const std::string& script_sha() {
  static const std::string sha = [] {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_Digest(kScript.data(), kScript.size(), digest, &size, EVP_sha1(), nullptr);
    constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    for (unsigned i = 0; i < size; ++i) hex += {kDigits[digest[i] >> 4], kDigits[digest[i] & 15]};
    return hex;
  }();
  return sha;
}

Result<Reply> run_script(RedisConnection& connection, const std::string& base,
                         const std::vector<std::string_view>& arguments,
                         std::uint64_t deadline_ns) {
  std::vector<std::string_view> words = {"EVALSHA", script_sha(), "1", base};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto reply = connection.call(words, deadline_ns);
  if (reply && is_no_script(*reply)) {
    words[0] = "EVAL";
    words[1] = kScript;
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

Result<bool> RedisStore::write_guarded(const Guard& guard, std::string_view key,
                                       const std::optional<std::string>& value,
                                       std::uint64_t deadline_ns) {
  if (Status status = check_guarded(guard, key, value); !status.ok()) return fail(status);
  const std::string revision = std::to_string(guard.revision);
  std::vector<std::string_view> words = {value ? "guarded write" : "guarded remove", guard.key,
                                         revision, key};
  if (value) words.push_back(*value);
  const auto reply = run(Repeatable::kYes, words, deadline_ns);
  if (!reply) return fail(reply.error());
  const auto held = decode_redis_number(*reply);
  if (!held) return fail(held.error());
  return *held == 1;
}

Result<std::string> RedisStore::risk_of_loss(std::uint64_t deadline_ns) {
  const auto attempt = [&](std::uint64_t until_ns) -> Result<Reply> {
    auto line = locator_->take(until_ns);
    if (!line) return fail(line.error());
    auto reply = line->connection.call({"INFO", "replication"}, until_ns);
    if (reply) locator_->give_back(*std::move(line));
    return reply;
  };
  const auto reply = until_deadline<Reply>(name_, true, deadline_ns, attempt);
  if (!reply) return fail(reply.error());
  const auto found = decode_redis_replication(*reply);
  if (!found && found.error().code() == MC_PERMISSION_DENIED) {
    return name_ + ": the user may not run INFO, so the server's replication is unknown";
  }
  if (!found) return fail(found.error());
  if (found->demands_replicas) return std::string();
  if (found->replicas == 0) {
    return name_ +
           ": no replica. If this server loses its data, removals that absent hosts missed are "
           "forgotten, and the removed objects come back with the hosts";
  }
  return fail(MC_INVALID_ARGUMENT,
              name_ +
                  ": the server has replicas, and min-replicas-to-write is 0: a server that is cut "
                  "off from its replicas takes writes that the next one lacks. Run "
                  "'redis-cli config set min-replicas-to-write 1' on all servers of the set");
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
