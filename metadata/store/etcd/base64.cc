// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/etcd/base64.h"

#include <openssl/evp.h>

namespace mc::metadata {

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL also writes a zero
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0 || static_cast<std::size_t>(size) != bytes.size()) return std::nullopt;
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) {
    text.remove_suffix(1);
    bytes.pop_back();
  }
  // OpenSSL ignores blanks around the text, misplaced padding and bits that are left over.
  const std::string again = base64(bytes);
  if (again.substr(0, text.size()) != text || text.find('=') != text.npos) return std::nullopt;
  return bytes;
}

}  // namespace mc::metadata
