// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/http/metadata_pages.h"

namespace mc::metadata {

http::HttpAnswer MetadataPages::answer(const http::HttpRequest& request) {
  if (request.path == "/health") return {.body = "OK"};
  if (request.path != "/metadata") return {.status = 404, .body = "not found"};
  const auto named = request.query.find("key");
  if (named == request.query.end() || named->second.empty()) {
    return {.status = 400, .body = "Missing key parameter"};
  }
  const std::string& key = named->second;
  if (request.method == "PUT") return put(key, request.body);
  const auto found = values_.find(key);
  const bool removes = request.method == "DELETE";
  if (!removes && request.method != "GET" && request.method != "HEAD") {
    return {.status = 405, .body = "use GET, PUT or DELETE"};
  }
  if (found == values_.end()) return {.status = 404, .body = "metadata not found"};
  if (!removes) return {.type = "application/json", .body = found->second};
  bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return {.body = "metadata deleted"};
}

http::HttpAnswer MetadataPages::put(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t before = is_new ? 0 : key.size() + found->second.size();
  const std::size_t after = bytes_ - before + key.size() + value.size();
  if ((is_new && values_.size() >= kMaxKeys) || after > kMaxBytes) {
    return {.status = 507, .body = "too many keys, or too many bytes together"};
  }
  values_[key] = value;
  bytes_ = after;
  return {.body = "metadata updated"};
}

}  // namespace mc::metadata
