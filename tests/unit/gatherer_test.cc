// SPDX-License-Identifier: Apache-2.0
//
// A reader of stripes that two hosts hold. If a read from the first host fails, the reader asks the
// other.
#include "agent/cluster/fetch/gatherer.h"

#include <gtest/gtest.h>

#include <string>

#include "agent/cluster/fetch/reservation.h"
#include "conformance/transport/loop_transport.h"
#include "libmc/base/checksum.h"
#include "unit/scripted_master.h"

namespace mc::agent {
namespace {

constexpr std::uint64_t kPut = 77;
constexpr std::uint64_t kVersion = 5000;
constexpr std::uint64_t kHashSeed = 9;
constexpr std::uint64_t kStripeBytes = 1000;
constexpr std::uint16_t kCount = 3;

std::string whole() {
  std::string bytes;
  while (bytes.size() < kCount * kStripeBytes - 100) bytes += std::to_string(bytes.size()) + " ";
  bytes.resize(kCount * kStripeBytes - 100);
  return bytes;
}

// Refuses reads while the host is busy.
struct Gate final : transport::RegionGuard {
  explicit Gate(ClusterTenant& tenant) : of(tenant) {}
  transport::Outcome pin(const transport::Access& access, std::uint64_t* ticket) override {
    ++reads;
    return busy ? transport::Outcome::kBusy : of.pin(access, ticket);
  }
  void unpin(std::uint64_t ticket) override { of.unpin(ticket); }

  ClusterTenant& of;
  bool busy = false;
  unsigned reads = 0;
};

// A host on the simulated network, with a namespace.
struct Host {
  Host(MemberId self, transport::testing::LoopNetwork& network)
      : node(self), transport(network.make(self)), peers(self, {}) {
    peers.set_transport(*transport);
    metadata::wire::MembersAnswer all;
    for (MemberId member = 1; member <= 3; ++member) {
      all.members.emplace_back().descriptor.node = member;
    }
    peers.update(all);
    const auto made = make_tenant("striped", kHashSeed);
    auto book = VersionBook::open({}, made->store->index().header().max_entries);
    tenant = std::make_unique<ClusterTenant>(made, hasher, clock, std::move(*book));
    made->store->set_listener(tenant.get());
    transport::RegionSpec spec;
    spec.data = store().pool().data();
    spec.size_bytes = store().pool().max_bytes();
    spec.rights = transport::kRemoteRead;
    gate.emplace(*tenant);
    spec.guard = &*gate;
    tenant->region = *transport->register_region(spec);
  }
  ~Host() { store().set_listener(nullptr); }
  ObjectStore& store() { return tenant->store(); }

