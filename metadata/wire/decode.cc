// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "metadata/directory/key_hash.h"
#include "metadata/wire/codec.h"
#include "metadata/wire/fields.h"
#include "metadata/wire/wire_limits.h"

namespace mc::metadata::wire {

namespace {

constexpr const char* kNotSuch = "not such a message";
constexpr const char* kLongPromise = "a promise of more than 20 minutes";

Status wrong(const char* message, const char* what) {
  return {MC_INVALID_ARGUMENT, std::string("a peer's ") + message + " is not valid: " + what +
                                   "; do both sides run compatible versions?"};
}

template <typename Message>
bool parse(std::string_view bytes, std::size_t max_bytes, Message& message) {
  return bytes.size() <= max_bytes &&
         message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

std::size_t count_of(int count) { return static_cast<std::size_t>(count); }

// An even number of words, of at most max_count keys.
bool hashes_fit(int words, std::size_t max_count = kMaxItems) {
  return words % 2 == 0 && count_of(words) / 2 <= max_count;
}

// A column of 1 byte a row, each at most `last`.
bool column_fits(const std::string& column, std::size_t rows, std::uint8_t last) {
  return column.size() == rows && std::ranges::all_of(column, [last](char byte) {
           return static_cast<std::uint8_t>(byte) <= last;
         });
}

template <typename Enum>
void read_column(const std::string& column, std::vector<Enum>& values) {
  values.resize(column.size());
  for (std::size_t i = 0; i < column.size(); ++i) {
    values[i] = static_cast<Enum>(static_cast<std::uint8_t>(column[i]));
  }
}

bool object_size_ok(std::uint64_t bytes) { return bytes >= 1 && bytes <= MC_MAX_OBJECT_BYTES; }

constexpr auto kLastStream = static_cast<std::uint8_t>(StreamAnswer::kBusy);
constexpr auto kLastVerdict = static_cast<std::uint8_t>(Verdict::kBehind);
constexpr auto kLastWhat = static_cast<std::uint8_t>(PublishItem::What::kCreated);
constexpr auto kLastLookup = static_cast<std::uint8_t>(Lookup::kRecovering);

bool text_ok(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

// Each function returns nullptr if the message is valid, else the fault.
const char* fault(const google::protobuf::MessageLite&) { return nullptr; }
const char* fault(const pb::Attend& message) {
  if (message.partitions() > kMaxPartitions) return "more than 64 partitions";
  if (message.partition() < std::max(message.partitions(), 1u)) return nullptr;
  return "a partition beyond the number of partitions";
}
const char* fault(const pb::AttendAnswer& message) {
  if (message.partitions() < 1 || message.partitions() > kMaxPartitions) {
    return "not 1 to 64 partitions";
  }
  for (const std::string* const text : {&message.cluster(), &message.address()}) {
    if (text->size() > kMaxAddressBytes || !text_ok(*text)) {
      return "its cluster id or address is too long or not printable";
    }
  }
  return nullptr;
}
const char* fault(const pb::Join& message) {
  if (message.node() == kNoNode) return "no node id";
  if (message.incarnation() == 0) return "no incarnation";
  if (message.address().empty() || message.address().size() > kMaxAddressBytes ||
      !text_ok(message.address())) {
    return "its address is empty, too long or not printable";
  }
  return message.capacity_bytes() <= kMaxCapacityBytes ? nullptr : "its capacity is too large";
}
const char* fault(const pb::JoinAnswer& message) {
  const bool valid = message.heartbeat_ms() >= 10 && message.heartbeat_ms() <= 60'000;
  if (!valid) return "heartbeats outside 10 ms to 60 s";
  return message.promise_ms() <= kMaxPromiseMs ? nullptr : kLongPromise;
}
const char* fault(const pb::HeartbeatAnswer& message) {
  if (message.answer() > static_cast<std::uint32_t>(HeartbeatAnswer::kStale)) return kNotSuch;
  if (count_of(message.gone_size()) > kMaxMembers) return "too many members that are gone";
  if (message.lease_ms() > kMaxLeaseMs) return "a lease of more than 10 minutes";
  return message.promise_ms() <= kMaxPromiseMs ? nullptr : kLongPromise;
}
const char* fault(const pb::ReportAnswer& message) {
  return message.stream() <= kLastStream ? nullptr : kNotSuch;
}
const char* fault(const pb::Match& message) {
  if (message.name_space().size() > MC_MAX_NAMESPACE_BYTES) {
    return "a namespace of more than 64 bytes";
  }
  if (message.pattern().size() > kMaxPatternBytes) return "a pattern of more than 4,096 bytes";
  if (message.kind() > 1) return "an unknown kind of pattern";
  const bool fits = message.after().size() <= MC_MAX_KEY_BYTES && message.limit() <= kMaxListed;
  return fits ? nullptr : "a key or a limit beyond the largest";
}
const char* fault(const pb::RelocationAnswer& message) {
  const auto last = static_cast<std::uint32_t>(RelocationAnswer::State::kDone);
  const bool valid = message.state() <= last && message.message().size() <= kMaxRefusalBytes &&
                     text_ok(message.message());
  return valid ? nullptr : "an unknown state, or text that is too long or not printable";
}
const char* fault(const pb::Copy& message) {
  const bool valid = message.source() != kNoNode && object_size_ok(message.object_bytes()) &&
                     message.source_address().size() <= kMaxAddressBytes &&
                     text_ok(message.source_address()) && message.parts() <= kMaxParts &&
                     message.part() < std::max(message.parts(), 1u);
  return valid ? nullptr : "no source, or an impossible size, part or address";
}
const char* fault(const pb::Refusal& message) {
  const bool fits =
      message.text().size() <= kMaxRefusalBytes && message.leader().size() <= kMaxAddressBytes;
  return fits ? nullptr : kNotSuch;
}

// A message that is a plain copy of `value`.
template <typename Message, typename Value>
Status take_copy(std::string_view bytes, std::size_t max_bytes, const char* name, Value& value) {
  Message message;
  if (!parse(bytes, max_bytes, message)) return wrong(name, kNotSuch);
  if (const char* const cause = fault(message); cause != nullptr) return wrong(name, cause);
  take(message, value);
  return {};
}

template <typename Message>
Status take_removals(const char* name, const Message& message, std::vector<RemoveItem>& items) {
  if (!hashes_fit(message.hash_size())) return wrong(name, "odd or too many hashes");
  const std::size_t count = count_of(message.hash_size()) / 2;
  const std::size_t versions = count_of(message.up_to_version_size());
  if (versions != 0 && versions != count) return wrong(name, "columns of different lengths");
  items.resize(count);
  const std::uint64_t* hash = message.hash().data();
  for (std::size_t i = 0; i < count; ++i) {
    items[i].hash = {hash[2 * i], hash[2 * i + 1]};
    items[i].up_to_version =
        versions == 0 ? UINT64_MAX : message.up_to_version(static_cast<int>(i));
  }
  return {};
}

}  // namespace

Status decode(std::string_view bytes, Attend& value) {
  return take_copy<pb::Attend>(bytes, kMaxSmallBody, "Attend", value);
}
Status decode(std::string_view bytes, AttendAnswer& value) {
  return take_copy<pb::AttendAnswer>(bytes, kMaxSmallBody, "AttendAnswer", value);
}
Status decode(std::string_view bytes, Descriptor& value) {
  return take_copy<pb::Join>(bytes, kMaxSmallBody, "Join", value);
}
Status decode(std::string_view bytes, JoinAnswer& value) {
  return take_copy<pb::JoinAnswer>(bytes, kMaxSmallBody, "JoinAnswer", value);
}
Status decode(std::string_view bytes, Report& value) {
  return take_copy<pb::Report>(bytes, kMaxSmallBody, "Report", value);
}
Status decode(std::string_view bytes, ReportAnswer& value) {
  return take_copy<pb::ReportAnswer>(bytes, kMaxSmallBody, "ReportAnswer", value);
}
Status decode(std::string_view bytes, Match& value) {
  return take_copy<pb::Match>(bytes, kMaxMatchBody, "Match", value);
}
Status decode(std::string_view bytes, RemoveMatchingAnswer& value) {
  return take_copy<pb::RemoveMatchingAnswer>(bytes, kMaxSmallBody, "RemoveMatchingAnswer", value);
}
Status decode(std::string_view bytes, StatsAnswer& value) {
  return take_copy<pb::StatsAnswer>(bytes, kMaxSmallBody, "StatsAnswer", value);
}
Status decode(std::string_view bytes, DrainAnswer& value) {
  return take_copy<pb::DrainAnswer>(bytes, kMaxSmallBody, "DrainAnswer", value);
}
Status decode(std::string_view bytes, RelocationId& value) {
  return take_copy<pb::RelocationId>(bytes, kMaxSmallBody, "RelocationId", value);
}
Status decode(std::string_view bytes, RelocationAnswer& value) {
  return take_copy<pb::RelocationAnswer>(bytes, kMaxSmallBody, "RelocationAnswer", value);
}
Status decode(std::string_view bytes, Copy& value) {
  return take_copy<pb::Copy>(bytes, kMaxSmallBody, "Copy", value);
}

Status decode(std::string_view bytes, Drain& value) {
  pb::Drain message;
  if (!parse(bytes, kMaxSmallBody, message)) return wrong("Drain", kNotSuch);
  if (message.node() == kNoNode) return wrong("Drain", "no node id");
  if (count_of(message.target_size()) > kMaxNamedNodes) return wrong("Drain", "too many targets");
  value.node = message.node();
  value.stop = message.stop();
  value.targets.assign(message.target().begin(), message.target().end());
  value.max_jobs = message.max_jobs();
  value.dead = message.dead();
  return {};
}

Status decode(std::string_view bytes, Relocate& value) {
  pb::Relocate message;
  if (!parse(bytes, kMaxSmallBody, message)) return wrong("Relocate", kNotSuch);
  const auto targets = count_of(message.target_size());
  if (targets == 0 || targets > MC_MAX_REPLICAS) return wrong("Relocate", "not 1 to 8 targets");
  value.key = {message.hash_hi(), message.hash_lo()};
  value.source = message.source();
  value.targets.assign(message.target().begin(), message.target().end());
  return {};
}

Status decode(std::string_view bytes, AwaitReplicas& value) {
  pb::AwaitReplicas message;
  if (!parse(bytes, kMaxBatchBody, message)) return wrong("AwaitReplicas", kNotSuch);
  if (!hashes_fit(message.hash_size())) return wrong("AwaitReplicas", "odd or too many hashes");
  const std::size_t count = count_of(message.hash_size()) / 2;
  if (!column_fits(message.replicas(), count, MC_MAX_REPLICAS)) {
    return wrong("AwaitReplicas", "columns of different lengths, or too many replicas");
  }
  value.keys.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int row = static_cast<int>(i);
    value.keys[i] = {{message.hash(2 * row), message.hash(2 * row + 1)},
                     static_cast<std::uint8_t>(message.replicas()[i])};
  }
  return {};
}

Status decode(std::string_view bytes, AwaitReplicasAnswer& value) {
  pb::AwaitReplicasAnswer message;
  constexpr auto kLast = static_cast<std::uint8_t>(AwaitedState::kGone);
  if (!parse(bytes, kMaxBatchBody, message) || message.state().size() > kMaxItems ||
      !column_fits(message.state(), message.state().size(), kLast)) {
    return wrong("AwaitReplicasAnswer", kNotSuch);
  }
  read_column(message.state(), value.keys);
  return {};
}

Status decode(std::string_view bytes, Heartbeat& value) {
  pb::Heartbeat message;
  if (!parse(bytes, kMaxSmallBody, message)) return wrong("Heartbeat", kNotSuch);
  if (message.unreachable_node_size() != message.unreachable_incarnation_size() ||
      count_of(message.unreachable_node_size()) > kMaxUnreachable) {
    return wrong("Heartbeat", "too many unreachable nodes, or columns of different lengths");
  }
  if (message.used_bytes() > kMaxCapacityBytes || message.busy_permille() > 1000 ||
      message.capacity_bytes() > kMaxCapacityBytes) {
    return wrong("Heartbeat", "an impossible load");
  }
  take(message, value.load);
  value.load.capacity_bytes.reset();
  if (message.has_capacity_bytes()) value.load.capacity_bytes = message.capacity_bytes();
  value.unreachable.clear();
  for (int i = 0; i < message.unreachable_node_size(); ++i) {
    value.unreachable.push_back({message.unreachable_node(i), message.unreachable_incarnation(i)});
  }
  value.list_version = message.list_version();
  value.latest_version = message.latest_version();
  value.promised_ns = message.promised_ns();
  return {};
}

Status decode(std::string_view bytes, Publish& value) {
  pb::Publish message;
  if (!parse(bytes, kMaxBatchBody, message)) return wrong("Publish", kNotSuch);
  if (!hashes_fit(message.hash_size())) return wrong("Publish", "odd or too many hashes");
  const std::size_t count = count_of(message.hash_size()) / 2;
  const std::string& attributes = message.attributes();
  const std::string& what = message.what();
  if (count_of(message.version_size()) != count || attributes.size() != count ||
      count_of(message.object_bytes_size()) != count) {
    return wrong("Publish", "columns of different lengths");
  }
  if (!what.empty() && !column_fits(what, count, kLastWhat)) {
    return wrong("Publish", "marks that do not fit its keys");
  }
  const std::string& on_disk = message.on_disk();
  if (!on_disk.empty() && !column_fits(on_disk, count, 1)) {
    return wrong("Publish", "places that do not fit its keys");
  }
  value.sequence = message.sequence();
  value.removals_seen = message.removals_seen();
  value.items.resize(count);
  const std::uint64_t* hash = message.hash().data();
  const std::uint64_t* version = message.version().data();
  const std::uint64_t* object_bytes = message.object_bytes().data();
  for (std::size_t i = 0; i < count; ++i) {
    // The directory gives a verdict for each impossible size or attribute.
    value.items[i] = {
        {hash[2 * i], hash[2 * i + 1]},
        version[i],
        object_bytes[i],
        unpack(static_cast<std::uint8_t>(attributes[i])),
        what.empty() ? PublishItem::What::kHolds : static_cast<PublishItem::What>(what[i]),
        !on_disk.empty() && on_disk[i] != 0};
  }
  return {};
}

Status decode(std::string_view bytes, PublishAnswer& value) {
  pb::PublishAnswer message;
  if (!parse(bytes, kMaxBatchBody, message) || message.stream() > kLastStream ||
      message.verdicts().size() > kMaxItems ||
      !column_fits(message.verdicts(), message.verdicts().size(), kLastVerdict)) {
    return wrong("PublishAnswer", kNotSuch);
  }
  value.stream = static_cast<StreamAnswer>(message.stream());
  read_column(message.verdicts(), value.verdicts);
  value.refused_up_to = message.refused_up_to();
  return {};
}

Status decode(std::string_view bytes, Locate& value) {
  pb::Locate message;
  if (!parse(bytes, kMaxBatchBody, message)) return wrong("Locate", kNotSuch);
  if (!hashes_fit(message.hash_size())) return wrong("Locate", "odd or too many hashes");
  if (message.wait_ms() > kMaxWaitMs) return wrong("Locate", "a wait of more than an hour");
  value.keys.resize(count_of(message.hash_size()) / 2);
  const std::uint64_t* hash = message.hash().data();
  for (std::size_t i = 0; i < value.keys.size(); ++i)
    value.keys[i] = {hash[2 * i], hash[2 * i + 1]};
  value.wait_ms = message.wait_ms();
  value.host = message.host();
  value.zone = message.zone();
  return {};
}

Status decode(std::string_view bytes, LocateAnswer& value) {
  pb::LocateAnswer message;
  if (!parse(bytes, kMaxLocateAnswerBody, message)) {
    return wrong("LocateAnswer", kNotSuch);
  }
  const std::size_t count = message.state().size();
  if (count > kMaxItems || !column_fits(message.state(), count, kLastLookup) ||
      !column_fits(message.holder_count(), count, kMaxHoldersPerKey) ||
      message.attributes().size() != count || count_of(message.version_size()) != count ||
      count_of(message.object_bytes_size()) != count ||
      (!message.missing_parts().empty() &&
       !column_fits(message.missing_parts(), count, kMaxParts)) ||
      (message.on_disk_size() != 0 && count_of(message.on_disk_size()) != count)) {
    return wrong("LocateAnswer", "columns of different lengths, or values out of range");
  }
  value.keys.resize(count);
  std::uint32_t holders = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Located& key = value.keys[i];
    key.state = static_cast<Lookup>(message.state()[i]);
    key.attributes = unpack(static_cast<std::uint8_t>(message.attributes()[i]));
    key.first_holder = holders;
    key.holder_count = static_cast<std::uint8_t>(message.holder_count()[i]);
    key.version = message.version(static_cast<int>(i));
    key.bytes = message.object_bytes(static_cast<int>(i));
    key.missing_parts = message.missing_parts().empty()
                            ? std::uint8_t{0}
                            : static_cast<std::uint8_t>(message.missing_parts()[i]);
    if (message.on_disk_size() != 0) key.on_disk = message.on_disk(static_cast<int>(i));
    if (static_cast<unsigned>(std::bit_width(key.on_disk)) > key.holder_count) {
      return wrong("LocateAnswer", "more holders with disks than holders");
    }
    holders += key.holder_count;
    if (key.state != Lookup::kFound) continue;
    if (key.holder_count == 0 || !object_size_ok(key.bytes) || !valid(key.attributes)) {
      return wrong("LocateAnswer", "a key that is found without holders, size or attributes");
    }
  }
  if (count_of(message.holder_size()) != holders) {
    return wrong("LocateAnswer", "more or fewer holders than it says");
  }
  value.holders.assign(message.holder().begin(), message.holder().end());
  return {};
}

Status decode(std::string_view bytes, ChooseHolders& value) {
  pb::ChooseHolders message;
  if (!parse(bytes, kMaxBatchBody, message)) return wrong("ChooseHolders", kNotSuch);
  if (!hashes_fit(message.hash_size())) return wrong("ChooseHolders", "odd or too many hashes");
  const std::size_t count = count_of(message.hash_size()) / 2;
  if (count_of(message.object_bytes_size()) != count ||
      !column_fits(message.replicas(), count, kMaxReplicas)) {
    return wrong("ChooseHolders", "columns of different lengths, or too many replicas");
  }
  if (count_of(message.preferred_size()) > kMaxNamedNodes ||
      count_of(message.exclude_size()) > kMaxNamedNodes) {
    return wrong("ChooseHolders", "more than 64 nodes preferred or excluded");
  }
  value.items.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int row = static_cast<int>(i);
    value.items[i] = {{message.hash(2 * row), message.hash(2 * row + 1)},
                      message.object_bytes(row),
                      static_cast<std::uint8_t>(message.replicas()[i])};
    if (value.items[i].replicas == 0 || !object_size_ok(value.items[i].bytes)) {
      return wrong("ChooseHolders", "an object of no size, or no replicas");
    }
  }
  value.host = message.host();
  value.preferred.assign(message.preferred().begin(), message.preferred().end());
  value.exclude.assign(message.exclude().begin(), message.exclude().end());
  return {};
}

