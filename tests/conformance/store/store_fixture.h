// SPDX-License-Identifier: Apache-2.0
//
// The fixture of the cluster stores' suite: a server of the wanted kind, and stores
//   opened on that server.
// Threads: the test's thread, unless a member says otherwise.
// Owns: server and stores.
// Trusts: nothing that a test asserts; a watchdog ends a test that waits for ever.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "conformance/store/store_servers.h"
#include "metadata/store/cluster_store.h"
#include "metadata/store/memory/memory_state.h"

namespace mc::conformance {

enum class Backend { kMemory, kRedis, kEtcd, kHttp };
std::string backend_name(const testing::TestParamInfo<Backend>& info);

// Deadlines of calls that must succeed, and of calls that must fail.
std::uint64_t soon();
std::uint64_t at_once();

// Opens a store; fails the test if the URL is refused.
std::unique_ptr<metadata::ClusterStore> open_store(const std::string& url,
                                                   const std::string& cluster = "test");

// Puts an object through a new store; MC_OK, or the code of the refusal. The text of a refusal must
// not tell the password, which is hunter2 in all tests.
mc_status code_of_put(const std::string& url, std::uint64_t deadline_ns = soon());

class ClusterStoreTest : public testing::TestWithParam<Backend> {
 public:
  ClusterStoreTest();

  std::unique_ptr<metadata::ClusterStore> open(const std::string& cluster = "test");
  // REQUIRES: not kMemory.
  StoreServer& server() { return *server_; }

 private:
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<metadata::MemoryState> memory_;
};

// Asks repeatedly until the predicate holds, under the watchdog.
void until_holds(const std::function<bool()>& holds);

}  // namespace mc::conformance

// Names the missing feature of this kind of store, for the summary of skipped tests.
#define MC_NEEDS(store, capability)        \
  if (!(store)->capabilities().capability) \
  GTEST_SKIP() << "Mooncake's HTTP metadata protocol has no " #capability
#define MC_NEEDS_SERVER() \
  if (GetParam() == Backend::kMemory) GTEST_SKIP() << "memory: no server that could be away"
