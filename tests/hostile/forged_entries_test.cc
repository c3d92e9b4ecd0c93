// SPDX-License-Identifier: Apache-2.0
//
// Well-formed requests that name entries of other sessions.
#include <random>

#include "attack_test.h"
#include "libmc/base/clock.h"
#include "shm/index_reader.h"
#include "shm/pins.h"

namespace mc::hostile {

namespace {

using ForgedEntries = AttackTest;

std::pair<shm::PutItem, std::string> item_of(std::uint32_t entry, const std::string& key,
                                             std::uint64_t length = 64) {
  shm::PutItem item{};
  item.entry = entry;
  item.length = length;
  return {item, key};
}
std::pair<shm::PutItem, std::string> item_of(const shm::ReservedItem& reserved,
                                             const std::string& key, std::uint64_t length = 64) {
  auto made = item_of(reserved.entry, key, length);
  made.first.generation = reserved.generation;
  return made;
}

TEST_F(ForgedEntries, ReservationsOfOthersCanNeitherBeCommittedNorAbandoned) {
  HostileSession owner(socket_path());
  HostileSession thief(socket_path());
  ASSERT_TRUE(owner.open_channel() && thief.open_channel());
  const auto granted = owner.reserve(4096, 4);
  ASSERT_EQ(granted.size(), 4u);
  for (const auto& reserved : granted) {
    auto put = thief.ask(thief.items(shm::Op::kPut, {item_of(reserved, "stolen")}));
    EXPECT_EQ(put.status, MC_INVALID_ARGUMENT);
    auto abandon = thief.ask(thief.items(shm::Op::kAbandon, {item_of(reserved, "")}));
    EXPECT_EQ(abandon.status, MC_INVALID_ARGUMENT);
    shm::Request group =
        thief.items(shm::Op::kPut, {item_of(reserved, "stolen-1"), item_of(reserved, "stolen-2")});
    group.flags = shm::kFlagGroup;
    EXPECT_NE(thief.ask(group).status, MC_OK);
  }
  for (const auto& reserved : granted) {
    auto put = owner.ask(
        owner.items(shm::Op::kPut, {item_of(reserved, "mine-" + std::to_string(reserved.entry))}));
    EXPECT_EQ(put.status, MC_OK);
  }
}

TEST_F(ForgedEntries, EntriesThatAreFreeLiveOrOutOfRangeAreRefused) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  std::vector<std::uint32_t> entries{0xffffffff, 0xfffffffe, 0x7fffffff, 0x80000000};
  for (std::uint32_t entry = 0; entry < 3000; ++entry) entries.push_back(entry);
  for (const std::uint32_t entry : entries) {
    for (const shm::Op op : {shm::Op::kPut, shm::Op::kAbandon}) {
      const auto answer = session.ask(session.items(op, {item_of(entry, "forged")}));
      ASSERT_EQ(answer.status, MC_INVALID_ARGUMENT) << entry;
    }
  }
}

TEST_F(ForgedEntries, AReservationIsKnownByItsGeneration) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  const auto abandon = [&](const shm::ReservedItem& reserved) {
    return session.ask(session.items(shm::Op::kAbandon, {item_of(reserved, "")})).status;
  };
  std::vector<shm::ReservedItem> first, second;
  // Another client may take the entry in between.
  for (int tries = 0; tries < 100; ++tries) {
    first = session.reserve(4096, 1);
    ASSERT_EQ(first.size(), 1u);
    ASSERT_EQ(abandon(first[0]), MC_OK);
    second = session.reserve(4096, 1);
    ASSERT_EQ(second.size(), 1u);
    if (second[0].entry == first[0].entry) break;
    ASSERT_EQ(abandon(second[0]), MC_OK);
  }
  ASSERT_EQ(second[0].entry, first[0].entry) << "the test needs the entry to be granted again";
  for (const bool group : {false, true}) {
    for (const shm::Op op : {shm::Op::kPut, shm::Op::kAbandon}) {
      shm::Request request = session.items(op, {item_of(first[0], "late")});
      request.flags = group ? shm::kFlagGroup : 0;
      EXPECT_NE(session.ask(request).status, MC_OK);
    }
  }
  EXPECT_EQ(session.ask(session.items(shm::Op::kPut, {item_of(second[0], "own")})).status, MC_OK);
}

