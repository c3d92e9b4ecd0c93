// SPDX-License-Identifier: Apache-2.0
//
// Writing in place: reservations, and memory shared with the agent.
#include <algorithm>
#include <cstring>
#include <thread>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

using Reservations = ClientTest;
MC_EVERYWHERE(Reservations);

void write(const mc_reservation* reservation, std::string_view bytes) {
  mc_span spans[MC_MAX_EXTENTS];
  const std::size_t count = mc_reservation_spans(reservation, spans, MC_MAX_EXTENTS);
  for (std::size_t i = 0; i < count && !bytes.empty(); ++i) {
    const std::size_t part = std::min(bytes.size(), spans[i].size);
    std::memcpy(spans[i].data, bytes.data(), part);
    bytes.remove_prefix(part);
  }
  EXPECT_TRUE(bytes.empty());
}

mc_reservation* reserve(mc_client* client, std::uint64_t size) {
  mc_reservation* reservation = nullptr;
  EXPECT_EQ(mc_reserve(client, size, 0, &reservation), MC_OK) << mc_last_error();
  return reservation;
}

TEST_P(Reservations, BytesWrittenInPlaceAreStoredAtTheCommit) {
  serve();
  mc_client* client = open();
  for (const std::size_t size : {1u, 255u, 256u, 257u, 100001u, 5000000u}) {
    const std::string key = std::to_string(size);
    mc_reservation* reservation = reserve(client, size);
    ASSERT_NE(reservation, nullptr);
    mc_span spans[MC_MAX_EXTENTS];
    const std::size_t count = mc_reservation_spans(reservation, spans, MC_MAX_EXTENTS);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += spans[i].size;
    EXPECT_EQ(sum, size);
    EXPECT_EQ(mc_reservation_spans(reservation, nullptr, 0), count);
    write(reservation, content(key, size));
    EXPECT_EQ(exists(client, key), MC_NOT_FOUND);
    ASSERT_EQ(mc_commit(reservation, slice(key), size, nullptr), MC_OK) << mc_last_error();
    EXPECT_TRUE(get(client, key) == content(key, size));
    mc_view view{};
    ASSERT_EQ(mc_get_view(client, slice(key), &view), MC_OK);
    EXPECT_EQ(mc_view_verify(&view, slice(key)), MC_OK);
    mc_view_release(&view);
  }
}

TEST_P(Reservations, ACommitMayBeShorterThanTheReservation) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  const mc_put_options hard = put_options(MC_PIN_HARD);
  for (std::size_t i = 0; i < 60; ++i) {
    // The unused rest is returned: sixty times a megabyte is far more than the pool.
    const std::string key = "short." + std::to_string(i);
    mc_reservation* reservation = reserve(client, kMiB);
    ASSERT_NE(reservation, nullptr) << i;
    write(reservation, content(key, 1000 + i));
    ASSERT_EQ(mc_commit(reservation, slice(key), 1000 + i, &hard), MC_OK) << mc_last_error();
  }
  for (std::size_t i = 0; i < 60; ++i) {
    const std::string key = "short." + std::to_string(i);
    EXPECT_TRUE(get(client, key) == content(key, 1000 + i)) << i;
  }
}

TEST_P(Reservations, ACommitCarriesPinAndParent) {
  serve();
  mc_client* client = open();
  mc_put_options options = put_options(MC_PIN_HARD);
  options.parent = slice("parent");
  mc_reservation* reservation = reserve(client, 10);
  write(reservation, "0123456789");
  ASSERT_EQ(mc_commit(reservation, slice("key"), 10, &options), MC_OK);
  EXPECT_EQ(stat(client, "key").pin, MC_PIN_HARD);
  EXPECT_NE(stat(client, "key").parent_hash, 0u);
}

TEST_P(Reservations, CommittingUnderAnExistingKeyChangesNothingUnlessItIsAnUpsert) {
  serve();
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", "before"), MC_OK);
  mc_reservation* reservation = reserve(client, 5);
  write(reservation, "after");
  EXPECT_EQ(mc_commit(reservation, slice("key"), 5, nullptr), MC_OK);
  EXPECT_EQ(get(client, "key"), "before");
  mc_put_options options = put_options();
  options.upsert = 1;
  reservation = reserve(client, 5);
  write(reservation, "after");
  EXPECT_EQ(mc_commit(reservation, slice("key"), 5, &options), MC_OK);
  EXPECT_EQ(get(client, "key"), "after");
}

