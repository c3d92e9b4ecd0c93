// SPDX-License-Identifier: Apache-2.0
//
// Directory: publish, locate and remove keys.
#include "metadata/directory/directory.h"

#include <algorithm>
#include <bit>

namespace mc::metadata {

namespace {

// A batch is processed in pieces of this many keys, in three rounds. So the cache misses of a piece
// overlap, and the lines are still in the first-level cache when the next round needs them.
constexpr std::size_t kPiece = 64;

bool valid(const PublishItem& item) {
  return item.bytes >= 1 && item.bytes <= MC_MAX_OBJECT_BYTES && valid(item.attributes);
}

std::uint64_t tombstone_payload(std::uint64_t removal) {
  return removal % (std::uint64_t{1} << Slot::kBytesBits) + 1;
}

}  // namespace

void Directory::apply(const Batch& batch, BatchAnswer& answer) {
  answer.verdicts.clear();
  answer.drops.clear();
  answer.refused_up_to = 0;
  Node* node = nullptr;
  answer.stream = check(batch.position, node);
  if (answer.stream != StreamAnswer::kApplied) return;
  if (node->report == ReportState::kAwaited || batch.position.sequence != node->sequence + 1) {
    set_report(*node, ReportState::kAwaited);
    answer.stream = StreamAnswer::kReportNeeded;
    return;
  }
  if (batch.items.size() > MC_MAX_BATCH_ITEMS) {
    answer.stream = StreamAnswer::kTooManyItems;
    return;
  }
  node->sequence = batch.position.sequence;
  table_.prepare(batch.items.size() + 1);
  if (unswept() != 0) table_.sweep(batch.items.size() / 4 + 1);

  for (std::size_t first = 0; first < batch.items.size(); first += kPiece) {
    const auto piece = batch.items.subspan(first, std::min(kPiece, batch.items.size() - first));
    for (const PublishItem& item : piece) table_.prefetch_home(item.hash);
    for (const PublishItem& item : piece) table_.prefetch_slot_for_write(item.hash);
    for (const PublishItem& item : piece) {
      answer.verdicts.push_back(item.what == PublishItem::What::kDropped
                                    ? withdraw(*node, item)
                                    : publish(*node, item, batch, answer));
    }
  }
}

Directory::Known Directory::look_up(KeyHash hash, NodeIndex node, std::uint8_t part) {
  Known known;
  table_.for_key(hash, [&](Slot& slot) {
    const NodeIndex holder = sessions_.node_of(slot.session());
    if (holder == Sessions::kNobody) return table_.erase(slot);
    if (holder == Sessions::kTombstones) {
      known.tombstone = &slot;
      return;
    }
    ++known.holder_count;
    known.version = slot.version;
    known.bytes = slot.bytes();
    const Attributes attributes = unpack(slot.attributes());
    known.parts = attributes.parts;
    known.parts_held |= 1u << attributes.part;
    if (holder == node && attributes.part == part) known.own = &slot;
  });
  return known;
}

Verdict Directory::publish(Node& node, const PublishItem& item, const Batch& batch,
                           BatchAnswer& answer) {
  if (!valid(item)) return Verdict::kInvalid;
  const NodeIndex self = index_of(node);
  const std::uint8_t part = item.attributes.part;
  Known known = look_up(item.hash, self, part);
  const auto too_old_for = [&](std::uint64_t version, Verdict verdict) {
    answer.refused_up_to = std::max(answer.refused_up_to, version);
    return verdict;
  };
  if (known.tombstone != nullptr && item.version <= known.tombstone->version) {
    const std::uint64_t buried = known.tombstone->version;
    if (item.version == buried) return too_old_for(buried, Verdict::kRemoved);
    // The replacing version is later than this version, whatever became of the replacing version
    // since.
    const bool replaced = static_cast<Burial>(known.tombstone->attributes()) == Burial::kReplaced;
    const bool stale = replaced && item.what == PublishItem::What::kHolds;
    return too_old_for(buried, stale ? Verdict::kStale : Verdict::kBehind);
  }
  const bool held = known.holder_count != 0;
  const bool creates = item.what == PublishItem::What::kCreates;
  // A create does not yield to an incomplete striped object, which may never become readable.
  if (held && creates && !known.whole() && item.version < known.version) {
    return too_old_for(known.version, Verdict::kBehind);
  }
  if (held && item.version < known.version) return too_old_for(known.version, Verdict::kStale);
  const bool joins = held && item.version == known.version;
  if (held && !joins && creates && known.whole()) return Verdict::kStale;
  const bool same_object = item.bytes == known.bytes && item.attributes.parts == known.parts;
  if (joins && !same_object) return Verdict::kInvalid;
  // Accept a version with other holders: at least one holder published this version in time.
  if (!joins &&
      (batch.may_have_missed || tombstones_.uncertain(batch.removals_seen, item.version))) {
    return too_old_for(tombstones_.forgotten_version(), Verdict::kUncertain);
  }
  if (held && !joins) {
    supersede(item.hash, self, answer.drops);
    // supersede() may have added a tombstone.
    known = look_up(item.hash, self, part);
  }
  const Slot slot =
      Slot::make(item.hash, item.version, item.bytes, pack(item.attributes), node.session);
  if (known.own != nullptr) {
    sessions_.dropped(*known.own);
    *known.own = slot;
    sessions_.added(slot);
    return Verdict::kAccepted;
  }
  if (joins && known.holder_count >= kMaxHolders) return Verdict::kHoldersFull;
  if (table_.count() - tombstone_count() >= options_.max_entries) return Verdict::kFull;
  return table_.insert(slot) != nullptr ? Verdict::kAccepted : Verdict::kFull;
}

// Forgets all holders of a key. The old version gets a tombstone. Otherwise a late publish could
// bring the old version back after the new holder's death.
void Directory::supersede(KeyHash hash, NodeIndex by, std::vector<Holding>& drops) {
  const std::size_t before = drops.size();
  table_.for_key(hash, [&](Slot& slot) {
    const NodeIndex holder = sessions_.node_of(slot.session());
    if (holder >= Sessions::kMaxNodes) return;
    // The new holder itself drops the version that it replaces.
    if (holder != by) drops.push_back({hash, slot.version, nodes_[holder].id});
    table_.erase(slot);
  });
  if (drops.size() != before) bury(hash, drops.back().version, Burial::kReplaced);
}

Verdict Directory::withdraw(const Node& node, const PublishItem& item) {
  const Known known = look_up(item.hash, index_of(node), item.attributes.part);
  // Another version is another object: an offered copy stays if a put of the key is refused.
  if (known.own == nullptr || known.own->version != item.version) return Verdict::kNotHeld;
  table_.erase(*known.own);
  return Verdict::kAccepted;
}

void Directory::release(const Holding& holding) {
  const Node* const node = find(holding.node);
  if (node == nullptr) return;
  table_.for_key(holding.hash, [&](Slot& slot) {
    const bool of_node = sessions_.node_of(slot.session()) == index_of(*node);
    if (of_node && slot.version == holding.version) table_.erase(slot);
  });
}

void Directory::locate(std::span<const KeyHash> keys, LocateAnswer& answer) const {
  answer.keys.clear();
  answer.holders.clear();
  const Lookup miss = recovering() ? Lookup::kRecovering : Lookup::kMiss;
  for (std::size_t first = 0; first < keys.size(); first += kPiece) {
    const auto piece = keys.subspan(first, std::min(kPiece, keys.size() - first));
    for (const KeyHash hash : piece) table_.prefetch_home(hash);
    for (const KeyHash hash : piece) table_.prefetch_slot(hash);
    for (const KeyHash hash : piece) {
      Located& found = answer.keys.emplace_back();
      found.first_holder = static_cast<std::uint32_t>(answer.holders.size());
      std::uint32_t parts_held = 0;
      table_.for_key(hash, [&](const Slot& slot) {
        const NodeIndex holder = sessions_.node_of(slot.session());
        if (holder >= Sessions::kMaxNodes) return;
        found.version = slot.version;
        found.bytes = slot.bytes();
        found.attributes = unpack(slot.attributes());
        parts_held |= 1u << found.attributes.part;
        const NodeId node = nodes_[holder].id;
        // A holder may have several parts.
        const auto known = std::span(answer.holders).subspan(found.first_holder);
        if (!found.attributes.striped || std::ranges::find(known, node) == known.end()) {
          answer.holders.push_back(node);
        }
      });
      if (found.attributes.striped) {
        found.missing_parts =
            static_cast<std::uint8_t>(found.attributes.parts - std::popcount(parts_held));
      }
      found.holder_count = static_cast<std::uint32_t>(answer.holders.size()) - found.first_holder;
      found.state = found.holder_count != 0 ? Lookup::kFound : miss;
    }
  }
}

KeyView Directory::about(KeyHash hash) const {
  KeyView key;
  key.hash = hash;
  table_.for_key(hash, [&](const Slot& slot) {
    const NodeIndex holder = sessions_.node_of(slot.session());
    if (holder < Sessions::kMaxNodes) add(slot, holder, key);
  });
  return key;
}

void Directory::add(const Slot& slot, NodeIndex holder, KeyView& key) const {
  const Attributes attributes = unpack(slot.attributes());
  const std::uint8_t replicas = std::max(attributes.replicas, key.attributes.replicas);
  key.version = slot.version;
  key.bytes = slot.bytes();
  key.attributes = attributes;
  key.attributes.replicas = replicas;
  unsigned at = 0;
  while (at < key.holder_count && key.holders[at] != nodes_[holder].id) ++at;
  if (at == key.holder_count) key.holders[key.holder_count++] = nodes_[holder].id;
  key.parts[at] = static_cast<std::uint16_t>(key.parts[at] | 1u << attributes.part);
}

void Directory::remove(std::span<const RemoveItem> items, RemoveAnswer& answer) {
  answer.keys.clear();
  answer.drops.clear();
  table_.prepare(items.size() + 1);
  for (const RemoveItem& item : items) table_.prefetch_home(item.hash);
  for (const RemoveItem& item : items) {
    const std::size_t before = answer.drops.size();
    table_.for_key(item.hash, [&](Slot& slot) {
      const NodeIndex holder = sessions_.node_of(slot.session());
      if (holder >= Sessions::kMaxNodes || slot.version > item.up_to_version) return;
      answer.drops.push_back({item.hash, slot.version, nodes_[holder].id});
      table_.erase(slot);
    });
    if (answer.drops.size() != before) {
      bury(item.hash, answer.drops.back().version, Burial::kRemoved);
      answer.keys.push_back(Lookup::kFound);
    } else {
      answer.keys.push_back(recovering() ? Lookup::kRecovering : Lookup::kMiss);
    }
  }
}

void Directory::bury(std::span<const RemoveItem> removed) {
  table_.prepare(removed.size() + 1);
  for (const RemoveItem& item : removed) {
    bury(item.hash, item.up_to_version, Burial::kRemoved);
  }
}

// From now on the directory refuses this version and earlier versions of the key.
void Directory::bury(KeyHash hash, std::uint64_t version, Burial why) {
  ++removal_;
  if (tombstones_.full() && tombstones_.count() != 0) {
    const Tombstones::Mark mark = tombstones_.oldest();
    const Known known = look_up(mark.hash, Sessions::kNobody);
    // The key was removed again since; the later mark stands for both removals.
    if (known.tombstone != nullptr && known.tombstone->bytes() == tombstone_payload(mark.removal)) {
      tombstones_.forgot(mark.removal, known.tombstone->version);
      table_.erase(*known.tombstone);
    }
  }
  const Known known = look_up(hash, Sessions::kNobody);
  if (known.tombstone != nullptr) {
    if (known.tombstone->version > version) {
      version = known.tombstone->version;
      why = static_cast<Burial>(known.tombstone->attributes());
    }
    table_.erase(*known.tombstone);
  }
  const Slot slot = Slot::make(hash, version, tombstone_payload(removal_),
                               static_cast<std::uint8_t>(why), Sessions::kTombstoneSession);
  if (tombstones_.full() || table_.insert(slot) == nullptr) {
    // No room for a tombstone, so this removal counts as forgotten at once.
    tombstones_.forgot(removal_, version);
    return;
  }
  tombstones_.remember(hash, removal_);
}

}  // namespace mc::metadata
