// SPDX-License-Identifier: Apache-2.0
//
// The directory beside a slow model made of std::map, with random calls from many seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "metadata/directory/directory.h"

namespace mc::metadata {
namespace {

constexpr std::uint64_t kMaxTombstones = 6;

class Model {
 public:
  struct Holder {
    bool named = true;  // by the report under way
  };
  struct Key {
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
    std::map<NodeId, Holder> holders;
  };
  struct Node {
    Incarnation incarnation = 0;
    std::uint64_t sequence = 0;
    ReportState report = ReportState::kAwaited;
    bool reported_before = false;  // begin_report() came and no end_report() since
  };
  struct Grave {
    std::uint64_t version = 0;
    std::uint64_t removal = 0;
    bool replaced = false;
  };

  bool join(NodeId id, Incarnation incarnation) {
    const auto known = nodes.find(id);
    if (known != nodes.end() && incarnation < known->second.incarnation) return false;
    if (known != nodes.end() && incarnation == known->second.incarnation) {
      known->second.report = ReportState::kAwaited;
      return true;
    }
    forget_node(id);
    nodes[id] = {incarnation, 0, ReportState::kAwaited, false};
    return true;
  }

  bool leave(NodeId id, Incarnation incarnation) {
    const auto known = nodes.find(id);
    if (known == nodes.end() || known->second.incarnation > incarnation) return false;
    forget_node(id);
    nodes.erase(id);
    return true;
  }

  StreamAnswer check(StreamPosition at) {
    const auto known = nodes.find(at.node);
    if (known == nodes.end() || at.incarnation > known->second.incarnation) {
      return StreamAnswer::kUnknownNode;
    }
    if (at.incarnation < known->second.incarnation) return StreamAnswer::kStaleIncarnation;
    return at.sequence <= known->second.sequence ? StreamAnswer::kDuplicate
                                                 : StreamAnswer::kApplied;
  }

  StreamAnswer begin(StreamPosition at) {
    if (const StreamAnswer answer = check(at); answer != StreamAnswer::kApplied) return answer;
    Node& node = nodes[at.node];
    for (auto key = keys.begin(); key != keys.end();) {
      const auto holder = key->second.holders.find(at.node);
      if (holder != key->second.holders.end()) {
        // A report that was cut off named this object. Until the new report names the object again,
        // the object is gone.
        if (node.reported_before && holder->second.named) {
          key->second.holders.erase(holder);
        } else {
          holder->second.named = false;
        }
      }
      key = key->second.holders.empty() ? keys.erase(key) : std::next(key);
    }
    node.reported_before = true;
    node.sequence = at.sequence;
    node.report = ReportState::kStreaming;
    return StreamAnswer::kApplied;
  }

  StreamAnswer end(StreamPosition at) {
    if (const StreamAnswer answer = check(at); answer != StreamAnswer::kApplied) return answer;
    Node& node = nodes[at.node];
    if (node.report != ReportState::kStreaming || at.sequence != node.sequence + 1) {
      node.report = ReportState::kAwaited;
      return StreamAnswer::kReportNeeded;
    }
    for (auto key = keys.begin(); key != keys.end();) {
      const auto holder = key->second.holders.find(at.node);
      if (holder != key->second.holders.end() && !holder->second.named) {
        key->second.holders.erase(holder);
      }
      key = key->second.holders.empty() ? keys.erase(key) : std::next(key);
    }
    node.reported_before = false;
    node.sequence = at.sequence;
    node.report = ReportState::kComplete;
    return StreamAnswer::kApplied;
  }

  StreamAnswer apply(const Batch& batch, std::vector<Verdict>& verdicts,
                     std::vector<Holding>& drops) {
    if (const auto answer = check(batch.position); answer != StreamAnswer::kApplied) return answer;
    Node& node = nodes[batch.position.node];
    if (node.report == ReportState::kAwaited || batch.position.sequence != node.sequence + 1) {
      node.report = ReportState::kAwaited;
      return StreamAnswer::kReportNeeded;
    }
    node.sequence = batch.position.sequence;
    for (const PublishItem& item : batch.items) {
      verdicts.push_back(apply(batch.position.node, item, batch.removals_seen, drops));
    }
    return StreamAnswer::kApplied;
  }

