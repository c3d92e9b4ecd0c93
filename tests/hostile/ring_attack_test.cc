// SPDX-License-Identifier: Apache-2.0
//
// Words in a session's shared memory that no honest client writes.
#include <atomic>
#include <iostream>
#include <random>
#include <thread>

#include "attack_test.h"
#include "libmc/base/clock.h"

namespace mc::hostile {

namespace {

using RingAttack = AttackTest;

// Values near all limits that the agent compares a word with.
std::vector<std::uint64_t> edges() {
  std::vector<std::uint64_t> values{0,
                                    1,
                                    ~std::uint64_t{0},
                                    std::uint64_t{1} << 63,
                                    std::uint64_t{1} << 31,
                                    0xffffffff,
                                    0x7fffffff7fffffff};
  for (const std::uint64_t limit :
       {std::uint64_t{shm::kRingSlots}, std::uint64_t{MC_MAX_BATCH_ITEMS},
        std::uint64_t{shm::kArgumentBytes}, std::uint64_t{MC_MAX_OBJECT_BYTES},
        std::uint64_t{shm::kTouchSlots}, std::uint64_t{64} << 20, std::uint64_t{32} << 20,
        std::uint64_t{shm::kLastOp}, std::uint64_t{shm::kKnownFlags}}) {
    for (const std::uint64_t value : {limit - 1, limit, limit + 1}) {
      values.push_back(value);
      values.push_back(value << 32);
      values.push_back(value << 16);
      values.push_back(value << 32 | value);
    }
  }
  return values;
}

// A valid request of each operation, which may succeed or fail.
shm::Request plain_request(HostileSession& session, std::uint16_t op) {
  shm::PutItem item{};
  item.length = 100;
  auto request = session.items(static_cast<shm::Op>(op), {{item, "one"}, {item, "two"}});
  if (op == static_cast<std::uint16_t>(shm::Op::kReserve)) {
    request.argument_bytes = 2 * sizeof(shm::ReservedItem);
    request.a = 4096;
  }
  return request;
}

TEST_F(RingAttack, EveryWordOfARequestAtEveryEdgeIsAnsweredOnce) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open() && session.open_channel());
  std::uint64_t asked = 0;
  for (std::uint16_t op = 0; op <= shm::kLastOp + 1; ++op) {
    for (std::size_t word = 0; word < std::tuple_size_v<shm::RecordWords>; ++word) {
      for (const std::uint64_t value : edges()) {
        shm::RecordWords words = shm::to_words(plain_request(session, op));
        words[word] = value;
        // Does not wait for unavailable resources.
        if (word != 4) words[4] = 0;
        session.publish(words);
        const auto answer = session.answer();
        ASSERT_TRUE(answer.has_value()) << "operation " << op << " word " << word << " = " << value;
        ASSERT_EQ(answer->request_id, words[0]);
        ++asked;
      }
    }
  }
  EXPECT_GT(asked, 4000u);
  EXPECT_GT(agent_.ask("status")["sessions"].size(), 1u);
}

