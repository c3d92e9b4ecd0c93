// SPDX-License-Identifier: Apache-2.0
//
// The effect of a removal on the host that asks for the removal.
#include <gtest/gtest.h>

#include "agent/cluster/cluster_node.h"
#include "conformance/transport/loop_transport.h"
#include "unit/scripted_master.h"

namespace mc::agent {
namespace {

class Node final : public ClusterNode {
 public:
  Node(MasterPort& port, transport::Transport& transport) : ClusterNode({1, 1, "secret", {}, {}}) {
    connect({&port}, transport);
  }
  ~Node() override { stop(); }
  int wait_fd() const override { return -1; }
};

class RemovalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tenant_ = make_tenant("removed", node_.hash_seed("removed"));
    ASSERT_TRUE(tenant_);
    ASSERT_TRUE(node_.add_tenant(tenant_, {}).ok());
  }
  void TearDown() override { node_.remove_tenant(*tenant_); }

  void begin() {
    remote_request_->kind = RemoteRequest::Kind::kRemove;
    remote_request_->tenant = tenant_;
    remote_request_->deadline_ns = UINT64_MAX;
    remote_request_->items.emplace_back().key = "key";
    node_.begin(remote_request_, 1);
    node_.advance(1);
    ASSERT_EQ(master_.removes.size(), 1u);
  }
  void answer(metadata::Lookup state) {
    master_.removes.front()(metadata::wire::RemoveReply{{state}, 0});
    node_.advance(2);
  }
  bool is_here() const {
    const ObjectIndex& index = tenant_->store->index();
    return index.find("key", index.hash("key")).has_value();
  }

  ScriptedMaster master_;
  transport::testing::LoopNetwork network_;
  std::unique_ptr<transport::Transport> transport_ = network_.make(1);
  Node node_{master_, *transport_};
  std::shared_ptr<Tenant> tenant_;
  std::shared_ptr<RemoteRequest> remote_request_ = std::make_shared<RemoteRequest>();
};

TEST_F(RemovalTest, AnObjectThatNoMasterKnowsIsRemovedHere) {
  put_object(*tenant_->store, "key");
  begin();
  answer(metadata::Lookup::kMiss);
  EXPECT_EQ(remote_request_->items[0].status, MC_OK);
  EXPECT_FALSE(is_here());
}

// If the removal took this put, the removal would report a removed object. The master knows nothing
// of the older object of an absent host, and buries nothing.
TEST_F(RemovalTest, APutThatCameMeanwhileStaysAndIsNotCountedAsRemoved) {
  begin();
  put_object(*tenant_->store, "key");
  answer(metadata::Lookup::kMiss);
  EXPECT_EQ(remote_request_->items[0].status, MC_NOT_FOUND);
  EXPECT_TRUE(is_here());
}

}  // namespace
}  // namespace mc::agent