Status decode(std::string_view bytes, ChooseHoldersAnswer& value) {
  pb::ChooseHoldersAnswer message;
  if (!parse(bytes, kMaxLocateAnswerBody, message)) return wrong("ChooseHoldersAnswer", kNotSuch);
  const std::string& counts = message.node_count();
  if (counts.size() > kMaxItems || !column_fits(counts, counts.size(), kMaxReplicas)) {
    return wrong("ChooseHoldersAnswer", "too many keys, or too many nodes for one");
  }
  value.nodes.assign(counts.size(), {});
  auto next = message.node().begin();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (message.node().end() - next < counts[i]) {
      return wrong("ChooseHoldersAnswer", "fewer nodes than it says");
    }
    value.nodes[i].assign(next, next + counts[i]);
    next += counts[i];
  }
  return next == message.node().end() ? Status() : wrong("ChooseHoldersAnswer", "too many nodes");
}

Status decode(std::string_view bytes, Remove& value) {
  pb::Remove message;
  if (!parse(bytes, kMaxBatchBody, message)) return wrong("Remove", kNotSuch);
  return take_removals("Remove", message, value.items);
}

Status decode(std::string_view bytes, RemovalNotes& value) {
  constexpr const char* kName = "RemovalNotes";
  pb::RemovalNotes message;
  if (!parse(bytes, kMaxBatchBody, message)) return wrong(kName, kNotSuch);
  if (!hashes_fit(message.hash_size())) return wrong(kName, "odd or too many hashes");
  const std::size_t count = count_of(message.hash_size()) / 2;
  const std::size_t unheard = count_of(message.unheard_up_to_size());
  if (count_of(message.version_size()) != count || (unheard != 0 && unheard != count)) {
    return wrong(kName, "columns of different lengths");
  }
  value.items.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<int>(i);
    value.items[i] = {.hash = {message.hash(2 * at), message.hash(2 * at + 1)},
                      .version = message.version(at),
                      .unheard_up_to = unheard == 0 ? 0 : message.unheard_up_to(at)};
  }
  return {};
}

