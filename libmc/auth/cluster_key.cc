// SPDX-License-Identifier: Apache-2.0
#include "libmc/auth/cluster_key.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "libmc/base/fd.h"

namespace mc::auth {

namespace {

void wipe(std::string& text) { OPENSSL_cleanse(text.data(), text.size()); }

Proof prove_by(const std::string& key, std::string_view text) {
  Proof proof{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(proof.data()), &size);
  return proof;
}

bool is_proven_by(const std::string& key, std::string_view text, const Proof& proof) {
  const Proof expected = prove_by(key, text);
  return CRYPTO_memcmp(expected.data(), proof.data(), proof.size()) == 0;
}

}  // namespace

ClusterKey::~ClusterKey() {
  for (std::string& key : keys_) wipe(key);
  wipe(hashes_);
}

Result<ClusterKey> ClusterKey::from_text(std::string_view text) {
  constexpr std::string_view kHashes = "hashes ";
  ClusterKey key;
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  for (std::size_t line = 1; line == 1 || !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.ends_with('\r')) word.remove_suffix(1);
    const bool hashes = word.starts_with(kHashes);
    if (hashes) word.remove_prefix(kHashes.size());
    if (word.size() < kMinKeyBytes || word.size() > kMaxKeyBytes) {
      return fail(MC_INVALID_ARGUMENT, "line " + std::to_string(line) +
                                           ": a cluster key has 32 to 4,096 bytes, this one " +
                                           std::to_string(word.size()) +
                                           "; make one with: openssl rand -hex 32");
    }
    if (hashes && !key.hashes_.empty()) {
      return fail(MC_INVALID_ARGUMENT, "line " + std::to_string(line) +
                                           ": a second line 'hashes'; keep the first, with which "
                                           "the pools were filled");
    }
    if (hashes) {
      key.hashes_ = word;
    } else {
      key.keys_.emplace_back(word);
    }
  }
  if (!key.given()) {
    return fail(MC_INVALID_ARGUMENT, "there is no line with the key itself before 'hashes'");
  }
  if (key.hashes_.empty()) key.hashes_ = key.keys_.front();
  return key;
}

Result<ClusterKey> ClusterKey::from_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    return fail(MC_INVALID_ARGUMENT, errno_text("the cluster key file " + path, errno));
  }
  struct stat about {};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return fail(MC_INVALID_ARGUMENT, "the cluster key file " + path + " is not a regular file");
  }
  const mode_t closed = about.st_uid == 0 ? 037 : 077;
  if ((about.st_mode & closed) != 0) {
    return fail(MC_PERMISSION_DENIED,
                "other users may use the cluster key file " + path + "; run: chmod 600 " + path);
  }
  if (about.st_uid != ::geteuid() && about.st_uid != 0) {
    return fail(MC_PERMISSION_DENIED,
                "the cluster key file " + path + " belongs to another user; chown it");
  }
  std::string text(kMaxKeyFileBytes + 1, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size < 0) return fail(MC_INVALID_ARGUMENT, errno_text("read " + path, errno));
  if (static_cast<std::size_t>(size) > kMaxKeyFileBytes) {
    return fail(MC_INVALID_ARGUMENT, path + ": a file of cluster keys has at most 16 KiB");
  }
  auto key = from_text(std::string_view(text.data(), static_cast<std::size_t>(size)));
  wipe(text);
  if (!key) return fail(key.error().code(), path + ": " + std::string(key.error().text()));
  return key;
}

Result<ClusterKey> ClusterKey::find(const std::string& path) {
  if (!path.empty()) return from_file(path);
  const char* const file = std::getenv("MC_CLUSTER_KEY_FILE");
  if (file != nullptr && file[0] != '\0') return from_file(file);
  const char* const text = std::getenv("MC_CLUSTER_KEY");
  if (text == nullptr || text[0] == '\0') return ClusterKey();
  auto key = from_text(text);
  if (!key) return fail(key.error().code(), "MC_CLUSTER_KEY: " + std::string(key.error().text()));
  return key;
}

std::string ClusterKey::http_token() const {
  std::string token;
  for (const char byte : prove("mc http")) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto value = static_cast<unsigned char>(byte);
    token += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return token;
}

Proof ClusterKey::prove(std::string_view text) const { return prove_by(keys_.front(), text); }

ClusterKey ClusterKey::used_in(std::string_view text, const Proof& proof) const {
  for (const std::string& key : keys_) {
    if (is_proven_by(key, text, proof)) return {{key}, hashes_};
  }
  return {};
}

bool ClusterKey::proven(std::string_view text, const Proof& proof) const {
  return is_proven_by(keys_.front(), text, proof);
}

}  // namespace mc::auth
