// SPDX-License-Identifier: Apache-2.0
//
// Carries out the orders of a partition's master for a ClusterNode. Reports, listings
//   and removals by pattern concern the keys of that partition alone.
// Threads: The agent's loop.
// Owns: Nothing. The node outlives this object.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "agent/cluster/cluster_node.h"

namespace mc::agent {

class ClusterNode::Orders final : public MasterOrders {
 public:
  Orders(ClusterNode& node, std::uint32_t partition) : node_(node), partition_(partition) {}

  void on_partitions(std::uint32_t partitions) override;
  metadata::Load load() override;
  std::uint64_t latest_version() override { return node_.clock_.latest(wall_ns()); }
  void heard_version(std::uint64_t version) override { node_.clock_.saw(version); }
  bool next_report(bool first, std::vector<metadata::PublishItem>& items) override;
  void on_report_verdict(const metadata::PublishItem& item, metadata::Verdict verdict) override;
  void on_drop(const metadata::wire::Drop& order, Done done) override;
  void on_drop_matching(const metadata::wire::Match& match,
                        Reply<metadata::wire::RemoveMatchingAnswer> reply) override;
  void on_list(const metadata::wire::Match& match,
               Reply<metadata::wire::ListAnswer> reply) override;
  void on_copy(const metadata::wire::Copy& order, Done done) override;
  void on_unreachable(const Status& why) override;
  void on_fenced() override;

 private:
  void drop_matching_everywhere(const metadata::wire::Match& match,
                                Reply<metadata::wire::RemoveMatchingAnswer> reply);

  // The answer is not given any more when the link has ended.
  template <typename Answer>
  std::function<void(Answer)> while_linked(std::function<void(Answer)> answer) const {
    return [answer = std::move(answer), link = std::weak_ptr(link_)](Answer with) {
      if (!link.expired()) answer(std::move(with));
    };
  }

  ClusterNode& node_;
  const std::uint32_t partition_;
  const std::shared_ptr<bool> link_ = std::make_shared<bool>(true);
};

}  // namespace mc::agent