Status decode(std::string_view bytes, RemoveReply& value) {
  pb::RemoveAnswer message;
  if (!parse(bytes, kMaxBatchBody, message) || message.state().size() > kMaxItems ||
      !column_fits(message.state(), message.state().size(), kLastLookup)) {
    return wrong("RemoveAnswer", kNotSuch);
  }
  read_column(message.state(), value.keys);
  value.unconfirmed = message.unconfirmed();
  value.away = message.away();
  return {};
}

Status decode(std::string_view bytes, ListAnswer& value) {
  pb::ListAnswer message;
  if (!parse(bytes, kMaxListBody, message)) return wrong("ListAnswer", kNotSuch);
  const std::size_t count = count_of(message.key_bytes_size());
  if (count > kMaxListed || count_of(message.object_bytes_size()) != count) {
    return wrong("ListAnswer", "too many keys, or columns of different lengths");
  }
  value.keys.resize(count);
  std::string_view left = message.keys();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t key_bytes = message.key_bytes(static_cast<int>(i));
    if (key_bytes == 0 || key_bytes > MC_MAX_KEY_BYTES || key_bytes > left.size()) {
      return wrong("ListAnswer", "a key without text, or longer than its message");
    }
    value.keys[i].key = left.substr(0, key_bytes);
    value.keys[i].bytes = message.object_bytes(static_cast<int>(i));
    left.remove_prefix(key_bytes);
    if (!object_size_ok(value.keys[i].bytes) ||
        (i > 0 && value.keys[i - 1].key >= value.keys[i].key)) {
      return wrong("ListAnswer", "a key of no size, or out of order");
    }
  }
  if (!left.empty()) return wrong("ListAnswer", "text that belongs to no key");
  value.more = message.more();
  value.unconfirmed = message.unconfirmed();
  return {};
}

