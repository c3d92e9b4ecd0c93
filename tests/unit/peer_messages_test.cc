// SPDX-License-Identifier: Apache-2.0
//
// Messages between agents: encoded messages decode to the same values, and invalid bytes are
// refused.
#include "agent/cluster/peer/peer_messages.h"

#include <gtest/gtest.h>

#include <cstring>

#include "unit/golden_file.h"

namespace mc::agent {
namespace {

PlaceRow held_row(std::uint16_t number, std::size_t extents, std::size_t key_bytes) {
  PlaceRow row;
  row.number = number;
  row.held = true;
  row.version = 0x1234567890;
  row.generation = 77;
  row.checksum = 0xabcdef;
  row.parent_hash = 5;
  row.pin = 1;
  row.replicas = 3;
  for (std::size_t i = 0; i < extents; ++i) {
    row.extents.push_back({i * 4096, 1000 + i});
    row.length += 1000 + i;
  }
  row.key = std::string(key_bytes, 'k');
  return row;
}

PeerMessage place() {
  PeerMessage message;
  message.kind = PeerMessageKind::kPlace;
  message.request = 9;
  message.name_space = 11;
  message.region.assign(24, std::byte{7});
  message.rows = {held_row(0, 1, 0), PlaceRow{}, held_row(127, MC_MAX_EXTENTS, 13)};
  message.rows[1].number = 1;
  return message;
}

TEST(PeerMessages, EncodedMessagesDecodeToTheSameValues) {
  const auto bytes = encode_peer_message(place());
  const auto heard = decode_peer_message(bytes);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->request, 9u);
  EXPECT_EQ(heard->name_space, 11u);
  EXPECT_EQ(heard->region, place().region);
  ASSERT_EQ(heard->rows.size(), 3u);
  EXPECT_FALSE(heard->rows[1].held);
  const PlaceRow& row = heard->rows[2];
  EXPECT_EQ(row.number, 127);
  EXPECT_EQ(row.version, 0x1234567890u);
  EXPECT_EQ(row.replicas, 3);
  EXPECT_EQ(row.extents.size(), MC_MAX_EXTENTS);
  EXPECT_EQ(row.key, std::string(13, 'k'));
  EXPECT_EQ(encode_peer_message(*heard), bytes);

  PeerMessage ask;
  ask.kind = PeerMessageKind::kAsk;
  ask.flags = kAskForKeys;
  ask.keys.assign(kMaxAskKeys, {1, 2});
  const auto asked = decode_peer_message(encode_peer_message(ask));
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->keys, ask.keys);
}

TEST(PeerMessages, SmallObjectsComeWithTheirPlace) {
  PeerMessage message = place();
  message.rows = {held_row(0, 2, 3)};
  message.rows[0].bytes.assign(message.rows[0].length, std::byte{0x5a});
  const auto bytes = encode_peer_message(message);
  EXPECT_EQ(bytes.size() % 8, 0u);
  const auto heard = decode_peer_message(bytes);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->rows[0].bytes, message.rows[0].bytes);
  EXPECT_EQ(heard->rows[0].key, "kkk");
  EXPECT_EQ(encode_peer_message(*heard), bytes);
  // The length field says more bytes than there are.
  auto cut = bytes;
  cut.resize(cut.size() - 8);
  EXPECT_FALSE(decode_peer_message(cut));
}

TEST(PeerMessages, EveryPrefixOfAMessageIsRefused) {
  const auto bytes = encode_peer_message(place());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_peer_message(std::span(bytes).first(size))) << size;
  }
  auto longer = bytes;
  longer.resize(bytes.size() + 8);
  EXPECT_FALSE(decode_peer_message(longer));
}

PeerMessage hold() {
  PeerMessage message = place();
  message.kind = PeerMessageKind::kHold;
  message.flags = kHoldUpsert;
  message.rows = {held_row(0, 1, 20)};
  message.share_ms = 250;
  message.pin_ttl_s = 60;
  return message;
}

TEST(PeerMessages, AnObjectIsOfferedWithItsKeyAndItsTime) {
  const auto bytes = encode_peer_message(hold());
  const auto heard = decode_peer_message(bytes);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->flags, kHoldUpsert);
  EXPECT_EQ(heard->rows[0].key, std::string(20, 'k'));
  EXPECT_EQ(heard->share_ms, 250u);
  EXPECT_EQ(heard->pin_ttl_s, 60u);
  EXPECT_EQ(encode_peer_message(*heard), bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_peer_message(std::span(bytes).first(size))) << size;
  }
  PeerMessage held;
  held.kind = PeerMessageKind::kHeld;
  held.flags = kLastHoldOutcome;
  held.refused_up_to = 1234567;
  const auto told = decode_peer_message(encode_peer_message(held));
  ASSERT_TRUE(told);
  EXPECT_EQ(told->refused_up_to, 1234567u);
  held.flags = kLastHoldOutcome + 1;
  EXPECT_FALSE(decode_peer_message(encode_peer_message(held)));
}

