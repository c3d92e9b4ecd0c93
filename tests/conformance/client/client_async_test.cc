// SPDX-License-Identifier: Apache-2.0
//
// The asynchronous calls: every submission completes exactly once, and the descriptor becomes
// readable.
#include <poll.h>

#include <set>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

class Async : public ClientTest {
 protected:
  void serve_and_open(AgentOptions options = {}) {
    serve(std::move(options));
    client_ = open();
    ASSERT_EQ(mc_cq_create(client_, &cq_), MC_OK) << mc_last_error();
  }
  ~Async() override {
    if (cq_ != nullptr) mc_cq_destroy(cq_);
  }

  mc_status submit_put(std::string_view key, std::string_view value, std::uint64_t user_data,
                       std::uint64_t* request = nullptr, const mc_put_options* options = nullptr) {
    const mc_slice piece = slice(value);
    const mc_put_item item{slice(key), &piece, 1, {nullptr, 0}, MC_OK};
    return mc_put_async(client_, cq_, &item, 1, options, user_data, request);
  }
  mc_completion one() { return one(cq_); }
  static mc_completion one(mc_cq* cq) {
    mc_completion completion{};
    std::size_t count = 0;
    EXPECT_EQ(mc_cq_wait(cq, &completion, 1, &count, 60 * kSecondNs), MC_OK);
    return completion;
  }
  bool readable(int timeout_ms = 0) {
    pollfd entry{mc_cq_fd(cq_), POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }
  // Fills the pool with hard-pinned objects.
  void fill_up(std::size_t blocks = 31) {
    const mc_put_options hard = put_options(MC_PIN_HARD, kSecondNs / 50);
    for (std::size_t i = 0; i < blocks; ++i) {
      static_cast<void>(put(client_, "full." + std::to_string(i), content("x", 256 * 1024), &hard));
    }
  }

  mc_client* client_ = nullptr;
  mc_cq* cq_ = nullptr;
};
MC_EVERYWHERE(Async);
// Clients of isolated namespaces hold no reservations.
class AsyncInDirect : public Async {};
INSTANTIATE_TEST_SUITE_P(, AsyncInDirect,
                         testing::Values(Setting{Place::kProcess, Mode::kDirect},
                                         Setting{Place::kEmbedded, Mode::kDirect}),
                         setting_name);

TEST_P(Async, APutIsVisibleAtItsCompletion) {
  serve_and_open();
  for (const std::size_t size : {1u, 257u, 5000u, 3000001u}) {
    const std::string key = "key." + std::to_string(size);
    std::string value = content(key, size);
    std::string name = key;
    std::uint64_t request = 0;
    ASSERT_EQ(submit_put(name, value, size, &request), MC_OK) << mc_last_error();
    // The caller may reuse both at once.
    std::fill(value.begin(), value.end(), '!');
    std::fill(name.begin(), name.end(), '!');
    const mc_completion completion = one();
    EXPECT_EQ(completion.status, MC_OK);
    EXPECT_EQ(completion.user_data, size);
    EXPECT_EQ(completion.request, request);
    EXPECT_EQ(completion.item_count, 1u);
    EXPECT_TRUE(get(client_, key) == content(key, size));
  }
}

TEST_P(Async, AllVerbsCompleteExactlyOnce) {
  serve_and_open();
  ASSERT_EQ(put(client_, "a", "value a"), MC_OK);
  const std::string keys[] = {"a", "b"};
  const mc_slice slices[] = {slice(keys[0]), slice(keys[1])};
  mc_status statuses[2] = {MC_INTERNAL, MC_INTERNAL};
  EXPECT_EQ(mc_exists_async(client_, cq_, slices, 2, statuses, 1, nullptr), MC_OK);
  mc_completion completion = one();
  EXPECT_EQ(completion.user_data, 1u);
  EXPECT_EQ(completion.status, MC_OK);
  EXPECT_EQ(completion.item_count, 2u);
  EXPECT_EQ(statuses[0], MC_OK);
  EXPECT_EQ(statuses[1], MC_NOT_FOUND);
  std::string into[2] = {std::string(7, '!'), std::string(7, '!')};
  const mc_span spans[] = {{into[0].data(), 7}, {into[1].data(), 7}};
  mc_get_item items[] = {{slices[0], &spans[0], 1, 0, 0, MC_INTERNAL},
                         {slices[1], &spans[1], 1, 0, 0, MC_INTERNAL}};
  EXPECT_EQ(mc_get_async(client_, cq_, items, 2, 2, nullptr), MC_OK);
  completion = one();
  EXPECT_EQ(completion.user_data, 2u);
  EXPECT_EQ(completion.status, MC_NOT_FOUND);
  EXPECT_EQ(items[0].status, MC_OK);
  EXPECT_EQ(items[1].status, MC_NOT_FOUND);
  EXPECT_EQ(into[0], "value a");
  EXPECT_EQ(mc_remove_async(client_, cq_, slices, 2, 0, 3, nullptr), MC_OK);
  completion = one();
  EXPECT_EQ(completion.user_data, 3u);
  EXPECT_EQ(completion.status, MC_NOT_FOUND) << "the first failure";
  EXPECT_EQ(completion.item_count, 2u);
  EXPECT_EQ(exists(client_, "a"), MC_NOT_FOUND);
  EXPECT_EQ(mc_cq_poll(cq_, &completion, 1), 0u);
}

TEST_P(Async, ManyOutstandingPutsAllCompleteOnce) {
  serve_and_open({{"pool_bytes", "256MiB"}});
  constexpr std::uint64_t kPuts = 2000;
  std::set<std::uint64_t> requests;
  for (std::uint64_t i = 0; i < kPuts; ++i) {
    const std::string key = "many." + std::to_string(i);
    std::uint64_t request = 0;
    ASSERT_EQ(submit_put(key, content(key, 1 + i * 37 % 40000), i, &request), MC_OK);
    EXPECT_TRUE(requests.insert(request).second);
  }
  std::set<std::uint64_t> seen;
  while (seen.size() < kPuts) {
    mc_completion completions[100];
    std::size_t count = 0;
    ASSERT_EQ(mc_cq_wait(cq_, completions, 100, &count, 60 * kSecondNs), MC_OK);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(completions[i].status, MC_OK);
      EXPECT_TRUE(seen.insert(completions[i].user_data).second);
    }
  }
  mc_completion late{};
  EXPECT_EQ(mc_cq_poll(cq_, &late, 1), 0u);
  for (std::uint64_t i = 0; i < kPuts; ++i) {
    const std::string key = "many." + std::to_string(i);
    ASSERT_TRUE(get(client_, key) == content(key, 1 + i * 37 % 40000)) << i;
  }
}