TEST_F(ForgedEntries, AGroupOfKeysThatExistMayNameAnyEntry) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  const auto granted = session.reserve(4096, 1);
  ASSERT_EQ(granted.size(), 1u);
  ASSERT_EQ(session.ask(session.items(shm::Op::kPut, {item_of(granted[0], "there")})).status,
            MC_OK);
  for (const std::uint32_t entry : {0xffffffffu, 0xfffffff0u, 0x7fffffffu, granted[0].entry}) {
    shm::Request group = session.items(shm::Op::kPut, {item_of(entry, "there")});
    group.flags = shm::kFlagGroup;
    EXPECT_EQ(session.ask(group).status, MC_OK) << "a put of a key that exists changes nothing";
  }
  EXPECT_TRUE(honest_->works_on(20)) << honest_->trouble();
}

TEST_F(ForgedEntries, TheSameReservationTwiceInAGroupIsUsedOnceOrNotAtAll) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  for (int round = 0; round < 100; ++round) {
    const auto granted = session.reserve(4096, 2);
    ASSERT_EQ(granted.size(), 2u);
    shm::Request request =
        session.items(shm::Op::kPut, {item_of(granted[0], "a" + std::to_string(round)),
                                      item_of(granted[0], "b" + std::to_string(round)),
                                      item_of(granted[1], "c" + std::to_string(round))});
    request.flags = round % 2 == 0 ? shm::kFlagGroup : 0;
    EXPECT_NE(session.ask(request).status, MC_OK);
  }
}

TEST_F(ForgedEntries, LengthsBeyondTheReservationAreRefused) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{4097}, ~std::uint64_t{0},
                                     std::uint64_t{1} << 63, std::uint64_t{MC_MAX_OBJECT_BYTES}}) {
    const auto granted = session.reserve(4096, 1);
    ASSERT_EQ(granted.size(), 1u);
    const auto answer =
        session.ask(session.items(shm::Op::kPut, {item_of(granted[0], "long", length)}));
    EXPECT_EQ(answer.status, MC_INVALID_ARGUMENT) << length;
  }
}

TEST_F(ForgedEntries, StagingBeyondItsEndIsRefused) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  // First without staging memory, then with staging memory.
  for (const std::uint64_t staging : {std::uint64_t{0}, std::uint64_t{65536}}) {
    ASSERT_TRUE(staging == 0 || session.open_staging(staging));
    for (const std::uint64_t offset :
         {std::uint64_t{0}, staging - 1, staging, staging + 1, ~std::uint64_t{0},
          ~std::uint64_t{0} - 63, std::uint64_t{1} << 63}) {
      for (const std::uint64_t length :
           {std::uint64_t{0}, std::uint64_t{1}, staging, staging + 1, ~std::uint64_t{0}}) {
        auto item = item_of(0, "staged", length);
        item.first.staging_offset = offset;
        shm::Request request = session.items(shm::Op::kPutStaged, {item});
        request.deadline_ns = now_ns() + kWatchdogNs;  // a copy behind its deadline is refused
        const auto answer = session.ask(request);
        const bool inside =
            length > 0 && length <= staging && offset <= staging && length <= staging - offset;
        EXPECT_EQ(answer.status, inside ? MC_OK : MC_INVALID_ARGUMENT) << offset << " " << length;
      }
    }
  }
}

TEST_F(ForgedEntries, HugeCountsAreRefusedBeforeAnythingIsAllocated) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  for (const std::uint32_t count : {0u, 1025u, 0x7fffffffu, 0xffffffffu, 0x10000001u}) {
    for (std::uint16_t op = 1; op <= shm::kLastOp; ++op) {
      if (!shm::has_items(static_cast<shm::Op>(op))) continue;
      shm::Request request{};
      request.op = op;
      request.item_count = count;
      request.argument_bytes = shm::kArgumentBytes;
      request.a = 256;
      EXPECT_EQ(session.ask(request).status, MC_INVALID_ARGUMENT);
    }
  }
}

