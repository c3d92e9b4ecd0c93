// SPDX-License-Identifier: Apache-2.0
//
// Reads that compare the bytes with the checksum, and the scrubber. The tests damage stored objects
// through the memory of their reservations, which only direct namespaces give.
#include <cstring>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

class Verify : public ClientTest {
 public:
  mc_client* open_with(mc_verify verify) {
    return open([=](mc_open_options& options) { options.verify = verify; });
  }
};
INSTANTIATE_TEST_SUITE_P(, Verify,
                         testing::Values(Setting{Place::kProcess, Mode::kDirect},
                                         Setting{Place::kEmbedded, Mode::kDirect}),
                         setting_name);
class VerifyWithAgent : public AgentTest {};
INSTANTIATE_TEST_SUITE_P(, VerifyWithAgent,
                         testing::Values(Setting{Place::kProcess, Mode::kDirect}), setting_name);

// Stores an object and flips a bit of its bytes.
void put_damaged(mc_client* client, const std::string& key, std::size_t size) {
  mc_reservation* reservation = nullptr;
  ASSERT_EQ(mc_reserve(client, size, 0, &reservation), MC_OK) << mc_last_error();
  mc_span span{};
  ASSERT_EQ(mc_reservation_spans(reservation, &span, 1), 1u);
  const std::string value = content(key, size);
  std::memcpy(span.data, value.data(), size);
  ASSERT_EQ(mc_commit(reservation, slice(key), size, nullptr), MC_OK) << mc_last_error();
  static_cast<char*>(span.data)[size / 2] ^= 1;
}

// A way to read an object. Returns the status of the read.
using Read = std::function<mc_status(mc_client*, const std::string& key, std::size_t size)>;

// The scrubber may find a damaged object before the reader.
constexpr int kObjects = 20;
constexpr std::size_t kDamagedBytes[] = {1, 4096, 100'001, 3'000'000};

void expect_misses(mc_client* client, const Read& read) {
  for (const std::size_t size : kDamagedBytes) {
    int corrupt = 0;
    for (int i = 0; i < kObjects; ++i) {
      const std::string key = std::to_string(size) + "." + std::to_string(i);
      ASSERT_NO_FATAL_FAILURE(put_damaged(client, key, size));
      const mc_status status = read(client, key, size);
      EXPECT_TRUE(status == MC_CORRUPT || status == MC_NOT_FOUND) << mc_status_name(status);
      corrupt += status == MC_CORRUPT;
      until([&] { return exists(client, key) == MC_NOT_FOUND; });
      EXPECT_EQ(put(client, key, content(key, size)), MC_OK);
      EXPECT_EQ(read(client, key, size), MC_OK) << mc_last_error();
      EXPECT_EQ(remove(client, key), MC_OK);
    }
    EXPECT_GT(corrupt, 0) << "no reader saw damaged bytes";
  }
}

TEST_P(Verify, AGetOfDamagedBytesIsAMissWithAReason) {
  serve();
  expect_misses(open_with(MC_VERIFY_ALWAYS),
                [](mc_client* client, const std::string& key, std::size_t size) {
                  std::string buffer(size, '\0');
                  return mc_get(client, slice(key), buffer.data(), size, nullptr);
                });
}

TEST_P(Verify, AGetOfARangeComparesTheWholeObject) {
  serve();
  expect_misses(open_with(MC_VERIFY_ALWAYS),
                [](mc_client* client, const std::string& key, std::size_t size) {
                  char first = 0;
                  const mc_span piece{&first, 1};
                  mc_get_item item{slice(key), &piece, 1, size - 1, 1, MC_OK};
                  return mc_get_batch(client, &item, 1);
                });
}

TEST_P(Verify, AGetIntoPiecesCompares) {
  serve();
  expect_misses(open_with(MC_VERIFY_ALWAYS),
                [](mc_client* client, const std::string& key, std::size_t size) {
                  std::string buffer(size, '\0');
                  const mc_span pieces[] = {{buffer.data(), size / 3},
                                            {buffer.data() + size / 3, size - size / 3}};
                  mc_get_item item{slice(key), pieces, 2, 0, 0, MC_OK};
                  return mc_get_batch(client, &item, 1);
                });
}

TEST_P(Verify, AViewIsComparedWhenItIsOpened) {
  serve();
  expect_misses(open_with(MC_VERIFY_ALWAYS),
                [](mc_client* client, const std::string& key, std::size_t) {
                  mc_view view{};
                  const mc_status status = mc_get_view(client, slice(key), &view);
                  mc_view_release(&view);
                  return status;
                });
}

TEST_P(Verify, ACopyOfAViewCompares) {
  serve();
  mc_client* client = open_with(MC_VERIFY_ALWAYS);
  const std::string value = content("key", 5000);
  ASSERT_EQ(put(client, "key", value), MC_OK);
  mc_view view{};
  ASSERT_EQ(mc_get_view(client, slice("key"), &view), MC_OK);
  std::string copy(5000, '\0');
  EXPECT_EQ(mc_view_copy(&view, copy.data()), MC_OK) << mc_last_error();
  EXPECT_TRUE(copy == value);
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_view_copy(&view, nullptr)));
  mc_view_release(&view);
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_view_copy(&view, copy.data())));
}

