// SPDX-License-Identifier: Apache-2.0
//
// One reply of a Redis server as a value, made from bytes by hiredis' reader.
// Threads: a reader belongs to one connection.
// Owns: a reply owns the texts and items.
// Trusts: nothing. Bytes and items of one reply are limited before memory is allocated. Memory
//   grows with the bytes received, never with the claimed counts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

struct Reply {
  enum class Kind { kNil, kInteger, kText, kArray, kError };
  Kind kind = Kind::kNil;
  std::int64_t integer = 0;
  std::string text;  // kText, kError
  std::vector<Reply> items;
};

// A listing at the contract's limits, with the protocol's overhead.
inline constexpr std::size_t kMaxReplyItems = 5 * kMaxListEntries;
inline constexpr std::size_t kMaxReplyBytes = kMaxListBytes + 64 * kMaxListEntries + 4096;

class ReplyReader {
 public:
  ReplyReader();
  ~ReplyReader();
  ReplyReader(ReplyReader&&) noexcept;
  ReplyReader& operator=(ReplyReader&&) noexcept;

  // MC_CORRUPT: invalid RESP, or beyond the limits. The connection must be closed.
  Status feed(std::string_view bytes);
  // The next whole reply; null: more bytes are needed. Errors: as feed().
  Result<std::unique_ptr<Reply>> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mc::metadata
