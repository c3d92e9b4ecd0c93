// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/http/http_client.h"

#include <curl/curl.h>

#include <algorithm>

#include "libmc/base/clock.h"
#include "metadata/store/quiet_pipe.h"

namespace mc::metadata {
namespace {

constexpr std::size_t kMaxIdleHandles = 4;
constexpr long kConnectTimeoutMs = 2000;  // leaves time for the next endpoint

struct Body {
  std::string bytes;
  const std::size_t max_bytes;
  bool too_long = false;
};

std::size_t on_data(char* data, std::size_t, std::size_t size, void* user) {
  Body& body = *static_cast<Body*>(user);
  body.too_long = size > body.max_bytes - body.bytes.size();
  if (body.too_long) return CURL_WRITEFUNC_ERROR;
  body.bytes.append(data, size);
  return size;
}

void start_curl_once() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(started);
}

bool certificate_trouble(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_ISSUER_ERROR;
}

// libcurl's error texts name hosts and files, but no headers or bodies.
Status status_of(CURL* curl, CURLcode code, const char* words) {
  const std::string cause = words[0] != '\0' ? words : curl_easy_strerror(code);
  if (certificate_trouble(code)) {
    return {MC_PERMISSION_DENIED,
            "TLS: " + cause + "; check ca=, cert= and key= of the store's URL"};
  }
  curl_off_t connected_us = 0;
  curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
  const bool sent = connected_us > 0;
  return {sent ? kOutcomeUnknown : kStoreUnavailable, cause};
}

}  // namespace

struct HttpClient::Handle {
  Handle() : curl(curl_easy_init()) {}
  ~Handle() {
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
  }
  CURL* curl;
  curl_slist* headers = nullptr;
  char words[CURL_ERROR_SIZE] = "";
};

HttpClient::HttpClient(TlsFiles tls) : tls_(std::move(tls)) {}

HttpClient::~HttpClient() = default;

std::unique_ptr<HttpClient::Handle> HttpClient::take() {
  start_curl_once();
  const MutexLock lock(mutex_);
  if (idle_.empty()) return std::make_unique<Handle>();
  auto handle = std::move(idle_.back());
  idle_.pop_back();
  return handle;
}

void HttpClient::give_back(std::unique_ptr<Handle> handle) {
  const MutexLock lock(mutex_);
  if (idle_.size() < kMaxIdleHandles) idle_.push_back(std::move(handle));
}

void HttpClient::prepare(Handle& handle, const HttpRequest& request) const {
  CURL* const curl = handle.curl;
  curl_easy_reset(curl);  // keeps the connections
  curl_slist_free_all(handle.headers);
  handle.headers = nullptr;
  handle.words[0] = '\0';
  // Suppress "Expect: 100-continue", which costs a second with servers that do not support it.
  handle.headers = curl_slist_append(handle.headers, "Expect:");
  for (const std::string& header : request.headers) {
    handle.headers = curl_slist_append(handle.headers, header.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, handle.words);
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // do not wait for a slow name server
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, handle.headers);
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (!request.body.empty() || request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
  if (!tls_.ca.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, tls_.ca.c_str());
    curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);  // trust only this authority
  }
  if (!tls_.cert.empty()) {
    curl_easy_setopt(curl, CURLOPT_SSLCERT, tls_.cert.c_str());
    curl_easy_setopt(curl, CURLOPT_SSLKEY, tls_.key.c_str());
  }
}

Result<HttpAnswer> HttpClient::call(const HttpRequest& request, std::size_t max_body_bytes,
                                    std::uint64_t deadline_ns) {
  const std::uint64_t now = now_ns();
  if (deadline_ns <= now) return fail(kStoreUnavailable, "the deadline passed before the call");
  const QuietPipe quiet;
  auto handle = take();
  if (handle->curl == nullptr) return fail(MC_NO_MEMORY, "libcurl gave no handle");
  prepare(*handle, request);
  const auto left_ms = static_cast<long>((deadline_ns - now) / kMs) + 1;
  curl_easy_setopt(handle->curl, CURLOPT_TIMEOUT_MS, left_ms);
  Body body{.bytes = {}, .max_bytes = max_body_bytes};
  curl_easy_setopt(handle->curl, CURLOPT_WRITEDATA, &body);
  const CURLcode code = curl_easy_perform(handle->curl);
  if (body.too_long) {
    return fail(MC_TOO_LARGE,
                "the answer is longer than " + std::to_string(max_body_bytes) + " bytes");
  }
  if (code != CURLE_OK) return fail(status_of(handle->curl, code, handle->words));
  HttpAnswer answer{.status = 0, .body = std::move(body.bytes)};
  curl_easy_getinfo(handle->curl, CURLINFO_RESPONSE_CODE, &answer.status);
  give_back(std::move(handle));
  return answer;
}

std::string percent_encoded(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (plain) {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result;
}

}  // namespace mc::metadata