TEST(PeerMessages, ImpossibleOffersAreRefused) {
  const auto refused = [](auto change) {
    PeerMessage message = hold();
    change(message);
    return !decode_peer_message(encode_peer_message(message));
  };
  EXPECT_FALSE(refused([](PeerMessage&) {}));
  EXPECT_TRUE(refused([](PeerMessage& message) { message.rows[0].key.clear(); }));
  EXPECT_TRUE(refused([](PeerMessage& message) { message.rows[0] = PlaceRow{}; }));
  EXPECT_TRUE(refused([](PeerMessage& message) { message.rows.push_back(message.rows[0]); }));
  EXPECT_TRUE(refused([](PeerMessage& message) { message.flags = 2; }));
  EXPECT_TRUE(refused([](PeerMessage& message) {
    message.rows[0].bytes.assign(message.rows[0].length, std::byte{1});
  }));
}

TEST(PeerMessages, PlacesThatCannotBeAreRefused) {
  const auto refused = [](auto change) {
    PeerMessage message = place();
    change(message.rows[2]);
    return !decode_peer_message(encode_peer_message(message));
  };
  EXPECT_FALSE(refused([](PlaceRow&) {}));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.length += 1; }));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.version = 0; }));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.extents.clear(); }));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.extents.push_back(row.extents[0]); }));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.extents[0].offset_bytes = UINT64_MAX; }));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.pin = 3; }));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.replicas = 9; }));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.number = kMaxAskKeys; }));
  EXPECT_TRUE(refused([](PlaceRow& row) { row.key = std::string(MC_MAX_KEY_BYTES + 1, 'k'); }));
}

StripeFacts facts() {
  StripeFacts made;
  made.put = 0x1112131415161718;
  made.whole_bytes = 2500;
  made.whole_sum = 0x2122232425262728;
  made.stripe_bytes = 1000;
  made.number = 1;
  made.count = 3;
  made.keep_ms = 5000;
  return made;
}

PeerMessage hold_stripe() {
  PeerMessage message = hold();
  message.flags = kHoldStripe;
  message.stripe = facts();
  return message;
}

PeerMessage stripes() {
  PeerMessage message = place();
  message.kind = PeerMessageKind::kStripes;
  message.rows = {held_row(0, 1, 0), held_row(2, 1, 0)};
  message.rows[1].extents[0].length_bytes = message.rows[1].length = 500;
  message.stripe = facts();
  message.stripe.number = 2;
  return message;
}

PeerMessage ask_stripes() {
  PeerMessage message;
  message.kind = PeerMessageKind::kAskStripes;
  message.request = 0x31323334;
  message.name_space = 11;
  message.keys = {{1, 2}};
  message.seal.version = 0x4142434445464748;
  return message;
}

PeerMessage seal() {
  PeerMessage message;
  message.kind = PeerMessageKind::kSeal;
  message.flags = kHoldUpsert;
  message.request = 0x80000001;
  message.name_space = 11;
  message.seal = {0x1112131415161718, 0x1112131415161719, 0x8000000000000005, 3, 0};
  return message;
}

PeerMessage ask_part() {
  PeerMessage message = ask_stripes();
  message.flags = kAskForPart;
  message.name_space = 0;
  message.seal.part = 5;
  return message;
}

PeerMessage stripes_of_part() {
  PeerMessage message = stripes();
  message.flags = kAskForPart;
  for (PlaceRow& row : message.rows) row.key = "key";
  return message;
}

TEST(PeerMessages, EncodedStripeMessagesDecodeToTheSameValues) {
  PeerMessage third = seal();
  third.seal.part = 2;
  for (const PeerMessage& message :
       {hold_stripe(), stripes(), ask_stripes(), seal(), third, ask_part(), stripes_of_part()}) {
    const auto bytes = encode_peer_message(message);
    const auto heard = decode_peer_message(bytes);
    ASSERT_TRUE(heard) << static_cast<int>(message.kind);
    EXPECT_EQ(encode_peer_message(*heard), bytes);
    EXPECT_TRUE(heard->stripe.same_object(message.stripe));
    EXPECT_EQ(heard->stripe.number, message.stripe.number);
    EXPECT_EQ(heard->seal.put, message.seal.put);
    EXPECT_EQ(heard->seal.version, message.seal.version);
    EXPECT_EQ(heard->seal.parts, message.seal.parts);
    EXPECT_EQ(heard->seal.part, message.seal.part);
    EXPECT_EQ(heard->seal.stripes, message.seal.stripes);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode_peer_message(std::span(bytes).first(size))) << size;
    }
  }
  // No stripes are there.
  PeerMessage none;
  none.kind = PeerMessageKind::kStripes;
  const auto heard = decode_peer_message(encode_peer_message(none));
  ASSERT_TRUE(heard);
  EXPECT_TRUE(heard->rows.empty());
}