  // All stripes of the object, as one part of the object.
  void hold() {
    const std::string bytes = whole();
    StripeFacts facts{kPut, bytes.size(), 0, kStripeBytes, 0, kCount, 0};
    facts.whole_sum = checksum(tenant->name_of("large").lo,
                               reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    StripeSet& set = tenant->stripes().add({kPut, 0}, facts, tenant->name_of("large"), "large");
    tenant->stripes().seal(set);
    set.version = kVersion;
    set.parts = 1;
    for (std::uint16_t number = 0; number < kCount; ++number) {
      const std::string key = stripe_key({kPut, number});
      const auto* const from =
          reinterpret_cast<const std::byte*>(bytes.data()) + number * kStripeBytes;
      PutOrder order;
      order.key = key;
      order.length = facts.bytes_of(number);
      ASSERT_EQ(store().reserve(kClusterSession, order.length, true, order.entry),
                ObjectStore::Reserve::kOk);
      store().write(order.entry, 0, {from, order.length});
      order.checksum = checksum(store().index().hash(key), from, order.length);
      tenant->stripes().stripe(set, number).sum = order.checksum;
      ASSERT_EQ(store().publish(kClusterSession, order), ObjectStore::Put::kStored);
    }
  }
  void answer(const StripesRequest& ask, std::uint64_t now_ns) {
    StripesAnswer message;
    message.request = ask.request;
    message.region = *transport->describe(tenant->region);
    const StripeSet& set = *tenant->stripes().find({kPut, 0});
    for (const auto& [number, stripe] : set.stripes) {
      message.rows.push_back(tenant->place_of(set, number));
    }
    message.facts = set.facts;
    message.facts.number = kCount;
    ASSERT_TRUE(peers.notify(1, message, 0, now_ns + 1'000'000'000, now_ns));
  }
  void flip_a_bit(std::uint16_t number) {
    const StripeSet& set = *tenant->stripes().find({kPut, 0});
    const PlaceRow row = tenant->place_of(set, number);
    store().pool().data()[row.extents.front().offset_bytes + 5] ^= std::byte{1};
  }

  const MemberId node;
  metadata::KeyHasher hasher{"secret"};
  VersionClock clock{1};
  std::unique_ptr<transport::Transport> transport;
  Peers peers;
  std::unique_ptr<ClusterTenant> tenant;
  std::optional<Gate> gate;
};

// Takes the gather that it waits for.
struct Waiting final : Operation {
  static constexpr OperationKind kKind = OperationKind::kFetch;
  explicit Waiting(OperationTable& all) : table(all) {}

  OperationTable& table;
  OperationId gather;
  std::unique_ptr<Gather> taken;

 private:
  void step() override {
    if (auto ended = table.take<Gather>(gather)) taken = std::move(ended);
  }
  void cancel() override { table.end(*this); }
};

class GathererTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (Host* const holder : {&second_, &third_}) holder->hold();
  }
  void gather(std::vector<MemberId> holders) {
    Gather::Wanted wanted;
    wanted.name = reader_.tenant->name_of("large");
    wanted.version = kVersion;
    wanted.bytes = whole().size();
    wanted.holders = std::move(holders);
    wanted.deadline_ns = now_ns_ + 10'000'000'000;
    operations_.set_now(now_ns_);
    waiting_ = &operations_.begin(std::make_unique<Waiting>(operations_), nullptr);
    waiting_->gather = gatherer_.begin(*reader_.tenant, std::move(wanted), waiting_->id());
  }
  std::optional<mc_status> status() const {
    if (waiting_->taken == nullptr) return std::nullopt;
    return waiting_->taken->status;
  }
  // Runs the network for this time. Records the questions to holders.
  void run(std::uint64_t for_ns) {
    const std::uint64_t until_ns = now_ns_ + for_ns;
    while (now_ns_ < until_ns && !status()) {
      now_ns_ += 20'000;
      operations_.set_now(now_ns_);
      for (Host* const host : {&reader_, &second_, &third_}) {
        std::vector<transport::Event> events;
        host->transport->poll(now_ns_, events);
        for (const transport::Event& event : events) take(*host, event);
      }
      bytes_.prepare();
      operations_.run();
      bytes_.submit();
    }
  }
  void take(Host& host, const transport::Event& event) {
    if (event.kind == transport::Event::Kind::kNotified) {
      const auto message = decode_peer_message(event.payload);
      ASSERT_TRUE(message);
      if (host.node == 1) {
        gatherer_.on_answer(event.from, std::get<StripesAnswer>(*message));
      } else {
        asked_.emplace(host.node, std::get<StripesRequest>(*message));
      }
    } else if (event.kind == transport::Event::Kind::kCompleted) {
      if (event.verb == transport::Verb::kNotify) host.peers.sent(event.id);
      if (host.node == 1) operations_.on_event(event);
    }
  }
  std::string read() {
    std::vector<std::byte> bytes(whole().size());
    reader_.store().read(waiting_->taken->object.entry, 0, bytes);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  transport::testing::LoopNetwork network_;
  Host reader_{1, network_}, second_{2, network_}, third_{3, network_};
  std::map<MemberId, StripesRequest> asked_;
  std::uint64_t now_ns_ = 1'000'000;
  FetchCounters counters_;
  OperationTable operations_;
  ObjectReader bytes_{operations_, reader_.peers, *reader_.transport, counters_};
  Gatherer gatherer_{operations_, reader_.peers, bytes_, 1};
  Waiting* waiting_ = nullptr;
};

constexpr std::uint64_t kWhileNs = 20'000'000;

TEST_F(GathererTest, ReadsEachStripeOnce) {
  gather({2, 3});
  run(kWhileNs);
  ASSERT_EQ(asked_.size(), 2u);
  second_.answer(asked_.at(2), now_ns_);
  third_.answer(asked_.at(3), now_ns_);
  run(kWhileNs);
  ASSERT_EQ(status(), MC_OK);
  EXPECT_EQ(read(), whole());
  EXPECT_EQ(gatherer_.counters().stripes_read, std::uint64_t{kCount});
  EXPECT_EQ(gatherer_.counters().failed_over, 0u);
}

TEST_F(GathererTest, ReadsFromTheOtherHolderWhenTheFirstHasDroppedTheStripe) {
  for (Host* const first : {&second_, &third_}) {
    SCOPED_TRACE(first->node);
    Host& other = first == &second_ ? third_ : second_;
    gather({2, 3});
    run(kWhileNs);
    first->answer(asked_.at(first->node), now_ns_);
    first->tenant->drop_stripes({kPut, 0}, false);
    run(kWhileNs);
    EXPECT_FALSE(status()) << "the other has not answered yet";
    other.answer(asked_.at(other.node), now_ns_);
    run(kWhileNs);
    ASSERT_EQ(status(), MC_OK);
    EXPECT_EQ(read(), whole());
    first->hold();
    asked_.clear();
  }
  EXPECT_EQ(gatherer_.counters().failed_over, 2u * kCount);
}

TEST_F(GathererTest, ReadsAgainOnlyTheStripeWithAWrongSum) {
  gather({2, 3});
  run(kWhileNs);
  second_.flip_a_bit(1);
  second_.answer(asked_.at(2), now_ns_);
  run(kWhileNs);
  EXPECT_FALSE(status());
  third_.answer(asked_.at(3), now_ns_);
  run(kWhileNs);
  ASSERT_EQ(status(), MC_OK);
  EXPECT_EQ(read(), whole());
  EXPECT_EQ(gatherer_.counters().corrupt, 1u);
  EXPECT_EQ(gatherer_.counters().failed_over, 1u);
  EXPECT_EQ(gatherer_.counters().stripes_read, kCount + 1u);
}

TEST_F(GathererTest, AHolderThatDoesNotAnswerIsNotWaitedForInVain) {
  gather({2, 3});
  run(kWhileNs);
  second_.answer(asked_.at(2), now_ns_);
  run(kWhileNs);
  ASSERT_EQ(status(), MC_OK);
  EXPECT_EQ(read(), whole());
}

TEST_F(GathererTest, AHolderThatHasLetGoAndOneThatDoesNotAnswerAreAMissInTime) {
  gather({2, 3});
  run(kWhileNs);
  second_.answer(asked_.at(2), now_ns_);
  second_.tenant->drop_stripes({kPut, 0}, false);
  run(1'000'000'000);
  EXPECT_EQ(status(), MC_NOT_FOUND);
  EXPECT_EQ(reader_.store().reserved_count(), 0u);
}

TEST_F(GathererTest, OneHolderThatFailsIsAMiss) {
  gather({2});
  run(kWhileNs);
  second_.flip_a_bit(1);
  second_.answer(asked_.at(2), now_ns_);
  run(kWhileNs);
  EXPECT_EQ(status(), MC_NOT_FOUND);
  EXPECT_EQ(gatherer_.counters().corrupt, 1u);
  EXPECT_EQ(reader_.store().reserved_count(), 0u);
}

// Without a pause, the loop of the reader would turn for each try.
TEST_F(GathererTest, ABusyHolderIsAskedAgainAfterAPause) {
  gather({2});
  run(kWhileNs);
  second_.gate->busy = true;
  second_.answer(asked_.at(2), now_ns_);
  run(kWhileNs);
  EXPECT_FALSE(status());
  EXPECT_LE(second_.gate->reads, kCount * kWhileNs / 1'000'000);
  second_.gate->busy = false;
  run(kWhileNs);
  ASSERT_EQ(status(), MC_OK);
  EXPECT_EQ(read(), whole());
}

TEST_F(GathererTest, AHolderThatStaysBusyIsAMissInTime) {
  gather({2});
  run(kWhileNs);
  second_.gate->busy = true;
  second_.answer(asked_.at(2), now_ns_);
  run(11'000'000'000);
  EXPECT_EQ(status(), MC_NOT_FOUND);
  EXPECT_EQ(reader_.store().reserved_count(), 0u);
}

TEST_F(GathererTest, AStripeThatBothHoldersDroppedIsAMiss) {
  gather({2, 3});
  run(kWhileNs);
  second_.answer(asked_.at(2), now_ns_);
  third_.answer(asked_.at(3), now_ns_);
  second_.tenant->drop_stripes({kPut, 0}, false);
  third_.tenant->drop_stripes({kPut, 0}, false);
  run(kWhileNs);
  EXPECT_EQ(status(), MC_NOT_FOUND);
  EXPECT_EQ(reader_.store().reserved_count(), 0u);
}

}  // namespace
}  // namespace mc::agent
