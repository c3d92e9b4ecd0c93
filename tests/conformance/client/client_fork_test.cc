// SPDX-License-Identifier: Apache-2.0
//
// fork(): an inherited client returns MC_FORKED and does no harm; the child opens a new client.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

using Fork = ClientTest;
MC_EVERYWHERE(Fork);

TEST_P(Fork, EveryCallOnAnInheritedClientReturnsForked) {
  serve();
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", "value"), MC_OK);
  mc_cq* cq = nullptr;
  mc_view view{};
  mc_reservation* reservation = nullptr;
  mc_group* group = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  ASSERT_EQ(mc_get_view(client, slice("key"), &view), MC_OK);
  ASSERT_EQ(mc_reserve(client, 1000, 0, &reservation), MC_OK);
  ASSERT_EQ(mc_group_begin(client, &group), MC_OK);
  ASSERT_EQ(mc_alloc(client, 1000, &memory), MC_OK);
  const mc_slice key = slice("key");
  const mc_slice value = slice("value");
  mc_put_item item{key, &value, 1, {nullptr, 0}, MC_OK};
  mc_get_item wanted{key, nullptr, 0, 0, 0, MC_OK};
  mc_status status = MC_OK;
  mc_view other{};
  mc_stat_info info{};
  info.struct_size = sizeof info;
  mc_client_info about{};
  about.struct_size = sizeof about;
  mc_completion completion{};
  std::size_t count = 0;
  char byte = 0;
  void* more = nullptr;
  mc_reservation* no_reservation = nullptr;
  mc_group* no_group = nullptr;
  mc_cq* no_cq = nullptr;
  const auto forked = [](auto call) { return [call] { return call() == MC_FORKED; }; };
  const int failed = in_child({
      forked([&] { return mc_put(client, key, value, nullptr); }),
      forked([&] { return mc_put_batch(client, &item, 1, nullptr); }),
      forked([&] { return mc_get(client, key, &byte, 1, &count); }),
      forked([&] { return mc_get_batch(client, &wanted, 1); }),
      forked([&] { return mc_get_view(client, key, &other); }),
      forked([&] { return mc_get_view_batch(client, &key, 1, &other, &status); }),
      forked([&] { return mc_exists(client, key); }),
      forked([&] { return mc_exists_batch(client, &key, 1, &status); }),
      forked([&] { return mc_stat(client, key, &info); }),
      forked([&] { return mc_remove(client, key, 0); }),
      forked([&] { return mc_set_pin(client, key, MC_PIN_HARD, 0, 0); }),
      forked([&] { return mc_reserve(client, 100, 0, &no_reservation); }),
      forked([&] { return mc_alloc(client, 100, &more); }),
      forked([&] { return mc_group_begin(client, &no_group); }),
      forked([&] { return mc_group_commit(group, 0); }),
      forked([&] { return mc_cq_create(client, &no_cq); }),
      forked([&] { return mc_put_async(client, cq, &item, 1, nullptr, 0, nullptr); }),
      forked([&] { return mc_get_async(client, cq, &wanted, 1, 0, nullptr); }),
      forked([&] { return mc_exists_async(client, cq, &key, 1, &status, 0, nullptr); }),
      forked([&] { return mc_remove_async(client, cq, &key, 1, 0, 0, nullptr); }),
      forked([&] { return mc_cq_wait(cq, &completion, 1, &count, 0); }),
      forked([&] { return mc_cancel(client, cq, 1); }),
      forked([&] { return mc_ping(client, 0); }),
      forked([&] { return mc_get_client_info(client, &about); }),
      forked([&] { return mc_view_check(&view); }),
      forked([&] { return mc_view_verify(&view, key); }),
      forked([&] { return mc_commit(reservation, key, 10, nullptr); }),
      [&] { return mc_cq_poll(cq, &completion, 1) == 0; },
      [&] { return mc_view_spans(&view, nullptr, 0) == 0; },
      [&] { return mc_view_release(&view), mc_free(client, memory), true; },
      [&] { return mc_cq_destroy(cq), mc_close(client), true; },
  });
  EXPECT_EQ(failed, 0) << "this step of the child failed, or it died by a signal";
  // The parent's objects are unchanged.
  EXPECT_EQ(bytes_of(view), "value");
  ASSERT_EQ(remove(client, "key"), MC_OK);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(put(client, "more" + std::to_string(i), content("x", 100000)), MC_OK);
  }
  EXPECT_EQ(mc_view_verify(&view, slice("key")), MC_OK) << "the child did not release it";
  mc_view_release(&view);
  const mc_slice bytes = slice("async");
  const mc_put_item late{slice("late"), &bytes, 1, {nullptr, 0}, MC_OK};
  ASSERT_EQ(mc_put_async(client, cq, &late, 1, nullptr, 9, nullptr), MC_OK);
  ASSERT_EQ(mc_cq_wait(cq, &completion, 1, &count, 60 * kSecondNs), MC_OK);
  EXPECT_EQ(completion.user_data, 9u);
  EXPECT_EQ(mc_commit(reservation, slice("reserved"), 10, nullptr), MC_OK) << mc_last_error();
  mc_group_abort(group);
  mc_free(client, memory);
  mc_cq_destroy(cq);
}