TEST_P(Reservations, AFailedCommitFreesTheHandleAndStoresNothing) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  mc_group* group = nullptr;
  ASSERT_EQ(mc_group_begin(client, &group), MC_OK);
  mc_put_options in_group = put_options();
  in_group.group = group;
  for (int round = 0; round < 30; ++round) {
    EXPECT_TRUE(
        says(MC_INVALID_ARGUMENT, mc_commit(reserve(client, 200000), slice("key"), 0, nullptr)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT,
                     mc_commit(reserve(client, 200000), slice("key"), 200001, nullptr)));
    EXPECT_TRUE(
        says(MC_INVALID_ARGUMENT, mc_commit(reserve(client, 200000), slice(""), 5, nullptr)));
    EXPECT_TRUE(
        says(MC_INVALID_ARGUMENT, mc_commit(reserve(client, 200000), slice("key"), 5, &in_group)));
  }
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_commit(nullptr, slice("key"), 5, nullptr)));
  EXPECT_EQ(exists(client, "key"), MC_NOT_FOUND);
  mc_group_abort(group);
}

TEST_P(Reservations, AbandoningGivesTheSpaceBack) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 3 * kMiB; });
  for (int round = 0; round < 100; ++round) {
    mc_reservation* reservation = reserve(client, 2 * kMiB);
    ASSERT_NE(reservation, nullptr) << round;
    write(reservation, "something");
    mc_abandon(reservation);
  }
  mc_abandon(nullptr);
  EXPECT_EQ(mc_reservation_spans(nullptr, nullptr, 0), 0u);
}

TEST_P(Reservations, AReservationThatCanNeverFitIsTooLarge) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  mc_reservation* reservation = nullptr;
  EXPECT_TRUE(says(MC_TOO_LARGE, mc_reserve(client, 9 * kMiB, 0, &reservation)));
  EXPECT_EQ(reservation, nullptr);
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_reserve(client, 0, 0, &reservation)));
  EXPECT_TRUE(
      says(MC_INVALID_ARGUMENT, mc_reserve(client, MC_MAX_OBJECT_BYTES + 1, 0, &reservation)));
}

TEST_P(Reservations, ReservationsHoldTheirMemoryAgainstAFlood) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 3 * kMiB; });
  mc_reservation* reservation = reserve(client, kMiB);
  write(reservation, content("held", kMiB));
  for (std::size_t i = 0; i < 300; ++i) {
    ASSERT_EQ(put(client, "flood." + std::to_string(i), content("x", 70000)), MC_OK)
        << mc_last_error();
  }
  ASSERT_EQ(mc_commit(reservation, slice("held"), kMiB, nullptr), MC_OK);
  EXPECT_TRUE(get(client, "held") == content("held", kMiB));
}

TEST_P(Reservations, SessionMemoryCanBePutFromAndReadInto) {
  serve();
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 4 * kMiB; });
  void* memory = nullptr;
  ASSERT_EQ(mc_alloc(client, kMiB, &memory), MC_OK) << mc_last_error();
  const std::string bytes = content("key", kMiB);
  std::memcpy(memory, bytes.data(), kMiB);
  ASSERT_EQ(mc_put(client, slice("key"), {memory, kMiB}, nullptr), MC_OK);
  ASSERT_EQ(mc_put(client, slice("part"), {static_cast<char*>(memory) + 1001, 777}, nullptr),
            MC_OK);
  std::memset(memory, 0, kMiB);
  EXPECT_TRUE(get(client, "key") == bytes);
  EXPECT_TRUE(get(client, "part") == bytes.substr(1001, 777));
  std::size_t length = 0;
  EXPECT_EQ(mc_get(client, slice("key"), memory, kMiB, &length), MC_OK);
  EXPECT_EQ(std::memcmp(memory, bytes.data(), kMiB), 0);
  mc_free(client, memory);
  mc_free(client, nullptr);
}

