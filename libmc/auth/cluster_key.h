// SPDX-License-Identifier: Apache-2.0
//
// The secret of a cluster, and the proof that a process has the secret: HMAC-SHA-256
//   over a text that both sides know and that never repeats. The key never leaves the process.
// Threads: any; the key is constant.
// Owns: the key's bytes, which the destructor wipes.
// Trusts: the file's owner. A file that other users may read or write is refused.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "mc/status.h"

namespace mc::auth {

inline constexpr std::size_t kMinKeyBytes = 32;
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kProofBytes = 32;
using Proof = std::array<char, kProofBytes>;

class ClusterKey {
 public:
  ClusterKey() = default;  // no key
  // Errors: MC_INVALID_ARGUMENT if the text is too short or too long.
  static Result<ClusterKey> from_text(std::string text);
  // The file is a line, or any bytes; a newline at the end does not count. Errors:
  // MC_PERMISSION_DENIED if users other than the owner may read or write the file, or if another
  // user owns the file. The group may read a file of root, such as a mounted secret.
  static Result<ClusterKey> from_file(const std::string& path);
  // The key in the file. Without a path: the key in the file $MC_CLUSTER_KEY_FILE, else the text of
  // $MC_CLUSTER_KEY, else no key. Errors: those of from_file() and from_text().
  static Result<ClusterKey> find(const std::string& path);

  ClusterKey(const ClusterKey&) = default;
  ClusterKey& operator=(const ClusterKey&) = default;
  ClusterKey(ClusterKey&&) = default;
  ClusterKey& operator=(ClusterKey&&) = default;
  ~ClusterKey();

  [[nodiscard]] bool given() const { return !key_.empty(); }
  // The token of the cluster's HTTP servers, in hexadecimal. The token does not reveal the key.
  // REQUIRES: given().
  [[nodiscard]] std::string http_token() const;
  // Members derive other secrets from this one, such as the keyed hash of the directory's keys.
  [[nodiscard]] std::string_view secret() const { return key_; }
  // REQUIRES: given().
  [[nodiscard]] Proof prove(std::string_view text) const;
  // Compares in constant time.
  [[nodiscard]] bool proven(std::string_view text, const Proof& proof) const;

 private:
  std::string key_;
};

}  // namespace mc::auth