  Verdict apply(NodeId id, const PublishItem& item, std::uint64_t seen,
                std::vector<Holding>& drops) {
    const auto known = keys.find(item.hash);
    const bool held = known != keys.end();
    if (item.what == PublishItem::What::kDropped) {
      if (!held || !known->second.holders.contains(id) || known->second.version != item.version) {
        return Verdict::kNotHeld;
      }
      known->second.holders.erase(id);
      if (known->second.holders.empty()) keys.erase(known);
      return Verdict::kAccepted;
    }
    const auto grave = graves.find(item.hash);
    if (grave != graves.end() && item.version == grave->second.version) return Verdict::kRemoved;
    if (held && item.version < known->second.version) return Verdict::kStale;
    if (grave != graves.end() && item.version < grave->second.version) {
      return grave->second.replaced ? Verdict::kStale : Verdict::kBehind;
    }
    const bool joins = held && item.version == known->second.version;
    if (joins && item.bytes != known->second.bytes) return Verdict::kInvalid;
    if (!joins && seen < forgotten_removal && item.version <= forgotten_version) {
      return Verdict::kUncertain;
    }
    if (held && !joins) {
      bool others = false;
      for (const auto& [holder, facts] : known->second.holders) {
        if (holder == id) continue;
        drops.push_back({item.hash, known->second.version, holder});
        others = true;
      }
      if (others) bury(item.hash, known->second.version, true);
      keys.erase(known);
    }
    if (joins && !known->second.holders.contains(id) &&
        known->second.holders.size() >= kMaxHolders) {
      return Verdict::kHoldersFull;
    }
    Key& key = keys[item.hash];
    key.version = item.version;
    key.bytes = item.bytes;
    key.holders[id].named = true;
    return Verdict::kAccepted;
  }

  bool remove(const RemoveItem& item, std::vector<Holding>& drops) {
    const auto known = keys.find(item.hash);
    if (known == keys.end() || known->second.version > item.up_to_version) return false;
    for (const auto& [holder, facts] : known->second.holders) {
      drops.push_back({item.hash, known->second.version, holder});
    }
    bury(item.hash, known->second.version, false);
    keys.erase(known);
    return true;
  }

  void bury(KeyHash hash, std::uint64_t version, bool replaced) {
    ++removal;
    if (order.size() >= kMaxTombstones) {
      const auto [oldest, number] = order.front();
      order.pop_front();
      const auto grave = graves.find(oldest);
      if (grave != graves.end() && grave->second.removal == number) {
        forgotten_removal = std::max(forgotten_removal, number);
        forgotten_version = std::max(forgotten_version, grave->second.version);
        graves.erase(grave);
      }
    }
    const auto grave = graves.find(hash);
    if (grave != graves.end() && grave->second.version > version) {
      version = grave->second.version;
      replaced = grave->second.replaced;
    }
    graves[hash] = {version, removal, replaced};
    order.emplace_back(hash, removal);
  }

  void forget_node(NodeId id) {
    for (auto key = keys.begin(); key != keys.end();) {
      key->second.holders.erase(id);
      key = key->second.holders.empty() ? keys.erase(key) : std::next(key);
    }
  }

  [[nodiscard]] bool recovering() const {
    return std::any_of(nodes.begin(), nodes.end(),
                       [](auto& n) { return n.second.report != ReportState::kComplete; });
  }

