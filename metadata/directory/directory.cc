// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/directory.h"

#include <algorithm>
#include <bit>

namespace mc::metadata {

namespace {

// A batch is processed in pieces of this many keys, in three rounds. So the cache misses of a piece
// overlap, and the lines are still in the first-level cache when the next round needs them.
constexpr std::size_t kPiece = 64;

bool valid(const PublishItem& item) {
  return item.bytes >= 1 && item.bytes <= MC_MAX_OBJECT_BYTES && valid(item.attributes) &&
         !(item.on_disk && item.attributes.striped);
}

std::uint64_t tombstone_payload(std::uint64_t removal) {
  return removal % (std::uint64_t{1} << Slot::kBytesBits) + 1;
}

bool is_of(const Slot* tombstone, std::uint64_t removal) {
  return tombstone != nullptr && tombstone->bytes() == tombstone_payload(removal);
}

}  // namespace

// ---- Nodes, their sessions and their reports ----------------------------------------------------

Directory::Directory(const DirectoryOptions& options)
    : options_(options),
      table_(options.max_entries + options.max_tombstones, &sessions_),
      tombstones_(options.max_tombstones),
      removal_(options.first_removal) {
  options_.max_nodes = std::min<std::uint32_t>(options_.max_nodes, Sessions::kMaxNodes);
}

Directory::Node* Directory::find(NodeId node) {
  const auto found = index_.find(node);
  return found == index_.end() ? nullptr : &nodes_[found->second];
}

Result<Directory::Node*> Directory::make_node(NodeId id) {
  if (index_.size() >= options_.max_nodes) {
    return fail(MC_BUSY, "the directory knows " + std::to_string(index_.size()) +
                             " nodes already; raise max_nodes or remove members that are gone");
  }
  if (free_nodes_.empty()) {
    free_nodes_.push_back(static_cast<NodeIndex>(nodes_.size()));
    nodes_.emplace_back();
  }
  const NodeIndex index = free_nodes_.back();
  free_nodes_.pop_back();
  nodes_[index] = Node();
  nodes_[index].id = id;
  index_.emplace(id, index);
  ++reports_missing_;
  return &nodes_[index];
}

void Directory::close_sessions(Node& node) {
  if (!node.joined) return;
  close(node.sessions);
  if (node.before.has_value()) close(*node.before);
  node.before.reset();
}

void Directory::close(const NodeSessions& sessions) {
  sessions_.close(sessions.pool);
  if (sessions.disk.has_value()) sessions_.close(*sessions.disk);
}

// nullopt: all ids are in use.
std::optional<SessionId> Directory::session_of(Node& node, const PublishItem& item) {
  if (!item.on_disk) return node.sessions.pool;
  if (!node.sessions.disk) node.sessions.disk = sessions_.open(index_of(node), true);
  return node.sessions.disk;
}

void Directory::set_report(Node& node, ReportState state) {
  if (node.is_waited_for()) --reports_missing_;
  node.report = state;
  if (state == ReportState::kComplete) node.late = false;
  if (node.is_waited_for()) ++reports_missing_;
}

void Directory::stop_waiting(NodeId id) {
  Node* const node = find(id);
  if (node == nullptr) return;
  if (node->is_waited_for()) --reports_missing_;
  node->late = node->report != ReportState::kComplete;
}

Status Directory::expect(NodeId node) {
  if (node == kNoNode) return {MC_INVALID_ARGUMENT, "0 is no node id"};
  if (find(node) != nullptr) return {};
  const Result<Node*> made = make_node(node);
  return made ? Status() : made.error();
}

Status Directory::join(NodeId id, Incarnation incarnation) {
  if (id == kNoNode || incarnation == 0) {
    return {MC_INVALID_ARGUMENT, "a node needs an id and an incarnation other than 0"};
  }
  Node* node = find(id);
  if (node != nullptr && node->joined && incarnation < node->incarnation) {
    return {MC_INVALID_ARGUMENT, "incarnation " + std::to_string(incarnation) + " of node " +
                                     std::to_string(id) + " is older than " +
                                     std::to_string(node->incarnation) +
                                     ", which has joined; is the node's id used twice?"};
  }
  if (node != nullptr && node->joined && incarnation == node->incarnation) {
    set_report(*node, ReportState::kAwaited);
    return {};
  }
  if (node == nullptr) {
    const Result<Node*> made = make_node(id);
    if (!made) return made.error();
    node = *made;
  }
  const std::optional<SessionId> session = sessions_.open(index_of(*node));
  if (!session.has_value()) {
    return {MC_BUSY, "65,535 sessions of nodes that are gone are not swept yet; try again"};
  }
  close_sessions(*node);
  node->joined = true;
  node->incarnation = incarnation;
  node->sessions = {.pool = *session};
  node->sequence = 0;
  set_report(*node, ReportState::kAwaited);
  return {};
}

bool Directory::leave(NodeId id, Incarnation incarnation) {
  Node* node = find(id);
  if (node == nullptr || (node->joined && node->incarnation > incarnation)) return false;
  close_sessions(*node);
  if (node->is_waited_for()) --reports_missing_;
  free_nodes_.push_back(index_of(*node));
  index_.erase(id);
  *node = Node();
  return true;
}

StreamAnswer Directory::check(StreamPosition position, Node*& node) {
  node = find(position.node);
  if (node == nullptr || !node->joined || position.incarnation > node->incarnation) {
    return StreamAnswer::kUnknownNode;
  }
  if (position.incarnation < node->incarnation) return StreamAnswer::kStaleIncarnation;
  if (position.sequence <= node->sequence) return StreamAnswer::kDuplicate;
  return StreamAnswer::kApplied;
}

StreamAnswer Directory::begin_report(StreamPosition position) {
  Node* node = nullptr;
  const StreamAnswer answer = check(position, node);
  if (answer != StreamAnswer::kApplied) return answer;
  const std::optional<SessionId> session = sessions_.open(index_of(*node));
  if (!session.has_value()) return StreamAnswer::kBusy;
  if (node->before.has_value()) {
    // The earlier report was cut off. The new report names its objects again.
    close(node->sessions);
  } else {
    node->before = node->sessions;
  }
  node->sessions = {.pool = *session};
  node->sequence = position.sequence;
  set_report(*node, ReportState::kStreaming);
  return StreamAnswer::kApplied;
}

StreamAnswer Directory::end_report(StreamPosition position) {
  Node* node = nullptr;
  const StreamAnswer answer = check(position, node);
  if (answer != StreamAnswer::kApplied) return answer;
  if (node->report != ReportState::kStreaming || position.sequence != node->sequence + 1) {
    set_report(*node, ReportState::kAwaited);
    return StreamAnswer::kReportNeeded;
  }
  close(*node->before);
  node->before.reset();
  node->sequence = position.sequence;
  set_report(*node, ReportState::kComplete);
  return StreamAnswer::kApplied;
}

NodeCounts Directory::counts_of(const Node& node) const {
  NodeCounts sum{.node = node.id, .incarnation = node.incarnation, .report = node.report};
  const auto add = [&](const NodeSessions& sessions) {
    for (const std::optional<SessionId> session : {std::optional(sessions.pool), sessions.disk}) {
      if (!session) continue;
      const Sessions::Counts counts = sessions_.counts(*session);
      sum.entries += counts.entries;
      sum.bytes += counts.bytes;
      if (session == sessions.disk) sum.disk_entries += counts.entries;
    }
  };
  if (node.joined) add(node.sessions);
  if (node.before) add(*node.before);
  return sum;
}

std::uint64_t Directory::entry_count(NodeId node) const {
  const auto at = index_.find(node);
  return at == index_.end() ? 0 : counts_of(nodes_[at->second]).entries;
}

bool Directory::reported(NodeId node) const {
  const auto at = index_.find(node);
  return at != index_.end() && nodes_[at->second].report == ReportState::kComplete;
}

std::vector<NodeCounts> Directory::nodes() const {
  std::vector<NodeCounts> all;
  for (const Node& node : nodes_) {
    if (node.id == kNoNode) continue;
    all.push_back(counts_of(node));
  }
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.node < b.node; });
  return all;
}

