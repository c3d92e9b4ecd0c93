// SPDX-License-Identifier: Apache-2.0
//
// The place where engines publish names and look up the names of peers. The
//   caller of Engine::open() supplies the store (libmc/transfer/cluster_names.h has one over a
//   cluster store).
// Threads: any thread. Calls may wait for the store until the deadline.
// Owns: the published name. The destructor withdraws the name.
// Trusts: nothing. Text from the store becomes an address or an error.
#pragma once

#include <memory>
#include <string>

#include "transport/engine/address.h"

namespace mc::transfer {

class NameStore {
 public:
  virtual ~NameStore() = default;
  // Replaces the address that an earlier engine published under the name. Called at most once.
  virtual Status publish(const std::string& name, const Address& address,
                         std::uint64_t deadline_ns) = 0;
  // Errors: MC_NOT_FOUND (no engine published the name), MC_INVALID_ARGUMENT, those of the store.
  virtual Result<Address> find(const std::string& name, std::uint64_t deadline_ns) = 0;
};

// Without a store, a name is an address.
class AddressNames final : public NameStore {
 public:
  Status publish(const std::string&, const Address&, std::uint64_t) override { return {}; }
  Result<Address> find(const std::string& name, std::uint64_t) override { return resolve(name); }
};

}  // namespace mc::transfer
