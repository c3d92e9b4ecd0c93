// SPDX-License-Identifier: Apache-2.0
#include "metadata/membership/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "libmc/base/clock.h"
#include "metadata/master/client/member_list.h"
#include "metadata/membership/epoch_fence.h"

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

// A cluster whose time the test sets.
class Cluster {
 public:
  explicit Cluster(MembershipOptions options = {}) : membership_(options) {}

  mc_status join(NodeId node, Incarnation incarnation = 1) {
    Descriptor descriptor;
    descriptor.node = node;
    descriptor.incarnation = incarnation;
    descriptor.address = "10.0.0.1:7000";
    descriptor.capacity_bytes = 1 << 30;
    return membership_.join(descriptor, now_ns_, events_).code();
  }
  void leave(NodeId node) { membership_.leave(node, 1, now_ns_, events_); }
  void missing(NodeId node) { membership_.missing({node, 1, "10.0.0.1:7000"}, now_ns_); }
  // Node and time in milliseconds.
  std::vector<std::pair<NodeId, std::uint64_t>> down() const {
    std::vector<std::pair<NodeId, std::uint64_t>> all;
    for (const DownMember& member : membership_.down(now_ns_)) {
      EXPECT_EQ(member.descriptor.address, "10.0.0.1:7000");
      all.emplace_back(member.descriptor.node, member.down_ms);
    }
    return all;
  }
  HeartbeatAnswer beat(NodeId node, Incarnation incarnation = 1, const Load& load = {}) {
    return membership_.heartbeat(node, incarnation, load, now_ns_, events_);
  }
  void report(NodeId by, NodeId suspect, Incarnation incarnation = 1) {
    membership_.report_unreachable(by, suspect, incarnation, now_ns_, events_);
  }
  // Ticks every 100 ms; these nodes send heartbeats every 200 ms.
  void run(std::uint64_t ms, const std::vector<NodeId>& alive) {
    for (std::uint64_t end = now_ns_ + ms * kMs; now_ns_ < end;) {
      now_ns_ += 100 * kMs;
      if (now_ns_ / kMs % 200 == 0) {
        for (const NodeId node : alive) beat(node);
      }
      membership_.tick(now_ns_, events_);
    }
  }
  void pause(std::uint64_t ms) { now_ns_ += ms * kMs; }
  void back(std::uint64_t ms) { now_ns_ -= ms * kMs; }
  void tick() { membership_.tick(now_ns_, events_); }
  std::vector<MembershipEvent> take_events() { return std::exchange(events_, {}); }
  Membership& membership() { return membership_; }
  [[nodiscard]] MemberState state(NodeId node) { return membership_.find(node)->state; }

 private:
  Membership membership_;
  std::uint64_t now_ns_ = 1000 * kMs;
  Membership::Events events_;
};