namespace {

Status take_members(const pb::MembersAnswer& message, MembersAnswer& value) {
  const std::size_t count = count_of(message.member_size());
  if (count > kMaxMembers || !column_fits(message.state(), count, 7) ||
      count_of(message.used_bytes_size()) != count || count_of(message.entries_size()) != count ||
      count_of(message.wall_ns_size()) != count ||
      (message.disk_entries_size() != 0 && count_of(message.disk_entries_size()) != count)) {
    return wrong("MembersAnswer", "too many members, or columns of different lengths");
  }
  value.members.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int row = static_cast<int>(i);
    MemberInfo& member = value.members[i];
    const char* const cause = fault(message.member(row));
    if (cause != nullptr) return wrong("MembersAnswer", cause);
    take(message.member(row), member.descriptor);
    member.state = static_cast<MemberState>(message.state()[i] & 1);
    member.draining = (message.state()[i] & 2) != 0;
    member.readable = (message.state()[i] & 4) != 0;
    member.used_bytes = message.used_bytes(row);
    member.entries = message.entries(row);
    if (message.disk_entries_size() != 0) member.disk_entries = message.disk_entries(row);
    member.wall_ns = message.wall_ns(row);
  }
  const std::size_t down = count_of(message.down_size());
  if (down > kMaxDown || count_of(message.down_ms_size()) != down) {
    return wrong("MembersAnswer",
                 "too many members that are down, or columns of different lengths");
  }
  value.down.resize(down);
  for (std::size_t i = 0; i < down; ++i) {
    const int row = static_cast<int>(i);
    if (const char* const cause = fault(message.down(row)); cause != nullptr) {
      return wrong("MembersAnswer", cause);
    }
    take(message.down(row), value.down[i].descriptor);
    value.down[i].down_ms = message.down_ms(row);
  }
  return {};
}

}  // namespace

