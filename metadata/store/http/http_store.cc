// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/http/http_store.h"

#include <cstdlib>
#include <fstream>

#include "libmc/auth/cluster_key.h"
#include "libmc/base/clock.h"
#include "metadata/store/checks.h"
#include "metadata/store/http/http_answer.h"
#include "metadata/store/retry.h"

namespace mc::metadata {
namespace {

constexpr std::size_t kMaxBodyBytes = kMaxStoreValueBytes + 1024;

// The token of an mc metadata server: of the file in MC_HTTP_TOKEN_FILE, else ADMIN_API_KEY, else
// the token that follows from the cluster's key. Empty: none.
Result<std::string> http_token() {
  const char* const file = std::getenv("MC_HTTP_TOKEN_FILE");
  if (file != nullptr && file[0] != '\0') {
    std::ifstream stream(file);
    std::string token;
    std::getline(stream, token);
    while (!token.empty() && token.back() == '\r') token.pop_back();
    if (token.empty()) {
      return fail(MC_INVALID_ARGUMENT,
                  "MC_HTTP_TOKEN_FILE: " + std::string(file) + " has no line with a token");
    }
    return token;
  }
  const char* const given = std::getenv("ADMIN_API_KEY");
  if (given != nullptr && given[0] != '\0') return std::string(given);
  const auto key = auth::ClusterKey::find("");
  if (!key) return fail(key.error());
  return key->given() ? key->http_token() : std::string();
}

std::string base_of(const StoreUrl& url) {
  return (url.tls.enabled ? "https://" : "http://") + text_of(url.endpoints[0]) + url.path;
}

}  // namespace

HttpStore::HttpStore(const StoreUrl& url, std::string_view cluster_id)
    : name_("metadata server " + base_of(url)),
      url_(base_of(url) + "?key=" + percent_encoded(cluster_prefix(cluster_id))),
      token_(http_token()),
      client_(url.tls) {}

Result<HttpAnswer> HttpStore::call(std::string method, std::string_view key, std::string_view body,
                                   std::uint64_t deadline_ns) {
  // A write is not repeated, because a repeated write could overwrite another writer's later value.
  const bool repeatable = method == "GET";
  HttpRequest request{std::move(method),
                      url_ + percent_encoded(key),
                      std::string(body),
                      {"Content-Type: application/octet-stream"}};
  if (!token_) return fail(token_.error());
  if (!token_->empty()) request.headers.push_back("Authorization: Bearer " + *token_);
  return until_deadline<HttpAnswer>(name_, repeatable, deadline_ns, [&](std::uint64_t attempt_ns) {
    return client_.call(request, kMaxBodyBytes, attempt_ns);
  });
}

Result<Entry> HttpStore::get(std::string_view key, std::uint64_t deadline_ns) {
  if (Status status = check_key(key); !status.ok()) return fail(status);
  auto answer = call("GET", key, "", deadline_ns);
  if (!answer) return fail(answer.error());
  auto value = decode_http_get(key, *std::move(answer));
  if (!value) return fail(value.error());
  return Entry{std::string(key), *std::move(value), 0, kNoLease};
}

Result<Revision> HttpStore::put(std::string_view key, std::string_view value, LeaseId lease,
                                std::uint64_t deadline_ns) {
  if (Status status = check_write(key, value); !status.ok()) return fail(status);
  if (lease != kNoLease) return fail(lacks("leases"));
  const auto answer = call("PUT", key, value, deadline_ns);
  if (!answer) return fail(answer.error());
  if (Status status = decode_http_put(*answer); !status.ok()) return fail(status);
  return Revision{0};
}

Status HttpStore::remove(std::string_view key, std::uint64_t deadline_ns) {
  if (Status status = check_key(key); !status.ok()) return status;
  const auto answer = call("DELETE", key, "", deadline_ns);
  return answer ? decode_http_remove(key, *answer) : answer.error();
}

Status HttpStore::lacks(std::string_view what) const {
  return {MC_UNSUPPORTED, name_ + ": Mooncake's HTTP metadata protocol has no " +
                              std::string(what) + "; use redis://, etcd:// or memory://"};
}

Result<Swap> HttpStore::compare_and_set(std::string_view, Revision, std::string_view, LeaseId,
                                        std::uint64_t) {
  return fail(lacks("compare-and-set"));
}

Result<bool> HttpStore::write_guarded(const Guard&, std::string_view,
                                      const std::optional<std::string>&, std::uint64_t) {
  return fail(lacks("guarded writes"));
}

Result<std::vector<Entry>> HttpStore::list(std::string_view, std::uint64_t) {
  return fail(lacks("lists"));
}

Result<Lease> HttpStore::grant_lease(std::uint32_t, std::uint64_t) { return fail(lacks("leases")); }

Status HttpStore::keep_alive(LeaseId, std::uint64_t) { return lacks("leases"); }

Status HttpStore::revoke(LeaseId, std::uint64_t) { return lacks("leases"); }

}  // namespace mc::metadata
