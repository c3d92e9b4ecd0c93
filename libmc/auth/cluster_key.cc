// SPDX-License-Identifier: Apache-2.0
#include "libmc/auth/cluster_key.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "libmc/base/fd.h"

namespace mc::metadata::rpc {

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
  if ((about.st_mode & 077) != 0) {
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

}  // namespace mc::metadata::rpc
