// SPDX-License-Identifier: Apache-2.0
//
// Stripes of large objects: keys, labels, and the host's table of its stripes.
#include "agent/cluster/peer/stripe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/cluster/namespace/stripe_table.h"
#include "mc/limits.h"
#include "shm/messages.h"

namespace mc::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

StripeFacts facts(std::uint64_t put = 77) {
  StripeFacts made;
  made.put = put;
  made.whole_bytes = 2500;
  made.whole_sum = 0xabcdef;
  made.stripe_bytes = 1000;
  made.count = 3;
  return made;
}

TEST(Stripe, TheLastStripeHasTheRest) {
  EXPECT_TRUE(facts().sound());
  EXPECT_EQ(facts().bytes_of(0), 1000u);
  EXPECT_EQ(facts().bytes_of(1), 1000u);
  EXPECT_EQ(facts().bytes_of(2), 500u);
  StripeFacts exact = facts();
  exact.whole_bytes = 3000;
  EXPECT_TRUE(exact.sound());
  EXPECT_EQ(exact.bytes_of(2), 1000u);
  exact.whole_bytes = 3001;
  EXPECT_FALSE(exact.sound());
}

TEST(Stripe, AnObjectNeverHasMoreThanTheMostStripes) {
  for (const std::uint64_t bytes : std::initializer_list<std::uint64_t>{
           1, kLeastStripeBytes, 100 * kLeastStripeBytes + 1, 1ull << 36, MC_MAX_OBJECT_BYTES}) {
    for (const std::uint64_t wanted :
         std::initializer_list<std::uint64_t>{1, 3 * kLeastStripeBytes + 5, 1ull << 33}) {
      const std::uint64_t size = stripe_bytes_for(bytes, wanted, kLeastStripeBytes);
      EXPECT_GE(size, wanted);
      EXPECT_EQ(size % kLeastStripeBytes, 0u);
      EXPECT_LE((bytes - 1) / size + 1, kMaxStripes) << bytes << " in " << wanted;
    }
  }
}

TEST(Stripe, ItsKeyIsNoOtherObjectsKey) {
  const std::string key = stripe_key({0x0102030405060708, 63});
  EXPECT_TRUE(key.starts_with(shm::kStripePrefix));
  const auto name = parse_stripe_key(key);
  ASSERT_TRUE(name);
  EXPECT_EQ(name->put, 0x0102030405060708u);
  EXPECT_EQ(name->number, 63);
  EXPECT_FALSE(parse_stripe_key("an ordinary key of 21 "));
  EXPECT_FALSE(parse_stripe_key(key + "x"));
  EXPECT_FALSE(parse_stripe_key(key.substr(1)));
  EXPECT_FALSE(parse_stripe_key(stripe_key({1, kMaxStripes})));
  EXPECT_FALSE(parse_stripe_key(stripe_key({0, 1})));
}

TEST(Stripe, TheLabelNamesTheWholeObject) {
  for (const std::size_t key_bytes : {1u, 7u, 8u, 9u, MC_MAX_KEY_BYTES}) {
    const StripeLabel label{facts(), 0x1122, std::string(key_bytes, 'k')};
    std::vector<std::byte> object(500, std::byte{9});
    const std::vector<std::byte> bytes = encode_label(label);
    ASSERT_EQ(bytes.size(), label_bytes(key_bytes));
    ASSERT_LE(bytes.size(), kMostLabelBytes);
    object.insert(object.end(), bytes.begin(), bytes.end());
    const auto read = decode_label(object, {77, 2});
    ASSERT_TRUE(read);
    EXPECT_TRUE(read->facts.same_object(label.facts));
    EXPECT_EQ(read->facts.number, 2);
    EXPECT_EQ(read->own_sum, 0x1122u);
    EXPECT_EQ(read->key, label.key);
    // A stripe number beyond the put's count is refused, and so is a truncated object.
    EXPECT_FALSE(decode_label(object, {77, 3}));
    EXPECT_FALSE(decode_label(std::span(bytes).subspan(1), {77, 2}));
    EXPECT_FALSE(decode_label(std::span(bytes).first(bytes.size() - 1), {77, 2}));
  }
}

TEST(Stripe, ALabelThatCannotBeIsRefused) {
  const std::vector<std::byte> sound = encode_label({facts(), 5, "key"});
  const std::size_t tail = sound.size() - 48;
  const auto refused = [&](std::size_t at, std::uint8_t value) {
    std::vector<std::byte> bytes = sound;
    bytes[tail + at] = std::byte{value};
    return !decode_label(bytes, {77, 0});
  };
  EXPECT_FALSE(refused(32, 6));    // another sum is a sum
  EXPECT_TRUE(refused(0, 0));      // magic
  EXPECT_TRUE(refused(15, 0xff));  // whole bytes
  EXPECT_TRUE(refused(40, 4));     // count
  EXPECT_TRUE(refused(42, 0));     // key bytes
  EXPECT_TRUE(refused(42, 9));     // more than there are
}

