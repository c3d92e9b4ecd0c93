// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/http/http_answer.h"

#include "metadata/store/checks.h"

namespace mc::metadata {
namespace {

Status refused(const HttpAnswer& answer) {
  const std::string code = "the metadata server answered " + std::to_string(answer.status);
  switch (answer.status) {
    case 400:
      return {MC_INVALID_ARGUMENT, code + ": the server refuses this key"};
    case 401:
    case 403:
      return {MC_PERMISSION_DENIED, code + ": the server, or a proxy before it, requires a login"};
    case 404:
    case 405:
      return {MC_UNSUPPORTED, code + ": check the path of the URL, usually /metadata"};
    case 413:
      return {MC_NO_SPACE, code + ": the value is larger than the server allows"};
    case 429:
    case 503:
      return {kStoreUnavailable, code + ": try again later"};
    default:
      if (answer.status >= 500) return {kOutcomeUnknown, code + ": see the server's log"};
      return {MC_CORRUPT, code + ", which does not belong to Mooncake's metadata protocol"};
  }
}

}  // namespace

Result<std::string> decode_http_get(std::string_view key, HttpAnswer answer) {
  if (answer.status == 404) return fail(MC_NOT_FOUND, no_such_key(key));
  if (answer.status != 200) return fail(refused(answer));
  if (answer.body.size() > kMaxStoreValueBytes) {
    return fail(MC_CORRUPT, "the value is longer than a cluster store allows");
  }
  return std::move(answer.body);
}

Status decode_http_put(const HttpAnswer& answer) {
  return answer.status == 200 ? Status() : refused(answer);
}

Status decode_http_remove(std::string_view key, const HttpAnswer& answer) {
  if (answer.status == 404) return {MC_NOT_FOUND, no_such_key(key)};
  return answer.status == 200 ? Status() : refused(answer);
}

}  // namespace mc::metadata
