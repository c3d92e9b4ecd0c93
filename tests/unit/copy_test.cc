// SPDX-License-Identifier: Apache-2.0
//
// Messages of a host to the master about an ordered copy.
#include <gtest/gtest.h>

#include "agent/cluster/cluster_node.h"
#include "agent/cluster/cluster_orders.h"
#include "conformance/transport/loop_transport.h"
#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"
#include "patience.h"
#include "unit/scripted_master.h"

namespace mc::agent {
namespace {

using metadata::PublishItem;
using metadata::Verdict;

class Host final : public ClusterNode {
 public:
  Host(MemberId id, transport::testing::LoopNetwork& network)
      : ClusterNode({id, 1, "secret", {}, {}}), transport_(network.make(id)) {
    connect({&master}, *transport_);
    be_told(true);
    tenant = make_tenant("copied", hash_seed("copied"));
    EXPECT_TRUE(tenant && add_tenant(tenant, {}).ok());
  }
  ~Host() override {
    remove_tenant(*tenant);
    stop();
  }
  int wait_fd() const override { return -1; }
  void be_told(bool readable) {
    std::vector<metadata::wire::MemberInfo> members(2);
    for (const MemberId node : {1u, 2u}) members[node - 1].descriptor.node = node;
    master.tell(members, readable);
  }
  void turn() {
    poll(now_ns());
    advance(now_ns());
  }
  void put(const std::string& key, std::span<const std::byte> bytes) {
    ObjectStore& store = *tenant->store;
    PutOrder order;
    ASSERT_EQ(store.reserve(7, bytes.size(), true, order.entry), ObjectStore::Reserve::kOk);
    store.write(order.entry, 0, bytes);
    order.key = key;
    order.length = bytes.size();
    order.checksum = checksum(store.index().hash(key), bytes.data(), bytes.size());
    ASSERT_EQ(store.publish(7, order), ObjectStore::Put::kStored);
  }
  bool holds() const { return tenant->store->live_count() != 0; }
  void copy(const metadata::wire::Copy& order, MasterOrders::Done done) {
    orders_of(0)->on_copy(order, std::move(done));
  }

  ScriptedMaster master;
  std::shared_ptr<Tenant> tenant;

 private:
  std::unique_ptr<transport::Transport> transport_;
};

class TwoHosts : public ::testing::Test {
 protected:
  bool turn_until(const std::function<bool()>& there, std::uint64_t most_ns = kWatchdogNs) {
    for (const std::uint64_t until_ns = now_ns() + most_ns; now_ns() < until_ns;) {
      if (there()) return true;
      source_.turn();
      target_.turn();
    }
    return false;
  }
  metadata::wire::Copy order_of(const PublishItem& put) {
    return {put.hash, put.version, put.bytes, 1, {}, 0, 0};
  }

  transport::testing::LoopNetwork network_;
  Host source_{1, network_};
  Host target_{2, network_};
};

// The master may have replaced the object without this holder.
TEST_F(TwoHosts, AHolderThatTheMasterDoesNotListAsReadableAnswersNoQuestions) {
  source_.put("key", std::vector<std::byte>(100, std::byte{42}));
  ASSERT_TRUE(turn_until([&] { return !source_.master.published.empty(); }));
  source_.be_told(false);
  target_.copy(order_of(source_.master.published.front().items.front()), [](const Status&) {});
  EXPECT_FALSE(turn_until([&] { return !target_.master.published.empty(); }, 50 * kMs));
  source_.be_told(true);
  EXPECT_TRUE(turn_until([&] { return !target_.master.published.empty(); })) << "it asks again";
}

// The master waits for a holder that has not dropped the replaced object.
TEST_F(TwoHosts, APutThatThePresentMasterDoesNotAnswerEndsWithATimeout) {
  source_.put("key", std::vector<std::byte>(100, std::byte{42}));
  const auto request = std::make_shared<RemoteRequest>();
  request->kind = RemoteRequest::Kind::kAnnounce;
  request->tenant = source_.tenant;
  request->deadline_ns = now_ns() + kWatchdogNs;
  request->items.emplace_back().entry = 0;
  source_.begin(request, now_ns());
  ASSERT_TRUE(turn_until([&] { return !source_.master.published.empty(); }));
  source_.master.published.front().done(fail(MC_TIMEOUT, "no answer in time"));
  ASSERT_TRUE(turn_until([&] { return request->over(); }));
  EXPECT_EQ(request->items[0].status, MC_TIMEOUT);
}

class CopyTest : public TwoHosts {
 protected:
  // Host 1 has an object. Host 2 has read the object and told the master; no verdict has come yet.
  void SetUp() override {
    source_.put("key", std::vector<std::byte>(100, std::byte{42}));
    ASSERT_TRUE(turn_until([&] { return !source_.master.published.empty(); }));
    const PublishItem& put = source_.master.published.front().items.front();
    target_.copy(order_of(put), [this](const Status& status) { done_.push_back(status.code()); });
    ASSERT_TRUE(turn_until([&] { return !target_.master.published.empty(); }));
    told_ = target_.master.published.front().items.front();
    ASSERT_EQ(told_.version, put.version);
    ASSERT_EQ(told_.what, PublishItem::What::kHolds);
    ASSERT_TRUE(done_.empty());
  }
  void answer(Result<std::vector<Verdict>> verdicts) {
    const auto first = std::move(target_.master.published.front());
    target_.master.published.pop_front();
    first.done(std::move(verdicts));
  }

