// SPDX-License-Identifier: Apache-2.0
//
// What it is: HTTP requests with a deadline, over libcurl: for Mooncake's metadata protocol and for
//   etcd's JSON gateway. No redirects, no proxies, no cookies, certificates always checked.
// Threads: any; each request in flight uses a connection handle of its own.
// Owns: idle handles with their open connections.
// Trusts: nothing that arrives: an answer longer than its limit ends the request. What the answer
//   means is the caller's to decode.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "metadata/store/store_url.h"
#include "metadata/store/watch_loop.h"

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
  // A server that hangs keeps its connections open: only its silence tells.
  static constexpr std::uint64_t kLongestSilenceNs = 10000000000;

  explicit HttpClient(TlsFiles tls);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // kStoreUnavailable: not connected, so it had no effect. kOutcomeUnknown: the answer got lost.
  // MC_PERMISSION_DENIED: a certificate was refused. MC_TOO_LARGE: longer than max_body_bytes.
  Result<HttpAnswer> call(const HttpRequest& request, std::size_t max_body_bytes,
                          std::uint64_t deadline_ns);

  // Bytes of the answer as they come, until the server ends it, nothing has come for
  // kLongestSilenceNs, on_bytes returns false or stop is raised. Returns why it ended (ok: as
  // asked). The status line's code comes with each piece.
  Status stream(const HttpRequest& request, const StopSignal& stop,
                const std::function<bool(long status, std::string_view bytes)>& on_bytes);

 private:
  struct Handle;
  std::unique_ptr<Handle> take();
  void give_back(std::unique_ptr<Handle> handle);
  void prepare(Handle& handle, const HttpRequest& request) const;

  const TlsFiles tls_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_;  // guarded by mutex_
};

// What may stand in a URL's query: everything else becomes %XX.
std::string percent_encoded(std::string_view text);

}  // namespace mc::metadata
