// SPDX-License-Identifier: Apache-2.0
//
// What it is: the secret that members of one cluster share, and what proves that one has it:
//   HMAC-SHA-256 over a text that both sides know and that never repeats. The key itself never
//   leaves the process.
// Threads: any; not changed after its making. Owns: the key, wiped when it goes.
// Trusts: the file's owner; a file that others may read or write is refused.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "mc/status.h"

namespace mc::metadata::rpc {

inline constexpr std::size_t kMinKeyBytes = 32;
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kProofBytes = 32;
using Proof = std::array<char, kProofBytes>;

class ClusterKey {
 public:
  ClusterKey() = default;  // none
  // Errors: MC_INVALID_ARGUMENT when it is too short or too long.
  static Result<ClusterKey> from_text(std::string text);
  // One line, or any bytes; a newline at the end does not count. Errors: MC_PERMISSION_DENIED when
  // others than its owner may read or write the file, or it belongs to another user.
  static Result<ClusterKey> from_file(const std::string& path);

  ClusterKey(const ClusterKey&) = default;
  ClusterKey& operator=(const ClusterKey&) = default;
  ClusterKey(ClusterKey&&) = default;
  ClusterKey& operator=(ClusterKey&&) = default;
  ~ClusterKey();

  [[nodiscard]] bool given() const { return !key_.empty(); }
  // What may be derived from it by members: the keyed hash of the directory's keys.
  [[nodiscard]] std::string_view secret() const { return key_; }
  // REQUIRES: given().
  [[nodiscard]] Proof prove(std::string_view text) const;
  // In constant time.
  [[nodiscard]] bool proven(std::string_view text, const Proof& proof) const;

 private:
  std::string key_;
};

}  // namespace mc::metadata::rpc
