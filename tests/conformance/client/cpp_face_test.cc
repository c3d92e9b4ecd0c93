// SPDX-License-Identifier: Apache-2.0
//
// mc.hpp: handles free their resources once, can be moved, and carry the errors of mc.h.
#include "mc/mc.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <type_traits>
#include <vector>

#include "agent/embedded.h"
#include "patience.h"

namespace mc {
namespace {

// NOLINTBEGIN(bugprone-use-after-move): a handle that was moved from is empty, and tests say so.

constexpr std::uint64_t kMiB = 1u << 20;

template <typename... Types>
constexpr bool kMoveOnly = (... && (std::is_nothrow_move_constructible_v<Types> &&
                                    std::is_nothrow_move_assignable_v<Types> &&
                                    !std::is_copy_constructible_v<Types> &&
                                    !std::is_copy_assignable_v<Types>));
static_assert(kMoveOnly<Client, View, Reservation, Group, CompletionQueue, Buffer>);
static_assert(noexcept(std::declval<Client&>().put("", {})) && noexcept(
    std::declval<Client&>().get_view("")));

std::string content(std::string_view key, std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(static_cast<std::size_t>(key[i % key.size()]) + i * 131 + i / 251);
  }
  return bytes;
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Runs in direct and in isolated namespaces.
class CppFace : public testing::TestWithParam<bool> {
 protected:
  CppFace() {
    agent::register_embedded_agent();
    ::alarm(kTestSeconds);
  }
  ~CppFace() override { ::alarm(0); }

