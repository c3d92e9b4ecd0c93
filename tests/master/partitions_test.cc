// SPDX-License-Identifier: Apache-2.0
//
// A master that leads several partitions. Each partition has its own directory, and a client with a
// wrong number of partitions is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/store/store_servers.h"
#include "master/master_host.h"
#include "master/rpc_ends.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {
namespace {

using ::testing::HasSubstr;

MasterClientOptions to(const std::vector<std::string>& masters, std::uint32_t partition,
                       std::uint32_t partitions) {
  MasterClientOptions options;
  options.masters = masters;
  options.partition = partition;
  options.partitions = partitions;
  return options;
}

// A single call on a raw link: status and body.
struct Called {
  std::uint16_t status = 0;
  std::string body;
};

class RawMember {
 public:
  explicit RawMember(const std::string& address) {
    rpc::DialOptions dialing;
    dialing.address = address;
    dialing.own.role = auth::Role::kAgent;
    dialing.own.node = 9;
    dialing.own.incarnation = 1;
    dialing.own.cluster = auth::cluster_tag("default");
    rpc::dial(loop_.io().get_executor(), dialing, soon(), ends_,
              [this](Result<std::shared_ptr<rpc::RpcLink>> link) {
                ASSERT_TRUE(link.has_value()) << link.error().to_string();
                link_ = *link;
              });
    EXPECT_TRUE(loop_.until([this] { return link_ != nullptr; }));
  }
  template <typename Message>
  Called call(wire::Method method, const Message& message) {
    std::string body;
    wire::encode(message, body);
    std::optional<Called> called;
    link_->call(static_cast<std::uint8_t>(method), body, soon(), 0,
                [&](const Result<rpc::Answer>& answer) {
                  called = answer ? Called{answer->status, std::string(answer->body)}
                                  : Called{MC_CLOSED, answer.error().to_string()};
                });
    EXPECT_TRUE(loop_.until([&] { return called.has_value(); }));
    return *called;
  }
  Called join() {
    Descriptor descriptor;
    descriptor.node = 9;
    descriptor.incarnation = 1;
    descriptor.address = "127.0.0.1:9";
    descriptor.capacity_bytes = 1 << 30;
    return call(wire::Method::kJoin, descriptor);
  }

 private:
  rpc::Loop loop_;
  rpc::Ends ends_;
  std::shared_ptr<rpc::RpcLink> link_;
};

TEST(MasterPartitions, EachPartitionHasItsOwnDirectoryAndMembers) {
  const MasterProcess master({"--partitions", "2"});
  HoldingAgent zero(to({master.address()}, 0, 0), 1);
  HoldingAgent one(to({master.address()}, 1, 2), 1);
  // Publishes before the master leads are left to the report.
  ASSERT_TRUE(zero.until_ready() && one.until_ready());
  zero.put(names("zero ", 30));
  one.put(names("one ", 20));
  const auto tool_of_zero = tool(to({master.address()}, 0, 0));
  const auto tool_of_one = tool(to({master.address()}, 1, 2));
  EXPECT_EQ(stats(*tool_of_zero).entries, 30u);
  EXPECT_EQ(stats(*tool_of_one).entries, 20u);
  const auto elsewhere = locate(*tool_of_one, {"zero 7"});
  ASSERT_TRUE(elsewhere.has_value());
  EXPECT_NE(elsewhere->keys[0].state, Lookup::kFound);
  EXPECT_NE(tool_of_zero->epoch(), 0u);
  // The death concerns a single partition's link; the other partition keeps its member.
  zero.die();
  EXPECT_TRUE(until([&] { return stats(*tool_of_zero).members == 0; }));
  EXPECT_EQ(stats(*tool_of_one).members, 1u);
}

TEST(MasterPartitions, AMasterWithAnotherNumberOfPartitionsDoesNotStart) {
  const conformance::StoreServer redis(conformance::redis_command());
  const std::string store = "redis://" + redis.host();
  const MasterProcess first({"--cluster-store", store, "--partitions", "2"});
  for (std::uint32_t partition = 0; partition < 2; ++partition) {
    EXPECT_EQ(stats(*tool(to({first.address()}, partition, 2))).members, 0u) << "it leads";
  }
  for (const char* const other : {"1", "3"}) {
    const auto [status, said] =
        run_master_once({"--cluster-store", store, "--partitions", other, "--listen",
                         "127.0.0.1:" + std::to_string(conformance::free_port())});
    EXPECT_EQ(status, 1);
    EXPECT_THAT(said, HasSubstr("has 2 partitions"));
    EXPECT_THAT(said, HasSubstr("partitions = 2"));
    EXPECT_THAT(said, HasSubstr("share_count"));
  }
  // A master with the same number stands by. --shares is the earlier name of the option.
  EXPECT_EQ(run_master_once({"--cluster-store", store, "--shares", "2", "--listen",
                             "127.0.0.1:" + std::to_string(conformance::free_port())})
                .first,
            0);
}

TEST(MasterPartitions, TheNumberOfPartitionsIsBounded) {
  EXPECT_EQ(run_master_once({"--partitions", "0"}).first, 2);
  EXPECT_EQ(run_master_once({"--partitions", "65"}).first, 2);
}

TEST(MasterPartitions, AnAttendWithAnotherNumberIsRefused) {
  const MasterProcess master({"--partitions", "2"});
  RawMember member(master.address());
  const auto refused = member.call(wire::Method::kAttend, wire::Attend{2, 3});
  EXPECT_EQ(refused.status, MC_INVALID_ARGUMENT);
  wire::Refusal why;
  ASSERT_TRUE(wire::decode(refused.body, why).ok());
  EXPECT_THAT(why.text, HasSubstr("has 2 partitions"));
  EXPECT_TRUE(until([&] {
    const auto asked = member.call(wire::Method::kAttend, wire::Attend{0, 0});
    wire::AttendAnswer answer;
    return asked.status == 0 && wire::decode(asked.body, answer).ok() && answer.partitions == 2;
  }));
  EXPECT_TRUE(until([&] {
    return member.call(wire::Method::kAttend, wire::Attend{1, 2}).status == 0;
  }));
  EXPECT_EQ(member.join().status, 0);
}

TEST(MasterPartitions, AMemberWithoutAPartitionJoinsOnlyASinglePartition) {
  const MasterProcess several({"--partitions", "2"});
  RawMember lost(several.address());
  EXPECT_EQ(lost.join().status, MC_VERSION_MISMATCH);
  const MasterProcess one({});
  RawMember old(one.address());
  EXPECT_TRUE(until([&] { return old.join().status == 0; }));
}

}  // namespace
}  // namespace mc::metadata
