// SPDX-License-Identifier: Apache-2.0
//
// The messages between client and agent of control version 5, byte by byte. An agent and a libmc of
// two builds exchange these bytes. If one of these tests fails, see golden_layout_test.cc.
#include <gtest/gtest.h>

#include <cstring>

#include "shm/messages.h"
#include "shm/ring.h"
#include "unit/golden_file.h"

namespace mc::shm {
namespace {

static_assert(kControlVersion == 5, "a new version: add its golden file and its tests");

golden::Bytes golden_message(const std::string& name) {
  const golden::Sections sections = golden::read("messages-v5.txt");
  const auto found = sections.find(name);
  return found != sections.end() ? found->second : golden::Bytes{};
}

void expect_golden(const std::string& name, const golden::Bytes& made) {
  const golden::Bytes wanted = golden_message(name);
  EXPECT_EQ(wanted.size(), made.size());
  EXPECT_EQ(golden::to_text(wanted), golden::to_text(made)) << "made today:\n"
                                                            << golden::section_text(name, made);
}

RecordWords words_of(const golden::Bytes& bytes) {
  RecordWords words{};
  EXPECT_EQ(bytes.size(), sizeof words);
  std::memcpy(words.data(), bytes.data(), std::min(bytes.size(), sizeof words));
  return words;
}

ControlHeader header_of(ControlType type) {
  ControlHeader header;
  header.type = static_cast<std::uint32_t>(type);
  header.value = 0x0102030405060708;
  header.status = MC_BUSY;
  return header;
}

Request request() {
  Request request{};
  request.request_id = 0x1112131415161718;
  request.op = static_cast<std::uint16_t>(Op::kPut);
  request.flags = kFlagUpsert | kFlagGroup;
  request.item_count = 2;
  request.argument_offset = 0x2120;
  request.argument_bytes = 0x3132;
  request.touch_head = 0x4142;
  request.deadline_ns = 0x5152535455565758;
  request.a = 0x6162636465666768;
  request.b = 0x7172737475767778;
  return request;
}

TEST(GoldenMessages, ClientHello) {
  ClientHello hello;
  hello.header = header_of(ControlType::kHello);
  hello.channel_count = 16;
  hello.resume_session = 0x1112131415161718;
  hello.resume_secret = 0x2122232425262728;
  std::strcpy(hello.name_space, "default");
  std::strcpy(hello.label, "engine");
  expect_golden("hello", golden::bytes_of(hello));
  const golden::Bytes bytes = golden_message("hello");
  const auto decoded = decode_control<ClientHello>(bytes, ControlType::kHello);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->header.value, 0x0102030405060708u);
  EXPECT_EQ(decoded->header.status, MC_BUSY);
  EXPECT_EQ(decoded->layout_version, 2u);
  EXPECT_EQ(decoded->channel_count, 16u);
  EXPECT_EQ(decoded->resume_session, 0x1112131415161718u);
  EXPECT_EQ(decoded->resume_secret, 0x2122232425262728u);
  EXPECT_STREQ(decoded->name_space, "default");
  EXPECT_STREQ(decoded->label, "engine");
  EXPECT_EQ(golden::bytes_of(*decoded), bytes);
  EXPECT_FALSE(decode_control<ClientHello>(bytes, ControlType::kWelcome));
}

TEST(GoldenMessages, Welcome) {
  Welcome welcome;
  welcome.header = header_of(ControlType::kWelcome);
  welcome.session_id = 0x11;
  welcome.session_secret = 0x2122232425262728;
  welcome.node_id = 0x33;
  welcome.incarnation = 0x44;
  welcome.index_part_bytes[0] = 0x55;
  welcome.index_part_bytes[kMaxIndexParts - 1] = 0x56;
  welcome.index_parts = 8;
  welcome.pool_parts = 3;
  welcome.pool_max_bytes = 0x66;
  welcome.session_bytes = 0x77;
  welcome.reservation_cache_bytes = 0x88;
  welcome.epoch = 9;
  welcome.channel_count = 10;
  welcome.isolated = 1;
  welcome.resumed = 1;
  welcome.clustered = 1;
  expect_golden("welcome", golden::bytes_of(welcome));
  const golden::Bytes bytes = golden_message("welcome");
  const auto decoded = decode_control<Welcome>(bytes, ControlType::kWelcome);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->session_id, 0x11u);
  EXPECT_EQ(decoded->session_secret, 0x2122232425262728u);
  EXPECT_EQ(decoded->reservation_cache_bytes, 0x88u);
  EXPECT_EQ(decoded->epoch, 9u);
  EXPECT_EQ(decoded->channel_count, 10u);
  EXPECT_EQ(decoded->isolated, 1u);
  EXPECT_EQ(decoded->resumed, 1u);
  EXPECT_EQ(decoded->clustered, 1u);
  EXPECT_EQ(golden::bytes_of(*decoded), bytes);
}

TEST(GoldenMessages, ControlHeadersOfEachTypeWithText) {
  constexpr std::string_view kText = "{\"verb\":\"status\"}";
  for (const auto& [name, type] : {std::pair{"open_channel", ControlType::kOpenChannel},
                                   {"open_staging", ControlType::kOpenStaging},
                                   {"answer", ControlType::kAnswer},
                                   {"admin", ControlType::kAdmin},
                                   {"admin_answer", ControlType::kAdminAnswer},
                                   {"goodbye", ControlType::kGoodbye}}) {
    ControlHeader header = header_of(type);
    const bool has_text = type == ControlType::kAdmin;
    header.text_bytes = has_text ? static_cast<std::uint32_t>(kText.size()) : 0;
    golden::Bytes made = golden::bytes_of(header);
    const auto text = std::as_bytes(std::span(kText));
    if (has_text) made.insert(made.end(), text.begin(), text.end());
    expect_golden(name, made);
    std::string_view seen;
    const golden::Bytes bytes = golden_message(name);
    const auto decoded = decode_control<ControlHeader>(bytes, type, &seen);
    EXPECT_TRUE(decoded) << name;
    if (!decoded) continue;
    EXPECT_EQ(decoded->value, 0x0102030405060708u);
    EXPECT_EQ(seen, has_text ? kText : "");
    EXPECT_EQ(golden::bytes_of(*decoded), golden::Bytes(bytes.begin(), bytes.begin() + 32));
  }
}

