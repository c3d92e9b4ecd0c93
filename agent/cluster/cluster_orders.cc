// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/cluster_orders.h"

#include <spdlog/spdlog.h>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint64_t kOrderedCopyNs = 30'000'000'000;

// Answers an order to drop objects when all drops from the disks have ended.
struct DiskDrops {
  MasterOrders::Done done;
  std::size_t open = 1;
  bool durable = true;

  void end(bool is_durable) {
    durable &= is_durable;
    if (--open != 0) return;
    done(durable ? Status() : Status(MC_DISK_AWAY, "a disk that failed may bring objects back"));
  }
};

}  // namespace

std::unique_ptr<MasterOrders> ClusterNode::orders_of(std::uint32_t partition) {
  return std::make_unique<Orders>(*this, partition);
}

void ClusterNode::Orders::on_partitions(std::uint32_t partitions) {
  node_.on_partitions(partition_, partitions);
}

metadata::Load ClusterNode::Orders::load() {
  metadata::Load load;
  load.wall_ns = wall_ns();
  load.capacity_bytes = 0;
  for (const auto& tenant : node_.tenants_) {
    ObjectStore& store = tenant->store();
    load.used_bytes += store.live_bytes();
    *load.capacity_bytes += std::min(store.pool().target_bytes(), store.capacity_bytes());
  }
  return load;
}

bool ClusterNode::Orders::next_report(bool first, std::vector<metadata::PublishItem>& items) {
  return node_.announcer_->next_report(partition_, first, items);
}

void ClusterNode::Orders::on_report_verdict(const metadata::PublishItem& item,
                                            metadata::Verdict verdict) {
  node_.announcer_->on_verdict(item, verdict);
}

void ClusterNode::Orders::on_drop(const wire::Drop& order, Done done) {
  LocalDisks* const disks = disks_of(node_.tenants_);
  const auto drops = std::make_shared<DiskDrops>(DiskDrops{while_linked(std::move(done))});
  for (const metadata::RemoveItem& item : order.items) {
    node_.fetcher_->locations().forget(item.hash);
    node_.fetcher_->dropped(item.hash, item.up_to_version);
    for (const auto& tenant : node_.tenants_) {
      StripeHolder::drop(*tenant, item.hash, item.up_to_version);
      const std::uint32_t entry = tenant->find(item.hash);
      if (entry == kNoEntry || tenant->book().row(entry).version > item.up_to_version) continue;
      tenant->drop(entry);
    }
    if (disks == nullptr) continue;
    ++drops->open;
    disks->drop(shared_name_of(item.hash), item.up_to_version,
                [drops](bool durable) { drops->end(durable); });
  }
  drops->end(true);
}

void ClusterNode::Orders::on_drop_matching(const wire::Match& match,
                                           Reply<wire::RemoveMatchingAnswer> reply) {
  if (match.name_space.empty()) return drop_matching_everywhere(match, std::move(reply));
  ClusterTenant* const tenant = find_tenant(node_.tenants_, match.name_space);
  if (tenant == nullptr) return reply(wire::RemoveMatchingAnswer());
  node_.drop_matching(*tenant, match, {partition_, node_.masters_.count()},
                      while_linked(std::move(reply)));
}

// In all namespaces. The first failure is the answer.
void ClusterNode::Orders::drop_matching_everywhere(const wire::Match& match,
                                                   Reply<wire::RemoveMatchingAnswer> reply) {
  struct Sum {
    wire::RemoveMatchingAnswer removed;
    Status failure;
    std::size_t open = 0;
  };
  std::vector<std::string> names;
  for (const auto& tenant : node_.tenants_) names.push_back(tenant->tenant()->name);
  if (names.empty()) return reply(wire::RemoveMatchingAnswer());
  const auto sum = std::make_shared<Sum>();
  sum->open = names.size();
  for (const std::string& name : names) {
    wire::Match of = match;
    of.name_space = name;
    on_drop_matching(of, [sum, reply](const Result<wire::RemoveMatchingAnswer>& answer) {
      if (answer) {
        sum->removed.add(*answer);
      } else {
        sum->failure = answer.error();
      }
      if (--sum->open != 0) return;
      if (sum->failure.ok()) return reply(sum->removed);
      reply(fail(sum->failure));
    });
  }
}

void ClusterNode::Orders::on_list(const wire::Match& match, Reply<wire::ListAnswer> reply) {
  ClusterTenant* const tenant = find_tenant(node_.tenants_, match.name_space);
  if (tenant == nullptr) return reply(wire::ListAnswer());
  node_.walks_.list(*tenant, match, {partition_, node_.masters_.count()},
                    while_linked(std::move(reply)));
}

void ClusterNode::Orders::on_copy(const wire::Copy& order, Done done) {
  if (order.parts != 0) return node_.mover_->begin(order, std::move(done));
  node_.fetcher_->copies().copy(
      order.key, order.source, node_.operations_.now_ns() + kOrderedCopyNs,
      [done = std::move(done)](mc_status status) {
        done(status == MC_OK ? Status() : Status(status, "the copy could not be made"));
      });
}

void ClusterNode::Orders::on_unreachable(const Status& why) {
  spdlog::warn("event=master_unreachable partition={} cause=\"{}\"", partition_, why.text());
}

void ClusterNode::Orders::on_fenced() {
  node_.set_fenced("a newer process has joined the cluster as this node");
}

}  // namespace mc::agent