  std::map<NodeId, Node> nodes;
  std::map<KeyHash, Key> keys;
  std::map<KeyHash, Grave> graves;
  std::deque<std::pair<KeyHash, std::uint64_t>> order;
  std::uint64_t removal = 1;
  std::uint64_t forgotten_removal = 0;
  std::uint64_t forgotten_version = 0;
};

std::vector<Holding> sorted(std::vector<Holding> holdings) {
  std::sort(holdings.begin(), holdings.end(), [](const Holding& a, const Holding& b) {
    return std::tie(a.hash, a.version, a.node) < std::tie(b.hash, b.version, b.node);
  });
  return holdings;
}

class Pair {
 public:
  explicit Pair(std::uint64_t seed)
      : random_(seed), directory_({.max_entries = 1 << 20, .max_tombstones = kMaxTombstones}) {
    // Few keys, some in the same bucket with the same tag, so that all cases meet.
    for (std::uint64_t i = 0; i < 24; ++i) {
      keys_.push_back(i % 3 == 0 ? KeyHash{0x770000 + (i << 40), 5}
                                 : KeyHash{random_(), random_()});
    }
  }

  void step() {
    switch (random_() % 16) {
      case 0:
        return join();
      case 1:
        return leave();
      case 2:
      case 3:
        return report();
      case 4:
      case 5:
        return remove();
      case 6:
        directory_.sweep(pick(5000));
        return;
      default:
        return publish();
    }
  }

  [[nodiscard]] const std::set<Verdict>& met_verdicts() const { return met_verdicts_; }
  [[nodiscard]] const std::set<StreamAnswer>& met_streams() const { return met_streams_; }

  void compare() {
    LocateAnswer answer;
    directory_.locate(keys_, answer);
    std::uint64_t entries = 0;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const auto known = model_.keys.find(keys_[i]);
      if (known == model_.keys.end()) {
        EXPECT_EQ(answer.keys[i].state, model_.recovering() ? Lookup::kRecovering : Lookup::kMiss);
        continue;
      }
      ASSERT_EQ(answer.keys[i].state, Lookup::kFound);
      EXPECT_EQ(answer.keys[i].version, known->second.version);
      EXPECT_EQ(answer.keys[i].bytes, known->second.bytes);
      std::set<NodeId> holders;
      for (const auto& [node, facts] : known->second.holders) holders.insert(node);
      const auto told = answer.holders_of(answer.keys[i]);
      EXPECT_EQ(std::set<NodeId>(told.begin(), told.end()), holders);
      EXPECT_EQ(told.size(), holders.size());
      entries += holders.size();
    }
    EXPECT_EQ(directory_.entry_count(), entries);
    EXPECT_EQ(directory_.tombstone_count(), model_.graves.size());
    EXPECT_EQ(directory_.removal(), model_.removal);
    std::size_t walked = 0;
    std::optional<std::uint64_t> at = 0;
    while (at.has_value()) {
      at = directory_.walk(*at, 512, [&](const KeyView& key) {
        ++walked;
        ASSERT_TRUE(model_.keys.contains(key.hash));
        EXPECT_EQ(key.holder_count, model_.keys[key.hash].holders.size());
      });
    }
    EXPECT_EQ(walked, model_.keys.size());
  }

 private:
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  StreamPosition next_position() {
    const NodeId node = 1 + pick(5);
    const auto known = model_.nodes.find(node);
    StreamPosition at{node, 1 + pick(4), 1};
    if (known == model_.nodes.end()) return at;
    if (pick(20) != 0) at.incarnation = known->second.incarnation;
    // Mostly the next version; at times an earlier version, or a version too far ahead.
    const std::uint64_t dice = pick(40);
    at.sequence = known->second.sequence + (dice == 0 ? 0 : dice == 1 ? 2 : 1);
    return at;
  }

  void join() {
    const NodeId node = 1 + pick(5);
    const auto known = model_.nodes.find(node);
    const Incarnation incarnation = known == model_.nodes.end()
                                        ? 1 + pick(4)
                                        : known->second.incarnation + pick(3) - (pick(9) == 0);
    if (incarnation == 0) return;
    EXPECT_EQ(directory_.join(node, incarnation).ok(), model_.join(node, incarnation));
  }

  void leave() {
    const NodeId node = 1 + pick(5);
    const auto known = model_.nodes.find(node);
    const Incarnation incarnation =
        known == model_.nodes.end() ? 1 : known->second.incarnation - (pick(4) == 0);
    EXPECT_EQ(directory_.leave(node, incarnation), model_.leave(node, incarnation));
  }

