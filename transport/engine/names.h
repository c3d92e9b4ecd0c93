// SPDX-License-Identifier: Apache-2.0
//
// What it is: names of segments: their addresses themselves, or kept in a cluster store under
//   "transfer/<name>", with a lease where the store has leases.
// Threads: any; calls wait for the store, at the latest until their deadline. A thread of its own
//   renews the lease. Owns: the store, and the name that it published, until it is destroyed.
// Trusts: nothing: what the store holds becomes an address or an error.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "metadata/store/cluster_store.h"
#include "transport/engine/address.h"

namespace mc::transfer {

class Names {
 public:
  // url empty or "p2p": a name is an address. Errors: MC_INVALID_ARGUMENT.
  static Result<std::unique_ptr<Names>> open(const std::string& url, const std::string& cluster);
  ~Names();

  // Replaces what an earlier engine of that name left. Nothing to do without a store.
  Status publish(const std::string& name, const Address& address, std::uint64_t deadline_ns);
  // MC_NOT_FOUND: nobody has that name.
  Result<Address> find(const std::string& name, std::uint64_t deadline_ns);

 private:
  explicit Names(std::unique_ptr<metadata::ClusterStore> store) : store_(std::move(store)) {}
  Status put(std::uint64_t deadline_ns);
  void renew();

  const std::unique_ptr<metadata::ClusterStore> store_;  // null: names are addresses
  std::string key_;                                      // published; empty: nothing is
  std::string value_;
  metadata::Lease lease_;
  std::mutex mutex_;
  std::condition_variable stop_cv_;
  bool stop_ = false;
  std::thread renewer_;
};

}  // namespace mc::transfer