  PublishItem told_;
  std::vector<mc_status> done_;
};

TEST_F(CopyTest, ACopyIsHereWhenTheMasterHasAcceptedIt) {
  EXPECT_FALSE(target_.holds());
  answer(std::vector{Verdict::kAccepted});
  EXPECT_TRUE(target_.holds()) << "the next report must name the object";
  ASSERT_TRUE(turn_until([&] { return !done_.empty(); }));
  EXPECT_EQ(done_, std::vector{MC_OK});
}

// The master may have accepted the copy and let the other host drop the object.
TEST_F(CopyTest, ACopyNotKeptForWantOfAVerdictIsWithdrawn) {
  answer(fail(MC_TIMEOUT, "no answer in time"));
  ASSERT_TRUE(turn_until([&] { return !done_.empty(); }));
  EXPECT_EQ(done_, std::vector{MC_CANCELLED});
  EXPECT_FALSE(target_.holds());
  ASSERT_TRUE(turn_until([&] { return !target_.master.published.empty(); }));
  const PublishItem& said = target_.master.published.front().items.front();
  EXPECT_EQ(said.what, PublishItem::What::kDropped);
  EXPECT_EQ(said.hash, told_.hash);
  EXPECT_EQ(said.version, told_.version);
}

TEST_F(CopyTest, ARefusedCopyIsNotWithdrawn) {
  answer(std::vector{Verdict::kRemoved});
  ASSERT_TRUE(turn_until([&] { return !done_.empty(); }));
  EXPECT_EQ(done_, std::vector{MC_CANCELLED});
  EXPECT_FALSE(target_.holds());
  for (int i = 0; i < 100; ++i) target_.turn();
  EXPECT_TRUE(target_.master.published.empty());
}

// Host 2 puts an object at host 1, and the master orders a copy of an object with this key at host 2.
class PutForAnotherHost : public TwoHosts {
 protected:
  void SetUp() override {
    auto memory = MemoryFile::create("staging", 4096);
    ASSERT_TRUE(memory);
    memory_ = std::move(*memory);
    const auto mapped = Mapping::map(memory_.fd(), 4096, Mapping::Access::kReadWrite);
    ASSERT_TRUE(mapped);
    std::ranges::fill(std::span(mapped->data(), kBytes), std::byte{7});
    sum_ = checksum(target_.tenant->store->index().hash("key"), mapped->data(), kBytes);
  }
  void begin_put(bool upsert) {
    put_->kind = RemoteRequest::Kind::kPlace;
    put_->tenant = target_.tenant;
    put_->deadline_ns = now_ns() + kWatchdogNs;
    put_->source = {7, &memory_, 0, {}, 1};
    put_->source.order.length = kBytes;
    put_->source.order.checksum = sum_;
    put_->source.order.upsert = upsert;
    put_->items.emplace_back().key = "key";
    target_.begin(put_, now_ns());
    ASSERT_TRUE(turn_until([&] { return !target_.master.locates.empty(); }));
    metadata::LocateAnswer nothing;
    nothing.keys.emplace_back();
    target_.master.locates.front().done(nothing);
  }
  // The master hears what the host holds now, and accepts.
  PublishItem accept(Host& host) {
    EXPECT_TRUE(turn_until([&] { return !host.master.published.empty(); }));
    if (host.master.published.empty()) return {};
    const auto first = std::move(host.master.published.front());
    host.master.published.pop_front();
    first.done(std::vector(first.items.size(), Verdict::kAccepted));
    return first.items.front();
  }
  void order_copy(const PublishItem& object) {
    target_.copy(order_of(object),
                 [this](const Status& status) { done_.push_back(status.code()); });
  }

  static constexpr std::size_t kBytes = 100;
  MemoryFile memory_;
  std::uint64_t sum_ = 0;
  std::shared_ptr<RemoteRequest> put_ = std::make_shared<RemoteRequest>();
  std::vector<mc_status> done_;
};

// The order may come before the answer of the other host. The master counts the copy as a replica.
TEST_F(PutForAnotherHost, LeavesACopyOfTheNewObjectHere) {
  begin_put(false);
  order_copy(accept(source_));
  ASSERT_TRUE(turn_until([&] { return put_->over(); }));
  EXPECT_EQ(put_->items[0].status, MC_OK);
  accept(target_);
  ASSERT_TRUE(turn_until([&] { return !done_.empty(); }));
  EXPECT_EQ(done_, std::vector{MC_OK});
  EXPECT_TRUE(target_.holds());
}

TEST_F(PutForAnotherHost, AsAnUpsertLeavesNoCopyOfTheReplacedObjectHere) {
  source_.put("key", std::vector<std::byte>(kBytes, std::byte{42}));
  order_copy(accept(source_));
  ASSERT_TRUE(turn_until([&] { return !target_.master.published.empty(); }));
  begin_put(true);
  ASSERT_TRUE(turn_until([&] {
    if (!source_.master.published.empty()) accept(source_);
    return put_->over();
  }));
  EXPECT_EQ(put_->items[0].status, MC_OK);
  accept(target_);
  ASSERT_TRUE(turn_until([&] { return !done_.empty(); }));
  EXPECT_EQ(done_, std::vector{MC_CANCELLED});
  EXPECT_FALSE(target_.holds());
}

}  // namespace
}  // namespace mc::agent