TEST(Membership, MembersThatAreGoneAreDownUntilTheyJoinAgain) {
  Cluster cluster;
  for (NodeId node = 1; node <= 3; ++node) cluster.join(node);
  cluster.run(1'000, {1});
  EXPECT_THAT(cluster.down(), ElementsAre(std::pair(2, 0), std::pair(3, 0)));
  cluster.run(5'000, {1});
  EXPECT_THAT(cluster.down(), ElementsAre(std::pair(2, 5'000), std::pair(3, 5'000)));
  cluster.join(3, 2);
  EXPECT_THAT(cluster.down(), ElementsAre(std::pair(2, 5'000)));
  cluster.run(1'000, {1});
  EXPECT_THAT(cluster.down(), ElementsAre(std::pair(2, 6'000), std::pair(3, 0)));
}

TEST(Membership, AMemberThatLeftIsNotDownAndOneThatNeverCameIs) {
  Cluster cluster;
  cluster.join(1);
  cluster.leave(1);
  EXPECT_THAT(cluster.down(), IsEmpty());
  cluster.missing(2);
  EXPECT_THAT(cluster.down(), ElementsAre(std::pair(2, 0)));
  cluster.join(1);
  cluster.missing(1);
  EXPECT_THAT(cluster.down(), ElementsAre(std::pair(2, 0))) << "it has come";
}

TEST(Membership, ASilentNodeIsSuspectedThenGone) {
  Cluster cluster;
  cluster.join(1);
  cluster.join(2);
  cluster.take_events();
  cluster.run(500, {2});
  EXPECT_THAT(cluster.take_events(), IsEmpty());
  cluster.run(100, {2});
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kSuspected, 1, 1}));
  cluster.run(300, {2});
  EXPECT_THAT(cluster.take_events(), IsEmpty());
  cluster.run(100, {2});
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kGone, 1, 1}));
  EXPECT_EQ(cluster.membership().count(), 1u);
  EXPECT_EQ(cluster.beat(1), HeartbeatAnswer::kJoinFirst);
}

TEST(Membership, AHeartbeatTellsTheCapacityOfAResizedPool) {
  Cluster cluster;
  cluster.join(1);
  const auto capacity = [&] { return cluster.membership().find(1)->descriptor.capacity_bytes; };
  cluster.beat(1);
  EXPECT_EQ(capacity(), 1u << 30);
  for (const std::uint64_t bytes : {2u << 30, 0u}) {
    cluster.beat(1, 1, {.capacity_bytes = bytes});
    EXPECT_EQ(capacity(), bytes);
  }
}

TEST(Membership, AHeartbeatBringsASuspectBack) {
  Cluster cluster;
  cluster.join(1);
  cluster.run(700, {});
  cluster.take_events();
  EXPECT_EQ(cluster.beat(1), HeartbeatAnswer::kOk);
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kBack, 1, 1}));
  cluster.run(2000, {1});
  EXPECT_THAT(cluster.take_events(), IsEmpty());
}

TEST(Membership, OneReportShortensTheSilenceThatIsWaitedFor) {
  Cluster cluster;
  for (NodeId node = 1; node <= 3; ++node) cluster.join(node);
  cluster.run(300, {2, 3});
  cluster.take_events();
  cluster.report(2, 1);
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kSuspected, 1, 1}));
  cluster.report(2, 1);  // a second word of the same peer does not count
  cluster.run(300, {2, 3});
  EXPECT_THAT(cluster.take_events(), IsEmpty());
  cluster.run(100, {2, 3});
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kGone, 1, 1}));
}

TEST(Membership, TwoReportsSuspectAtOnceAndBuryNoSoonerThanOne) {
  Cluster cluster;
  for (NodeId node = 1; node <= 3; ++node) cluster.join(node);
  cluster.take_events();
  cluster.run(100, {2, 3});
  cluster.report(2, 1);
  EXPECT_THAT(cluster.take_events(), IsEmpty());
  cluster.report(3, 1);
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kSuspected, 1, 1}));
  cluster.run(500, {2, 3});
  EXPECT_THAT(cluster.take_events(), IsEmpty());
  cluster.run(100, {2, 3});
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kGone, 1, 1}));
}

TEST(Membership, ANodeIsReadableFromItsReportToItsSilence) {
  Cluster cluster;
  cluster.join(1);
  const auto readable = [&] { return cluster.membership().find(1)->readable(); };
  EXPECT_FALSE(readable()) << "the leader does not know the node's objects";
  cluster.membership().reported(1, 2);
  EXPECT_FALSE(readable()) << "of another incarnation";
  cluster.membership().reported(1, 1);
  EXPECT_TRUE(readable());
  cluster.run(500, {});
  EXPECT_TRUE(readable());
  cluster.run(100, {});
  EXPECT_FALSE(readable());
  cluster.beat(1);
  EXPECT_TRUE(readable());
  cluster.join(1, 2);
  EXPECT_FALSE(readable());
}

// Two hosts with broken networks must not keep all other hosts from reading.
TEST(Membership, ReportsOfPeersDoNotMakeANodeUnreadableThatIsHeard) {
  Cluster cluster;
  for (NodeId node = 1; node <= 3; ++node) cluster.join(node);
  cluster.membership().reported(1, 1);
  cluster.report(2, 1);
  cluster.report(3, 1);
  EXPECT_EQ(cluster.state(1), MemberState::kSuspected);
  cluster.run(200, {1, 2, 3});
  EXPECT_TRUE(cluster.membership().find(1)->readable());
}

