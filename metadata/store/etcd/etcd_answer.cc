// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/etcd/etcd_answer.h"

#include <json/reader.h>
#include <json/value.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <limits>

#include "metadata/store/checks.h"
#include "metadata/store/etcd/base64.h"

namespace mc::metadata {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxTokenBytes = 8192;

// Codes of google.rpc.Code.
enum : std::uint64_t {
  kInvalid = 3,
  kDeadline = 4,
  kNotFound = 5,
  kDenied = 7,
  kExhausted = 8,
  kPrecondition = 9,
  kUnavailable = 14,
  kUnauthenticated = 16
};

Status broken() {
  return {
      MC_CORRUPT,
      "the answer does not come from etcd's JSON gateway; is this the client port of etcd 3.4 or later?"};
}

// Null: the text is not one JSON object. All functions below expect an object or null.
Json::Value parsed(std::string_view text) {
  Json::CharReaderBuilder builder;
  Json::CharReaderBuilder::strictMode(&builder.settings_);
  builder["stackLimit"] = kMaxDepth;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value value;
  try {
    if (!reader->parse(text.data(), text.data() + text.size(), &value, nullptr)) return {};
  } catch (const std::exception&) {  // jsoncpp throws if the nesting is too deep
    return {};
  }
  return value.isObject() ? value : Json::Value();
}

const Json::Value& member(const Json::Value& object, const char* name) {
  static const Json::Value null;
  return object.isObject() ? object[name] : null;
}

// The JSON of proto3 omits zeros and writes 64-bit numbers as strings.
bool number_of(const Json::Value& value, std::uint64_t& number) {
  number = 0;
  if (value.isNull()) return true;
  if (value.isUInt64()) {
    number = value.asUInt64();
    return true;
  }
  if (!value.isString()) return false;
  const char* begin = nullptr;
  const char* end = nullptr;
  value.getString(&begin, &end);
  const auto [at, error] = std::from_chars(begin, end, number);
  return error == std::errc() && at == end && number <= std::numeric_limits<std::int64_t>::max();
}

bool bytes_of(const Json::Value& value, std::string& bytes) {
  bytes.clear();
  if (value.isNull()) return true;
  if (!value.isString()) return false;
  auto decoded = from_base64(value.asString());
  if (!decoded) return false;
  bytes = *std::move(decoded);
  return true;
}

bool entry_of(const Json::Value& kv, std::string_view prefix, Entry& entry) {
  if (!bytes_of(member(kv, "key"), entry.key) || !bytes_of(member(kv, "value"), entry.value) ||
      !number_of(member(kv, "mod_revision"), entry.revision) ||
      !number_of(member(kv, "lease"), entry.lease) || !entry.key.starts_with(prefix)) {
    return false;
  }
  entry.key.erase(0, prefix.size());
  return check_write(entry.key, entry.value).ok() && entry.revision != 0;
}

bool revision_of(const Json::Value& answer, Revision& revision) {
  return number_of(member(member(answer, "header"), "revision"), revision);
}

Status meaning(std::uint64_t code, const std::string& message) {
  const std::string words = "etcd says " + quoted(message);
  const auto says = [&](std::string_view what) { return message.find(what) != std::string::npos; };
  switch (code) {
    case kNotFound:
      return {MC_NOT_FOUND, words};
    case kDenied:
    case kUnauthenticated:
      return {MC_PERMISSION_DENIED, words + "; check user, password and role"};
    case kInvalid:
      if (says("user") || says("auth")) {
        return {MC_PERMISSION_DENIED, words + "; check user and password of the store's URL"};
      }
      return {MC_INVALID_ARGUMENT, words};
    case kPrecondition:
      return {MC_UNSUPPORTED, words + "; leave user and password out, or enable it there"};
    case kExhausted:
      if (says("space")) return {MC_NO_SPACE, words + "; compact, defragment, raise its quota"};
      return {kStoreUnavailable, words};
    case kUnavailable:
      // The lost leader may have written before the loss.
      if (says("timed out") || says("changed")) return {kOutcomeUnknown, words};
      return {kStoreUnavailable, words};
    case kDeadline:
    default:
      return {kOutcomeUnknown, words};
  }
}

// The error of an answer ({"error":"…","code":5}) or of a stream
// ({"error":{"grpc_code":5,"message":"…"}}).
Status error_in(const Json::Value& value) {
  const Json::Value& error = member(value, "error");
  const Json::Value& holder = error.isObject() ? error : value;
  const Json::Value& message = member(holder, error.isObject() ? "message" : "error");
  std::uint64_t code = 0;
  const bool known = number_of(member(holder, error.isObject() ? "grpc_code" : "code"), code);
  if (!known || !message.isString()) return broken();
  return meaning(code, message.asString());
}

// The answer's object. If there is none, status has the cause.
Json::Value good(const HttpAnswer& answer, Status& status) {
  Json::Value value = parsed(answer.body);
  if (answer.status == 200 && value.isObject() && !value.isMember("error")) {
    status = {};
    return value;
  }
  status = value.isObject() ? error_in(value) : broken();
  if (!value.isObject() && answer.status >= 500)
    status = {kOutcomeUnknown, "HTTP status " + std::to_string(answer.status)};
  return {};
}

}  // namespace

