// SPDX-License-Identifier: Apache-2.0
//
// Puts and gets: sizes, existing keys, upserts, buffers, ranges, pieces.
#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

using PutGet = ClientTest;
MC_EVERYWHERE(PutGet);

constexpr std::size_t kSizes[] = {1,     2,     7,       63,           64,       65,   255,
                                  256,   257,   511,     513,          4095,     4096, 4097,
                                  12345, 65535, 1000003, 8 * kMiB + 1, 64 * kMiB};

TEST_P(PutGet, EverySizeComesBackAsItWas) {
  serve({{"pool_bytes", "256MiB"}});
  mc_client* client = open();
  for (const std::size_t size : kSizes) {
    const std::string key = "size." + std::to_string(size);
    const std::string value = content(key, size);
    EXPECT_EQ(exists(client, key), MC_NOT_FOUND);
    ASSERT_EQ(put(client, key, value), MC_OK) << size << ": " << mc_last_error();
    EXPECT_EQ(exists(client, key), MC_OK);
    const mc_stat_info info = stat(client, key);
    EXPECT_EQ(info.length, size);
    EXPECT_GE(info.extent_count, 1u);
    EXPECT_EQ(info.pin, MC_PIN_NONE);
    EXPECT_EQ(info.group, 0u);
    EXPECT_EQ(info.parent_hash, 0u);
    EXPECT_TRUE(get(client, key) == value) << size;
  }
  for (const std::size_t size : kSizes) {
    const std::string key = "size." + std::to_string(size);
    EXPECT_TRUE(get(client, key) == content(key, size)) << size << " after the others";
    EXPECT_EQ(remove(client, key), MC_OK);
    EXPECT_EQ(exists(client, key), MC_NOT_FOUND);
    EXPECT_EQ(remove(client, key), MC_NOT_FOUND);
    EXPECT_FALSE(get(client, key));
    mc_stat_info info{};
    info.struct_size = sizeof info;
    EXPECT_TRUE(says(MC_NOT_FOUND, mc_stat(client, slice(key), &info)));
  }
}