TEST_F(RingAttack, TenMillionRandomWordsHarmOnlyTheirSession) {
  HostileSession session(socket_path(), "default", 2);
  ASSERT_TRUE(session.open() && session.open_channel(0) && session.open_channel(1));
  std::mt19937_64 random(20240607);
  const std::uint64_t total = is_long_run()       ? 200'000'000
                              : kAddressSanitizer ? 2'000'000
                                                  : 10'000'000;
  std::uint64_t words = 0;
  const std::uint64_t begin_ns = now_ns();
  const auto scribble = [&](auto* first, std::size_t count, std::size_t writes) {
    for (std::size_t i = 0; i < writes; ++i) {
      first[random() % count].store_relaxed(
          static_cast<std::decay_t<decltype(first->load_relaxed())>>(random()));
    }
    words += writes;
  };
  while (words < total) {
    // Channel 0: whole records, half of them nearly valid. The test counts the answers.
    constexpr std::uint32_t kBatch = 64;
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      shm::RecordWords record;
      if (random() % 2 == 0) {
        for (std::uint64_t& word : record) word = random();
      } else {
        shm::Request request{};
        request.op = static_cast<std::uint16_t>(random() % (shm::kLastOp + 1));
        request.flags = static_cast<std::uint16_t>(random() % 4);
        request.item_count = static_cast<std::uint32_t>(1 + random() % 4);
        request.argument_offset = static_cast<std::uint32_t>(random() % 4096) * 8;
        request.argument_bytes = 4096;
        request.touch_head = static_cast<std::uint32_t>(random());
        request.a = random() % 65536;
        record = shm::to_words(request);
      }
      session.publish(record);
      words += record.size();
    }
    for (std::uint32_t i = 0; i < kBatch; ++i) ASSERT_TRUE(session.answer().has_value());
    auto* arguments = reinterpret_cast<shm::Word64*>(session.channel(0).arguments);
    scribble(arguments, 8192, 512);
    scribble(session.channel(0).pins, shm::kPinSlots, 64);
    scribble(session.channel(0).touches, shm::kTouchSlots, 256);
    // Channel 1: all words, with stamps and header. No client waits for an answer.
    auto* whole = reinterpret_cast<shm::Word64*>(&session.channel(1));
    scribble(whole, sizeof(shm::ChannelHeader) / 8, 32);
    scribble(whole, sizeof(shm::Channel) / 8, 256);
    shm::RingSlot& slot = session.channel(1).requests[random() % shm::kRingSlots];
    slot.words[0].store_release(shm::ring_stamp(session.welcome().epoch, random() % 4096));
    session.ring();
  }
  const double seconds = static_cast<double>(now_ns() - begin_ns) / 1e9;
  std::cout << words << " words, " << static_cast<double>(words) / seconds / 1e6 << " M/s\n";
  RecordProperty("words", static_cast<int>(words));
}

TEST_F(RingAttack, ArgumentsThatChangeWhileTheyAreReadBecomeOneRequestOrAnError) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open() && session.open_channel());
  const auto granted = session.reserve(4096, 8);
  ASSERT_EQ(granted.size(), 8u);
  std::atomic<bool> stop{false};
  std::thread flipper([&] {
    std::mt19937_64 random(7);
    auto* bytes = session.channel().arguments;
    while (!stop) {
      const std::size_t item = shm::result_bytes(8) + random() % 8 * (sizeof(shm::PutItem) + 8);
      shm::PutItem fields{};
      std::memcpy(&fields, bytes + item, sizeof fields);
      switch (random() % 5) {
        case 0:
          fields.key_bytes = static_cast<std::uint16_t>(random());
          break;
        case 1:
          fields.length = random() % 3 == 0 ? random() : random() % 8192;
          break;
        case 2:
          fields.entry = static_cast<std::uint32_t>(random() % 64);
          break;
        case 3:
          fields.staging_offset = random();
          break;
        default:
          fields.key_bytes = 8;
      }
      std::memcpy(bytes + item, &fields, sizeof fields);
    }
  });
  shm::PutItem item{};
  item.length = 4096;
  item.key_bytes = 8;
  const int rounds = is_long_run() ? 1'000'000 : 20'000;
  for (int i = 0; i < rounds; ++i) {
    std::vector<std::pair<shm::PutItem, std::string>> list;
    for (int k = 0; k < 8; ++k) list.push_back({item, "flip-" + std::to_string(100 + k)});
    const std::uint16_t op = static_cast<std::uint16_t>(2 + i % 5);
    auto request = session.items(static_cast<shm::Op>(op), list);
    request.flags = static_cast<std::uint16_t>(i % 4);
    request.deadline_ns = 0;
    const auto answer = session.ask(request);
    if (::testing::Test::HasFailure()) break;
    ASSERT_LE(answer.item_count, 8u);
  }
  stop = true;
  flipper.join();
}