TEST_F(ForgedEntries, ReportsOfDamageRemoveNoWholeObject) {
  constexpr unsigned kObjects = 100;
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  const std::string path = socket_path();
  options.agent = path.c_str();
  mc_client* client = nullptr;
  ASSERT_EQ(mc_open(&options, &client), MC_OK) << mc_last_error();
  const auto key_of = [](unsigned number) { return "whole/" + std::to_string(number); };
  std::vector<std::uint64_t> entries{0xffffffff, ~std::uint64_t{0}};
  for (unsigned i = 0; i < kObjects; ++i) {
    const std::string key = key_of(i);
    const mc_slice name{key.data(), key.size()};
    ASSERT_EQ(mc_put(client, name, name, nullptr), MC_OK) << mc_last_error();
    mc_view view{};
    ASSERT_EQ(mc_get_view(client, name, &view), MC_OK);
    entries.push_back(view.entry);
    mc_view_release(&view);
  }
  const auto count = [&](const char* name) {
    return agent_.ask("status")["namespaces"][0][name].asUInt64();
  };
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  const std::uint64_t verified = count("verified");
  for (const std::uint64_t entry : entries) {
    shm::Request request{};
    request.op = static_cast<std::uint16_t>(shm::Op::kCheck);
    request.a = entry;
    ASSERT_EQ(session.ask(request).status, MC_OK);
  }
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (count("verified") < verified + kObjects) ASSERT_LT(now_ns(), deadline_ns);
  EXPECT_EQ(count("reported"), entries.size());
  EXPECT_EQ(count("corrupt"), 0u);
  for (unsigned i = 0; i < kObjects; ++i) {
    const std::string key = key_of(i);
    EXPECT_EQ(mc_exists(client, {key.data(), key.size()}), MC_OK) << key;
  }
  mc_close(client);
}

TEST_F(ForgedEntries, ThousandReservationsOfOneByteCountAsWhatTheyHold) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  std::uint64_t granted = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto some = session.reserve(1, 1024);
    granted += some.size();
    if (some.empty()) break;
  }
  EXPECT_LE(granted * 256, 32u << 20);
  EXPECT_TRUE(honest_->works_on(20)) << honest_->trouble();
}

TEST_F(ForgedEntries, PinsOfEverythingHoldABoundedNumberOfObjects) {
  HostileSession session(socket_path(), "default", 4);
  for (std::uint32_t number = 0; number < 4; ++number) ASSERT_TRUE(session.open_channel(number));
  const Mapping index = session.map_index();
  const auto reader = shm::IndexReader::open(index.data(), index.size_bytes());
  ASSERT_TRUE(reader.has_value());
  std::mt19937_64 random(11);
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t count = reader->header().entry_count.load_acquire();
    for (std::uint32_t number = 0; number < 4; ++number) {
      for (shm::Word64& slot : session.channel(number).pins) {
        const auto entry = static_cast<std::uint32_t>(random() % (count + 1));
        const bool real = random() % 2 == 0 && entry < count;
        slot.store_relaxed(real ? shm::pin_value(entry, reader->entry(entry).version.load_acquire())
                                : random());
      }
    }
    ASSERT_TRUE(honest_->works_on(20)) << honest_->trouble();
    const Json::Value space = agent_.ask("status")["namespaces"][0];
    EXPECT_LE(space["limbo"].asUInt64(), 4u * shm::kPinSlots + 4096);
  }
}

TEST_F(ForgedEntries, ParentsThatFormACircleDoNotHoldTheAgentUp) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  std::mt19937_64 random(5);
  std::vector<std::uint64_t> hashes;
  const Mapping index = session.map_index();
  const auto reader = shm::IndexReader::open(index.data(), index.size_bytes());
  ASSERT_TRUE(reader.has_value());
  for (int i = 0; i < 20'000; ++i) {
    const auto granted = session.reserve(256, 1);
    if (granted.empty()) break;
    auto item = item_of(granted[0], "circle-" + std::to_string(i % 97), 200);
    item.first.parent_hash = hashes.empty() ? 0 : hashes[random() % hashes.size()];
    item.first.pin = static_cast<std::uint8_t>(i % 2);
    shm::Request request = session.items(shm::Op::kPut, {item});
    request.flags = shm::kFlagUpsert;
    ASSERT_EQ(session.ask(request).status, MC_OK);
    hashes.push_back(reader->entry(granted[0].entry).hash.load_relaxed());
  }
}

}  // namespace

}  // namespace mc::hostile
