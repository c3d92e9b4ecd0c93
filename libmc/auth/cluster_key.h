// SPDX-License-Identifier: Apache-2.0
//
// The secret of a cluster, and the proof that a process has the secret: HMAC-SHA-256
//   over a text that both sides know and that never repeats. The key never leaves the process. The file has
//   one or more lines:
//
//     KEY           the process proves itself by this key, and peers may do so
//     KEY           peers may prove themselves by this key, too; any number of lines
//     hashes KEY    the secret of the directory's hashes; without this line the first key
//
// So a cluster changes its key host by host: first all hosts accept the new key, then all hosts prove
// themselves by the new key, then no host accepts the old key. The objects stay, because the secret of the
// hashes stays.
// Threads: any; the keys are constant.
// Owns: the keys' bytes, which the destructor wipes.
// Trusts: the file's owner. A file that other users may read or write is refused.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mc/status.h"

namespace mc::auth {

inline constexpr std::size_t kMinKeyBytes = 32;
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kMaxKeyFileBytes = 16 * 1024;
inline constexpr std::size_t kProofBytes = 32;
using Proof = std::array<char, kProofBytes>;

class ClusterKey {
 public:
  ClusterKey() = default;  // no key
  // The lines above. Errors: MC_INVALID_ARGUMENT names the line that is too short or too long.
  static Result<ClusterKey> from_text(std::string_view text);
  // Errors: those of from_text(), and MC_PERMISSION_DENIED if users other than the owner may read or write the file, or if another
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

  [[nodiscard]] bool given() const { return !keys_.empty(); }
  // The token of the cluster's HTTP servers, in hexadecimal. The token does not reveal the key.
  // REQUIRES: given().
  [[nodiscard]] std::string http_token() const;
  // The secret of the directory's hashes. Empty: no key.
  [[nodiscard]] std::string_view secret() const { return hashes_; }
  // REQUIRES: given().
  [[nodiscard]] Proof prove(std::string_view text) const;
  // The key by which the peer made the proof, if this process accepts that key; else no key. Compares in
  // constant time.
  [[nodiscard]] ClusterKey used_in(std::string_view text, const Proof& proof) const;
  // Whether the proof was made by the key of prove().
  [[nodiscard]] bool proven(std::string_view text, const Proof& proof) const;

 private:
  ClusterKey(std::vector<std::string> keys, std::string hashes)
      : keys_(std::move(keys)), hashes_(std::move(hashes)) {}

  std::vector<std::string> keys_;  // the first proves
  std::string hashes_;
};

}  // namespace mc::auth
