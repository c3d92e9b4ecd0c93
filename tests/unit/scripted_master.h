// SPDX-License-Identifier: Apache-2.0
//
// A MasterPort whose answers come from the test, call by call, and a namespace for the
//   test.
// Threads: The test's.
// Owns: Calls without an answer yet.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/cluster/master/master_port.h"
#include "agent/server/tenant.h"

namespace mc::agent {

class ScriptedMaster final : public MasterPort {
 public:
  struct Published {
    std::vector<metadata::PublishItem> items;
    Done<std::vector<metadata::Verdict>> done;
  };
  struct Located {
    std::vector<metadata::KeyHash> keys;
    Done<metadata::LocateAnswer> done;
  };
  bool is_ready = true;
  Status why_away;
  std::string address = "10.0.0.1:7400";
  metadata::MemberList members_list;
  int refreshes = 0;
  std::deque<Published> published;
  std::deque<Done<metadata::wire::ChooseHoldersAnswer>> places;
  std::deque<Done<metadata::wire::RemoveReply>> removes;
  std::deque<Located> locates;
  std::deque<Done<metadata::wire::MembersAnswer>> members_asked;
  std::deque<Done<metadata::wire::DrainAnswer>> drains;

  void publish(std::vector<metadata::PublishItem> items, std::uint64_t, std::uint64_t,
               Done<std::vector<metadata::Verdict>> done) override {
    published.push_back({std::move(items), std::move(done)});
  }
  void remove(const metadata::wire::Remove&, std::uint64_t,
              Done<metadata::wire::RemoveReply> done) override {
    removes.push_back(std::move(done));
  }
  void locate(const metadata::wire::Locate& request, std::uint64_t,
              Done<metadata::LocateAnswer> done) override {
    locates.push_back({request.keys, std::move(done)});
  }
  void members(std::uint64_t, Done<metadata::wire::MembersAnswer> done) override {
    members_asked.push_back(std::move(done));
  }
  void drain(const metadata::wire::Drain&, std::uint64_t,
             Done<metadata::wire::DrainAnswer> done) override {
    drains.push_back(std::move(done));
  }
  // The list of members that the master tells next, with a lease of a day.
  void tell(std::vector<metadata::wire::MemberInfo> members, bool readable = true) {
    metadata::wire::HeartbeatReply reply;
    reply.whole = true;
    reply.list_version = members_list.version() + 1;
    reply.lease_ms = 86'400'000;
    for (metadata::wire::MemberInfo& member : members) member.readable = readable;
    reply.changed.members = std::move(members);
    members_list.take(reply, now_ns());
  }
  void choose_holders(const metadata::wire::ChooseHolders&, std::uint64_t,
                      Done<metadata::wire::ChooseHoldersAnswer> done) override {
    places.push_back(std::move(done));
  }
  // No test makes these calls, or no test waits for the answer.
  void remove_matching(const metadata::wire::Match&, std::uint64_t,
                       Done<metadata::wire::RemoveMatchingAnswer>) override {}
  void list(const metadata::wire::Match&, std::uint64_t,
            Done<metadata::wire::ListAnswer>) override {}
  void stats(std::uint64_t, Done<metadata::wire::StatsAnswer>) override {}
  void relocate(const metadata::wire::Relocate&, std::uint64_t,
                Done<metadata::wire::RelocationId>) override {}
  void relocation(const metadata::wire::RelocationId&, std::uint64_t,
                  Done<metadata::wire::RelocationAnswer>) override {}
  void await_replicas(const metadata::wire::AwaitReplicas&, std::uint64_t,
                      Done<metadata::wire::AwaitReplicasAnswer>) override {}
  void report_unreachable(metadata::wire::Unreachable) override {}
  void refresh_members() override { ++refreshes; }
  [[nodiscard]] std::uint64_t removals_seen() const override { return 0; }
  [[nodiscard]] std::uint64_t refused_up_to() const override { return 0; }
  [[nodiscard]] std::uint64_t epoch() const override { return 1; }
  [[nodiscard]] const metadata::MemberList& member_list() const override { return members_list; }
  [[nodiscard]] bool ready() const override { return is_ready; }
  [[nodiscard]] const Status& trouble() const override { return why_away; }
  [[nodiscard]] const std::string& leader() const override { return address; }
};

inline std::shared_ptr<Tenant> make_tenant(const std::string& name, std::uint64_t hash_seed) {
  auto made = std::make_shared<Tenant>();
  made->name = name;
  ObjectStore::Config config;
  config.pool_bytes = 8u << 20;
  config.hash_seed = hash_seed;
  auto store = ObjectStore::create(config, [](std::vector<std::uint64_t>&) {});
  if (!store) return nullptr;
  made->store = std::move(*store);
  while (made->store->pool().growing()) {
    pollfd chunk{made->store->pool().event_fd(), POLLIN, 0};
    ::poll(&chunk, 1, 1000);
    made->store->pool().on_chunk();
  }
  return made;
}

inline void put_object(ObjectStore& store, const std::string& key, bool upsert = false) {
  constexpr std::uint64_t kPutter = 7;
  PutOrder order;
  ASSERT_EQ(store.reserve(kPutter, 100, true, order.entry), ObjectStore::Reserve::kOk);
  order.key = key;
  order.length = 100;
  order.upsert = upsert;
  ASSERT_EQ(store.publish(kPutter, order), ObjectStore::Put::kStored);
}

}  // namespace mc::agent
