// SPDX-License-Identifier: Apache-2.0
#include "metadata/wire/codec.h"
#include "metadata/wire/fields.h"
#include "metadata/wire/wire_limits.h"

namespace mc::metadata::wire {

namespace {

template <typename Message>
void write(const Message& message, std::string& bytes) {
  bytes.clear();
  message.AppendPartialToString(&bytes);
}

template <typename Message, typename Value>
void write_copy(const Value& value, std::string& bytes) {
  Message message;
  fill(value, message);
  write(message, bytes);
}

int count_of(std::size_t count) { return static_cast<int>(count); }

// The columns hi, lo, hi, lo … of one field of each item.
template <typename Items, typename Field, typename KeyOf>
void write_hashes(const Items& items, Field* field, KeyOf key_of) {
  field->Reserve(count_of(items.size() * 2));
  for (const auto& item : items) {
    const KeyHash key = key_of(item);
    field->AddAlreadyReserved(key.hi);
    field->AddAlreadyReserved(key.lo);
  }
}

template <typename Enum>
void write_column(const std::vector<Enum>& values, std::string& column) {
  column.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) column[i] = static_cast<char>(values[i]);
}

template <typename Message>
void fill_removals(const std::vector<RemoveItem>& items, Message& message) {
  write_hashes(items, message.mutable_hash(), [](const RemoveItem& item) { return item.hash; });
  for (const RemoveItem& item : items) {
    if (item.up_to_version == UINT64_MAX) continue;
    for (const RemoveItem& each : items) message.add_up_to_version(each.up_to_version);
    return;
  }
}

void fill_members(const MembersAnswer& value, pb::MembersAnswer& message) {
  for (const MemberInfo& member : value.members) {
    fill(member.descriptor, *message.add_member());
    *message.mutable_state() +=
        static_cast<char>(static_cast<unsigned>(member.state) | (member.draining ? 2u : 0u) |
                          (member.readable ? 4u : 0u));
    message.add_used_bytes(member.used_bytes);
    message.add_entries(member.entries);
    message.add_wall_ns(member.wall_ns);
  }
  const auto on_disks = [](const MemberInfo& member) { return member.disk_entries != 0; };
  if (std::ranges::any_of(value.members, on_disks)) {
    for (const MemberInfo& member : value.members) message.add_disk_entries(member.disk_entries);
  }
  for (const DownMember& member : value.down) {
    fill(member.descriptor, *message.add_down());
    message.add_down_ms(member.down_ms);
  }
}

}  // namespace

void encode(const Attend& value, std::string& bytes) { write_copy<pb::Attend>(value, bytes); }
void encode(const AttendAnswer& value, std::string& bytes) {
  write_copy<pb::AttendAnswer>(value, bytes);
}
void encode(const Descriptor& value, std::string& bytes) { write_copy<pb::Join>(value, bytes); }
void encode(const JoinAnswer& value, std::string& bytes) {
  write_copy<pb::JoinAnswer>(value, bytes);
}
void encode(const Report& value, std::string& bytes) { write_copy<pb::Report>(value, bytes); }
void encode(const ReportAnswer& value, std::string& bytes) {
  write_copy<pb::ReportAnswer>(value, bytes);
}
void encode(const Match& value, std::string& bytes) { write_copy<pb::Match>(value, bytes); }
void encode(const RemoveMatchingAnswer& value, std::string& bytes) {
  write_copy<pb::RemoveMatchingAnswer>(value, bytes);
}
void encode(const StatsAnswer& value, std::string& bytes) {
  write_copy<pb::StatsAnswer>(value, bytes);
}
void encode(const DrainAnswer& value, std::string& bytes) {
  write_copy<pb::DrainAnswer>(value, bytes);
}
void encode(const RelocationId& value, std::string& bytes) {
  write_copy<pb::RelocationId>(value, bytes);
}
void encode(const RelocationAnswer& value, std::string& bytes) {
  write_copy<pb::RelocationAnswer>(value, bytes);
}
void encode(const Copy& value, std::string& bytes) { write_copy<pb::Copy>(value, bytes); }

