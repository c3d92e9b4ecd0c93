// SPDX-License-Identifier: Apache-2.0
//
// Answers of a server of Mooncake's metadata protocol: any status with any body. Also any text as
// the URL of a store, whose secret must not appear in a message.
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

  // Leaves out the option that would read a file named by the text.
  if (text.find("_file") == std::string::npos) {
    if (const auto url = mc::metadata::parse_store_url(text)) {
      require(url->kind == mc::metadata::StoreUrl::Kind::kMemory || !url->endpoints.empty());
      require(url->endpoints.size() <= mc::metadata::kMaxEndpoints);
    }
  }
  // A message may repeat the text, so the text must not contain the secret.
  if (text.find("_file") != std::string::npos || text.find("hunter2") != std::string::npos)
    return 0;
  const auto secret = mc::metadata::parse_store_url("redis://u:hunter2@h" + text);
  if (!secret) require(secret.error().to_string().find("hunter2") == std::string::npos);
  return 0;
}