TEST_P(PutGet, KeysAreBytesOfAnyValueAndLength) {
  serve();
  mc_client* client = open();
  std::vector<std::string> keys{std::string(1, '\0'),
                                std::string(2, '\0'),
                                "a",
                                "ab",
                                "\xff\xfe",
                                std::string(1023, 'k'),
                                std::string(1024, 'k'),
                                std::string("a\0b", 3),
                                std::string("a\0c", 3)};
  // Sizes around the comparison's word sizes, and the longest key that is stored beside its entry.
  constexpr std::size_t kKeySizes[] = {7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
  for (const std::size_t size : kKeySizes) {
    keys.push_back(std::string(size - 1, 's') + 'a');
    keys.push_back(std::string(size - 1, 's') + 'b');
    keys.push_back('t' + std::string(size - 1, 's'));
  }
  for (const std::string& key : keys) ASSERT_EQ(put(client, key, "value of " + key), MC_OK);
  for (const std::string& key : keys) EXPECT_EQ(get(client, key), "value of " + key);
}

TEST_P(PutGet, AnExistingKeyIsASuccessAndChangesNothing) {
  serve();
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", "first"), MC_OK);
  const mc_stat_info before = stat(client, "key");
  mc_put_options options = put_options(MC_PIN_HARD);
  options.parent = slice("somebody");
  EXPECT_EQ(put(client, "key", "something longer", &options), MC_OK);
  const mc_stat_info after = stat(client, "key");
  EXPECT_EQ(get(client, "key"), "first");
  EXPECT_EQ(after.version, before.version);
  EXPECT_EQ(after.checksum, before.checksum);
  EXPECT_EQ(after.pin, MC_PIN_NONE);
  EXPECT_EQ(after.parent_hash, 0u);
}

TEST_P(PutGet, AnUpsertReplacesUnderANewVersionWhileAViewReadsTheOldBytes) {
  serve();
  mc_client* client = open();
  const std::string old_bytes = content("old", 100000);
  ASSERT_EQ(put(client, "key", old_bytes), MC_OK);
  mc_view view{};
  ASSERT_EQ(mc_get_view(client, slice("key"), &view), MC_OK);
  mc_put_options options = put_options();
  options.upsert = 1;
  std::uint64_t version = view.version;
  for (int round = 0; round < 200; ++round) {
    const std::string bytes = content("round" + std::to_string(round), 100000);
    ASSERT_EQ(put(client, "key", bytes, &options), MC_OK) << mc_last_error();
    const mc_stat_info info = stat(client, "key");
    EXPECT_GT(info.version, version);
    version = info.version;
    ASSERT_TRUE(get(client, "key") == bytes);
  }
  EXPECT_TRUE(bytes_of(view) == old_bytes);
  EXPECT_EQ(mc_view_verify(&view, slice("key")), MC_OK);
  mc_view_release(&view);
}

TEST_P(PutGet, AnUpsertOfANewKeyIsAPut) {
  serve();
  mc_client* client = open();
  mc_put_options options = put_options();
  options.upsert = 1;
  ASSERT_EQ(put(client, "key", "value", &options), MC_OK);
  EXPECT_EQ(get(client, "key"), "value");
}

TEST_P(PutGet, ARemovedKeyCanBePutAgain) {
  serve();
  mc_client* client = open();
  for (int round = 0; round < 100; ++round) {
    const std::string value = "value " + std::to_string(round);
    ASSERT_EQ(put(client, "key", value), MC_OK);
    ASSERT_EQ(get(client, "key"), value);
    ASSERT_EQ(remove(client, "key"), MC_OK);
  }
}

TEST_P(PutGet, ABufferThatIsTooSmallTellsTheLengthAndIsNotTouched) {
  serve();
  mc_client* client = open();
  const std::string value = content("key", 1000);
  ASSERT_EQ(put(client, "key", value), MC_OK);
  for (const std::size_t capacity : {0u, 1u, 999u}) {
    std::string buffer(1000, '!');
    std::size_t length = 7;
    EXPECT_TRUE(
        says(MC_BUFFER_TOO_SMALL, mc_get(client, slice("key"), buffer.data(), capacity, &length)));
    EXPECT_EQ(length, 1000u);
    EXPECT_EQ(buffer, std::string(1000, '!'));
  }
  for (const std::size_t capacity : {1000u, 1001u}) {
    std::string buffer(1001, '!');
    std::size_t length = 0;
    EXPECT_EQ(mc_get(client, slice("key"), buffer.data(), capacity, &length), MC_OK);
    EXPECT_EQ(length, 1000u);
    EXPECT_EQ(buffer, value + "!");
  }
  std::string buffer(1000, '!');
  EXPECT_EQ(mc_get(client, slice("key"), buffer.data(), buffer.size(), nullptr), MC_OK);
}

mc_status get_range(mc_client* client, std::string_view key, std::uint64_t offset,
                    std::uint64_t& length, std::string& into) {
  const mc_span piece{into.data(), into.size()};
  mc_get_item item{slice(key), &piece, 1, offset, length, MC_OK};
  const mc_status status = mc_get_batch(client, &item, 1);
  EXPECT_EQ(item.status, status);
  length = item.length;
  return status;
}

TEST_P(PutGet, RangesGiveExactlyTheirBytes) {
  serve();
  mc_client* client = open();
  const std::string value = content("key", 10000);
  ASSERT_EQ(put(client, "key", value), MC_OK);
  const std::pair<std::size_t, std::size_t> ranges[] = {
      {0, 1},   {0, 0},     {0, 10000},   {1, 9999}, {1, 0},
      {255, 2}, {256, 256}, {4097, 5000}, {9999, 1}, {9999, 0}};
  for (const auto& [offset, asked] : ranges) {
    const std::size_t want = asked == 0 ? value.size() - offset : asked;
    std::string into(want, '!');
    std::uint64_t length = asked;
    EXPECT_EQ(get_range(client, "key", offset, length, into), MC_OK) << offset << "+" << asked;
    EXPECT_EQ(length, want);
    EXPECT_TRUE(into == value.substr(offset, want)) << offset << "+" << asked;
  }
}

TEST_P(PutGet, ARangeBeyondTheEndIsAnInvalidArgument) {
  serve();
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", content("key", 1000)), MC_OK);
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const std::pair<std::uint64_t, std::uint64_t> ranges[] = {{1000, 0},  {1000, 1},      {999, 2},
                                                            {0, 1001},  {5000, 1},      {kHuge, 1},
                                                            {1, kHuge}, {kHuge, kHuge}, {kHuge, 0}};
  for (const auto& [offset, asked] : ranges) {
    std::string into(2000, '!');
    std::uint64_t length = asked;
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, get_range(client, "key", offset, length, into)))
        << offset << "+" << asked;
    EXPECT_EQ(into, std::string(2000, '!'));
  }
  std::string into(9, '!');
  std::uint64_t length = 10;
  EXPECT_TRUE(says(MC_BUFFER_TOO_SMALL, get_range(client, "key", 100, length, into)));
  EXPECT_EQ(length, 1000u) << "the object's length";
}