bool is_stale_token(const HttpAnswer& answer) {
  if (answer.status == 200) return false;
  std::uint64_t code = 0;
  const Json::Value value = parsed(answer.body);
  if (!value.isObject() || !number_of(member(value, "code"), code)) return false;
  const Json::Value& message = member(value, "error");
  return code == kUnauthenticated ||
         (message.isString() && message.asString().find("auth store is old") != std::string::npos);
}

Status decode_etcd_ok(const HttpAnswer& answer) {
  Status status;
  static_cast<void>(good(answer, status));
  return status;
}

Result<std::string> decode_etcd_token(const HttpAnswer& answer) {
  Status status;
  const Json::Value value = good(answer, status);
  if (!status.ok()) return fail(status);
  const Json::Value& token = member(value, "token");
  if (!token.isString()) return fail(broken());
  std::string text = token.asString();
  // The token becomes an HTTP header, so it must not contain a line end.
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (text.empty() || text.size() > kMaxTokenBytes || !printable) return fail(broken());
  return text;
}

Result<std::vector<Entry>> decode_etcd_range(const HttpAnswer& answer, std::string_view prefix) {
  Status status;
  const Json::Value value = good(answer, status);
  if (!status.ok()) return fail(status);
  const Json::Value& kvs = member(value, "kvs");
  if (!kvs.isNull() && !kvs.isArray()) return fail(broken());
  const Json::Value& more = member(value, "more");
  if (more.isBool() && more.asBool()) return fail(Status(MC_TOO_LARGE));
  std::vector<Entry> listing;
  std::size_t bytes = 0;
  for (const Json::Value& kv : kvs) {
    Entry entry;
    if (!entry_of(kv, prefix, entry)) return fail(broken());
    bytes += entry.key.size() + entry.value.size();
    if (bytes > kMaxListBytes) return fail(Status(MC_TOO_LARGE));
    listing.push_back(std::move(entry));
  }
  return listing;
}

Result<Revision> decode_etcd_put(const HttpAnswer& answer) {
  Status status;
  const Json::Value value = good(answer, status);
  if (!status.ok()) return fail(status);
  Revision revision = 0;
  if (!revision_of(value, revision) || revision == 0) return fail(broken());
  return revision;
}

Result<Swap> decode_etcd_swap(const HttpAnswer& answer) {
  Status status;
  const Json::Value value = good(answer, status);
  if (!status.ok()) return fail(status);
  Swap swap;
  const Json::Value& succeeded = member(value, "succeeded");
  swap.applied = succeeded.isBool() && succeeded.asBool();
  if (swap.applied) {
    if (!revision_of(value, swap.revision) || swap.revision == 0) return fail(broken());
    return swap;
  }
  const Json::Value& responses = member(value, "responses");
  if (!responses.isArray() || responses.size() != 1) return fail(broken());
  const Json::Value& kvs = member(member(responses[0], "response_range"), "kvs");
  if (kvs.isNull()) return swap;
  if (!kvs.isArray() || kvs.size() != 1 ||
      !number_of(member(kvs[0], "mod_revision"), swap.revision)) {
    return fail(broken());
  }
  return swap;
}

// The gateway leaves out "succeeded" in place of false.
Result<bool> decode_etcd_succeeded(const HttpAnswer& answer) {
  Status status;
  const Json::Value value = good(answer, status);
  if (!status.ok()) return fail(status);
  const Json::Value& succeeded = member(value, "succeeded");
  if (!succeeded.isNull() && !succeeded.isBool()) return fail(broken());
  return succeeded.isBool() && succeeded.asBool();
}

Result<bool> decode_etcd_deleted(const HttpAnswer& answer) {
  Status status;
  const Json::Value value = good(answer, status);
  if (!status.ok()) return fail(status);
  std::uint64_t deleted = 0;
  if (!number_of(member(value, "deleted"), deleted)) return fail(broken());
  return deleted != 0;
}

Result<Lease> decode_etcd_grant(const HttpAnswer& answer) {
  Status status;
  const Json::Value value = good(answer, status);
  if (!status.ok()) return fail(status);
  Lease lease;
  std::uint64_t ttl_s = 0;
  if (!number_of(member(value, "ID"), lease.id) || lease.id == kNoLease ||
      !number_of(member(value, "TTL"), ttl_s) || ttl_s == 0 || ttl_s > kMaxLeaseTtlMs / 1000) {
    return fail(broken());
  }
  lease.ttl_ms = static_cast<std::uint32_t>(ttl_s * 1000);
  return lease;
}

Result<bool> decode_etcd_keep_alive(const HttpAnswer& answer) {
  Status status;
  const Json::Value value = good(answer, status);
  if (!status.ok()) return fail(status);
  const Json::Value& result = member(value, "result");
  std::uint64_t ttl_s = 0;
  if (!result.isObject() || !number_of(member(result, "TTL"), ttl_s)) return fail(broken());
  return ttl_s != 0;
}

}  // namespace mc::metadata