std::uint64_t Directory::memory_bytes() const {
  return table_.memory_bytes() + sessions_.memory_bytes() + tombstones_.memory_bytes() +
         nodes_.capacity() * sizeof(Node) +
         index_.size() * 2 * sizeof(std::pair<NodeId, NodeIndex>);
}

// ---- Keys ---------------------------------------------------------------------------------------

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
      const bool unheard = static_cast<Burial>(slot.attributes()) == Burial::kUnheard;
      (unheard ? known.unheard : known.tombstone) = &slot;
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
  const Slot* const tombstone = known.tombstone;
  if (tombstone != nullptr && item.version == tombstone->version) {
    return too_old_for(item.version, Verdict::kRemoved);
  }
  const bool held = known.holder_count != 0;
  const bool creates = item.yields();
  if (held && item.what == PublishItem::What::kCreated && !known.whole()) return Verdict::kFull;
  // A create does not yield to an incomplete striped object, which may never become readable.
  if (held && creates && !known.whole() && item.version < known.version) {
    return too_old_for(known.version, Verdict::kBehind);
  }
  if (held && item.version < known.version) return too_old_for(known.version, Verdict::kStale);
  if (tombstone != nullptr && item.version < tombstone->version) {
    // The replacing version is later than this version, whatever became of the replacing version
    // since.
    const bool replaced = static_cast<Burial>(tombstone->attributes()) == Burial::kReplaced;
    const bool stale = replaced && item.what == PublishItem::What::kHolds;
    return too_old_for(tombstone->version, stale ? Verdict::kStale : Verdict::kBehind);
  }
  if (known.unheard != nullptr && item.version <= known.unheard->version) {
    return too_old_for(known.unheard->version, Verdict::kBehind);
  }
  // A node that is gone may hold an object with a later version, which would win when the node is back.
  if (!held && item.version < batch.lost_up_to) {
    return too_old_for(batch.lost_up_to, Verdict::kBehind);
  }
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
  const std::optional<SessionId> session = session_of(node, item);
  if (!session) return Verdict::kFull;
  const Slot slot =
      Slot::make(item.hash, item.version, item.bytes, pack(item.attributes), *session);
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