TEST_P(Async, ABatchCompletesAsOne) {
  serve_and_open();
  std::vector<std::string> keys, values;
  for (int i = 0; i < 1024; ++i) keys.push_back("batch." + std::to_string(i));
  for (const std::string& key : keys) values.push_back(content(key, 3000));
  std::vector<mc_slice> pieces;
  std::vector<mc_put_item> items;
  for (const std::string& value : values) pieces.push_back(slice(value));
  for (std::size_t i = 0; i < 1024; ++i)
    items.push_back({slice(keys[i]), &pieces[i], 1, {nullptr, 0}, MC_OK});
  ASSERT_EQ(mc_put_async(client_, cq_, items.data(), 1024, nullptr, 7, nullptr), MC_OK);
  const mc_completion completion = one();
  EXPECT_EQ(completion.status, MC_OK);
  EXPECT_EQ(completion.item_count, 1024u);
  for (std::size_t i = 0; i < 1024; ++i) ASSERT_TRUE(get(client_, keys[i]) == values[i]);
}

TEST_P(Async, TheDescriptorIsReadableWhenCompletionsWait) {
  serve_and_open();
  EXPECT_GE(mc_cq_fd(cq_), 0);
  EXPECT_FALSE(readable());
  for (std::uint64_t i = 0; i < 500; ++i) {
    const std::string key = "poll." + std::to_string(i);
    ASSERT_EQ(submit_put(key, content(key, 2000), i), MC_OK);
    mc_completion completion{};
    while (mc_cq_poll(cq_, &completion, 1) == 0) ASSERT_TRUE(readable(60000)) << i;
    EXPECT_EQ(completion.user_data, i);
    // All completions are taken. The bell of a taken completion may still ring once.
    EXPECT_EQ(mc_cq_poll(cq_, &completion, 1), 0u);
    if (readable()) {
      EXPECT_EQ(mc_cq_poll(cq_, &completion, 1), 0u);
    }
    EXPECT_FALSE(readable()) << i;
  }
}