TEST_P(PutGet, ValuesAreGatheredFromAndScatteredToPiecesOfAnySize) {
  serve();
  mc_client* client = open();
  const std::vector<std::vector<std::size_t>> cuts{{1},    {1, 0, 2},          {255, 1, 257},
                                                   {4096}, {4095, 3, 0, 0, 7}, {100000}};
  for (std::size_t in = 0; in < cuts.size(); ++in) {
    const std::string key = "key" + std::to_string(in);
    const std::size_t size = cuts[in].front() == 1 ? 1000 : 54321;
    const std::string value = content(key, size);
    const std::vector<mc_slice> pieces = cut(value, cuts[in]);
    ASSERT_LE(pieces.size(), MC_MAX_PIECES);
    mc_put_item item{slice(key), pieces.data(), pieces.size(), {nullptr, 0}, MC_INTERNAL};
    ASSERT_EQ(mc_put_batch(client, &item, 1, nullptr), MC_OK) << mc_last_error();
    EXPECT_EQ(item.status, MC_OK);
    EXPECT_TRUE(get(client, key) == value);
    for (const auto& out : cuts) {
      std::string into(size, '!');
      std::vector<mc_span> spans;
      for (const mc_slice& piece : cut(into, out)) {
        spans.push_back({const_cast<void*>(piece.data), piece.size});
      }
      if (spans.size() > MC_MAX_PIECES) continue;
      mc_get_item wanted{slice(key), spans.data(), spans.size(), 0, 0, MC_INTERNAL};
      EXPECT_EQ(mc_get_batch(client, &wanted, 1), MC_OK);
      EXPECT_EQ(wanted.length, size);
      EXPECT_TRUE(into == value);
    }
  }
}

TEST_P(PutGet, APutMayHave1024PiecesAndNotOneMore) {
  serve();
  mc_client* client = open();
  const std::string value = content("key", MC_MAX_PIECES + 1);
  const std::vector<mc_slice> pieces = cut(value, {1});
  mc_put_item item{slice("key"), pieces.data(), MC_MAX_PIECES + 1, {nullptr, 0}, MC_OK};
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_put_batch(client, &item, 1, nullptr)));
  EXPECT_EQ(item.status, MC_INVALID_ARGUMENT);
  EXPECT_EQ(exists(client, "key"), MC_NOT_FOUND);
  item.piece_count = MC_MAX_PIECES;
  EXPECT_EQ(mc_put_batch(client, &item, 1, nullptr), MC_OK);
  EXPECT_TRUE(get(client, "key") == value.substr(0, MC_MAX_PIECES));
}

TEST_P(PutGet, ManyKeysAreAllFoundAgain) {
  serve({{"pool_bytes", "128MiB"}});
  mc_client* client = open();
  constexpr std::size_t kKeys = 20000;
  const auto name = [](std::size_t i) { return "many." + std::to_string(i * 2654435761u); };
  for (std::size_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(put(client, name(i), content(name(i), 1 + i % 700)), MC_OK);
  }
  for (std::size_t i = 0; i < kKeys; ++i) {
    ASSERT_TRUE(get(client, name(i)) == content(name(i), 1 + i % 700)) << i;
  }
}

}  // namespace
}  // namespace mc::conformance