bool Directory::want_replicas(KeyHash hash, std::uint8_t replicas) {
  bool raised = false;
  table_.for_key(hash, [&](Slot& slot) {
    if (sessions_.node_of(slot.session()) >= Sessions::kMaxNodes) return;
    Attributes attributes = unpack(slot.attributes());
    if (attributes.striped || attributes.replicas >= replicas) return;
    attributes.replicas = replicas;
    slot = Slot::make(slot.hash, slot.version, slot.bytes(), pack(attributes), slot.session());
    raised = true;
  });
  return raised;
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
        const std::size_t number = answer.holders.size() - found.first_holder;
        if (sessions_.of_disks(slot.session())) found.on_disk |= 1u << number;
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
      const bool unsure = found.holder_count == 0 || (recovering() && found.missing_parts != 0);
      found.state = unsure ? miss : Lookup::kFound;
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

void Directory::remove(std::span<const RemoveItem> items, RemoveAnswer& answer,
                       const RemovalContext& context) {
  const bool unsure = context.recovering || recovering();
  answer.keys.clear();
  answer.drops.clear();
  answer.notes.clear();
  table_.prepare(2 * items.size() + 1);
  for (const RemoveItem& item : items) table_.prefetch_home(item.hash);
  for (const RemoveItem& item : items) {
    const std::size_t before = answer.drops.size();
    RemovalNote note{.hash = item.hash};
    table_.for_key(item.hash, [&](Slot& slot) {
      const NodeIndex holder = sessions_.node_of(slot.session());
      if (holder >= Sessions::kMaxNodes || slot.version > item.up_to_version) return;
      answer.drops.push_back({item.hash, slot.version, nodes_[holder].id});
      note.version = slot.version;
      table_.erase(slot);
    });
    const bool found = answer.drops.size() != before;
    answer.keys.push_back(found ? Lookup::kFound : unsure ? Lookup::kRecovering : Lookup::kMiss);
    const std::uint64_t unheard = std::min(item.up_to_version, context.unheard_up_to);
    if (unheard > note.version) note.unheard_up_to = unheard;
    // The asker tries again if the directory is unsure.
    if (!found && (unsure || note.unheard_up_to == 0)) continue;
    bury({&note, 1});
    answer.notes.push_back(note);
  }
}

void Directory::bury(std::span<const RemovalNote> removed) {
  table_.prepare(2 * removed.size() + 1);
  for (const RemovalNote& note : removed) {
    if (note.version != 0) bury(note.hash, note.version, Burial::kRemoved);
    if (note.unheard_up_to != 0) bury(note.hash, note.unheard_up_to, Burial::kUnheard);
  }
}

// From now on the directory refuses this version and earlier versions of the key.
void Directory::bury(KeyHash hash, std::uint64_t version, Burial why) {
  ++removal_;
  if (tombstones_.full() && tombstones_.count() != 0) forget_oldest_tombstone();
  const Known known = look_up(hash, Sessions::kNobody);
  if (Slot* const earlier = why == Burial::kUnheard ? known.unheard : known.tombstone) {
    if (earlier->version > version) {
      version = earlier->version;
      why = static_cast<Burial>(earlier->attributes());
    }
    table_.erase(*earlier);
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

void Directory::forget_oldest_tombstone() {
  const Tombstones::Mark mark = tombstones_.oldest();
  const Known known = look_up(mark.hash, Sessions::kNobody);
  // Otherwise the key was removed again since; the later mark stands for both removals.
  for (Slot* const tombstone : {known.tombstone, known.unheard}) {
    if (!is_of(tombstone, mark.removal)) continue;
    tombstones_.forgot(mark.removal, tombstone->version);
    table_.erase(*tombstone);
    return;
  }
}

}  // namespace mc::metadata