TEST_P(Async, TheDescriptorStaysReadableUntilAllCompletionsAreTaken) {
  serve_and_open();
  mc_status status = MC_OK;
  const mc_slice key = slice("key");
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(mc_exists_async(client_, cq_, &key, 1, &status, i, nullptr), MC_OK);
  }
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(readable());
    mc_completion completion{};
    EXPECT_EQ(mc_cq_poll(cq_, &completion, 1), 1u);
    EXPECT_EQ(completion.user_data, i);
  }
  mc_completion completion{};
  EXPECT_EQ(mc_cq_poll(cq_, &completion, 1), 0u);
  EXPECT_FALSE(readable());
}

TEST_P(Async, WaitingWithoutAnythingOutstandingTimesOut) {
  serve_and_open();
  mc_completion completion{};
  std::size_t count = 9;
  EXPECT_TRUE(says(MC_TIMEOUT, mc_cq_wait(cq_, &completion, 1, &count, kSecondNs / 100)));
  EXPECT_EQ(count, 0u);
}

TEST_P(Async, APutThatWaitsForRoomCanBeCancelledAndIsAbsentThen) {
  serve_and_open({{"pool_bytes", "8MiB"}});
  fill_up();
  mc_put_options patient = put_options(MC_PIN_NONE, 100 * kSecondNs);
  std::uint64_t request = 0;
  ASSERT_EQ(submit_put("late", content("late", kMiB), 5, &request, &patient), MC_OK);
  mc_completion completion{};
  EXPECT_EQ(mc_cq_poll(cq_, &completion, 1), 0u);
  EXPECT_EQ(mc_cancel(client_, cq_, request), MC_OK) << mc_last_error();
  completion = one();
  EXPECT_EQ(completion.user_data, 5u);
  EXPECT_EQ(completion.status, MC_CANCELLED);
  EXPECT_EQ(exists(client_, "late"), MC_NOT_FOUND);
  EXPECT_TRUE(says(MC_NOT_FOUND, mc_cancel(client_, cq_, request)));
  for (int i = 0; i < 31; ++i) remove(client_, "full." + std::to_string(i));
  EXPECT_EQ(put(client_, "late", "now there is room"), MC_OK);
  EXPECT_EQ(get(client_, "late"), "now there is room");
}

TEST_P(Async, APutThatWaitsForRoomGoesOnWhenThereIsSome) {
  serve_and_open({{"pool_bytes", "8MiB"}});
  fill_up();
  mc_put_options patient = put_options(MC_PIN_NONE, 100 * kSecondNs);
  const std::string value = content("late", kMiB);
  ASSERT_EQ(submit_put("late", value, 5, nullptr, &patient), MC_OK);
  mc_completion completion{};
  EXPECT_EQ(mc_cq_poll(cq_, &completion, 1), 0u);
  for (int i = 0; i < 31; ++i) remove(client_, "full." + std::to_string(i));
  completion = one();
  EXPECT_EQ(completion.status, MC_OK);
  EXPECT_TRUE(get(client_, "late") == value);
}

TEST_P(Async, APutWithoutRoomEndsAtItsDeadlineWithNoSpace) {
  serve_and_open({{"pool_bytes", "8MiB"}});
  fill_up();
  mc_put_options brief = put_options(MC_PIN_NONE, kSecondNs / 20);
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(submit_put("late." + std::to_string(i), content("late", kMiB), i, nullptr, &brief),
              MC_OK);
  }
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 20; ++i) {
    const mc_completion completion = one();
    EXPECT_TRUE(seen.insert(completion.user_data).second);
    EXPECT_TRUE(completion.status == MC_NO_SPACE || completion.status == MC_TIMEOUT)
        << mc_status_name(completion.status);
  }
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(exists(client_, "late." + std::to_string(i)), MC_NOT_FOUND);
}