class StripeTableTest : public ::testing::Test {
 protected:
  // Stripes 0 and 2 of a put.
  StripeSet& add(std::uint64_t put, std::uint64_t version) {
    const SetId id = version == 0 ? SetId{put} : SetId{put, 0};
    StripeSet& set = table_.add(id, facts(put), kName, "key");
    set.version = version;
    if (version != 0) table_.seal(set);
    for (const std::uint16_t number : {std::uint16_t{0}, std::uint16_t{2}}) {
      table_.stripe(set, number) = {};
      table_.came({put, number}, static_cast<std::uint32_t>(put * 10 + number));
    }
    return set;
  }
  static constexpr metadata::KeyHash kName{1, 2};
  StripeTable table_;
};

TEST_F(StripeTableTest, ReadersGetSealedStripesOfTheWantedVersion) {
  add(5, 0);
  add(6, 60);
  add(7, 70);
  EXPECT_THAT(table_.sealed(kName, 0), IsEmpty());
  ASSERT_THAT(table_.sealed(kName, 70), SizeIs(1));
  EXPECT_EQ(table_.sealed(kName, 70)[0]->facts.put, 7u);
  EXPECT_THAT(table_.sets_of(kName), ElementsAre(SetId{5}, SetId{6, 0}, SetId{7, 0}));
  table_.take({7, 0});
  EXPECT_THAT(table_.sealed(kName, 70), IsEmpty());
  EXPECT_THAT(table_.sets_of(kName), ElementsAre(SetId{5}, SetId{6, 0}));
}

TEST_F(StripeTableTest, StripesAndUnsealedSetsAreCounted) {
  add(5, 0);
  add(6, 60);
  EXPECT_THAT(table_.unsealed(), ElementsAre(SetId{5}));
  EXPECT_EQ(table_.stripe_count(), 4u);
  table_.stripe(*table_.find({5}), 2).sum = 7;  // known already
  StripeSet& part = table_.split({5}, {5, 1}, 0b100);
  EXPECT_THAT(table_.unsealed(), ElementsAre(SetId{5, 1}, SetId{5}));
  EXPECT_EQ(table_.stripe_count(), 4u);
  table_.seal(part);
  table_.take({6, 0});
  EXPECT_THAT(table_.unsealed(), ElementsAre(SetId{5}));
  EXPECT_EQ(table_.stripe_count(), 2u);
  table_.take({5});
  EXPECT_THAT(table_.unsealed(), IsEmpty());
  EXPECT_EQ(table_.stripe_count(), 1u);
}

TEST_F(StripeTableTest, SealedStripesAreSplitOffAndTheRestStaysOpen) {
  StripeSet& open = add(6, 0);
  open.pin = 2;
  open.until_ns = 99;
  StripeSet& part = table_.split({6}, {6, 3}, 0b100);
  EXPECT_EQ(part.id, (SetId{6, 3}));
  EXPECT_EQ(part.name, kName);
  EXPECT_EQ(part.key, "key");
  EXPECT_EQ(part.pin, 2);
  EXPECT_EQ(part.until_ns, 99u);
  EXPECT_EQ(part.stripes.at(2).entry, 62u);
  EXPECT_EQ(table_.set_of({6, 2}), &part);
  EXPECT_EQ(table_.set_of({6, 0}), &open);
  EXPECT_EQ(table_.set_of({6, 1}), nullptr);
  EXPECT_EQ(table_.set_of({5, 0}), nullptr);
  EXPECT_THAT(table_.sets_of(6), ElementsAre(SetId{6, 3}, SetId{6}));
  // No stripe of the open set is left.
  table_.split({6}, {6, 1}, 0b1);
  EXPECT_THAT(table_.sets_of(6), ElementsAre(SetId{6, 1}, SetId{6, 3}));
}

TEST_F(StripeTableTest, ASetThatLosesAStripeIsBrokenOnce) {
  StripeSet& set = add(6, 60);
  EXPECT_FALSE(set.open());
  table_.left({6, 2}, 999);  // another entry
  table_.came({6, 2}, 63);   // moved
  table_.left({6, 2}, 62);
  EXPECT_FALSE(table_.anything_flagged());
  table_.left({6, 2}, 63);
  table_.left({6, 0}, 60);
  EXPECT_EQ(set.stripes.at(2).entry, kNoEntry);
  EXPECT_THAT(table_.take_flagged(), ElementsAre(SetId{6, 0}));
  EXPECT_THAT(table_.sealed(kName, 60), IsEmpty());
}

TEST_F(StripeTableTest, OnlyALaterPutReplacesASet) {
  add(6, 60);
  table_.replaced(kName, 60);
  table_.replaced({3, 4}, 100);
  EXPECT_THAT(table_.take_flagged(), IsEmpty());
  table_.replaced(kName, 61);
  table_.replaced(kName, 62);
  EXPECT_THAT(table_.take_flagged(), ElementsAre(SetId{6, 0}));
}

}  // namespace
}  // namespace mc::agent
