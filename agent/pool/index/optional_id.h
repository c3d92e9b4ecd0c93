// SPDX-License-Identifier: Apache-2.0
//
// An optional number of an entry or a record, in one register. std::optional stores its
//   two members separately and loads both as one word. No store buffer can serve such a load, so
//   the load waits for every earlier store. On the path of a put these stores go to cold cache
//   lines, and each wait costs as much as a cache miss.
// Threads: a value.
// Owns: nothing.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <optional>

namespace mc::agent {

class OptionalId {
 public:
  OptionalId() = default;
  OptionalId(std::nullopt_t) {}              // NOLINT: converts as std::optional does
  OptionalId(std::uint32_t id) : id_(id) {}  // NOLINT: the same. REQUIRES: id is not kNone
  explicit operator bool() const { return id_ != kNone; }
  bool has_value() const { return id_ != kNone; }
  std::uint32_t operator*() const { return id_; }
  std::uint32_t value() const { return id_; }
  std::uint32_t value_or(std::uint32_t other) const { return id_ != kNone ? id_ : other; }
  bool operator==(const OptionalId&) const = default;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::uint32_t id_ = kNone;
};

}  // namespace mc::agent
