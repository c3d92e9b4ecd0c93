// SPDX-License-Identifier: Apache-2.0
//
// HTTP requests with a deadline, over libcurl, for Mooncake's metadata protocol and for
//   etcd's JSON gateway. No redirects, no proxies, no cookies. Certificates are always checked.
// Threads: any. Each request in flight uses a separate connection handle.
// Owns: idle handles with their open connections.
// Trusts: nothing. An answer longer than the limit ends the request. The caller decodes the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libmc/base/mutex.h"
#include "metadata/store/cluster_store.h"
#include "metadata/store/store_url.h"

namespace mc::metadata {

struct HttpRequest {
  std::string method;  // "GET", "PUT", "POST", "DELETE"
  std::string url;
  std::string body;
  std::vector<std::string> headers;  // "Name: value"; may hold secrets
};

struct HttpAnswer {
  long status = 0;
  std::string body;
};

class HttpClient {
 public:
  explicit HttpClient(TlsFiles tls);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // kStoreUnavailable: not connected, so there was no effect. kOutcomeUnknown: the answer was lost.
  // MC_PERMISSION_DENIED: a certificate was refused. MC_TOO_LARGE: longer than max_body_bytes.
  Result<HttpAnswer> call(const HttpRequest& request, std::size_t max_body_bytes,
                          std::uint64_t deadline_ns);

 private:
  struct Handle;
  std::unique_ptr<Handle> take();
  void give_back(std::unique_ptr<Handle> handle);
  void prepare(Handle& handle, const HttpRequest& request) const;

  const TlsFiles tls_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_ MC_GUARDED_BY(mutex_);
};

// Percent-encodes every character that may not stand in a URL's query.
std::string percent_encoded(std::string_view text);

}  // namespace mc::metadata
