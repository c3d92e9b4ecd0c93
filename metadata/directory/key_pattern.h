// SPDX-License-Identifier: Apache-2.0
//
// A regular expression over keys, in RE2's syntax. The expression may match anywhere in a key.
//   Expression and key are bytes: a letter outside ASCII counts as the bytes of its encoding. A
//   match takes time in proportion to the key, so there is no look-ahead, look-behind or
//   back-reference.
// Cost: compile() of 4,096 bytes takes up to 5 ms; a key of 1 KiB up to 60 ms, most keys less than
//   a microsecond. A pattern takes up to 256 KiB.
// Threads: any; a pattern never changes.
// Trusts: not the expression.
#pragma once

#include <memory>
#include <string_view>

#include "mc/status.h"

namespace re2 {
class RE2;
}

namespace mc::metadata {

class KeyPattern {
 public:
  // Errors: MC_INVALID_ARGUMENT, which names the construct; MC_TOO_LARGE.
  static Result<KeyPattern> compile(std::string_view expression);

  KeyPattern(KeyPattern&&) noexcept;
  KeyPattern& operator=(KeyPattern&&) noexcept;
  ~KeyPattern();

  bool matches(std::string_view key) const;

 private:
  explicit KeyPattern(std::unique_ptr<re2::RE2> compiled);
  std::unique_ptr<re2::RE2> compiled_;
};

}  // namespace mc::metadata