void encode(const Drain& value, std::string& bytes) {
  pb::Drain message;
  message.set_node(value.node);
  message.set_stop(value.stop);
  for (const NodeId target : value.targets) message.add_target(target);
  message.set_max_jobs(value.max_jobs);
  message.set_dead(value.dead);
  write(message, bytes);
}

void encode(const Relocate& value, std::string& bytes) {
  pb::Relocate message;
  message.set_hash_hi(value.key.hi);
  message.set_hash_lo(value.key.lo);
  message.set_source(value.source);
  for (const NodeId target : value.targets) message.add_target(target);
  write(message, bytes);
}

void encode(const AwaitReplicas& value, std::string& bytes) {
  pb::AwaitReplicas message;
  write_hashes(value.keys, message.mutable_hash(), [](const AwaitedKey& key) { return key.hash; });
  for (const AwaitedKey& key : value.keys) {
    *message.mutable_replicas() += static_cast<char>(key.replicas);
  }
  write(message, bytes);
}

void encode(const AwaitReplicasAnswer& value, std::string& bytes) {
  pb::AwaitReplicasAnswer message;
  write_column(value.keys, *message.mutable_state());
  write(message, bytes);
}

void encode(const Heartbeat& value, std::string& bytes) {
  pb::Heartbeat message;
  fill(value.load, message);
  if (value.load.capacity_bytes) message.set_capacity_bytes(*value.load.capacity_bytes);
  for (const Unreachable& peer : value.unreachable) {
    message.add_unreachable_node(peer.node);
    message.add_unreachable_incarnation(peer.incarnation);
  }
  message.set_list_version(value.list_version);
  message.set_latest_version(value.latest_version);
  message.set_promised_ns(value.promised_ns);
  write(message, bytes);
}

void encode(const HeartbeatReply& value, std::string& bytes) {
  pb::HeartbeatAnswer message;
  fill(value, message);
  if (!value.changed.members.empty()) fill_members(value.changed, *message.mutable_changed());
  for (const NodeId node : value.gone) message.add_gone(node);
  write(message, bytes);
}

void encode(const Publish& value, std::string& bytes) {
  pb::Publish message;
  message.set_sequence(value.sequence);
  message.set_removals_seen(value.removals_seen);
  write_hashes(value.items, message.mutable_hash(),
               [](const PublishItem& item) { return item.hash; });
  const int count = count_of(value.items.size());
  message.mutable_version()->Reserve(count);
  message.mutable_object_bytes()->Reserve(count);
  std::string& attributes = *message.mutable_attributes();
  attributes.resize(value.items.size());
  bool all_held = true, any_on_disk = false;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const PublishItem& item = value.items[i];
    message.mutable_version()->AddAlreadyReserved(item.version);
    message.mutable_object_bytes()->AddAlreadyReserved(item.bytes);
    attributes[i] = static_cast<char>(pack(item.attributes));
    all_held &= item.what == PublishItem::What::kHolds;
    any_on_disk |= item.on_disk;
  }
  if (!all_held) {
    std::string& what = *message.mutable_what();
    for (const PublishItem& item : value.items) what += static_cast<char>(item.what);
  }
  if (any_on_disk) {
    std::string& on_disk = *message.mutable_on_disk();
    for (const PublishItem& item : value.items) on_disk += static_cast<char>(item.on_disk);
  }
  write(message, bytes);
}

void encode(const PublishAnswer& value, std::string& bytes) {
  pb::PublishAnswer message;
  message.set_stream(static_cast<std::uint32_t>(value.stream));
  write_column(value.verdicts, *message.mutable_verdicts());
  message.set_refused_up_to(value.refused_up_to);
  write(message, bytes);
}

void encode(const Locate& value, std::string& bytes) {
  pb::Locate message;
  write_hashes(value.keys, message.mutable_hash(), [](KeyHash key) { return key; });
  message.set_wait_ms(value.wait_ms);
  message.set_host(value.host);
  message.set_zone(value.zone);
  write(message, bytes);
}

