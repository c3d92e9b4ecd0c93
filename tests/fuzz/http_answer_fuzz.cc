// SPDX-License-Identifier: Apache-2.0
//
// What a server of Mooncake's metadata protocol may answer: any status with any body; and any text
// as the URL of a store, whose secret no message repeats.
#include "bytes.h"
#include "metadata/store/http/http_answer.h"
#include "metadata/store/store_url.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using mc::fuzz::require;
  mc::fuzz::Bytes input(data, size);
  mc::metadata::HttpAnswer answer;
  answer.status = static_cast<long>(input.take<std::uint16_t>());
  answer.body = input.text(input.left());
  const std::string text = answer.body;
  const bool put = mc::metadata::decode_http_put(answer).ok();
  const bool removed = mc::metadata::decode_http_remove("key", answer).ok();
  require(put == (answer.status == 200) && removed == put);
  const auto value = mc::metadata::decode_http_get("key", answer);
  if (value) require(value->size() <= mc::metadata::kMaxStoreValueBytes);

  // A file that the text names would be read: leave that option out.
  if (text.find("_file") == std::string::npos) {
    if (const auto url = mc::metadata::parse_store_url(text)) {
      require(url->kind == mc::metadata::StoreUrl::Kind::kMemory || !url->endpoints.empty());
      require(url->endpoints.size() <= mc::metadata::kMaxEndpoints);
    }
  }
  // Nor may the text itself hold the secret, where a message may repeat it.
  if (text.find("_file") != std::string::npos || text.find("hunter2") != std::string::npos)
    return 0;
  const auto secret = mc::metadata::parse_store_url("redis://u:hunter2@h" + text);
  if (!secret) require(secret.error().to_string().find("hunter2") == std::string::npos);
  return 0;
}
