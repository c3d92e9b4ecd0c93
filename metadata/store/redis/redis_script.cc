// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/redis_script.h"

#include <openssl/evp.h>

namespace mc::metadata {

// Redis 5 is required, because the script reads the clock before it writes. Numbers stay below
// 2^53, where Lua's doubles count exactly, until the year 2255.
constexpr std::string_view kScript = R"LUA(
local base, op = KEYS[1], ARGV[1]
local meta, names, leases = base .. 'meta', base .. 'keys', base .. 'leases'
local ttls = base .. 'ttl'
-- A first write that changes nothing: a replica refuses it, so that nobody reads old state there.
-- What needs room begins with one that a full server refuses too; after a script's first write
-- Redis refuses nothing, so nothing is ever half done.
if op == 'write' or op == 'grant' then
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
  change()
  leave_lease(key)
  if lease ~= '0' then redis.call('SADD', keys_of(lease), key) end
  redis.call('HSET', entry(key), 'v', value, 'r', text(revision), 'l', lease)
  redis.call('ZADD', names, 0, key)
  return {'1', text(revision)}

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

const std::string_view kRedisScript = kScript;

const std::string& redis_script_sha() {
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

}  // namespace mc::metadata