// A tick that comes late makes the end late as well: the lists had named the node until then.
TEST(Membership, ANodeIsGoneALeaseAfterItsSilenceWasSeen) {
  Cluster cluster;
  for (NodeId node = 1; node <= 2; ++node) cluster.join(node);
  cluster.run(500, {2});
  cluster.pause(200);
  cluster.tick();
  EXPECT_TRUE(cluster.membership().find(1)->silent);
  cluster.take_events();
  cluster.run(300, {2});
  EXPECT_THAT(cluster.take_events(), IsEmpty());
  cluster.run(100, {2});
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kGone, 1, 1}));
}

TEST(Membership, NamesTheNodesThatHaveChangedSinceAVersion) {
  MembershipOptions options;
  options.max_members = 4;
  Cluster cluster(options);
  Membership& membership = cluster.membership();
  for (NodeId node = 1; node <= 2; ++node) cluster.join(node);
  const std::uint64_t version = membership.version();
  EXPECT_THAT(membership.changed_since(version), Optional(IsEmpty()));
  cluster.beat(1);
  EXPECT_EQ(membership.version(), version) << "a heartbeat changes no list";
  membership.reported(1, 1);
  membership.reported(1, 1);
  EXPECT_THAT(membership.changed_since(version), Optional(ElementsAre(1)));
  cluster.run(1000, {1});
  EXPECT_EQ(membership.find(2), nullptr);
  EXPECT_THAT(membership.changed_since(version), Optional(ElementsAre(1, 2)));
  EXPECT_EQ(membership.changed_since(membership.version() + 1), std::nullopt)
      << "of another leader";
  cluster.join(3);
  cluster.join(3, 2);
  cluster.join(3, 3);
  EXPECT_EQ(membership.changed_since(version), std::nullopt) << "too many changes ago";
}

wire::HeartbeatReply told(std::uint64_t version, const std::vector<NodeId>& readable) {
  wire::HeartbeatReply reply;
  reply.list_version = version;
  reply.lease_ms = 1000;
  for (const NodeId node : readable) {
    wire::MemberInfo& member = reply.changed.members.emplace_back();
    member.descriptor.node = node;
    member.readable = true;
  }
  return reply;
}

