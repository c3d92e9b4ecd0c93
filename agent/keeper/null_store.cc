// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/descriptor_store.h"
#include "agent/keeper/store_name.h"

namespace mc::agent {
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
