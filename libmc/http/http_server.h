// SPDX-License-Identifier: Apache-2.0
//
// An HTTP/1.1 server of short requests. A handler answers now or later, with a whole body or with
//   a body in pieces of unknown number.
//
//     connection ── head ──► token? ── body ──► HttpHandler ── HttpAnswer ──► connection ──► next head
//
// Back-pressure: at most max_connections are open. A further connection takes the place of the
// connection that has waited longest for a request; if none waits, the server closes the further
// connection. The server asks for the next piece of a body after the last piece is sent.
// Threads: the io_context's thread. A handler may answer from any thread.
// Owns: the connections. The io_context outlives the server; the server's thread has stopped, or
//   is the caller's, when the server is destroyed.
// Trusts: nothing. Head, body, time and connections have limits.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mc/status.h"

namespace mc::http {

inline constexpr std::size_t kMaxHeadBytes = 64u << 10;
inline constexpr std::size_t kMaxBodyBytes = 1u << 20;

struct HttpRequest {
  std::string method;                        // "GET"
  std::string path;                          // without the query, as sent
  std::map<std::string, std::string> query;  // decoded; of a repeated name the first value
  std::string body;
};

// A piece of a body; empty: the body ends. An error breaks the connection off.
using HttpGive = std::function<void(Result<std::string> piece)>;

struct HttpAnswer {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> fields = {};  // further header fields
  // Asked for each piece after `body`, until the body ends. Empty: `body` is all.
  std::function<void(HttpGive)> more = {};
};

using HttpDone = std::function<void(HttpAnswer)>;  // called at most once, from any thread
using HttpHandler = std::function<void(const HttpRequest&, HttpDone)>;

struct HttpOptions {
  std::string host;  // an IP address
  std::uint16_t port = 0;
  std::string token;  // empty: every request is answered; else see http_access.h
  std::size_t max_connections = 256;
  std::uint64_t patience_ns = 30'000'000'000;  // for a request, and for each piece of an answer
};

class HttpServer {
 public:
  // Errors: MC_INVALID_ARGUMENT for a bad address, MC_AGENT_UNAVAILABLE with the cause.
  static Result<std::unique_ptr<HttpServer>> create(boost::asio::io_context& io,
                                                    const HttpOptions& options,
                                                    HttpHandler handler);
  ~HttpServer();

  [[nodiscard]] std::uint16_t port() const;

 private:
  class Listening;
  explicit HttpServer(std::shared_ptr<Listening> listening) : listening_(std::move(listening)) {}

  std::shared_ptr<Listening> listening_;
};

// The text with %41 as A and + as a space. A % without two hexadecimal digits stays.
std::string url_decoded(std::string_view text);
// name=value&name=value
std::map<std::string, std::string> url_query(std::string_view text);

}  // namespace mc::http
