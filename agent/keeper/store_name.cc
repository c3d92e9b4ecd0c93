// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/store_name.h"

#include <fcntl.h>

#include <algorithm>
#include <string>

namespace mc::agent {

bool is_store_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxStoreNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

Status check_store_name(std::string_view name) {
  if (is_store_name(name)) return {};
  return {MC_INVALID_ARGUMENT, "a kept descriptor's name must have 1 to " +
                                   std::to_string(kMaxStoreNameBytes) +
                                   " letters, digits, '.', '_' or '-'"};
}

Status check_store_entry(std::string_view name, int fd) {
  if (::fcntl(fd, F_GETFD) < 0) return {MC_INVALID_ARGUMENT, "no open descriptor to keep"};
  return check_store_name(name);
}

}  // namespace mc::agent
