// SPDX-License-Identifier: Apache-2.0
#include "ctl/verbs/counters_page.h"

#include <json/reader.h>

#include <memory>

#include "agent/admin/counters_page.h"

namespace mc::ctl {

std::optional<Json::Value> read_counters_page(const std::string& runtime_dir_or_socket) {
  auto text = agent::read_counters_text(runtime_dir_or_socket);
  if (!text) {
    const std::size_t slash = runtime_dir_or_socket.rfind('/');
    if (slash == std::string::npos) return std::nullopt;
    text = agent::read_counters_text(runtime_dir_or_socket.substr(0, slash));
  }
  if (!text) return std::nullopt;
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value value;
  std::string errors;
  if (!reader->parse(text->data(), text->data() + text->size(), &value, &errors)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace mc::ctl
