// SPDX-License-Identifier: Apache-2.0
//
// Queries, cursors and header fields of HTTP requests. A cursor that is accepted has one text.
#include "bytes.h"
#include "libmc/http/http_access.h"
#include "libmc/http/http_server.h"
#include "metadata/master/http/leaders.h"
#include "metadata/master/http/metadata_pages.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static mc::metadata::MetadataPages pages;
  for (const auto& [name, value] : mc::http::url_query(text)) {
    mc::fuzz::require(name.size() + value.size() <= size);
    const auto cursor = mc::metadata::ListCursor::parse(value);
    if (cursor)
      mc::fuzz::require(mc::metadata::ListCursor::parse(cursor->text())->after == cursor->after);
    pages.answer({name, "/metadata", {{"key", value}}, value});
  }
  mc::fuzz::require(!mc::http::may_pass("a token of 22 letters!", text, text, text) ||
                    text == "/health" || text.ends_with("a token of 22 letters!"));
  return 0;
}