TEST_P(Verify, OneGetIn64Compares) {
  serve();
  mc_client* client = open_with(MC_VERIFY_SAMPLED);
  ASSERT_NO_FATAL_FAILURE(put_damaged(client, "key", 4096));
  std::string buffer(4096, '\0');
  int whole = 0;
  while (whole < 64 && mc_get(client, slice("key"), buffer.data(), 4096, nullptr) == MC_OK) ++whole;
  EXPECT_LT(whole, 64);
}

TEST_P(Verify, TheScrubberFindsDamageWhileTheAgentServes) {
  serve();
  mc_client* client = open_with(MC_VERIFY_NEVER);
  for (int i = 0; i < 100; ++i) {
    const std::string key = std::to_string(i);
    EXPECT_EQ(put(client, key, content(key, 10000)), MC_OK);
  }
  for (int round = 0; round < 2; ++round) {
    ASSERT_NO_FATAL_FAILURE(put_damaged(client, "damaged", 10000));
    until([&] { return exists(client, "damaged") == MC_NOT_FOUND; });
  }
  for (int i = 0; i < 100; ++i) {
    const std::string key = std::to_string(i);
    EXPECT_TRUE(get(client, key) == content(key, 10000));
  }
}

TEST_P(VerifyWithAgent, TheAgentCountsReportsAndDamagedObjects) {
  serve();
  mc_client* client = open([](mc_open_options& options) { options.verify = MC_VERIFY_ALWAYS; });
  int corrupt = 0;
  for (int i = 0; i < kObjects; ++i) {
    const std::string key = std::to_string(i);
    ASSERT_NO_FATAL_FAILURE(put_damaged(client, key, 4096));
    corrupt += !get(client, key).has_value();
  }
  EXPECT_EQ(corrupt, kObjects);
  until([&] { return tenant()["corrupt"].asInt() == kObjects; });
  EXPECT_GT(tenant()["reported"].asInt(), 0);
}

TEST_P(VerifyWithAgent, AWordThatIsNoModeIsRefused) {
  serve();
  mc_client* client = nullptr;
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, try_open(&client, [](mc_open_options& options) {
                     const int number = 4;  // as a C program may pass it
                     std::memcpy(&options.verify, &number, sizeof number);
                   })));
  ASSERT_EQ(::setenv("MC_VERIFY", "sometimes", 1), 0);
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, try_open(&client)));
  ASSERT_EQ(::setenv("MC_VERIFY", "always", 1), 0);
  client = open();
  ::unsetenv("MC_VERIFY");
  ASSERT_NO_FATAL_FAILURE(put_damaged(client, "key", 4096));
  EXPECT_FALSE(get(client, "key").has_value());
}

}  // namespace
}  // namespace mc::conformance