TEST(MemberList, TakesChangesAndTheLeaseOfEachAnswer) {
  MemberList list;
  EXPECT_FALSE(list.readable(1));
  wire::HeartbeatReply all = told(7, {1, 2});
  all.whole = true;
  list.take(all, now_ns() - 2'000 * kMs);
  EXPECT_FALSE(list.readable(1)) << "the lease counts from the question";
  EXPECT_EQ(list.version(), 7u);
  list.take(told(7, {}), now_ns());
  EXPECT_TRUE(list.readable(1));
  EXPECT_EQ(list.changes(), 1u);
  wire::HeartbeatReply change = told(9, {});
  change.gone = {1};
  list.take(change, now_ns());
  EXPECT_FALSE(list.readable(1));
  EXPECT_TRUE(list.readable(2));
  list.take(told(8, {1}), now_ns());
  EXPECT_FALSE(list.readable(1)) << "an older answer";
  list.begin_anew();
  EXPECT_EQ(list.version(), 0u);
  EXPECT_TRUE(list.readable(2)) << "the lease outlives the link";
}

TEST(Membership, ANodeThatIsHeardIsNeverGoneWhateverPeersSay) {
  Cluster cluster;
  for (NodeId node = 1; node <= 4; ++node) cluster.join(node);
  for (int i = 0; i < 20; ++i) {
    for (NodeId peer = 2; peer <= 4; ++peer) cluster.report(peer, 1);
    cluster.run(200, {1, 2, 3, 4});
  }
  ASSERT_NE(cluster.membership().find(1), nullptr);
  EXPECT_EQ(cluster.state(1), MemberState::kSuspected);
  // When the words are old, the node's next heartbeat counts again.
  cluster.run(1500, {1, 2, 3, 4});
  EXPECT_EQ(cluster.state(1), MemberState::kOk);
}

TEST(Membership, WordsOfSuspectsStrangersAndTheNodeItselfDoNotCount) {
  Cluster cluster;
  for (NodeId node = 1; node <= 3; ++node) cluster.join(node);
  cluster.run(600, {1});  // 2 and 3 are silent and therefore count as cut off
  cluster.take_events();
  cluster.report(2, 1);
  cluster.report(3, 1);
  cluster.report(1, 1);
  cluster.report(99, 1);
  cluster.report(1, 99);
  EXPECT_EQ(cluster.state(1), MemberState::kOk);
  // A word about an earlier incarnation does not count either.
  cluster.join(4, 7);
  cluster.join(5);
  cluster.report(1, 4, 6);
  cluster.report(5, 4, 6);
  EXPECT_EQ(cluster.state(4), MemberState::kOk);
}

TEST(Membership, APausedMasterDeclaresNoMemberGone) {
  Cluster cluster;
  for (NodeId node = 1; node <= 3; ++node) cluster.join(node);
  cluster.run(400, {1, 2, 3});
  cluster.take_events();
  cluster.pause(60'000);
  cluster.tick();  // before any of the heartbeats that wait in the sockets
  EXPECT_THAT(cluster.take_events(), IsEmpty());
  EXPECT_EQ(cluster.membership().paused_ns(), 60'000 * kMs);
  // A member that died in the meantime is found out as usual.
  cluster.run(1100, {1, 2});
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kSuspected, 3, 1},
                                                 MembershipEvent{MemberEvent::kGone, 3, 1}));
}

TEST(Membership, TimeThatRunsBackwardsIsStandingStill) {
  Cluster cluster;
  cluster.join(1);
  cluster.take_events();
  cluster.back(900);
  cluster.tick();
  cluster.tick();
  EXPECT_THAT(cluster.take_events(), IsEmpty());
}

TEST(Membership, AnOlderIncarnationIsRefused) {
  Cluster cluster;
  EXPECT_EQ(cluster.join(1, 5), MC_OK);
  EXPECT_EQ(cluster.join(1, 4), MC_INVALID_ARGUMENT);
  EXPECT_EQ(cluster.beat(1, 4), HeartbeatAnswer::kStale);
  EXPECT_EQ(cluster.beat(1, 6), HeartbeatAnswer::kJoinFirst);
  cluster.take_events();
  EXPECT_EQ(cluster.join(1, 6), MC_OK);
  EXPECT_THAT(cluster.take_events(), ElementsAre(MembershipEvent{MemberEvent::kGone, 1, 5},
                                                 MembershipEvent{MemberEvent::kJoined, 1, 6}));
  // Also when the newer incarnation is gone.
  cluster.run(1100, {});
  EXPECT_EQ(cluster.membership().count(), 0u);
  EXPECT_EQ(cluster.join(1, 5), MC_INVALID_ARGUMENT);
  EXPECT_EQ(cluster.beat(1, 5), HeartbeatAnswer::kStale);
  EXPECT_EQ(cluster.join(1, 6), MC_OK);
}

TEST(Membership, HoldsAtMostItsLimitOfMembersAndOfThoseGone) {
  Cluster cluster({.max_members = 3});
  for (NodeId node = 1; node <= 3; ++node) EXPECT_EQ(cluster.join(node, 9), MC_OK);
  EXPECT_EQ(cluster.join(4), MC_BUSY);
  EXPECT_EQ(cluster.join(3, 9), MC_OK);
  cluster.run(1100, {});
  for (NodeId node = 11; node <= 13; ++node) EXPECT_EQ(cluster.join(node, 9), MC_OK);
  cluster.run(1100, {});
  EXPECT_EQ(cluster.join(13, 8), MC_INVALID_ARGUMENT);
  EXPECT_EQ(cluster.join(1, 8), MC_OK);  // forgotten
}

