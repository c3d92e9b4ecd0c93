// SPDX-License-Identifier: Apache-2.0
//
// Messages between agents and masters. A decoded message equals the encoded message, up to every
// limit. Beyond a limit, or cut off at any byte, a message is refused or smaller.
#include "metadata/wire/codec.h"

#include <gtest/gtest.h>

#include "master.pb.h"
#include "metadata/directory/key_hash.h"
#include "metadata/wire/method.h"
#include "unit/golden_file.h"

namespace mc::metadata::wire {
namespace {

KeyHash key(std::uint64_t i) { return {i * 0x9e3779b97f4a7c15u + 1, i * 0xbf58476d1ce4e5b9u + 2}; }

Publish publish(std::size_t count) {
  Publish value{.sequence = 7, .removals_seen = 3, .items = {}};
  for (std::size_t i = 0; i < count; ++i) {
    Attributes attributes;
    attributes.replicas = static_cast<std::uint8_t>(1 + i % kMaxReplicas);
    value.items.push_back({key(i), i + 1, MC_MAX_OBJECT_BYTES - i, attributes,
                           i % 3 == 0 ? PublishItem::What::kDropped : PublishItem::What::kHolds});
  }
  return value;
}

LocateAnswer located(std::size_t count, std::uint32_t holders) {
  LocateAnswer value;
  for (std::size_t i = 0; i < count; ++i) {
    Located found{Lookup::kFound, {},    static_cast<std::uint32_t>(value.holders.size()),
                  holders,        i + 1, MC_MAX_OBJECT_BYTES};
    for (std::uint32_t h = 0; h < holders; ++h) value.holders.push_back(UINT64_MAX - h);
    value.keys.push_back(found);
  }
  return value;
}

Descriptor descriptor() { return {5, 9, "10.0.0.5:7400", 77, 3, 64ull << 30}; }

template <typename T>
std::string bytes_of(const T& value) {
  std::string bytes;
  encode(value, bytes);
  return bytes;
}

// Encodes and decodes. The test fails if decode() refuses.
template <typename T>
T through(const T& value) {
  T back;
  const Status status = decode(bytes_of(value), back);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return back;
}

template <typename T>
bool refused(const T& value) {
  T back;
  const Status status = decode(bytes_of(value), back);
  EXPECT_TRUE(status.ok() || status.code() == MC_INVALID_ARGUMENT);
  return !status.ok();
}

TEST(WireCodec, PublishComesBackAsItWas) {
  const Publish sent = publish(kMaxItems);
  const Publish back = through(sent);
  ASSERT_EQ(back.items.size(), kMaxItems);
  EXPECT_EQ(back.sequence, 7u);
  EXPECT_EQ(back.removals_seen, 3u);
  for (std::size_t i = 0; i < kMaxItems; ++i) {
    EXPECT_EQ(back.items[i].hash, sent.items[i].hash);
    EXPECT_EQ(back.items[i].version, sent.items[i].version);
    EXPECT_EQ(back.items[i].bytes, sent.items[i].bytes);
    EXPECT_EQ(back.items[i].attributes, sent.items[i].attributes);
    EXPECT_EQ(back.items[i].what, sent.items[i].what);
  }
}

TEST(WireCodec, LocateAnswerComesBackAsItWas) {
  const LocateAnswer sent = located(kMaxItems, kMaxHoldersPerKey);
  const LocateAnswer back = through(sent);
  ASSERT_EQ(back.keys.size(), kMaxItems);
  EXPECT_EQ(back.holders, sent.holders);
  EXPECT_EQ(back.keys.back().version, kMaxItems);
  EXPECT_EQ(back.holders_of(back.keys.back()).size(), kMaxHoldersPerKey);
}

TEST(WireCodec, ObjectsOnDisksComeBack) {
  Publish sent = publish(3);
  sent.items[1].on_disk = true;
  const Publish back = through(sent);
  EXPECT_FALSE(back.items[0].on_disk);
  EXPECT_TRUE(back.items[1].on_disk);
  LocateAnswer answer = located(3, 2);
  answer.keys[2].on_disk = 0b10;
  EXPECT_EQ(through(answer).keys[1].on_disk, 0u);
  EXPECT_EQ(through(answer).keys[2].on_disk, 0b10u);
  answer.keys[2].on_disk = 0b100;
  EXPECT_TRUE(refused(answer)) << "more holders with disks than holders";
  MembersAnswer members{.members = {{.descriptor = descriptor()}, {.descriptor = descriptor()}}};
  members.members[1].disk_entries = 7;
  EXPECT_EQ(through(members).members[1].disk_entries, 7u);
}

TEST(WireCodec, MissingPartsOfAStripedObjectComeBack) {
  LocateAnswer sent = located(3, 2);
  sent.keys[1].attributes.striped = true;
  sent.keys[1].attributes.parts = kMaxParts;
  EXPECT_TRUE(through(sent).keys[1].whole());
  const std::size_t bytes = bytes_of(sent).size();
  sent.keys[1].missing_parts = kMaxParts - 1;
  const LocateAnswer back = through(sent);
  EXPECT_EQ(back.keys[0].missing_parts, 0);
  EXPECT_EQ(back.keys[1].missing_parts, kMaxParts - 1);
  EXPECT_FALSE(back.keys[1].whole());
  EXPECT_EQ(back.keys[1].attributes, sent.keys[1].attributes);
  EXPECT_EQ(bytes_of(sent).size(), bytes + 2 + sent.keys.size()) << "nothing if nothing is missing";
  sent.keys[1].attributes = {.striped = true, .replicas = 2, .parts = 8, .part = 7};
  EXPECT_EQ(through(sent).keys[1].attributes, sent.keys[1].attributes);
  sent.keys[2].missing_parts = kMaxParts + 1;
  EXPECT_TRUE(refused(sent));
}

TEST(WireCodec, ACopyNamesAnObjectOrOnePart) {
  Copy copy{key(1), 5, 4096, 7, "10.0.0.7:7400"};
  EXPECT_EQ(through(copy).parts, 0);
  copy.parts = kMaxParts;
  copy.part = kMaxParts - 1;
  EXPECT_EQ(through(copy).parts, kMaxParts);
  EXPECT_EQ(through(copy).part, kMaxParts - 1);
  copy.part = kMaxParts;
  EXPECT_TRUE(refused(copy));
  copy.parts = kMaxParts + 1;
  EXPECT_TRUE(refused(copy));
  copy.parts = 0;
  copy.part = 1;
  EXPECT_TRUE(refused(copy));
}

TEST(WireCodec, LargestBatchesFitTheirFrames) {
  const auto limit = [](Method method) { return body_limits(static_cast<std::uint8_t>(method)); };
  EXPECT_LE(bytes_of(publish(kMaxItems)).size(), limit(Method::kPublish).request_bytes);
  EXPECT_LE(bytes_of(located(kMaxItems, kMaxHoldersPerKey)).size(),
            limit(Method::kLocate).answer_bytes);
  ListAnswer list;
  for (std::size_t i = 0; i < kMaxItems; ++i) {
    std::string name(MC_MAX_KEY_BYTES, static_cast<char>('a' + i % 26));
    name.replace(0, 4, std::to_string(1000 + i));
    list.keys.push_back({name, MC_MAX_OBJECT_BYTES});
  }
  EXPECT_LE(bytes_of(list).size(), limit(Method::kList).answer_bytes);
  EXPECT_EQ(through(list).keys, list.keys);
  ChooseHoldersAnswer place;
  place.nodes.assign(kMaxItems, std::vector<NodeId>(kMaxReplicas, UINT64_MAX));
  EXPECT_LE(bytes_of(place).size(), limit(Method::kChooseHolders).answer_bytes);
  EXPECT_EQ(through(place).nodes, place.nodes);
  MembersAnswer members;
  MemberInfo member{descriptor(), MemberState::kSuspected, true, true, UINT64_MAX, UINT64_MAX};
  member.descriptor.address.assign(kMaxAddressBytes, 'x');
  members.members.assign(kMaxMembers, member);
  members.down.assign(kMaxDown, {member.descriptor, UINT64_MAX});
  EXPECT_LE(bytes_of(members).size(), limit(Method::kMembers).answer_bytes);
  EXPECT_EQ(through(members).members, members.members);
  EXPECT_EQ(through(members).down, members.down);
  members.down.push_back(members.down.front());
  EXPECT_TRUE(refused(members));
  members.down.clear();
  HeartbeatReply reply;
  reply.list_version = UINT64_MAX;
  reply.lease_ms = kMaxLeaseMs;
  reply.changed = members;
  reply.gone.assign(kMaxMembers, UINT64_MAX);
  EXPECT_LE(bytes_of(reply).size(), limit(Method::kHeartbeat).answer_bytes);
  EXPECT_EQ(through(reply).changed.members, members.members);
  EXPECT_EQ(through(reply).gone, reply.gone);
  Drop drop{.items = std::vector<RemoveItem>(kMaxItems, {key(1), 5}), .removal = 1};
  EXPECT_LE(bytes_of(drop).size(), limit(Method::kDrop).request_bytes);
}

TEST(WireCodec, MoreItemsThanABatchAreRefused) {
  EXPECT_FALSE(refused(publish(kMaxItems)));
  EXPECT_TRUE(refused(publish(kMaxItems + 1)));
  EXPECT_TRUE(refused(located(kMaxItems + 1, 1)));
  EXPECT_TRUE(refused(located(1, kMaxHoldersPerKey + 1)));
  EXPECT_FALSE(refused(Locate{.keys = std::vector<KeyHash>(kMaxItems)}));
  EXPECT_TRUE(refused(Locate{.keys = std::vector<KeyHash>(kMaxItems + 1)}));
  EXPECT_TRUE(refused(Remove{.items = std::vector<RemoveItem>(kMaxItems + 1)}));
  ChooseHolders place;
  place.items.resize(kMaxItems);
  EXPECT_FALSE(refused(place));
  place.items.resize(kMaxItems + 1);
  EXPECT_TRUE(refused(place));
}

TEST(WireCodec, PartitionsOutsideTheirRangesAreRefused) {
  EXPECT_EQ(through(Attend{kMaxPartitions - 1, kMaxPartitions}),
            (Attend{kMaxPartitions - 1, kMaxPartitions}));
  EXPECT_EQ(through(Attend{0, 0}), (Attend{0, 0}));
  EXPECT_TRUE(refused(Attend{1, 0}));
  EXPECT_TRUE(refused(Attend{4, 4}));
  EXPECT_TRUE(refused(Attend{0, kMaxPartitions + 1}));
  EXPECT_EQ(through(AttendAnswer{kMaxPartitions, {}, {}}).partitions, kMaxPartitions);
  EXPECT_TRUE(refused(AttendAnswer{0, {}, {}}));
  EXPECT_TRUE(refused(AttendAnswer{kMaxPartitions + 1, {}, {}}));
  const AttendAnswer told = through(AttendAnswer{1, "a-50051", "a:50051"});
  EXPECT_EQ(told.cluster, "a-50051");
  EXPECT_EQ(told.address, "a:50051");
  EXPECT_TRUE(refused(AttendAnswer{1, "a\n", {}}));
  EXPECT_TRUE(refused(AttendAnswer{1, "a", "a\n"}));
}

TEST(WireCodec, DescriptorsOutsideTheirRangesAreRefused) {
  EXPECT_EQ(through(descriptor()), descriptor());
  Descriptor value = descriptor();
  value.node = kNoNode;
  EXPECT_TRUE(refused(value));
  value = descriptor();
  value.incarnation = 0;
  EXPECT_TRUE(refused(value));
  value = descriptor();
  value.address.assign(kMaxAddressBytes, 'x');
  EXPECT_FALSE(refused(value));
  value.address += 'x';
  EXPECT_TRUE(refused(value));
  value.address = "host\n:1";
  EXPECT_TRUE(refused(value));
  value = descriptor();
  for (const std::uint64_t bytes : {std::uint64_t{0}, kMaxCapacityBytes}) {
    value.capacity_bytes = bytes;
    EXPECT_FALSE(refused(value));
  }
  value.capacity_bytes = kMaxCapacityBytes + 1;
  EXPECT_TRUE(refused(value));
}

TEST(WireCodec, HeartbeatsOutsideTheirRangesAreRefused) {
  Heartbeat value{{1 << 20, 1000, true}, {{4, 2}}};
  EXPECT_EQ(through(value).unreachable, value.unreachable);
  EXPECT_EQ(through(value).load.capacity_bytes, std::nullopt);
  value.load.capacity_bytes = 0;
  EXPECT_EQ(through(value).load.capacity_bytes, 0u);
  value.load.capacity_bytes = kMaxCapacityBytes + 1;
  EXPECT_TRUE(refused(value));
  value.load.capacity_bytes = kMaxCapacityBytes;
  EXPECT_TRUE(through(value).load.draining);
  value.load.busy_permille = 1001;
  EXPECT_TRUE(refused(value));
  value.load.busy_permille = 1;
  value.unreachable.resize(kMaxUnreachable);
  EXPECT_FALSE(refused(value));
  value.unreachable.resize(kMaxUnreachable + 1);
  EXPECT_TRUE(refused(value));
}

TEST(WireCodec, PatternsBeyondTheirLimitsAreRefused) {
  Match value{"tenant", std::string(kMaxPatternBytes, 'p'), Match::Kind::kRegex,
              std::string(MC_MAX_KEY_BYTES, 'a'), kMaxListed};
  EXPECT_FALSE(refused(value));
  EXPECT_EQ(through(value).pattern, value.pattern);
  value.pattern += 'p';
  EXPECT_TRUE(refused(value));
  value.pattern = "p";
  value.limit = kMaxListed + 1;
  EXPECT_TRUE(refused(value));
  value.limit = 1;
  value.after += 'a';
  EXPECT_TRUE(refused(value));
  value.after.clear();
  value.name_space.assign(MC_MAX_NAMESPACE_BYTES + 1, 'n');
  EXPECT_TRUE(refused(value));
}

TEST(WireCodec, DrainsAndRelocationsComeBackWithinTheirLimits) {
  Drain drain{7, true, std::vector<NodeId>(kMaxNamedNodes, 9), 5};
  const Drain drained = through(drain);
  EXPECT_EQ(drained.node, 7u);
  EXPECT_TRUE(drained.stop);
  EXPECT_EQ(drained.targets, drain.targets);
  EXPECT_EQ(drained.max_jobs, 5u);
  drain.targets.push_back(9);
  EXPECT_TRUE(refused(drain));
  EXPECT_TRUE(refused(Drain{}));
  EXPECT_EQ(through(DrainAnswer{1, 2, 3, 4, true, 5}), (DrainAnswer{1, 2, 3, 4, true, 5}));

  Relocate move{key(3), 4, std::vector<NodeId>(MC_MAX_REPLICAS, 5)};
  const Relocate moved = through(move);
  EXPECT_EQ(moved.key, key(3));
  EXPECT_EQ(moved.source, 4u);
  EXPECT_EQ(moved.targets, move.targets);
  move.targets.push_back(5);
  EXPECT_TRUE(refused(move));
  move.targets.clear();
  EXPECT_TRUE(refused(move));
  EXPECT_EQ(through(RelocationId{UINT64_MAX, 1}), (RelocationId{UINT64_MAX, 1}));
  RelocationAnswer answer{true, RelocationAnswer::State::kDone,    10, 5,
                          77,   std::string(kMaxRefusalBytes, 'm')};
  EXPECT_EQ(through(answer), answer);
  answer.message += 'm';
  EXPECT_TRUE(refused(answer));
  answer.message = "a\x1b[2J";
  EXPECT_TRUE(refused(answer));
}

TEST(WireCodec, AwaitedReplicasComeBackWithinTheirLimits) {
  AwaitReplicas wanted;
  for (std::size_t i = 0; i < kMaxItems; ++i) {
    wanted.keys.push_back({key(i), static_cast<std::uint8_t>(i % MC_MAX_REPLICAS + 1)});
  }
  EXPECT_EQ(through(wanted).keys, wanted.keys);
  wanted.keys.push_back({key(1), 1});
  EXPECT_TRUE(refused(wanted));
  EXPECT_TRUE(refused(AwaitReplicas{{{key(1), MC_MAX_REPLICAS + 1}}}));
  using State = AwaitedState;
  const AwaitReplicasAnswer answer{{State::kTooFew, State::kEnough, State::kGone}};
  EXPECT_EQ(through(answer).keys, answer.keys);
  EXPECT_TRUE(refused(AwaitReplicasAnswer{{static_cast<State>(3)}}));
}

TEST(WireCodec, ListsOutOfOrderAreRefused) {
  EXPECT_FALSE(refused(ListAnswer{.keys = {{"a", 1}, {"b", 1}}}));
  EXPECT_TRUE(refused(ListAnswer{.keys = {{"b", 1}, {"a", 1}}}));
  EXPECT_TRUE(refused(ListAnswer{.keys = {{"a", 1}, {"a", 1}}}));
  EXPECT_TRUE(refused(ListAnswer{.keys = {{"a", 0}}}));
  EXPECT_TRUE(refused(ListAnswer{.keys = {{"", 1}}}));
}

// A message spreads its rows over columns. The decoder refuses a message if one column has lost the
// last row. Each cut shortens one column.
template <typename Message, typename Value, typename... Cut>
void expect_equal_columns(const Value& whole, Cut... cuts) {
  EXPECT_FALSE(refused(whole)) << Message().GetTypeName();
  int column = 0;
  const auto expect_refused = [&](auto cut) {
    Message message;
    ASSERT_TRUE(message.ParseFromString(bytes_of(whole)));
    cut(message);
    Value back;
    EXPECT_FALSE(decode(message.SerializeAsString(), back).ok())
        << Message().GetTypeName() << ", cut " << column;
    ++column;
  };
  (expect_refused(cuts), ...);
}

TEST(WireCodec, ColumnsOfDifferentLengthsAreRefused) {
  expect_equal_columns<mc::wire::Heartbeat>(
      Heartbeat{{1, 1, false}, {{4, 2}, {5, 3}}},
      [](auto& m) { m.mutable_unreachable_node()->RemoveLast(); },
      [](auto& m) { m.mutable_unreachable_incarnation()->RemoveLast(); });
  expect_equal_columns<mc::wire::Publish>(
      publish(3), [](auto& m) { m.mutable_hash()->RemoveLast(); },
      [](auto& m) { m.mutable_hash()->Truncate(4); },
      [](auto& m) { m.mutable_version()->RemoveLast(); },
      [](auto& m) { m.mutable_object_bytes()->RemoveLast(); },
      [](auto& m) { m.mutable_attributes()->pop_back(); },
      [](auto& m) { m.mutable_what()->pop_back(); });
  expect_equal_columns<mc::wire::LocateAnswer>(
      located(3, 2), [](auto& m) { m.mutable_state()->pop_back(); },
      [](auto& m) { m.mutable_attributes()->pop_back(); },
      [](auto& m) { m.mutable_holder_count()->pop_back(); },
      [](auto& m) { m.mutable_version()->RemoveLast(); },
      [](auto& m) { m.mutable_object_bytes()->RemoveLast(); },
      [](auto& m) { m.mutable_holder()->RemoveLast(); },
      [](auto& m) { m.set_missing_parts(std::string(2, '\0')); });
  expect_equal_columns<mc::wire::ChooseHolders>(
      ChooseHolders{
          .items = {{key(1), 1, 1}, {key(2), 2, 1}}, .host = 0, .preferred = {}, .exclude = {}},
      [](auto& m) { m.mutable_hash()->Truncate(2); },
      [](auto& m) { m.mutable_object_bytes()->RemoveLast(); },
      [](auto& m) { m.mutable_replicas()->pop_back(); });
  expect_equal_columns<mc::wire::ChooseHoldersAnswer>(
      ChooseHoldersAnswer{.nodes = {{4}, {5, 6}}},
      [](auto& m) { m.mutable_node_count()->pop_back(); },
      [](auto& m) { m.mutable_node()->RemoveLast(); });
  const std::vector<RemoveItem> removals{{key(1), 1}, {key(2), 2}};
  expect_equal_columns<mc::wire::Remove>(
      Remove{.items = removals}, [](auto& m) { m.mutable_hash()->Truncate(2); },
      [](auto& m) { m.mutable_up_to_version()->RemoveLast(); });
  expect_equal_columns<mc::wire::RemovalNotes>(
      RemovalNotes{{{key(1), 1, 2}, {key(2), 3, 0}}},
      [](auto& m) { m.mutable_hash()->Truncate(2); },
      [](auto& m) { m.mutable_version()->RemoveLast(); },
      [](auto& m) { m.mutable_unheard_up_to()->RemoveLast(); });
  expect_equal_columns<mc::wire::Drop>(
      Drop{.items = removals, .removal = 0}, [](auto& m) { m.mutable_hash()->Truncate(2); },
      [](auto& m) { m.mutable_up_to_version()->RemoveLast(); });
  expect_equal_columns<mc::wire::ListAnswer>(
      ListAnswer{.keys = {{"a", 1}, {"b", 1}}}, [](auto& m) { m.mutable_keys()->pop_back(); },
      [](auto& m) { m.mutable_key_bytes()->RemoveLast(); },
      [](auto& m) { m.mutable_object_bytes()->RemoveLast(); });
  expect_equal_columns<mc::wire::MembersAnswer>(
      MembersAnswer{.members = {{.descriptor = descriptor()}, {.descriptor = descriptor()}}},
      [](auto& m) { m.mutable_member()->RemoveLast(); },
      [](auto& m) { m.mutable_state()->pop_back(); },
      [](auto& m) { m.mutable_used_bytes()->RemoveLast(); },
      [](auto& m) { m.mutable_entries()->RemoveLast(); });
}

TEST(WireCodec, RefusalsDoNotControlATerminal) {
  const Refusal back = through(Refusal{"no\x1b[2J\n", "h:1"});
  EXPECT_EQ(back.text, "no?[2J?");
  EXPECT_EQ(back.leader, "h:1");
}

TEST(WireCodec, AMessageCutOffAnywhereGivesNoMoreItems) {
  const std::string whole = bytes_of(publish(40));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Publish back;
    if (decode(std::string_view(whole).substr(0, size), back).ok()) {
      EXPECT_LE(back.items.size(), 40u);
    }
  }
}

// Section by section: the present encoder writes the golden bytes, and the present decoder reads
// them.
template <typename T>
void expect_golden(const golden::Sections& sections, const std::string& name, const T& value) {
  const std::string bytes = bytes_of(value);
  const auto span = std::as_bytes(std::span(bytes));
  const auto found = sections.find(name);
  if (found == sections.end() || !std::ranges::equal(found->second, span)) {
    ADD_FAILURE() << "master-v1.txt differs:\n" << golden::section_text(name, span);
    return;
  }
  T back;
  const auto& stored = found->second;
  EXPECT_TRUE(decode({reinterpret_cast<const char*>(stored.data()), stored.size()}, back).ok());
  EXPECT_EQ(bytes_of(back), bytes);
}

TEST(WireCodec, BytesEqualTheGoldenFileOfVersion1) {
  const auto sections = golden::read("master-v1.txt");
  expect_golden(sections, "join", descriptor());
  expect_golden(sections, "heartbeat", Heartbeat{{1 << 20, 10, true}, {{4, 2}}});
  expect_golden(sections, "heartbeat with capacity", Heartbeat{{1 << 20, 10, true, 1 << 20}, {}});
  expect_golden(sections, "publish", publish(4));
  expect_golden(sections, "publish answer",
                PublishAnswer{StreamAnswer::kApplied, {Verdict::kStale, Verdict::kAccepted}});
  expect_golden(sections, "publish refused",
                PublishAnswer{StreamAnswer::kApplied, {Verdict::kBehind}, 0x1122334455667788});
  expect_golden(sections, "report", Report{12, true});
  expect_golden(sections, "locate", Locate{{key(1), key(2)}, 50, 7, 8});
  expect_golden(sections, "locate answer", located(2, 2));
  LocateAnswer lacking = located(2, 1);
  lacking.keys[1].attributes = {.striped = true, .parts = 3, .part = 1};
  lacking.keys[1].missing_parts = 2;
  expect_golden(sections, "locate answer lacking parts", lacking);
  expect_golden(sections, "copy of a part", Copy{key(1), 5, 4096, 7, "10.0.0.7:7400", 3, 1});
  expect_golden(sections, "remove", Remove{{{key(1), 4}, {key(2), UINT64_MAX}}});
  expect_golden(sections, "drop", Drop{{{key(1), UINT64_MAX}}, 6});
  expect_golden(sections, "match", Match{"ns", "a.*", Match::Kind::kRegex, "k", 10});
  expect_golden(sections, "list answer", ListAnswer{{{"a", 1}, {"bc", 2}}, true, 1});
  expect_golden(sections, "refusal", Refusal{"not the leader", "10.0.0.1:7400"});
  expect_golden(sections, "attend", Attend{3, 4});
  expect_golden(sections, "attend answer", AttendAnswer{4, {}, {}});
  expect_golden(sections, "attend answer with cluster", AttendAnswer{4, "a", "b:1"});
}

}  // namespace
}  // namespace mc::metadata::wire
