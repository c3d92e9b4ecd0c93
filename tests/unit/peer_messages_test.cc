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

template <typename Message>
std::optional<Message> decoded(std::span<const std::byte> bytes) {
  const auto message = decode_peer_message(bytes);
  if (!message || !std::holds_alternative<Message>(*message)) return std::nullopt;
  return std::get<Message>(*message);
}

template <typename Message>
bool refused(Message message, void (*change)(Message&)) {
  change(message);
  return !decode_peer_message(encode_peer_message(message));
}

// The head's flags are the second byte of a message.
template <typename Message>
bool refused_with_flags(const Message& message, std::uint8_t flags) {
  auto bytes = encode_peer_message(message);
  bytes[1] = std::byte{flags};
  return !decode_peer_message(bytes);
}

AskAnswer place() {
  AskAnswer message;
  message.request = 9;
  message.name_space = 11;
  message.region.assign(24, std::byte{7});
  message.rows = {held_row(0, 1, 0), PlaceRow{}, held_row(127, MC_MAX_EXTENTS, 13)};
  message.rows[1].number = 1;
  return message;
}

TEST(PeerMessages, EncodedMessagesDecodeToTheSameValues) {
  const auto bytes = encode_peer_message(place());
  const auto heard = decoded<AskAnswer>(bytes);
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

  AskRequest ask;
  ask.wants_keys = true;
  ask.keys.assign(kMaxAskKeys, {1, 2});
  const auto asked = decoded<AskRequest>(encode_peer_message(ask));
  ASSERT_TRUE(asked);
  EXPECT_TRUE(asked->wants_keys);
  EXPECT_FALSE(asked->wants_bytes);
  EXPECT_EQ(asked->keys, ask.keys);
}

TEST(PeerMessages, AnObjectOnADiskThatCannotBeReadIsNotHeldNow) {
  AskAnswer message = place();
  message.rows[1].unreadable = true;
  const auto heard = decoded<AskAnswer>(encode_peer_message(message));
  ASSERT_TRUE(heard);
  EXPECT_TRUE(heard->rows[1].unreadable);
  EXPECT_FALSE(heard->rows[1].held);
  EXPECT_FALSE(heard->rows[0].unreadable);
  EXPECT_TRUE(heard->rows[0].held);
}

TEST(PeerMessages, SmallObjectsComeWithTheirPlace) {
  AskAnswer message = place();
  message.rows = {held_row(0, 2, 3)};
  message.rows[0].bytes.assign(message.rows[0].length, std::byte{0x5a});
  const auto bytes = encode_peer_message(message);
  EXPECT_EQ(bytes.size() % 8, 0u);
  const auto heard = decoded<AskAnswer>(bytes);
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

TEST(PeerMessages, PingsAreAnsweredUnderTheirNumber) {
  EXPECT_EQ(decoded<Ping>(encode_peer_message(Ping{7}))->request, 7u);
  EXPECT_EQ(decoded<Pong>(encode_peer_message(Pong{8}))->request, 8u);
}

HoldRequest hold() {
  HoldRequest message;
  message.request = 9;
  message.name_space = 11;
  message.region.assign(24, std::byte{7});
  message.upsert = true;
  message.row = held_row(0, 1, 20);
  message.share_ms = 250;
  message.pin_ttl_s = 60;
  return message;
}

TEST(PeerMessages, AnObjectIsOfferedWithItsKeyAndItsTime) {
  const auto bytes = encode_peer_message(hold());
  const auto heard = decoded<HoldRequest>(bytes);
  ASSERT_TRUE(heard);
  EXPECT_TRUE(heard->upsert);
  EXPECT_FALSE(heard->stripe);
  EXPECT_EQ(heard->row.key, std::string(20, 'k'));
  EXPECT_EQ(heard->share_ms, 250u);
  EXPECT_EQ(heard->pin_ttl_s, 60u);
  EXPECT_EQ(encode_peer_message(*heard), bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_peer_message(std::span(bytes).first(size))) << size;
  }
  HoldAnswer held;
  held.outcome = HoldOutcome::kFailed;
  held.refused_up_to = 1234567;
  const auto told = decoded<HoldAnswer>(encode_peer_message(held));
  ASSERT_TRUE(told);
  EXPECT_EQ(told->outcome, HoldOutcome::kFailed);
  EXPECT_EQ(told->refused_up_to, 1234567u);
  EXPECT_TRUE(refused_with_flags(held, kLastHoldOutcome + 1));
}