// The first item stops waiting when its key appears, but the request for its room is still with the
// agent, which refuses the request at the deadline.
TEST_P(AsyncInDirect, ARefusalEndsOnlyTheItemThatAskedForRoom) {
  serve_and_open({{"pool_bytes", "8MiB"}});
  fill_up();
  const std::string large = content("large", 2 * kMiB), small = content("small", 1000);
  const std::string keys[] = {"large", "small"};
  const mc_slice pieces[] = {slice(large), slice(small)};
  mc_put_item items[2];
  for (int i = 0; i < 2; ++i) items[i] = {slice(keys[i]), &pieces[i], 1, {nullptr, 0}, MC_OK};
  const mc_put_options brief = put_options(MC_PIN_NONE, kSecondNs);
  ASSERT_EQ(mc_put_async(client_, cq_, items, 2, &brief, 0, nullptr), MC_OK) << mc_last_error();
  remove(client_, "full.0");
  ASSERT_EQ(put(client_, "large", "there already"), MC_OK) << mc_last_error();
  EXPECT_EQ(one().status, MC_OK);
  EXPECT_TRUE(get(client_, "small") == small);
}

TEST_P(Async, QueuesProgressIndependently) {
  serve_and_open();
  mc_cq* queues[4] = {};
  for (mc_cq*& queue : queues) ASSERT_EQ(mc_cq_create(client_, &queue), MC_OK) << mc_last_error();
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::string key = "queue." + std::to_string(i);
    const std::string value = content(key, 1000);
    const mc_slice piece = slice(value);
    const mc_put_item item{slice(key), &piece, 1, {nullptr, 0}, MC_OK};
    ASSERT_EQ(mc_put_async(client_, queues[i % 4], &item, 1, nullptr, i, nullptr), MC_OK);
  }
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 400; ++i) {
    // The queue's own descriptor wakes the thread, whichever queue's request rang the agent's bell.
    mc_completion completion{};
    pollfd entry{mc_cq_fd(queues[i % 4]), POLLIN, 0};
    while (mc_cq_poll(queues[i % 4], &completion, 1) == 0) ASSERT_EQ(::poll(&entry, 1, 60000), 1);
    EXPECT_EQ(completion.user_data % 4, i % 4);
    EXPECT_EQ(completion.status, MC_OK);
    EXPECT_TRUE(seen.insert(completion.user_data).second);
  }
  for (mc_cq* queue : queues) mc_cq_destroy(queue);
}

TEST_P(Async, DestroyingAQueueEndsOutstandingRequests) {
  serve_and_open({{"pool_bytes", "8MiB"}});
  fill_up();
  mc_put_options patient = put_options(MC_PIN_NONE, 100 * kSecondNs);
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(submit_put("late." + std::to_string(i), content("late", kMiB), i, nullptr, &patient),
              MC_OK);
  }
  mc_cq_destroy(std::exchange(cq_, nullptr));
  for (int i = 0; i < 31; ++i) remove(client_, "full." + std::to_string(i));
  ASSERT_EQ(put(client_, "after", "value"), MC_OK);
  ASSERT_EQ(mc_ping(client_, 0), MC_OK);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(exists(client_, "late." + std::to_string(i)), MC_NOT_FOUND);
  ASSERT_EQ(mc_cq_create(client_, &cq_), MC_OK) << "its channel is free again";
}

TEST_P(Async, AQueueMoreThanTheClientHasChannelsIsBusy) {
  serve();
  client_ = open([](mc_open_options& o) { o.channel_count = 3; });
  ASSERT_EQ(put(client_, "key", "value"), MC_OK);
  ASSERT_EQ(mc_cq_create(client_, &cq_), MC_OK) << mc_last_error();
  mc_cq* second = nullptr;
  EXPECT_TRUE(says(MC_BUSY, mc_cq_create(client_, &second)));
  mc_cq_destroy(cq_);
  EXPECT_EQ(mc_cq_create(client_, &cq_), MC_OK);
}

}  // namespace
}  // namespace mc::conformance