TEST_P(Fork, TheChildOpensAClientOfItsOwn) {
#ifdef MC_THREAD_SANITIZER
  if (embedded()) {
    GTEST_SKIP() << "ThreadSanitizer supports no new threads in a forked child of a process with "
                    "threads";
  }
#endif
  serve();
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", "value"), MC_OK);
  mc_client* own = nullptr;
  const int failed = in_child({
      [&] { return try_open(&own) == MC_OK; },
      [&] { return put(own, "child", "of the child") == MC_OK; },
      [&] { return get(own, "child") == "of the child"; },
      [&] { return embedded() || get(own, "key") == "value"; },
      [&] { return mc_close(own), true; },
  });
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(get(client, "key"), "value");
  EXPECT_EQ(put(client, "after", "the fork"), MC_OK);
  if (!embedded()) {
    EXPECT_EQ(get(client, "child"), "of the child");
  }
}

TEST_P(Fork, AChildThatExitsSilentlyTakesNothingFromTheParent) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  mc_view view{};
  ASSERT_EQ(put(client, "key", content("key", 100000)), MC_OK);
  ASSERT_EQ(mc_get_view(client, slice("key"), &view), MC_OK);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(in_child({[] { return true; }}), 0);
    for (int j = 0; j < 100; ++j) {
      ASSERT_EQ(put(client, std::to_string(i * 100 + j), content("x", 100000)), MC_OK);
    }
  }
  EXPECT_TRUE(bytes_of(view) == content("key", 100000));
  mc_view_release(&view);
}

class Exec : public AgentTest {};
MC_WITH_AGENT(Exec);

TEST_P(Exec, TheNewProgramsProcessHoldsNothingOfTheOldClient) {
  serve();
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    mc_client* client = nullptr;
    mc_view view{};
    mc_reservation* reservation = nullptr;
    if (try_open(&client) != MC_OK || put(client, "key", "value") != MC_OK ||
        mc_get_view(client, slice("key"), &view) != MC_OK ||
        mc_reserve(client, 1000, 0, &reservation) != MC_OK || ::write(ready[1], "", 1) != 1) {
      ::_exit(1);
    }
    ::execlp("sleep", "sleep", "600", nullptr);
    ::_exit(1);
  }
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1) << "the child could not use its client";
  ::close(ready[0]);
  mc_client* client = open();
  ASSERT_EQ(remove(client, "key"), MC_OK);
  until([&] {
    const Json::Value now = tenant();
    return now["reservations"].asUInt64() == 0 && now["limbo"].asUInt64() == 0;
  });
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "the process goes on";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace mc::conformance
