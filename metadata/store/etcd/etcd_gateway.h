// SPDX-License-Identifier: Apache-2.0
//
// Access to an etcd cluster's JSON gateway. The gateway tries the endpoints in turn and
//   requests a user's token when the token is missing or outdated.
// Threads: any.
// Owns: HTTP connections and the token.
// Trusts: as etcd_answer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "libmc/base/mutex.h"
#include "metadata/store/http/http_client.h"
#include "metadata/store/store_url.h"

namespace mc::metadata {

class EtcdGateway {
 public:
  explicit EtcdGateway(const StoreUrl& url);

  // Tries a single endpoint. After a failure the next call takes the next endpoint. Every HTTP
  // status is an answer, except that an outdated token is renewed first.
  Result<HttpAnswer> call(const std::string& path, const std::string& body,
                          std::uint64_t deadline_ns);

 private:
  struct Way {
    Endpoint endpoint;
    std::uint64_t era;
  };
  Way way();
  void forsake(std::uint64_t era);
  HttpRequest request(const Endpoint& endpoint, const std::string& path, const std::string& body,
                      const std::string& token) const;
  // Empty without a login.
  Result<std::string> token(const Endpoint& endpoint, bool renew, std::uint64_t deadline_ns);

  const StoreUrl url_;
  HttpClient client_;
  Mutex mutex_;
  std::string token_ MC_GUARDED_BY(mutex_);
  std::uint64_t era_ MC_GUARDED_BY(mutex_) = 0;  // counts failed endpoints
};

}  // namespace mc::metadata