TEST(PeerMessages, StripesThatCannotBeAreRefused) {
  const auto refused = [](PeerMessage message, auto change) {
    change(message);
    return !decode_peer_message(encode_peer_message(message));
  };
  EXPECT_TRUE(refused(hold_stripe(), [](PeerMessage& all) { all.stripe.number = 3; }));
  EXPECT_TRUE(refused(hold_stripe(), [](PeerMessage& all) { all.stripe.number = 2; }));
  EXPECT_TRUE(refused(hold_stripe(), [](PeerMessage& all) { all.stripe.put = 0; }));
  EXPECT_TRUE(refused(hold_stripe(), [](PeerMessage& all) { all.stripe.count = 4; }));
  EXPECT_TRUE(refused(hold_stripe(), [](PeerMessage& all) { all.stripe.stripe_bytes = 0; }));
  EXPECT_TRUE(refused(stripes(), [](PeerMessage& all) { all.stripe.number = 1; }));
  EXPECT_TRUE(refused(stripes(), [](PeerMessage& all) { all.stripe.number = 4; }));
  EXPECT_TRUE(refused(stripes(), [](PeerMessage& all) { all.rows[1].number = 3; }));
  EXPECT_TRUE(refused(stripes(), [](PeerMessage& all) { all.rows[1].number = 1; }));
  EXPECT_TRUE(refused(stripes(), [](PeerMessage& all) { all.rows[0] = PlaceRow(); }));
  EXPECT_TRUE(refused(stripes(), [](PeerMessage& all) { all.rows[0].key = "key"; }));
  EXPECT_TRUE(refused(seal(), [](PeerMessage& all) { all.seal.put = 0; }));
  EXPECT_TRUE(refused(seal(), [](PeerMessage& all) { all.seal.version = 0; }));
  EXPECT_TRUE(refused(seal(), [](PeerMessage& all) { all.seal.parts = 0; }));
  EXPECT_TRUE(refused(seal(), [](PeerMessage& all) { all.seal.parts = 17; }));
  EXPECT_TRUE(refused(seal(), [](PeerMessage& all) { all.seal.part = 3; }));
  EXPECT_TRUE(refused(ask_part(), [](PeerMessage& all) { all.seal.part = 16; }));
  EXPECT_TRUE(refused(ask_part(), [](PeerMessage& all) { all.flags = 2; }));
  EXPECT_TRUE(refused(stripes_of_part(), [](PeerMessage& all) { all.rows[1].key.clear(); }));
  EXPECT_TRUE(refused(stripes_of_part(), [](PeerMessage& all) { all.flags = 2; }));
  EXPECT_TRUE(refused(seal(), [](PeerMessage& all) { all.seal.stripes = 0; }));
  EXPECT_TRUE(refused(seal(), [](PeerMessage& all) { all.flags = 4; }));
}

// The bytes that agents of this version send.
TEST(PeerMessages, HaveTheBytesOfTheGoldenFile) {
  golden::Sections sections = golden::read("peers-v1.txt");
  const auto expect = [&](const std::string& name, const PeerMessage& message) {
    const std::vector<std::byte> bytes = encode_peer_message(message);
    EXPECT_EQ(golden::to_text(sections[name]), golden::to_text(bytes))
        << golden::section_text(name, bytes);
    EXPECT_TRUE(decode_peer_message(sections[name])) << name;
  };
  PeerMessage ask;
  ask.kind = PeerMessageKind::kAsk;
  ask.flags = kAskForKeys;
  ask.request = 0x31323334;
  ask.name_space = 11;
  ask.keys = {{1, 2}, {3, 4}};
  PeerMessage held;
  held.kind = PeerMessageKind::kHeld;
  held.flags = static_cast<std::uint8_t>(HoldOutcome::kBehind);
  held.request = 9;
  held.refused_up_to = 1234567;
  expect("ask", ask);
  expect("place", place());
  expect("hold", hold());
  expect("held", held);
  expect("hold stripe", hold_stripe());
  expect("seal", seal());
  expect("ask stripes", ask_stripes());
  expect("stripes", stripes());
  expect("ask part", ask_part());
  expect("stripes of part", stripes_of_part());
}

}  // namespace
}  // namespace mc::agent