void encode(const LocateAnswer& value, std::string& bytes) {
  pb::LocateAnswer message;
  std::string& state = *message.mutable_state();
  std::string& attributes = *message.mutable_attributes();
  std::string& holder_count = *message.mutable_holder_count();
  const std::size_t count = value.keys.size();
  state.resize(count);
  attributes.resize(count);
  holder_count.resize(count);
  message.mutable_version()->Reserve(count_of(count));
  message.mutable_object_bytes()->Reserve(count_of(count));
  for (std::size_t i = 0; i < count; ++i) {
    const Located& key = value.keys[i];
    const bool found = key.state == Lookup::kFound;
    state[i] = static_cast<char>(key.state);
    attributes[i] = static_cast<char>(found ? pack(key.attributes) : 0);
    holder_count[i] = static_cast<char>(key.holder_count);
    message.mutable_version()->AddAlreadyReserved(key.version);
    message.mutable_object_bytes()->AddAlreadyReserved(key.bytes);
  }
  const auto lacks = [](const Located& key) { return key.missing_parts != 0; };
  if (std::ranges::any_of(value.keys, lacks)) {
    std::string& missing = *message.mutable_missing_parts();
    for (const Located& key : value.keys) missing += static_cast<char>(key.missing_parts);
  }
  const auto on_disks = [](const Located& key) { return key.on_disk != 0; };
  if (std::ranges::any_of(value.keys, on_disks)) {
    for (const Located& key : value.keys) message.add_on_disk(key.on_disk);
  }
  message.mutable_holder()->Add(value.holders.begin(), value.holders.end());
  write(message, bytes);
}

void encode(const ChooseHolders& value, std::string& bytes) {
  pb::ChooseHolders message;
  write_hashes(value.items, message.mutable_hash(),
               [](const ChooseItem& item) { return item.key; });
  for (const ChooseItem& item : value.items) {
    message.add_object_bytes(item.bytes);
    *message.mutable_replicas() += static_cast<char>(item.replicas);
  }
  message.set_host(value.host);
  message.mutable_preferred()->Add(value.preferred.begin(), value.preferred.end());
  message.mutable_exclude()->Add(value.exclude.begin(), value.exclude.end());
  write(message, bytes);
}

void encode(const ChooseHoldersAnswer& value, std::string& bytes) {
  pb::ChooseHoldersAnswer message;
  for (const std::vector<NodeId>& nodes : value.nodes) {
    *message.mutable_node_count() += static_cast<char>(nodes.size());
    message.mutable_node()->Add(nodes.begin(), nodes.end());
  }
  write(message, bytes);
}

void encode(const Remove& value, std::string& bytes) {
  pb::Remove message;
  fill_removals(value.items, message);
  write(message, bytes);
}

void encode(const RemovalNotes& value, std::string& bytes) {
  pb::RemovalNotes message;
  write_hashes(value.items, message.mutable_hash(),
               [](const RemovalNote& note) { return note.hash; });
  for (const RemovalNote& note : value.items) {
    message.add_version(note.version);
    message.add_unheard_up_to(note.unheard_up_to);
  }
  write(message, bytes);
}

void encode(const RemoveReply& value, std::string& bytes) {
  pb::RemoveAnswer message;
  write_column(value.keys, *message.mutable_state());
  message.set_unconfirmed(value.unconfirmed);
  message.set_away(value.away);
  write(message, bytes);
}

void encode(const ListAnswer& value, std::string& bytes) {
  pb::ListAnswer message;
  for (const ListedKey& key : value.keys) {
    message.mutable_keys()->append(key.key);
    message.add_key_bytes(static_cast<std::uint32_t>(key.key.size()));
    message.add_object_bytes(key.bytes);
  }
  message.set_more(value.more);
  message.set_unconfirmed(value.unconfirmed);
  write(message, bytes);
}

void encode(const MembersAnswer& value, std::string& bytes) {
  pb::MembersAnswer message;
  fill_members(value, message);
  write(message, bytes);
}

void encode(const Drop& value, std::string& bytes) {
  pb::Drop message;
  fill_removals(value.items, message);
  message.set_removal(value.removal);
  write(message, bytes);
}

void encode(const Refusal& value, std::string& bytes) {
  pb::Refusal message;
  message.set_text(value.text.substr(0, kMaxRefusalBytes));
  message.set_leader(value.leader);
  write(message, bytes);
}

}  // namespace mc::metadata::wire
