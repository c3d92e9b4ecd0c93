// SPDX-License-Identifier: Apache-2.0
//
// Options from arbitrary text: as a TOML file, as embedded lines, as the value of each flag and as
// a size. Accepted options keep their promises and load again from their printed form.
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/options/option_table.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const mc::Result<mc::agent::LoadedOptions>& loaded) {
  if (!loaded) {
    require(loaded.error().code() == MC_INVALID_ARGUMENT);
    return;
  }
  const auto& options = loaded->options;
  require(options.arenas >= 1 && options.arenas <= mc::agent::kMaxArenas);
  require(options.pool_bytes >= mc::agent::kMinPoolBytes);
  require(options.pool_bytes <= mc::agent::kMaxPoolBytesPerArena * options.arenas);
  require(options.capacity_bytes <= options.pool_bytes);
  require(options.socket.size() <= mc::agent::kMaxSocketPathBytes);
  std::string lines;
  for (const auto& text : loaded->text) {
    if (text.name.starts_with("namespace.")) continue;
    lines += text.name + "=" + text.value + "\n";
  }
  const auto again = mc::agent::load_embedded_options(lines);
  require(again.has_value());
  for (std::size_t i = 0; i < again->text.size(); ++i) {
    require(again->text[i].value == loaded->text[i].value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(mc::agent::load_options_text(text, "fuzz.toml", {}, nullptr));
  check(mc::agent::load_embedded_options(text));
  if (const auto bytes = mc::agent::parse_size(text)) {
    require(mc::agent::parse_size(mc::agent::format_size(*bytes)) == *bytes);
  }
  return 0;
}