TEST(PeerMessages, ImpossibleOffersAreRefused) {
  using Change = void (*)(HoldRequest&);
  const auto refuses = [](Change change) { return refused<HoldRequest>(hold(), change); };
  EXPECT_FALSE(refuses([](HoldRequest&) {}));
  EXPECT_TRUE(refuses([](HoldRequest& all) { all.row.key.clear(); }));
  EXPECT_TRUE(refuses([](HoldRequest& all) { all.row = PlaceRow{}; }));
  EXPECT_TRUE(
      refuses([](HoldRequest& all) { all.row.bytes.assign(all.row.length, std::byte{1}); }));
  EXPECT_TRUE(refused_with_flags(hold(), 2));  // a stripe without its facts
  auto two_rows = encode_peer_message(hold());
  two_rows[2] = std::byte{2};
  EXPECT_FALSE(decode_peer_message(two_rows));
}

TEST(PeerMessages, PlacesThatCannotBeAreRefused) {
  const auto refused_row = [](auto change) {
    AskAnswer message = place();
    change(message.rows[2]);
    return !decode_peer_message(encode_peer_message(message));
  };
  EXPECT_FALSE(refused_row([](PlaceRow&) {}));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.length += 1; }));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.version = 0; }));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.extents.clear(); }));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.extents.push_back(row.extents[0]); }));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.extents[0].offset_bytes = UINT64_MAX; }));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.pin = 3; }));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.replicas = 9; }));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.number = kMaxAskKeys; }));
  EXPECT_TRUE(refused_row([](PlaceRow& row) { row.key = std::string(MC_MAX_KEY_BYTES + 1, 'k'); }));
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

HoldRequest hold_stripe() {
  HoldRequest message = hold();
  message.upsert = false;
  message.stripe = facts();
  return message;
}

StripesAnswer stripes() {
  StripesAnswer message;
  message.request = 9;
  message.name_space = 11;
  message.region.assign(24, std::byte{7});
  message.rows = {held_row(0, 1, 0), held_row(2, 1, 0)};
  message.rows[1].extents[0].length_bytes = message.rows[1].length = 500;
  message.facts = facts();
  message.facts.number = 2;
  return message;
}

StripesRequest ask_stripes() {
  StripesRequest message;
  message.request = 0x31323334;
  message.name_space = 11;
  message.key = {1, 2};
  message.version = 0x4142434445464748;
  return message;
}

SealRequest seal() {
  SealRequest message;
  message.request = 0x80000001;
  message.name_space = 11;
  message.upsert = true;
  message.put = 0x1112131415161718;
  message.version = 0x1112131415161719;
  message.stripes = 0x8000000000000005;
  message.parts = 3;
  message.part = 2;
  return message;
}

StripesRequest ask_part() {
  StripesRequest message = ask_stripes();
  message.name_space = 0;
  message.part = 5;
  return message;
}

StripesAnswer stripes_of_part() {
  StripesAnswer message = stripes();
  message.of_part = true;
  for (PlaceRow& row : message.rows) row.key = "key";
  return message;
}

template <typename Message>
Message survives_a_round_trip(const Message& message) {
  const auto bytes = encode_peer_message(message);
  const auto heard = decoded<Message>(bytes);
  EXPECT_TRUE(heard);
  if (!heard) return {};
  EXPECT_EQ(heard->request, message.request);
  EXPECT_EQ(heard->name_space, message.name_space);
  EXPECT_EQ(encode_peer_message(*heard), bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_peer_message(std::span(bytes).first(size))) << size;
  }
  return *heard;
}

TEST(PeerMessages, EncodedStripeMessagesDecodeToTheSameValues) {
  const HoldRequest held = survives_a_round_trip(hold_stripe());
  ASSERT_TRUE(held.stripe);
  EXPECT_TRUE(held.stripe->same_object(facts()));
  EXPECT_EQ(held.stripe->number, facts().number);
  for (const StripesAnswer& message : {stripes(), stripes_of_part()}) {
    const StripesAnswer heard = survives_a_round_trip(message);
    EXPECT_TRUE(heard.facts.same_object(message.facts));
    EXPECT_EQ(heard.facts.number, message.facts.number);
    EXPECT_EQ(heard.of_part, message.of_part);
  }
  for (const StripesRequest& message : {ask_stripes(), ask_part()}) {
    const StripesRequest heard = survives_a_round_trip(message);
    EXPECT_EQ(heard.key, message.key);
    EXPECT_EQ(heard.version, message.version);
    EXPECT_EQ(heard.part, message.part);
  }
  for (const std::uint8_t part : {std::uint8_t{0}, std::uint8_t{2}}) {
    SealRequest message = seal();
    message.part = part;
    const SealRequest heard = survives_a_round_trip(message);
    EXPECT_TRUE(heard.upsert);
    EXPECT_FALSE(heard.drop);
    EXPECT_EQ(heard.put, message.put);
    EXPECT_EQ(heard.version, message.version);
    EXPECT_EQ(heard.parts, message.parts);
    EXPECT_EQ(heard.part, message.part);
    EXPECT_EQ(heard.stripes, message.stripes);
  }
  // No stripes are there.
  const auto none = decoded<StripesAnswer>(encode_peer_message(StripesAnswer{}));
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->rows.empty());
}

