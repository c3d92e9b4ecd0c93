// SPDX-License-Identifier: Apache-2.0
#include "transfer/peer_process.h"

#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace mc::transfer::testing {

namespace {

std::vector<std::string> words_of(std::uint64_t size_bytes, std::uint32_t rights,
                                  const std::string& listen, const std::string& key_file) {
  std::vector<std::string> words = {MC_TEST_BIN "/mc_transfer_peer", listen,
                                    std::to_string(size_bytes), std::to_string(rights)};
  if (!key_file.empty()) words.push_back(key_file);
  return words;
}

}  // namespace

PeerProcess::PeerProcess(std::uint64_t size_bytes, std::uint32_t rights, const std::string& listen,
                         const std::string& key_file)
    : LineProcess(words_of(size_bytes, rights, listen, key_file)) {
  const std::string hello = read_line();
  const std::size_t blank = hello.find(' ');
  if (blank == std::string::npos) throw std::runtime_error("mc_transfer_peer did not start");
  name_ = hello.substr(0, blank);
  address_ = std::strtoull(hello.c_str() + blank + 1, nullptr, 10);
}

}  // namespace mc::transfer::testing
