// SPDX-License-Identifier: Apache-2.0
#include "libmc/auth/cluster_key.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "libmc/base/fd.h"

namespace mc::auth {

ClusterKey::~ClusterKey() { OPENSSL_cleanse(key_.data(), key_.size()); }

Result<ClusterKey> ClusterKey::from_text(std::string text) {
  if (text.size() < kMinKeyBytes || text.size() > kMaxKeyBytes) {
    return fail(MC_INVALID_ARGUMENT, "a cluster key has 32 to 4,096 bytes, this one " +
                                         std::to_string(text.size()) +
                                         "; make one with: openssl rand -hex 32");
  }
  ClusterKey key;
  key.key_ = std::move(text);
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
  std::string text(kMaxKeyBytes + 2, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size < 0) return fail(MC_INVALID_ARGUMENT, errno_text("read " + path, errno));
  text.resize(static_cast<std::size_t>(size));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  auto key = from_text(std::move(text));
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

Proof ClusterKey::prove(std::string_view text) const {
  Proof proof{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(proof.data()), &size);
  return proof;
}

bool ClusterKey::proven(std::string_view text, const Proof& proof) const {
  const Proof expected = prove(text);
  return CRYPTO_memcmp(expected.data(), proof.data(), proof.size()) == 0;
}

}  // namespace mc::auth