TEST(Membership, RefusesADescriptorThatSaysNothing) {
  Membership membership({});
  Membership::Events events;
  EXPECT_EQ(membership.join({}, 1, events).code(), MC_INVALID_ARGUMENT);
  EXPECT_THAT(events, IsEmpty());
}

// Over random histories: events alternate as the picture in membership.h shows. No member is gone
// sooner than a rule allows. A member that is silent for a second, and for two ticks, is gone. No member
// is gone sooner than a lease after a list has named the member as readable.
TEST(Membership, EventsFollowThePictureInRandomHistories) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Membership membership({});
    Membership::Events events;
    std::map<NodeId, MemberEvent> last;
    std::map<NodeId, std::uint64_t> heard_ns;
    std::map<NodeId, std::uint64_t> readable_ns;
    std::uint64_t now_ns = 0;
    std::set<MemberEvent> met;
    for (int step = 0; step < 2000; ++step) {
      now_ns += random() % (60 * kMs);
      if (random() % 200 == 0) now_ns += 5000 * kMs;
      const NodeId node = 1 + random() % 6;
      const Member* member = membership.find(node);
      const bool quiet = (now_ns / (4000 * kMs) + node) % 3 == 0;
      if (member == nullptr) {
        if (random() % 8 == 0) {
          Descriptor descriptor{node, 1, "a:1", 1, 1, 1};
          ASSERT_TRUE(membership.join(descriptor, now_ns, events).ok());
          membership.reported(node, 1);
          heard_ns[node] = now_ns - membership.paused_ns();
        }
      } else if (!quiet) {
        membership.heartbeat(node, 1, {}, now_ns, events);
        heard_ns[node] = now_ns - membership.paused_ns();
      } else {
        membership.report_unreachable(1 + random() % 6, node, 1, now_ns, events);
      }
      membership.tick(now_ns, events);
      for (const MembershipEvent& event : std::exchange(events, {})) {
        const auto before = last.find(event.node);
        met.insert(event.what);
        switch (event.what) {
          case MemberEvent::kJoined:
            EXPECT_TRUE(before == last.end() || before->second == MemberEvent::kGone);
            break;
          case MemberEvent::kSuspected:
            ASSERT_TRUE(before != last.end());
            EXPECT_TRUE(before->second == MemberEvent::kJoined ||
                        before->second == MemberEvent::kBack);
            break;
          case MemberEvent::kBack:
            ASSERT_TRUE(before != last.end());
            EXPECT_EQ(before->second, MemberEvent::kSuspected);
            break;
          case MemberEvent::kGone:
            ASSERT_TRUE(before != last.end());
            EXPECT_NE(before->second, MemberEvent::kGone);
            EXPECT_GE(now_ns - membership.paused_ns() - heard_ns[event.node], 700 * kMs);
            EXPECT_GE(now_ns - membership.paused_ns() - readable_ns[event.node], 400 * kMs);
            break;
        }
        last[event.node] = event.what;
      }
      for (const Member& present : membership.members()) {
        const NodeId id = present.descriptor.node;
        EXPECT_LT(now_ns - membership.paused_ns() - heard_ns[id], 1120 * kMs);
        if (present.readable()) readable_ns[id] = now_ns - membership.paused_ns();
      }
      if (::testing::Test::HasFailure()) FAIL() << "at step " << step;
    }
    EXPECT_EQ(met.size(), 4u);
  }
}

TEST(EpochFence, NeverAcceptsAnEpochBelowTheHighestSeen) {
  EpochFence fence;
  EXPECT_FALSE(fence.accept(0));
  EXPECT_TRUE(fence.accept(3));
  EXPECT_TRUE(fence.accept(3));
  EXPECT_FALSE(fence.accept(2));
  EXPECT_TRUE(fence.accept(7));
  EXPECT_FALSE(fence.accept(3));
  EXPECT_EQ(fence.highest(), 7u);
  EpochFence restarted(fence.highest());
  EXPECT_FALSE(restarted.accept(6));
  EXPECT_TRUE(restarted.accept(7));
}

}  // namespace
}  // namespace mc::metadata
