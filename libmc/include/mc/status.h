// SPDX-License-Identifier: Apache-2.0
//
// The project's error type: a code of mc.h, with cause and remedy in words.
// Threads: a Status is a value.
// Owns: a shared, immutable text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

#include "mc/mc.h"

namespace mc {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(mc_status code) : code_(code) {}  // NOLINT: a bare code is a status without a text
  Status(mc_status code, std::string text)
      : code_(code), text_(std::make_shared<const std::string>(std::move(text))) {}

  bool ok() const { return code_ == MC_OK; }
  mc_status code() const { return code_; }
  // Cause and remedy, or the code's own sentence.
  std::string_view text() const { return text_ ? std::string_view(*text_) : mc_status_text(code_); }
  std::string to_string() const {
    return std::string(mc_status_name(code_)) + ": " + std::string(text());
  }

 private:
  mc_status code_ = MC_OK;
  std::shared_ptr<const std::string> text_;
};

template <typename T>
using Result = tl::expected<T, Status>;

inline tl::unexpected<Status> fail(mc_status code, std::string text) {
  return tl::make_unexpected(Status(code, std::move(text)));
}
inline tl::unexpected<Status> fail(Status status) { return tl::make_unexpected(std::move(status)); }

}  // namespace mc