  Client open(std::string config = "pool_bytes=16MiB\n") {
    if (GetParam()) config += "mode=isolated\nisolated_allow_same_user=true\n";
    Options options{.agent = "embedded", .staging_bytes = 8 * kMiB};
    options.embedded_config = config.c_str();
    Result<Client> client = Client::open(options);
    if (!client) {
      ADD_FAILURE() << client.error().to_string();
      std::abort();
    }
    return std::move(*client);
  }
};
INSTANTIATE_TEST_SUITE_P(, CppFace, testing::Bool(), [](const auto& mode) {
  return std::string(mode.param ? "Isolated" : "Direct");
});

TEST_P(CppFace, PutsGetsAsksAndRemoves) {
  Client client = open();
  const std::string value = content("key", 5000);
  EXPECT_FALSE(*client.exists("key"));
  ASSERT_TRUE(client.put("key", as_bytes(value)).ok());
  EXPECT_TRUE(*client.exists("key"));
  std::vector<std::byte> buffer(value.size() + 10);
  EXPECT_EQ(client.get("key", buffer).value(), value.size());
  EXPECT_TRUE(text(std::span(buffer).first(value.size())) == value);
  const Result<Stat> stat = client.stat("key");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->length, value.size());
  EXPECT_EQ(stat->pin, MC_PIN_NONE);
  EXPECT_TRUE(client.set_pin("key", MC_PIN_HARD).ok());
  EXPECT_EQ(client.stat("key")->pin, MC_PIN_HARD);
  EXPECT_TRUE(client.remove("key").ok());
  EXPECT_EQ(client.remove("key").code(), MC_NOT_FOUND);
  EXPECT_FALSE(*client.exists("key"));
  EXPECT_TRUE(client.ping().ok());
  EXPECT_EQ(client.info()->isolated, GetParam() ? 1u : 0u);
}

TEST_P(CppFace, PutOptionsReachTheAgent) {
  Client client = open();
  ASSERT_TRUE(client.put("parent", as_bytes("one")).ok());
  ASSERT_TRUE(client
                  .put("child", as_bytes("two"),
                       {.parent = "parent", .pin = MC_PIN_SOFT, .pin_ttl_ms = 60000})
                  .ok());
  const Stat stat = client.stat("child").value();
  EXPECT_EQ(stat.pin, MC_PIN_SOFT);
  EXPECT_GT(stat.pin_left_ms, 0u);
  EXPECT_LE(stat.pin_left_ms, 61000u);
  EXPECT_NE(stat.parent_hash, 0u);
  ASSERT_TRUE(client.put("child", as_bytes("left alone")).ok());
  EXPECT_EQ(client.stat("child")->length, 3u);
  ASSERT_TRUE(client.put("child", as_bytes("replaced"), {.upsert = true}).ok());
  EXPECT_EQ(client.stat("child")->length, 8u);
}

TEST_P(CppFace, ErrorsCarryTheWordsOfTheCall) {
  const Result<Client> refused = Client::open({.agent = "/nowhere/agent.sock", .timeout_ns = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), MC_AGENT_UNAVAILABLE);
  EXPECT_NE(refused.error().text().find("/nowhere/agent.sock"), std::string_view::npos)
      << refused.error().text();

  Client client = open();
  const Status bad_key = client.put("", as_bytes("value"));
  EXPECT_EQ(bad_key.code(), MC_INVALID_ARGUMENT);
  EXPECT_NE(bad_key.text().find("MC_MAX_KEY_BYTES"), std::string_view::npos) << bad_key.text();
  EXPECT_EQ(client.exists("").error().text(), bad_key.text());
  const Status kept = client.put("key", {});
  ASSERT_TRUE(client.put("key", as_bytes("value")).ok());
  EXPECT_EQ(kept.code(), MC_INVALID_ARGUMENT) << "a Status keeps its words over later calls";
  EXPECT_NE(kept.text(), bad_key.text());

  std::array<std::byte, 2> small{};
  std::size_t length = 0;
  EXPECT_EQ(client.get("key", small, &length).error().code(), MC_BUFFER_TOO_SMALL);
  EXPECT_EQ(length, 5u);
  EXPECT_EQ(client.get("missing", small).error().code(), MC_NOT_FOUND);
  EXPECT_EQ(client.get_view("missing").error().text(), mc_status_text(MC_NOT_FOUND));
  EXPECT_EQ(client.stat("missing").error().code(), MC_NOT_FOUND);
  EXPECT_EQ(client.reserve(64 * kMiB).error().code(), MC_TOO_LARGE);
  EXPECT_EQ(client.alloc(0).error().code(), MC_INVALID_ARGUMENT);
}

TEST_P(CppFace, AClientThatWasMovedFromRefusesAndTheOtherGoesOn) {
  Client first = open();
  ASSERT_TRUE(first.put("key", as_bytes("value")).ok());
  View view = std::move(*first.get_view("key"));
  Client second = std::move(first);
  EXPECT_EQ(first.handle(), nullptr);
  EXPECT_EQ(first.put("other", as_bytes("value")).code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(first.get_view("key").error().code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(first.begin_group().error().code(), MC_INVALID_ARGUMENT);
  EXPECT_TRUE(*second.exists("key"));
  EXPECT_EQ(text(view.bytes()), "value");
  view.release();  // before its client
}

TEST_P(CppFace, AViewMovesAndReleasesItselfOnce) {
  Client client = open();
  ASSERT_TRUE(client.put("key", as_bytes("value")).ok());
  ASSERT_TRUE(client.put("other", as_bytes("another")).ok());
  View view = std::move(*client.get_view("key"));
  EXPECT_EQ(view.length(), 5u);
  EXPECT_EQ(view.version(), client.stat("key")->version);
  EXPECT_EQ(view.checksum(), client.stat("key")->checksum);
  View moved = std::move(view);
  EXPECT_TRUE(view.empty());
  EXPECT_TRUE(view.bytes().empty());
  EXPECT_EQ(view.spans().size(), 0u);
  EXPECT_EQ(text(moved.bytes()), "value");
  moved = std::move(*client.get_view("other"));
  EXPECT_EQ(text(moved.bytes()), "another");
  EXPECT_TRUE(moved.verify("other").ok());
  EXPECT_EQ(moved.verify("key").code(), MC_CORRUPT);
  View& self = moved;
  moved = std::move(self);
  EXPECT_EQ(text(moved.bytes()), "another");
  moved.release();
  EXPECT_TRUE(moved.empty());
  // More than a thread may hold at once, one after the other: each view gave its pin back.
  for (std::size_t i = 0; i < 2 * MC_MAX_VIEWS_PER_CHANNEL; ++i) {
    ASSERT_TRUE(client.get_view("key")) << i;
  }
}

TEST_P(CppFace, AViewOutlivesTheEvictionOfItsObject) {
  Client client = open();
  const std::string value = content("held", 100000);
  ASSERT_TRUE(client.put("held", as_bytes(value)).ok());
  const View view = std::move(*client.get_view("held"));
  for (std::size_t i = 0; i < 4 * 160; ++i) {
    const std::string key = "flood." + std::to_string(i);
    ASSERT_TRUE(client.put(key, as_bytes(content(key, 100000))).ok()) << i << mc_last_error();
  }
  EXPECT_FALSE(*client.exists("flood.0"));
  EXPECT_TRUE(client.remove("held").ok() || !*client.exists("held"));
  EXPECT_TRUE(text(view.bytes()) == value);
  EXPECT_TRUE(view.verify("held").ok());
}

TEST_P(CppFace, AnObjectInPiecesIsSeenWholeThroughItsSpansOnly) {
  Client client = open("pool_bytes=8MiB\nsession_quota_bytes=8MiB\n");
  std::vector<std::string> keys;
  while (true) {  // fill the pool with hard pins, then remove every second object
    const std::string key = "block." + std::to_string(keys.size());
    const Status status = client.put(key, as_bytes(content(key, 65536)),
                                     {.timeout_ns = kSecondNs / 20, .pin = MC_PIN_HARD});
    if (!status.ok()) break;
    keys.push_back(key);
  }
  for (std::size_t i = 0; i < keys.size(); i += 2) ASSERT_TRUE(client.remove(keys[i]).ok());
  const std::string value = content("pieces", 65536 * 6 + 777);
  ASSERT_TRUE(client.put("pieces", as_bytes(value)).ok()) << mc_last_error();
  const View view = std::move(*client.get_view("pieces"));
  ASSERT_GT(view.spans().size(), 1u);
  EXPECT_TRUE(view.bytes().empty());
  std::string seen;
  const View::Spans spans = view.spans();
  for (const std::span<const std::byte> span : spans) seen += text(span);
  EXPECT_TRUE(seen == value);
  std::vector<std::byte> copy(value.size() - 5);
  EXPECT_EQ(view.copy_to(copy), copy.size());
  EXPECT_TRUE(text(copy) == value.substr(0, copy.size()));
  EXPECT_EQ(view.copy(copy).code(), MC_BUFFER_TOO_SMALL);
  std::vector<std::byte> whole(value.size());
  EXPECT_TRUE(view.copy(whole).ok());
  EXPECT_TRUE(text(whole) == value);
}

TEST_P(CppFace, BatchesHaveAStatusForEachItem) {
  Client client = open();
  const std::string a = content("a", 40), b = content("b", 70);
  const std::array<Slice, 1> piece_a{as_slice(a)}, piece_b{as_slice(b)};
  std::array<PutItem, 3> puts{PutItem{as_slice("a"), piece_a.data(), 1, {}, MC_INTERNAL},
                              PutItem{as_slice(""), piece_b.data(), 1, {}, MC_INTERNAL},
                              PutItem{as_slice("b"), piece_b.data(), 1, {}, MC_INTERNAL}};
  EXPECT_EQ(client.put_batch(puts).code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(puts[0].status, MC_OK);
  EXPECT_EQ(puts[1].status, MC_INVALID_ARGUMENT);
  EXPECT_EQ(puts[2].status, MC_OK);

  std::string got(30, '\0');
  const std::array<mc_span, 1> into{mc_span{got.data(), got.size()}};
  std::array<GetItem, 2> gets{GetItem{as_slice("b"), into.data(), 1, 5, 30, MC_INTERNAL},
                              GetItem{as_slice("no"), into.data(), 1, 0, 0, MC_INTERNAL}};
  EXPECT_EQ(client.get_batch(gets).code(), MC_NOT_FOUND);
  EXPECT_EQ(gets[0].status, MC_OK);
  EXPECT_EQ(got, b.substr(5, 30));
  EXPECT_EQ(gets[1].status, MC_NOT_FOUND);

  const std::array<Slice, 3> keys{as_slice("a"), as_slice("no"), as_slice("b")};
  std::array<mc_status, 3> statuses{};
  const std::array<mc_status, 3> wanted{MC_OK, MC_NOT_FOUND, MC_OK};
  EXPECT_TRUE(client.exists_batch(keys, statuses).ok());
  EXPECT_EQ(statuses, wanted);
  std::array<Stat, 3> stats{};
  EXPECT_EQ(client.stat_batch(keys, stats, statuses).code(), MC_NOT_FOUND);
  EXPECT_EQ(statuses, wanted);
  EXPECT_EQ(stats[2].length, 70u);
  EXPECT_EQ(client.remove_batch(keys, statuses).code(), MC_NOT_FOUND);
  EXPECT_EQ(statuses, wanted);
  EXPECT_FALSE(*client.exists("a"));
}

TEST_P(CppFace, AViewBatchSetsOneViewPerHit) {
  Client client = open();
  constexpr std::size_t kCount = 100;
  std::vector<std::string> names(kCount);
  std::vector<Slice> keys(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    names[i] = "key." + std::to_string(i);
    keys[i] = as_slice(names[i]);
    if (i % 3 != 0) {
      ASSERT_TRUE(client.put(names[i], as_bytes(names[i])).ok());
    }
  }
  std::vector<View> views(kCount);
  std::vector<mc_status> statuses(kCount);
  for (int round = 0; round < 20; ++round) {  // the views of the previous round are released
    EXPECT_EQ(client.get_view_batch(keys, views, statuses).code(), MC_NOT_FOUND);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(statuses[i], i % 3 == 0 ? MC_NOT_FOUND : MC_OK);
    EXPECT_EQ(text(views[i].bytes()), i % 3 == 0 ? "" : names[i]);
  }
}

TEST_P(CppFace, BatchesOfUnequalOrForbiddenSizesAreRefused) {
  Client client = open();
  std::vector<Slice> keys(MC_MAX_BATCH_ITEMS + 1, as_slice("key"));
  std::vector<View> views(keys.size());
  std::vector<mc_status> statuses(keys.size());
  const std::span<const Slice> two = std::span<const Slice>(keys).first(2);
  const std::span<mc_status> one = std::span<mc_status>(statuses).first(1);
  EXPECT_EQ(client.exists_batch(two, one).code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(client.remove_batch(two, one).code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(client.get_view_batch(two, views, statuses).code(), MC_INVALID_ARGUMENT);
  const Status too_many = client.get_view_batch(keys, views, statuses);
  EXPECT_EQ(too_many.code(), MC_INVALID_ARGUMENT);
  EXPECT_NE(too_many.text().find("MC_MAX_BATCH_ITEMS"), std::string_view::npos);
  EXPECT_EQ(client.get_view_batch({}, {}, {}).code(), MC_INVALID_ARGUMENT);
}

TEST_P(CppFace, AReservationIsWrittenInPlaceAndCommitted) {
  Client client = open();
  const std::string value = content("key", 30000);
  Reservation reservation = std::move(*client.reserve(40000));
  Reservation moved = std::move(reservation);
  EXPECT_TRUE(reservation.empty());
  EXPECT_TRUE(reservation.bytes().empty());
  ASSERT_EQ(moved.bytes().size(), 40000u);
  std::array<mc_span, 2> spans{};
  EXPECT_EQ(moved.spans(spans), 1u);
  EXPECT_EQ(spans[0].data, moved.bytes().data());
  std::ranges::copy(as_bytes(value), moved.bytes().begin());
  ASSERT_TRUE(moved.commit("key", value.size()).ok()) << mc_last_error();
  EXPECT_TRUE(moved.empty());
  EXPECT_EQ(moved.commit("again", 1).code(), MC_INVALID_ARGUMENT);
  EXPECT_TRUE(text(client.get_view("key")->bytes()) == value);
  EXPECT_EQ(client.reserve(10)->commit("key too long", 11).code(), MC_INVALID_ARGUMENT);
  // Each reservation takes more than half of the free space, so the previous reservation was
  // abandoned.
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.reserve(5 * kMiB)) << mc_last_error();
}

TEST_P(CppFace, AGroupAppearsAtItsCommitAndAGroupThatDiesIsAborted) {
  Client client = open();
  Group group = std::move(*client.begin_group());
  ASSERT_TRUE(group.put("a", as_bytes("one")).ok());
  Group moved = std::move(group);
  EXPECT_EQ(group.put("stray", as_bytes("value")).code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(group.commit().code(), MC_INVALID_ARGUMENT);
  const std::array<Slice, 2> pieces{as_slice("tw"), as_slice("o")};
  std::array<PutItem, 1> items{PutItem{as_slice("b"), pieces.data(), 2, {}, MC_INTERNAL}};
  ASSERT_TRUE(moved.put_batch(items).ok());
  EXPECT_FALSE(*client.exists("a"));
  ASSERT_TRUE(moved.commit().ok()) << mc_last_error();
  EXPECT_TRUE(moved.empty());
  EXPECT_FALSE(*client.exists("stray"));
  EXPECT_EQ(text(client.get_view("b")->bytes()), "two");
  EXPECT_EQ(client.stat("a")->group, client.stat("b")->group);
  {
    Group dying = std::move(*client.begin_group());
    ASSERT_TRUE(dying.put("c", as_bytes("three")).ok());
  }
  EXPECT_FALSE(*client.exists("c"));
  Group failing = std::move(*client.begin_group());
  EXPECT_FALSE(failing.put("", as_bytes("value")).ok());
  ASSERT_TRUE(failing.put("d", as_bytes("four")).ok());
  EXPECT_EQ(failing.commit().code(), MC_GROUP_ABORTED);
  EXPECT_FALSE(*client.exists("d"));
}

TEST_P(CppFace, ABufferIsSessionMemoryThatComesBack) {
  Client client = open();
  for (int i = 0; i < 10; ++i) {  // two buffers do not fit at once
    Buffer buffer = std::move(*client.alloc(5 * kMiB));
    ASSERT_EQ(buffer.bytes().size(), 5 * kMiB);
    EXPECT_EQ(client.alloc(5 * kMiB).error().code(), MC_NO_SPACE);
    Buffer moved = std::move(buffer);
    EXPECT_TRUE(buffer.bytes().empty());
    buffer = std::move(moved);
    std::ranges::copy(as_bytes("from session memory"), buffer.bytes().begin());
    ASSERT_TRUE(client.put("key", buffer.bytes().first(19), {.upsert = true}).ok());
  }
  EXPECT_EQ(text(client.get_view("key")->bytes()), "from session memory");
}

TEST_P(CppFace, ACompletionQueueGivesOneCompletionForEachSubmission) {
  Client client = open();
  CompletionQueue made = std::move(*client.create_queue());
  CompletionQueue queue = std::move(made);
  EXPECT_EQ(made.fd(), -1);
  EXPECT_EQ(made.cancel(1).code(), MC_INVALID_ARGUMENT);
  EXPECT_GE(queue.fd(), 0);
  std::array<Completion, 8> room{};
  EXPECT_TRUE(queue.poll(room).empty());
  EXPECT_EQ(queue.wait(room, 1).error().code(), MC_TIMEOUT);

  const auto only = [&](std::uint64_t user_data, const Result<std::uint64_t>& request) {
    EXPECT_TRUE(request) << (request ? "" : request.error().to_string());
    const Result<std::span<Completion>> got = queue.wait(room, 30 * kSecondNs);
    EXPECT_TRUE(got && got->size() == 1);
    EXPECT_EQ(room[0].user_data, user_data);
    EXPECT_EQ(room[0].request, request.value());
    return room[0].status;
  };
  const std::array<Slice, 1> pieces{as_slice("value")};
  const std::array<PutItem, 1> puts{PutItem{as_slice("key"), pieces.data(), 1, {}, MC_OK}};
  EXPECT_EQ(only(7, queue.put(puts, {}, 7)), MC_OK);
  std::string got(5, '\0');
  const std::array<mc_span, 1> into{mc_span{got.data(), got.size()}};
  std::array<GetItem, 1> gets{GetItem{as_slice("key"), into.data(), 1, 0, 0, MC_INTERNAL}};
  EXPECT_EQ(only(8, queue.get(gets, 8)), MC_OK);
  EXPECT_EQ(got, "value");
  const std::array<Slice, 2> keys{as_slice("key"), as_slice("no")};
  std::array<mc_status, 2> statuses{};
  EXPECT_EQ(only(9, queue.exists(keys, statuses, 9)), MC_OK);
  EXPECT_EQ(statuses[1], MC_NOT_FOUND);
  EXPECT_FALSE(queue.exists(keys, std::span(statuses).first(1)));
  EXPECT_EQ(only(10, queue.remove(std::span(keys).first(1), 0, 10)), MC_OK);
  EXPECT_FALSE(*client.exists("key"));
  EXPECT_EQ(queue.cancel(12345).code(), MC_NOT_FOUND);
}

// NOLINTEND(bugprone-use-after-move)

}  // namespace
}  // namespace mc
