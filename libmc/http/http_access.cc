// SPDX-License-Identifier: Apache-2.0
#include "libmc/http/http_access.h"

#include <openssl/crypto.h>

#include <boost/asio/ip/address.hpp>
#include <cstdlib>
#include <fstream>

namespace mc::http {

namespace {

constexpr std::size_t kMaxTokenBytes = 4096;

bool is_loopback(const std::string& host) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

Result<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line.empty() || line.size() > kMaxTokenBytes) {
    return fail(MC_INVALID_ARGUMENT, path +
                                         ": cannot be read, or its first line is not a token of at "
                                         "most 4,096 bytes; see http_token_file");
  }
  if (line.back() == '\r') line.pop_back();
  return line;
}

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

Result<std::string> find_token(const std::string& path, const std::string& host,
                               const auth::ClusterKey& key, bool insecure) {
  if (insecure) return std::string();
  const std::string file = path.empty() ? environment("MC_HTTP_TOKEN_FILE") : path;
  if (!file.empty()) return first_line(file);
  std::string token = environment("ADMIN_API_KEY");
  if (!token.empty() || is_loopback(host)) return token;
  if (key.given()) return key.http_token();
  return fail(MC_INVALID_ARGUMENT,
              "other hosts reach the HTTP port at " + host +
                  ": set http_token_file, MC_HTTP_TOKEN_FILE or ADMIN_API_KEY, or the cluster's "
                  "key, or listen on 127.0.0.1");
}

bool may_pass(std::string_view token, std::string_view path, std::string_view authorization,
              std::string_view api_key) {
  if (token.empty() || path == "/health") return true;
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = api_key;
  if (given.empty() && authorization.starts_with(kBearer)) {
    given = authorization.substr(kBearer.size());
  }
  return given.size() == token.size() &&
         CRYPTO_memcmp(given.data(), token.data(), token.size()) == 0;
}

}  // namespace mc::http
