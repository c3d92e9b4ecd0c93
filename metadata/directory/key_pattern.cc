// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/key_pattern.h"

#include <re2/re2.h>

#include <string>
#include <utility>

namespace mc::metadata {

namespace {

constexpr std::int64_t kMemoryBytes = 256 << 10;

struct Construct {
  std::string_view text;  // the beginning of the construct
  const char* name;
};

constexpr Construct kNotLinear[] = {
    {"(?=", "a look-ahead"},
    {"(?!", "a negative look-ahead"},
    {"(?<", "a look-behind, or a group with a name but without P"},
    {"(?P", "a back-reference by name"},
    {"(?>", "an atomic group"},
    {"(?(", "a condition"},
};

// RE2 reports the part that RE2 does not take. Null: the part is no known construct.
const char* name_of(std::string_view part) {
  for (const Construct& construct : kNotLinear) {
    if (part.starts_with(construct.text)) return construct.name;
  }
  const bool digit = part.size() >= 2 && part[0] == '\\' && part[1] >= '1' && part[1] <= '9';
  return digit ? "a back-reference" : nullptr;
}

}  // namespace

Result<KeyPattern> KeyPattern::compile(std::string_view expression) {
  re2::RE2::Options options;
  options.set_encoding(re2::RE2::Options::EncodingLatin1);  // keys are bytes
  options.set_max_mem(kMemoryBytes);
  options.set_log_errors(false);
  auto compiled =
      std::make_unique<re2::RE2>(re2::StringPiece(expression.data(), expression.size()), options);
  if (compiled->ok()) return KeyPattern(std::move(compiled));
  if (compiled->error_code() == re2::RE2::ErrorPatternTooLarge) {
    return fail(MC_TOO_LARGE,
                "the regular expression takes more than 256 KiB; write a shorter one, or one "
                "with smaller counts");
  }
  const std::string& part = compiled->error_arg();
  if (const char* const name = name_of(part)) {
    return fail(MC_INVALID_ARGUMENT, "the regular expression has " + std::string(name) + ", '" +
                                         part +
                                         "', which RE2 does not have; write the expression "
                                         "without it");
  }
  return fail(MC_INVALID_ARGUMENT, "not a regular expression: " + compiled->error());
}

KeyPattern::KeyPattern(std::unique_ptr<re2::RE2> compiled) : compiled_(std::move(compiled)) {}
KeyPattern::KeyPattern(KeyPattern&&) noexcept = default;
KeyPattern& KeyPattern::operator=(KeyPattern&&) noexcept = default;
KeyPattern::~KeyPattern() = default;

bool KeyPattern::matches(std::string_view key) const {
  return re2::RE2::PartialMatch(re2::StringPiece(key.data(), key.size()), *compiled_);
}

}  // namespace mc::metadata