Status decode(std::string_view bytes, MembersAnswer& value) {
  pb::MembersAnswer message;
  if (!parse(bytes, kMaxMembersBody, message)) return wrong("MembersAnswer", kNotSuch);
  return take_members(message, value);
}

Status decode(std::string_view bytes, HeartbeatReply& value) {
  pb::HeartbeatAnswer message;
  if (!parse(bytes, kMaxMembersBody, message)) return wrong("HeartbeatAnswer", kNotSuch);
  if (const char* const cause = fault(message); cause != nullptr) {
    return wrong("HeartbeatAnswer", cause);
  }
  take(message, value);
  value.gone.assign(message.gone().begin(), message.gone().end());
  return take_members(message.changed(), value.changed);
}

Status decode(std::string_view bytes, Drop& value) {
  pb::Drop message;
  if (!parse(bytes, kMaxBatchBody, message)) return wrong("Drop", kNotSuch);
  value.removal = message.removal();
  return take_removals("Drop", message, value.items);
}

Status decode(std::string_view bytes, Refusal& value) {
  Status status = take_copy<pb::Refusal>(bytes, kMaxSmallBody, "Refusal", value);
  if (!status.ok()) return status;
  // The text is printed, so a peer's bytes must not control a terminal.
  std::ranges::replace_if(
      value.text, [](char c) { return c < ' ' || c == 127; }, '?');
  return text_ok(value.leader) ? Status() : wrong("Refusal", "an address that is not printable");
}

}  // namespace mc::metadata::wire
