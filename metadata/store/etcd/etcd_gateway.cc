// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/etcd/etcd_gateway.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "metadata/store/etcd/etcd_answer.h"
#include "metadata/store/etcd/etcd_request.h"

namespace mc::metadata {
EtcdGateway::EtcdGateway(const StoreUrl& url) : url_(url), client_(url.tls) {}

EtcdGateway::Way EtcdGateway::way() {
  const MutexLock lock(mutex_);
  return {url_.endpoints[era_ % url_.endpoints.size()], era_};
}

void EtcdGateway::forsake(std::uint64_t era) {
  const MutexLock lock(mutex_);
  if (era == era_) ++era_;
}

HttpRequest EtcdGateway::request(const Endpoint& endpoint, const std::string& path,
                                 const std::string& body, const std::string& token) const {
  HttpRequest request{"POST",
                      (url_.tls.enabled ? "https://" : "http://") + text_of(endpoint) + path,
                      body,
                      {"Content-Type: application/json", "Grpc-Metadata-hasleader: true"}};
  if (!token.empty()) request.headers.push_back("Authorization: " + token);
  return request;
}

Result<std::string> EtcdGateway::token(const Endpoint& endpoint, bool renew,
                                       std::uint64_t deadline_ns) {
  if (!url_.login.given()) return std::string();
  {
    const MutexLock lock(mutex_);
    if (!token_.empty() && !renew) return token_;
  }
  const auto answer =
      client_.call(request(endpoint, "/v3/auth/authenticate",
                           etcd_authenticate(url_.login.user, url_.login.password), ""),
                   kMaxEtcdBodyBytes, deadline_ns);
  if (!answer && answer.error().code() == kOutcomeUnknown) {
    return fail(kStoreUnavailable, std::string(answer.error().text()));
  }
  if (!answer) return fail(answer.error());
  auto fresh = decode_etcd_token(*answer);
  if (!fresh) return fail(fresh.error());
  const MutexLock lock(mutex_);
  token_ = *fresh;
  return fresh;
}

Result<HttpAnswer> EtcdGateway::call(const std::string& path, const std::string& body,
                                     std::uint64_t deadline_ns) {
  const Way way = this->way();
  // Leave time for the other endpoints if this endpoint does not answer.
  const std::uint64_t now = now_ns();
  const std::uint64_t left_ns = deadline_ns > now ? deadline_ns - now : 0;
  const std::uint64_t until_ns = now + left_ns / url_.endpoints.size();
  Result<HttpAnswer> answer;
  for (const bool renew : {false, true}) {
    const auto token = this->token(way.endpoint, renew, until_ns);
    if (!token) {
      if (token.error().code() == kStoreUnavailable) forsake(way.era);
      return fail(at(way.endpoint, token.error()));
    }
    answer = client_.call(request(way.endpoint, path, body, *token), kMaxEtcdBodyBytes, until_ns);
    if (!answer || !url_.login.given() || !is_stale_token(*answer)) break;
  }
  if (!answer || answer->status >= 500) forsake(way.era);
  if (!answer) return fail(at(way.endpoint, answer.error()));
  return answer;
}

}  // namespace mc::metadata
