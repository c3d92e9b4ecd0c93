// SPDX-License-Identifier: Apache-2.0
//
// A namespace whose evicted objects go to model disks.
// Threads: the test's.
// Owns: the disks, the namespace and its TieredPools.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/tiering/tiered_pools.h"
#include "libmc/base/checksum.h"
#include "shm/pins.h"
#include "tier/log_rig.h"

namespace mc::agent {

using Bytes = tier::testing::Bytes;
using tier::testing::LogRig;
using tier::testing::value_of;

inline constexpr std::uint64_t kSession = 7;
inline constexpr std::size_t kObjectBytes = 100'000;
inline constexpr std::uint64_t kPoolBytes = 8 << 20;
inline constexpr std::uint64_t kSegmentBytes = 4 << 20;

class TieredRig : public ::testing::Test {
 protected:
  explicit TieredRig(std::size_t disks = 1)
      : rig_({.disks = disks, .disk_bytes = 64 << 20, .segment_bytes = kSegmentBytes}) {}
  void SetUp() override {
    rig_.recover();
    open();
  }
  void TearDown() override { pools_.reset(); }
  // For the namespace of a cluster.
  virtual std::optional<std::uint64_t> hash_seed() { return std::nullopt; }
  virtual SharedObjects* share() { return nullptr; }

  // A namespace with an empty pool, beside the disks.
  void open(std::uint64_t bytes_per_day = 0) {
    pools_.reset();
    keys_.clear();
    tenant_ = std::make_shared<Tenant>();
    tenant_->name = "default";
    ObjectStore::Config config;
    config.pool_bytes = kPoolBytes;
    config.policy = "lru";
    config.hash_seed = hash_seed();
    auto store = ObjectStore::create(config, [this](std::vector<std::uint64_t>& pins) {
      for (const shm::Word64& pin : slots_) {
        if (pin.load_relaxed() != 0) pins.push_back(pin.load_relaxed());
      }
    });
    ASSERT_TRUE(store);
    tenant_->store = std::move(*store);
    while (tenant_->store->pool().growing()) {
      pollfd chunk{tenant_->store->pool().event_fd(), POLLIN, 0};
      ::poll(&chunk, 1, 1000);
      tenant_->store->pool().on_chunk();
    }
    pools_ = std::make_unique<TieredPools>(rig_.log(), bytes_per_day, rig_.now_ns());
    pools_->add_tenant(tenant_, share());
  }
  ObjectStore& store() { return *tenant_->store; }

