// SPDX-License-Identifier: Apache-2.0
//
// OperationTable: steps, wake times, ends, children, cancellation.
#include "agent/cluster/operations/operation_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace mc::agent {
namespace {

// Notes its name in a story at each step.
struct Noted : Operation {
  static bool includes(OperationKind kind) {
    return kind == OperationKind::kFetch || kind == OperationKind::kRead;
  }
  Noted(OperationTable& all, std::string called, std::string& told)
      : table(all), name(std::move(called)), story(told) {}

  OperationTable& table;
  const std::string name;
  std::string& story;
  std::function<void()> next;  // the rest of the step
  bool drains = false;         // a cancellation does not end the operation at once

 private:
  void step() override {
    story += name;
    if (next) next();
  }
  void on_event(const transport::Event& event) override {
    story += name + std::to_string(event.id);
    table.wake(*this);
  }
  void cancel() override {
    story += "-" + name;
    if (!drains) table.end(*this);
  }
};
struct Parent final : Noted {
  static constexpr OperationKind kKind = OperationKind::kFetch;
  using Noted::Noted;
};
struct Child final : Noted {
  static constexpr OperationKind kKind = OperationKind::kRead;
  using Noted::Noted;
};

class Operations : public testing::Test {
 protected:
  template <typename T>
  T& begin(const std::string& name, OperationId parent = {}) {
    return table_.begin(std::make_unique<T>(table_, name, story_), tenant(), parent);
  }
  // The table compares namespaces and does not look inside.
  ClusterTenant* tenant() { return reinterpret_cast<ClusterTenant*>(&names_[0]); }
  const ClusterTenant& other_tenant() { return *reinterpret_cast<ClusterTenant*>(&names_[1]); }
  std::string run() {
    story_.clear();
    table_.run();
    return story_;
  }

  OperationTable table_;
  std::string story_;
  alignas(16) char names_[2][16] = {};
};

TEST_F(Operations, AStepRunsOnceHoweverOftenItIsWoken) {
  Parent& a = begin<Parent>("a");
  EXPECT_EQ(table_.next_ns(), 0u);
  table_.wake(a);
  EXPECT_EQ(run(), "a");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(table_.next_ns(), Operation::kNever);
}

TEST_F(Operations, AnIdNamesTheKind) {
  const OperationId parent = begin<Parent>("a").id();
  const OperationId child = begin<Child>("b").id();
  EXPECT_EQ(parent.kind(), OperationKind::kFetch);
  EXPECT_EQ(child.kind(), OperationKind::kRead);
  EXPECT_EQ(table_.find<Child>(parent), nullptr);
  EXPECT_NE(table_.find<Child>(child), nullptr);
  EXPECT_NE(table_.find<Noted>(child), nullptr);
  EXPECT_EQ(table_.count(OperationKind::kRead), 1u);
  EXPECT_FALSE(OperationId::of(std::uint64_t{child.value()} | 1ull << 40));
}

TEST_F(Operations, AnOperationWakesAtItsLatestTime) {
  Parent& a = begin<Parent>("a");
  run();
  table_.wake_at(a, 50);
  table_.wake_at(a, 100);
  EXPECT_EQ(table_.next_ns(), 100u);
  table_.set_now(99);
  EXPECT_EQ(run(), "");
  table_.set_now(100);
  EXPECT_EQ(run(), "a");
  EXPECT_EQ(run(), "");
}

TEST_F(Operations, AnOperationWokenByAStepRunsInTheSameTurnAndNotWithinTheStep) {
  Parent& b = begin<Parent>("b");
  run();
  Parent& a = begin<Parent>("a");
  a.next = [&] {
    table_.wake(b);
    story_ += ".";
  };
  EXPECT_EQ(run(), "a.b");
}

TEST_F(Operations, AParentTakesTheChildThatHasEnded) {
  Parent& a = begin<Parent>("a");
  const OperationId child = begin<Child>("b", a.id()).id();
  table_.find<Child>(child)->next = [&] {
    EXPECT_EQ(table_.take<Child>(child), nullptr) << "the child has not ended";
    table_.end(*table_.find<Child>(child));
  };
  EXPECT_EQ(run(), "aba");
  EXPECT_EQ(table_.count(OperationKind::kRead), 0u);
  const std::unique_ptr<Child> taken = table_.take<Child>(child);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->name, "b");
  EXPECT_EQ(table_.find<Child>(child), nullptr);
}

TEST_F(Operations, AnOperationWithoutAParentIsGoneAfterItsEnd) {
  Parent& a = begin<Parent>("a");
  const OperationId id = a.id();
  a.next = [&] { table_.end(a); };
  EXPECT_TRUE(table_.uses(*tenant()));
  EXPECT_EQ(run(), "a");
  EXPECT_EQ(table_.find<Parent>(id), nullptr);
  EXPECT_FALSE(table_.uses(*tenant()));
  table_.cancel(id);
  EXPECT_EQ(run(), "");
}

TEST_F(Operations, ACancelledChildNoLongerWakesItsParent) {
  Parent& a = begin<Parent>("a");
  Child& b = begin<Child>("b", a.id());
  b.drains = true;
  run();
  table_.cancel(b.id());
  table_.cancel(b.id());
  EXPECT_EQ(story_, "ab-b") << "cancelled once";
  table_.end(b);
  EXPECT_EQ(run(), "");
  EXPECT_TRUE(table_.uses(*tenant()));
}

TEST_F(Operations, AChildThatHasEndedCanBeCancelled) {
  Parent& a = begin<Parent>("a");
  Child& b = begin<Child>("b", a.id());
  const OperationId child = b.id();
  run();
  table_.end(b);
  table_.cancel(child);
  EXPECT_EQ(table_.find<Child>(child), nullptr);
  EXPECT_EQ(run(), "a");
}

TEST_F(Operations, AnEventReachesTheOperationThatTheCookieNames) {
  Parent& a = begin<Parent>("a");
  begin<Parent>("b");
  run();
  transport::Event event;
  event.id = 7;
  event.cookie = a.id().value();
  table_.on_event(event);
  EXPECT_EQ(story_, "aba7");
  EXPECT_EQ(run(), "a");
  for (const std::uint64_t cookie : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX}) {
    event.cookie = cookie;
    table_.on_event(event);
  }
  table_.end(a);
  event.cookie = a.id().value();
  table_.on_event(event);
  EXPECT_EQ(run(), "");
}

TEST_F(Operations, TheOperationsOfANamespaceAreCancelledInSteps) {
  Parent& drains = begin<Parent>("d");
  drains.drains = true;
  begin<Child>("c", drains.id());
  for (int i = 0; i < 200; ++i) begin<Parent>("a");
  run();
  std::size_t before = table_.count(OperationKind::kFetch);
  table_.cancel_all(other_tenant());
  EXPECT_EQ(table_.count(OperationKind::kFetch), before);
  table_.cancel_all(*tenant());
  EXPECT_LT(table_.count(OperationKind::kFetch), before);
  EXPECT_GT(table_.count(OperationKind::kFetch), 100u) << "one call is bounded";
  for (int i = 0; i < 10; ++i) table_.cancel_all(*tenant());
  EXPECT_EQ(table_.count(OperationKind::kFetch), 1u) << "the operation that drains";
  EXPECT_EQ(table_.count(OperationKind::kRead), 1u) << "a parent cancels its own children";
  EXPECT_TRUE(table_.uses(*tenant()));
}

}  // namespace
}  // namespace mc::agent
