// SPDX-License-Identifier: Apache-2.0
//
// Nodes with a directory over them, for tests of the planners of copies. The nodes'
//   holdings are the truth, and are published.
// Threads: The test's.
// Owns: The directory and the views.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/placement/copy_job.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

inline KeyHash key(std::uint64_t number) {
  static const KeyHasher hasher("secret");
  return hasher.hash("", std::to_string(number));
}

class World {
 public:
  explicit World(NodeId nodes) : directory_({}) {
    for (NodeId node = 1; node <= nodes; ++node) add(node);
  }

  void add(NodeId node) {
    EXPECT_TRUE(directory_.join(node, 1).ok());
    EXPECT_EQ(directory_.begin_report({node, 1, ++sequence_[node]}), StreamAnswer::kApplied);
    EXPECT_EQ(directory_.end_report({node, 1, ++sequence_[node]}), StreamAnswer::kApplied);
    NodeView view;
    view.node = node;
    view.host = node;
    view.capacity_bytes = std::uint64_t{1} << 40;
    view.free_bytes = std::uint64_t{1} << 39;
    view.age_ns = kSlowStartNs;
    views_.push_back(view);
    held_[node];
  }
  void kill(NodeId node) {
    EXPECT_TRUE(directory_.leave(node, 1));
    std::erase_if(views_, [node](const NodeView& view) { return view.node == node; });
    held_.erase(node);
    sequence_.erase(node);
  }
  void hold(NodeId node, std::uint64_t number, unsigned replicas, Pin pin = Pin::kNone) {
    PublishItem item;
    item.hash = key(number);
    item.version = 1;
    item.bytes = 1000;
    item.attributes.replicas = static_cast<std::uint8_t>(replicas);
    item.attributes.pin = pin;
    publish(node, item);
    objects_[item.hash] = item;
  }
  void hold_part(NodeId node, std::uint64_t number, unsigned parts, unsigned part,
                 unsigned replicas = 1) {
    PublishItem item;
    item.hash = key(number);
    item.version = 1;
    item.bytes = 1000;
    item.attributes.striped = true;
    item.attributes.replicas = static_cast<std::uint8_t>(replicas);
    item.attributes.parts = static_cast<std::uint8_t>(parts);
    item.attributes.part = static_cast<std::uint8_t>(part);
    publish(node, item);
    objects_[item.hash] = item;
  }
  void copy(const CopyJob& job) {
    ASSERT_TRUE(held_[job.source].contains(job.hash)) << "a source that does not hold the object";
    PublishItem item = objects_.at(job.hash);
    item.attributes.part = job.part;
    publish(job.target, item);
  }
  // part: of an object in stripes.
  void drop(const Holding& holding, std::uint8_t part = 0) {
    PublishItem item = objects_.at(holding.hash);
    item.attributes.part = part;
    item.what = PublishItem::What::kDropped;
    publish(holding.node, item);
  }
  [[nodiscard]] std::size_t replicas(KeyHash hash) const {
    return static_cast<std::size_t>(std::count_if(
        held_.begin(), held_.end(), [&](auto& node) { return node.second.contains(hash); }));
  }
  NodeView& view(NodeId node) {
    return *std::find_if(views_.begin(), views_.end(),
                         [node](const NodeView& view) { return view.node == node; });
  }

  Directory& directory() { return directory_; }
  [[nodiscard]] const std::vector<NodeView>& views() const { return views_; }
  [[nodiscard]] const std::map<KeyHash, PublishItem>& objects() const { return objects_; }
  [[nodiscard]] const std::set<KeyHash>& held(NodeId node) { return held_.at(node); }

 private:
  void publish(NodeId node, const PublishItem& item) {
    BatchAnswer answer;
    directory_.apply({{node, 1, ++sequence_[node]}, directory_.removal(), {&item, 1}}, answer);
    ASSERT_THAT(answer.verdicts, ::testing::ElementsAre(Verdict::kAccepted));
    if (item.what == PublishItem::What::kHolds) {
      held_[node].insert(item.hash);
    } else {
      held_[node].erase(item.hash);
    }
  }

  Directory directory_;
  std::map<NodeId, std::uint64_t> sequence_;
  std::map<NodeId, std::set<KeyHash>> held_;
  std::map<KeyHash, PublishItem> objects_;
  std::vector<NodeView> views_;
};

}  // namespace mc::metadata