TEST(GoldenMessages, ARequestAndTheRingSlotItTravelsIn) {
  expect_golden("request", golden::bytes_of(to_words(request())));
  const RecordWords words = words_of(golden_message("request"));
  const auto decoded = decode_request(words);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->request_id, 0x1112131415161718u);
  EXPECT_EQ(decoded->op, 2u);
  EXPECT_EQ(decoded->flags, 3u);
  EXPECT_EQ(decoded->item_count, 2u);
  EXPECT_EQ(decoded->argument_offset, 0x2120u);
  EXPECT_EQ(decoded->argument_bytes, 0x3132u);
  EXPECT_EQ(decoded->touch_head, 0x4142u);
  EXPECT_EQ(decoded->deadline_ns, 0x5152535455565758u);
  EXPECT_EQ(decoded->a, 0x6162636465666768u);
  EXPECT_EQ(decoded->b, 0x7172737475767778u);
  EXPECT_EQ(to_words(*decoded), words);

  RingSlot slots[kRingSlots];
  RingProducer(slots, 3).publish(words);
  golden::Bytes slot(sizeof(RingSlot));
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint64_t word = slots[0].words[i].load_relaxed();
    std::memcpy(slot.data() + i * 8, &word, sizeof word);
  }
  expect_golden("ring_slot", slot);
}

TEST(GoldenMessages, Completion) {
  Completion completion{};
  completion.request_id = 0x1112131415161718;
  completion.status = MC_NO_SPACE;
  completion.item_count = 2;
  completion.first = {MC_NOT_FOUND, 0x31323334, 0x4142434445464748, 0x5152535455565758};
  expect_golden("completion", golden::bytes_of(to_words(completion)));
  const RecordWords words = words_of(golden_message("completion"));
  const auto decoded = decode_completion(words);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->request_id, 0x1112131415161718u);
  EXPECT_EQ(decoded->status, MC_NO_SPACE);
  EXPECT_EQ(decoded->item_count, 2u);
  EXPECT_EQ(decoded->first.status, MC_NOT_FOUND);
  EXPECT_EQ(decoded->first.refill_entry, 0x31323334u);
  EXPECT_EQ(decoded->first.refill_offset, 0x4142434445464748u);
  EXPECT_EQ(decoded->first.refill_generation, 0x5152535455565758u);
  EXPECT_EQ(to_words(*decoded), words);
}

TEST(GoldenMessages, PutItemsWithTheirKeys) {
  PutItem item{};
  item.entry = 0x11121314;
  item.key_bytes = 10;
  item.pin = MC_PIN_HARD;
  item.want_refill = 1;
  item.length = 0x2122232425262728;
  item.checksum = 0x3132333435363738;
  item.parent_hash = 0x4142434445464748;
  item.generation = 0x5152535455565758;
  item.pin_ttl_s = 0x61626364;
  golden::Bytes made = golden::bytes_of(item);
  made.resize(sizeof item + padded_key_bytes(10));
  std::memcpy(made.data() + sizeof item, "golden/key", 10);
  expect_golden("put_item", made);

  alignas(8) unsigned char arena[128] = {};
  const golden::Bytes bytes = golden_message("put_item");
  ASSERT_EQ(bytes.size(), 64u);
  std::memcpy(arena, bytes.data(), bytes.size());
  Request holder{};
  holder.item_count = 1;
  holder.argument_bytes = 64;
  ArgumentReader reader(arena, holder);
  ArgumentReader::Item decoded;
  ASSERT_TRUE(reader.next(decoded));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(decoded.key), decoded.fields.key_bytes),
            "golden/key");
  EXPECT_EQ(decoded.fields.entry, 0x11121314u);
  EXPECT_EQ(decoded.fields.pin, MC_PIN_HARD);
  EXPECT_EQ(decoded.fields.want_refill, 1u);
  EXPECT_EQ(decoded.fields.length, 0x2122232425262728u);
  EXPECT_EQ(decoded.fields.checksum, 0x3132333435363738u);
  EXPECT_EQ(decoded.fields.parent_hash, 0x4142434445464748u);
  EXPECT_EQ(decoded.fields.generation, 0x5152535455565758u);
  EXPECT_EQ(decoded.fields.staging_offset, decoded.fields.generation) << "one field for each use";
  EXPECT_EQ(decoded.fields.pin_ttl_s, 0x61626364u);
  EXPECT_FALSE(reader.next(decoded)) << "there is one item";
}

TEST(GoldenMessages, AGrantedReservation) {
  ReservedItem item{};
  item.entry = 0x11121314;
  item.extent_count = 2;
  item.generation = 0x7172737475767778;
  item.length = 0x2122232425262728;
  item.extents[0] = {0x3132333435363738, 0x4142434445464748};
  item.extents[MC_MAX_EXTENTS - 1] = {0x5152535455565758, 0x6162636465666768};
  expect_golden("reserved_item", golden::bytes_of(item));
}

}  // namespace
}  // namespace mc::shm