TEST_F(RingAttack, NotesOfManyFullRingsAreTakenInParts) {
  constexpr std::uint32_t kChannels = 64;
  // The work of a call of Sessions::take_notes(), and the ring that is begun last.
  constexpr std::uint64_t kMostNotesOfATick = 65536 + shm::kTouchSlots;
  HostileSession session(socket_path(), "default", kChannels);
  ASSERT_TRUE(session.open());
  for (std::uint32_t i = 0; i < kChannels; ++i) ASSERT_TRUE(session.open_channel(i));
  const auto granted = session.reserve(4096, 1);
  ASSERT_EQ(granted.size(), 1u);
  shm::PutItem item{};
  item.entry = granted[0].entry;
  item.generation = granted[0].generation;
  item.length = 4096;
  ASSERT_EQ(session.ask(session.items(shm::Op::kPut, {{item, "noted"}})).status, MC_OK);
  for (std::uint32_t i = 0; i < kChannels; ++i) {
    for (shm::Word32& note : session.channel(i).touches) note.store_relaxed(item.entry);
  }
  struct Totals {
    std::uint64_t ticks = 0, notes = 0;
  };
  const auto totals = [&] {
    const Json::Value status = agent_.ask("status");
    Totals now{.notes = status["namespaces"][0]["touches"].asUInt64()};
    for (const Json::Value& count : status["loop"]["tick"]["busy"]["counts"]) {
      now.ticks += count.asUInt64();
    }
    return now;
  };
  const Totals before = totals();
  Totals after = before;
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (after.ticks < before.ticks + 20 && now_ns() < deadline_ns) {
    for (std::uint32_t i = 0; i < kChannels; ++i) {
      shm::Word32& head = session.channel(i).header.touch_head;
      head.store_release(head.load_relaxed() + shm::kTouchSlots);
    }
    after = totals();
  }
  const std::uint64_t ticks = after.ticks - before.ticks, notes = after.notes - before.notes;
  EXPECT_GE(ticks, 20u);
  EXPECT_GT(notes, shm::kTouchSlots);
  EXPECT_LE(notes, (ticks + 1) * kMostNotesOfATick);
}

TEST_F(RingAttack, RequestsWithoutEndAreTurnedAway) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open() && session.open_channel());
  // Requests more than the pool in pieces: the agent grants nothing beyond the quota. Deadlines
  // exceed every limit.
  shm::Request request{};
  request.op = static_cast<std::uint16_t>(shm::Op::kReserve);
  request.item_count = 1;
  request.argument_bytes = sizeof(shm::ReservedItem);
  request.deadline_ns = ~std::uint64_t{0};
  request.a = 1;
  const std::uint64_t before_kib = agent_.memory_kib("RssAnon");
  for (int i = 0; i < 50'000; ++i) {
    request.request_id = static_cast<std::uint64_t>(i);
    session.publish(shm::to_words(request));
    // A hostile client may overrun the ring, so the test does not wait for the agent.
    if (i % 128 == 127) agent_.ask("segments");
  }
  EXPECT_LT(agent_.memory_kib("RssAnon"), before_kib + (kAddressSanitizer ? 200'000 : 50'000));
  const Json::Value status = agent_.ask("status");
  for (const Json::Value& one : status["sessions"]) {
    EXPECT_LE(one["reserved_bytes"].asUInt64(), 32u << 20);
    EXPECT_LE(one["reservations"].asUInt64() * 256, 32u << 20);
  }
}

TEST_F(RingAttack, ABeaconScribbledOnEndsNothing) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open() && session.open_channel());
  auto& word = *reinterpret_cast<shm::Word32*>(session.header().beacon);
  std::mt19937 random(3);
  for (int i = 0; i < 200'000; ++i) word.store_release(static_cast<std::uint32_t>(random()));
  for (std::size_t i = 0; i < shm::kBeaconBytes; ++i) {
    session.header().beacon[i] = static_cast<unsigned char>(random());
  }
  EXPECT_TRUE(honest_->works_on(20)) << honest_->trouble();
  EXPECT_EQ(session_count(), 2u);
}

TEST_F(RingAttack, ASessionHeaderScribbledOnStillEndsWithEverythingBack) {
  {
    HostileSession session(socket_path(), "default", 4);
    ASSERT_TRUE(session.open() && session.open_channel());
    EXPECT_FALSE(session.reserve(65536, 16).empty());
    std::memset(static_cast<void*>(&session.header()), 0xff, sizeof(shm::SessionHeader));
    EXPECT_TRUE(session.open_channel(3));
  }
  EXPECT_EQ(session_count(), 1u);
}

}  // namespace

}  // namespace mc::hostile