TEST(PeerMessages, StripesThatCannotBeAreRefused) {
  using Hold = HoldRequest;
  using Stripes = StripesAnswer;
  using Seal = SealRequest;
  EXPECT_TRUE(refused<Hold>(hold_stripe(), [](Hold& all) { all.stripe->number = 3; }));
  EXPECT_TRUE(refused<Hold>(hold_stripe(), [](Hold& all) { all.stripe->number = 2; }));
  EXPECT_TRUE(refused<Hold>(hold_stripe(), [](Hold& all) { all.stripe->put = 0; }));
  EXPECT_TRUE(refused<Hold>(hold_stripe(), [](Hold& all) { all.stripe->count = 4; }));
  EXPECT_TRUE(refused<Hold>(hold_stripe(), [](Hold& all) { all.stripe->stripe_bytes = 0; }));
  EXPECT_TRUE(refused<Stripes>(stripes(), [](Stripes& all) { all.facts.number = 1; }));
  EXPECT_TRUE(refused<Stripes>(stripes(), [](Stripes& all) { all.facts.number = 4; }));
  EXPECT_TRUE(refused<Stripes>(stripes(), [](Stripes& all) { all.rows[1].number = 3; }));
  EXPECT_TRUE(refused<Stripes>(stripes(), [](Stripes& all) { all.rows[1].number = 1; }));
  EXPECT_TRUE(refused<Stripes>(stripes(), [](Stripes& all) { all.rows[0] = PlaceRow(); }));
  EXPECT_TRUE(refused<Stripes>(stripes(), [](Stripes& all) { all.rows[0].key = "key"; }));
  EXPECT_TRUE(refused<Seal>(seal(), [](Seal& all) { all.put = 0; }));
  EXPECT_TRUE(refused<Seal>(seal(), [](Seal& all) { all.version = 0; }));
  EXPECT_TRUE(refused<Seal>(seal(), [](Seal& all) { all.parts = 0; }));
  EXPECT_TRUE(refused<Seal>(seal(), [](Seal& all) { all.parts = 17; }));
  EXPECT_TRUE(refused<Seal>(seal(), [](Seal& all) { all.part = 3; }));
  EXPECT_TRUE(refused<Seal>(seal(), [](Seal& all) { all.stripes = 0; }));
  EXPECT_TRUE(refused<StripesRequest>(ask_part(), [](StripesRequest& all) { all.part = 16; }));
  EXPECT_TRUE(refused<Stripes>(stripes_of_part(), [](Stripes& all) { all.rows[1].key.clear(); }));
  EXPECT_TRUE(refused_with_flags(ask_part(), 2));
  EXPECT_TRUE(refused_with_flags(stripes_of_part(), 2));
  EXPECT_TRUE(refused_with_flags(seal(), 4));
}

// The bytes that agents of this version send.
TEST(PeerMessages, HaveTheBytesOfTheGoldenFile) {
  golden::Sections sections = golden::read("peers-v1.txt");
  const auto expect = [&](const std::string& name, const auto& message) {
    const std::vector<std::byte> bytes = encode_peer_message(message);
    EXPECT_EQ(golden::to_text(sections[name]), golden::to_text(bytes))
        << golden::section_text(name, bytes);
    EXPECT_TRUE(decode_peer_message(sections[name])) << name;
  };
  AskRequest ask;
  ask.wants_keys = true;
  ask.request = 0x31323334;
  ask.name_space = 11;
  ask.keys = {{1, 2}, {3, 4}};
  HoldAnswer held;
  held.outcome = HoldOutcome::kBehind;
  held.request = 9;
  held.refused_up_to = 1234567;
  SealRequest sealed = seal();
  sealed.part = 0;
  expect("ask", ask);
  expect("place", place());
  expect("hold", hold());
  expect("held", held);
  expect("hold stripe", hold_stripe());
  expect("seal", sealed);
  expect("ask stripes", ask_stripes());
  expect("stripes", stripes());
  expect("ask part", ask_part());
  expect("stripes of part", stripes_of_part());
}

}  // namespace
}  // namespace mc::agent
