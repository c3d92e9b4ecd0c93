// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace mc::agent {
namespace {

class EventLoopTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(loop_.open().ok()); }
  EventLoop loop_;
};

TEST_F(EventLoopTest, ADescriptorThatCannotBeWatchedIsAnError) {
  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));  // an epoll takes no files
  ASSERT_TRUE(file);
  const Status status = loop_.watch(file.get(), [] { FAIL(); });
  EXPECT_EQ(status.code(), MC_NO_MEMORY);
  EXPECT_NE(status.text().find("watch a descriptor"), std::string_view::npos) << status.text();
  EXPECT_FALSE(loop_.watches(file.get()));
  loop_.unwatch(file.get());
}

TEST_F(EventLoopTest, AHandlerMayEndItsOwnWatch) {
  const auto event = make_eventfd();
  ASSERT_TRUE(event);
  int calls = 0;
  ASSERT_TRUE(loop_
                  .watch(event->get(),
                         [&] {
                           ++calls;
                           loop_.unwatch(event->get());
                         })
                  .ok());
  signal_eventfd(event->get());
  loop_.handle(0);
  loop_.handle(0);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace mc::agent