TEST_P(Reservations, SessionMemoryIsBoundedAndComesBack) {
  serve();
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 4 * kMiB; });
  std::vector<void*> all;
  for (int round = 0; round < 3; ++round) {
    for (void* memory = nullptr; mc_alloc(client, 500000, &memory) == MC_OK;) all.push_back(memory);
    EXPECT_EQ(all.size(), 8u);
    void* memory = &all;
    EXPECT_TRUE(says(MC_NO_SPACE, mc_alloc(client, 500000, &memory)));
    EXPECT_EQ(memory, nullptr);
    for (void* one : all) mc_free(client, one);
    all.clear();
  }
  void* memory = nullptr;
  EXPECT_EQ(mc_alloc(client, 4 * kMiB, &memory), MC_OK) << "all of it in one piece again";
  mc_free(client, memory);
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_alloc(client, 0, &memory)));
}

class ReservationCounts : public AgentTest {};
MC_WITH_AGENT(ReservationCounts);

TEST_P(ReservationCounts, NothingStaysReservedWhenAClientIsGone) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  mc_reservation* reservation = reserve(client, kMiB);
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(put(client, "key" + std::to_string(i), content("x", 1000)), MC_OK);
  }
  if (!isolated()) {
    EXPECT_GE(tenant()["reservations"].asUInt64(), 1u);
    EXPECT_GE(session()["reserved_bytes"].asUInt64(), kMiB);
  }
  mc_abandon(reservation);
  close(client);
  until([&] { return tenant()["reservations"].asUInt64() == 0; });
  EXPECT_EQ(tenant()["objects"].asUInt64(), 40u);
}

TEST_P(ReservationCounts, AReservationGrantedJustBeforeACrashGoesBackToThePool) {
  serve({{"pool_bytes", "64MiB"}});
  if (isolated()) GTEST_SKIP() << "clients of isolated namespaces hold no reservations";
  mc_client* client = open();
  ASSERT_EQ(mc_ping(client, 0), MC_OK);
  agent().kill_hard();
  agent().arm("reserve.after_publish@1=kill");
  agent().start();
  mc_reservation* reservation = nullptr;
  std::thread asking([&] {
    EXPECT_EQ(mc_reserve(client, kMiB, 60 * kSecondNs, &reservation), MC_OK) << mc_last_error();
  });
  agent().wait_until_killed();
  agent().arm("");
  agent().start();
  asking.join();
  ASSERT_NE(reservation, nullptr);
  EXPECT_EQ(tenant()["reservations"].asUInt64(), 1u) << "the answer that came";
  write(reservation, content("key", kMiB));
  ASSERT_EQ(mc_commit(reservation, slice("key"), kMiB, nullptr), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(client, "key") == content("key", kMiB));
  EXPECT_EQ(tenant()["reservations"].asUInt64(), 0u);
}

TEST_P(ReservationCounts, AClientsReservationsSurviveARestartThatFreesUnknownOnes) {
  serve({{"pool_bytes", "64MiB"}});
  if (isolated()) GTEST_SKIP() << "clients of isolated namespaces hold no reservations";
  mc_client* client = open();
  mc_reservation* held = reserve(client, kMiB);
  write(held, content("held", kMiB));
  agent().kill_hard();
  agent().arm("completion.before_publish@1=kill");
  agent().start();
  mc_reservation* asked = nullptr;
  std::thread asking([&] {
    EXPECT_EQ(mc_reserve(client, 2 * kMiB, 60 * kSecondNs, &asked), MC_OK) << mc_last_error();
  });
  agent().wait_until_killed();
  agent().arm("");
  agent().start();
  asking.join();
  ASSERT_NE(asked, nullptr);
  EXPECT_EQ(tenant()["reservations"].asUInt64(), 2u);
  EXPECT_EQ(session()["reserved_bytes"].asUInt64(), 3 * kMiB);
  ASSERT_EQ(mc_commit(held, slice("held"), kMiB, nullptr), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(client, "held") == content("held", kMiB));
  mc_abandon(asked);
  until([&] { return tenant()["reservations"].asUInt64() == 0; });
}

TEST_P(ReservationCounts, AnAbandonedReservationIsNotCountedAnyLonger) {
  serve({{"pool_bytes", "64MiB"}});
  mc_client* client = open();
  std::vector<mc_reservation*> all;
  for (int i = 0; i < 5; ++i) all.push_back(reserve(client, 5 * kMiB));
  if (!isolated()) {
    EXPECT_EQ(tenant()["reservations"].asUInt64(), 5u);
  }
  for (mc_reservation* one : all) mc_abandon(one);
  ASSERT_EQ(mc_ping(client, 0), MC_OK);
  EXPECT_EQ(tenant()["reservations"].asUInt64(), 0u);
}

}  // namespace
}  // namespace mc::conformance
