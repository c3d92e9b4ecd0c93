// SPDX-License-Identifier: Apache-2.0
//
// What it is: the way to an etcd cluster's JSON gateway: its endpoints in turn, and the token of a
//   user, asked for when it is missing or stale.
// Threads: any. Owns: HTTP connections and the token. Trusts: as etcd_answer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "metadata/store/http/http_client.h"
#include "metadata/store/store_url.h"

namespace mc::metadata {

class EtcdGateway {
 public:
  explicit EtcdGateway(const StoreUrl& url);

  // One attempt at one endpoint; after a failure the next call takes the next endpoint. Any status
  // of HTTP is an answer, but a stale token is renewed first.
  Result<HttpAnswer> call(const std::string& path, const std::string& body,
                          std::uint64_t deadline_ns);
  // A watch's stream from one endpoint, as HttpClient::stream().
  Status stream(const std::string& path, const std::string& body, const StopSignal& stop,
                const std::function<bool(long, std::string_view)>& on_bytes);
  // The next stream takes another endpoint, and with a fresh token if wanted.
  void start_over(bool fresh_token);

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
  std::mutex mutex_;  // guards everything below
  std::string token_;
  std::uint64_t era_ = 0;  // number of endpoints given up
};

}  // namespace mc::metadata