  ObjectStore::Put put(const std::string& key, std::uint64_t version,
                       std::size_t size = kObjectBytes, bool upsert = true) {
    std::uint32_t entry = kNoEntry;
    while (store().reserve(kSession, size, true, entry) != ObjectStore::Reserve::kOk) turn();
    keys_.insert(key);
    const Bytes value = value_of(key, version, size);
    store().write(entry, 0, value);
    PutOrder order;
    order.key = key;
    order.entry = entry;
    order.length = size;
    order.checksum = checksum(store().index().hash(key), value.data(), size);
    order.upsert = upsert;
    return store().publish(kSession, order);
  }
  // Without bytes and checksum.
  bool publish(const std::string& key, std::uint32_t entry, std::size_t size) {
    PutOrder order;
    order.key = key;
    order.entry = entry;
    order.length = size;
    return store().publish(kSession, order) == ObjectStore::Put::kStored;
  }
  void turn() {
    rig_.turn_disks();
    pools_->advance(rig_.now_ns());
    store().catch_up();
    store().tick(rig_.now_ns());
  }
  void settle() {
    for (int i = 0; i < 100'000 && !(rig_.log().idle() && store().limbo_count() == 0); ++i) turn();
    ASSERT_TRUE(rig_.log().idle());
  }
  bool in_pool(const std::string& key) { return store().has(key); }
  const tier::TierEntry* entry_of(const std::string& key) {
    return rig_.log().find({key, namespace_id("default")});
  }
  bool on_disk(const std::string& key) { return entry_of(key) != nullptr; }
  void use(const std::string& key) {
    if (const auto entry = store().index().find(key, store().index().hash(key))) {
      store().touch(*entry);
    }
  }
  // Only this object leaves the pool.
  void evict(const std::string& key) {
    ASSERT_TRUE(in_pool(key));
    for (const std::string& other : keys_) {
      if (other != key) use(other);
    }
    evict_oldest();
    ASSERT_FALSE(in_pool(key));
  }
  void evict_oldest() {
    store().set_capacity(store().live_bytes() - 1);
    ASSERT_TRUE(store().make_room(1));
    store().set_capacity(Evictor::kUnlimited);
  }

  struct Ask {
    std::shared_ptr<RemoteRequest> request;
    shm::Word64* pin = nullptr;
    mc_status status() const { return request->items[0].status; }
    bool over() const { return request->over(); }
  };
  Ask ask(RemoteRequest::Kind kind, const std::string& key) {
    Ask ask{.request = std::make_shared<RemoteRequest>()};
    ask.request->kind = kind;
    ask.request->tenant = tenant_;
    RemoteRequest::Item& item = ask.request->items.emplace_back();
    item.key = key;
    if (kind == RemoteRequest::Kind::kFetch) item.pin = ask.pin = &slots_.emplace_back();
    pools_->begin(ask.request, rig_.now_ns());
    return ask;
  }
  mc_status end_of(const Ask& ask) {
    for (int i = 0; i < 100'000 && !ask.over(); ++i) turn();
    EXPECT_TRUE(ask.over());
    return ask.status();
  }
  // The pinned bytes.
  Bytes bytes_of(const Ask& ask) {
    const RemoteRequest::Item& item = ask.request->items[0];
    const shm::Entry& entry = store().index().entry(item.entry);
    EXPECT_EQ(ask.pin->load_relaxed(), shm::pin_value(item.entry, entry.version.load_relaxed()));
    Bytes bytes(entry.length.load_relaxed());
    store().read(item.entry, 0, bytes);
    EXPECT_EQ(checksum(store().index().hash(item.key), bytes.data(), bytes.size()),
              entry.checksum.load_relaxed());
    return bytes;
  }
  Ask fetch(const std::string& key) { return ask(RemoteRequest::Kind::kFetch, key); }
  // Gets the object, and compares the bytes. Lets go of the pin.
  bool gets(const std::string& key, std::uint64_t version, std::size_t size = kObjectBytes) {
    const Ask got = fetch(key);
    if (end_of(got) != MC_OK) return false;
    const bool same = bytes_of(got) == value_of(key, version, size);
    shm::clear_pin(*got.pin);
    return same;
  }
  // The disk has an object "a" from before the start, and is still being read.
  void restart_with_a() {
    put("a", 1);
    evict("a");
    settle();
    pools_.reset();
    rig_.kill();
    open();
  }
  // As the server does it after an upsert.
  Ask forget(const std::string& key) {
    Ask ask{.request = std::make_shared<RemoteRequest>()};
    ask.request->kind = RemoteRequest::Kind::kForget;
    ask.request->tenant = tenant_;
    ask.request->items.emplace_back().key = key;
    ask.request->open_count = 1;
    pools_->forget(ask.request, 0);
    return ask;
  }
  mc_status pin(const std::string& key, mc_pin level) {
    auto request = std::make_shared<RemoteRequest>();
    request->kind = RemoteRequest::Kind::kPin;
    request->tenant = tenant_;
    RemoteRequest::Item& item = request->items.emplace_back();
    item.key = key;
    item.level = level;
    pools_->begin(request, rig_.now_ns());
    return end_of({.request = request});
  }
  mc_status remove(const std::string& key) {
    return end_of(ask(RemoteRequest::Kind::kRemove, key));
  }

  LogRig rig_;
  std::deque<shm::Word64> slots_;
  std::shared_ptr<Tenant> tenant_;
  std::unique_ptr<TieredPools> pools_;
  std::set<std::string> keys_;
};

}  // namespace mc::agent
