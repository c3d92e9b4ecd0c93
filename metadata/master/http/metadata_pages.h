// SPDX-License-Identifier: Apache-2.0
//
// Mooncake's HTTP metadata server: GET, PUT and DELETE of /metadata?key=KEY, in memory, for transfer
//   engines of other processes. mc itself needs no such server.
// Threads: the HTTP thread.
// Owns: at most 65,536 values of at most 1 MiB, 256 MiB in all.
// Trusts: nothing of a request.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "libmc/http/http_server.h"

namespace mc::metadata {

class MetadataPages {
 public:
  static constexpr std::size_t kMaxKeys = 65'536;
  static constexpr std::size_t kMaxBytes = 256u << 20;  // of all keys and values

  http::HttpAnswer answer(const http::HttpRequest& request);

 private:
  http::HttpAnswer put(const std::string& key, const std::string& value);

  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
};

}  // namespace mc::metadata
