// SPDX-License-Identifier: Apache-2.0
//
// The checks that every descriptor store makes, and the store that keeps nothing.
#include "agent/keeper/descriptor_store.h"

#include <fcntl.h>

#include <algorithm>

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

namespace {

class NullStore final : public DescriptorStore {
 public:
  Result<std::map<std::string, Fd>> take_all() override { return std::map<std::string, Fd>(); }
  // Same checks as in the other stores, so that a bad name shows in every configuration.
  Status put(const std::string& name, int fd) override { return check_store_entry(name, fd); }
  Status drop(const std::string& name) override { return check_store_name(name); }
  Status drop_all() override { return {}; }
  int death_fd() const override { return -1; }
  Status restart() override { return {}; }
};

}  // namespace

std::unique_ptr<DescriptorStore> make_null_store() { return std::make_unique<NullStore>(); }

}  // namespace mc::agent