  void report() {
    const StreamPosition at = next_position();
    const auto known = model_.nodes.find(at.node);
    if (known != model_.nodes.end() && known->second.report == ReportState::kStreaming) {
      EXPECT_EQ(directory_.end_report(at), model_.end(at));
    } else {
      EXPECT_EQ(directory_.begin_report(at), model_.begin(at));
    }
  }

  void publish() {
    std::vector<PublishItem> items(pick(8));
    for (PublishItem& item : items) {
      item.hash = keys_[pick(keys_.size())];
      const auto known = model_.keys.find(item.hash);
      if (known != model_.keys.end() && pick(4) != 0) {
        item.version = known->second.version;
      } else {
        ++clock_;
        item.version = clock_ - pick(std::min<std::uint64_t>(clock_, 12));
      }
      item.bytes = 1000 + item.version % 7 + (pick(50) == 0);
      item.attributes.replicas = static_cast<std::uint8_t>(1 + pick(8));
      if (pick(4) == 0) item.what = PublishItem::What::kDropped;
    }
    const Batch batch{
        next_position(),
        directory_.removal() - pick(std::min<std::uint64_t>(directory_.removal(), 12)), items};
    std::vector<Verdict> verdicts;
    std::vector<Holding> drops;
    const StreamAnswer expected = model_.apply(batch, verdicts, drops);
    directory_.apply(batch, answer_);
    ASSERT_EQ(answer_.stream, expected);
    EXPECT_EQ(answer_.verdicts, verdicts);
    met_streams_.insert(expected);
    met_verdicts_.insert(verdicts.begin(), verdicts.end());
    EXPECT_EQ(sorted(answer_.drops), sorted(drops));
  }

  void remove() {
    std::vector<RemoveItem> items(1 + pick(3));
    for (RemoveItem& item : items) {
      item.hash = keys_[pick(keys_.size())];
      if (pick(3) == 0) item.up_to_version = pick(clock_ + 1);
    }
    std::vector<Lookup> states;
    std::vector<Holding> drops;
    for (const RemoveItem& item : items) {
      const Lookup absent = model_.recovering() ? Lookup::kRecovering : Lookup::kMiss;
      states.push_back(model_.remove(item, drops) ? Lookup::kFound : absent);
    }
    RemoveAnswer answer;
    directory_.remove(items, answer);
    EXPECT_EQ(answer.keys, states);
    EXPECT_EQ(sorted(answer.drops), sorted(drops));
  }

  std::mt19937_64 random_;
  Directory directory_;
  Model model_;
  std::vector<KeyHash> keys_;
  std::uint64_t clock_ = 0;
  BatchAnswer answer_;
  std::set<Verdict> met_verdicts_;
  std::set<StreamAnswer> met_streams_;
};

TEST(DirectoryModel, AgreesWithASlowDirectoryOverRandomCalls) {
  std::set<Verdict> verdicts;
  std::set<StreamAnswer> streams;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pair pair(seed);
    for (int step = 0; step < 400; ++step) {
      pair.step();
      if (step % 20 == 19) pair.compare();
      if (::testing::Test::HasFailure()) FAIL() << "at step " << step;
    }
    verdicts.insert(pair.met_verdicts().begin(), pair.met_verdicts().end());
    streams.insert(pair.met_streams().begin(), pair.met_streams().end());
  }
  // The calls produced every verdict except the verdicts of a full directory.
  EXPECT_EQ(verdicts,
            (std::set{Verdict::kAccepted, Verdict::kStale, Verdict::kRemoved, Verdict::kUncertain,
                      Verdict::kInvalid, Verdict::kNotHeld, Verdict::kBehind}));
  EXPECT_EQ(streams,
            (std::set{StreamAnswer::kApplied, StreamAnswer::kDuplicate, StreamAnswer::kReportNeeded,
                      StreamAnswer::kUnknownNode, StreamAnswer::kStaleIncarnation}));
}

}  // namespace
}  // namespace mc::metadata
