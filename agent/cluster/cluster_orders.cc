// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/cluster_orders.h"

#include <spdlog/spdlog.h>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint64_t kCopyNs = 30'000'000'000;

}  // namespace

std::unique_ptr<MasterOrders> ClusterNode::orders_of(std::uint32_t partition) {
  return std::make_unique<Orders>(*this, partition);
}

void ClusterNode::Orders::on_partitions(std::uint32_t partitions) {
  node_.on_partitions(partition_, partitions);
}

metadata::Load ClusterNode::Orders::load() { return node_.load(); }

void ClusterNode::Orders::next_report(bool first, std::vector<metadata::PublishItem>& items) {
  node_.announcer_->next_report(partition_, first, items);
}

void ClusterNode::Orders::on_report_verdict(const metadata::PublishItem& item,
                                            metadata::Verdict verdict) {
  node_.announcer_->on_verdict(item, verdict);
}

void ClusterNode::Orders::on_drop(const wire::Drop& order, Done done) {
  node_.drop(order);
  done({});
}

void ClusterNode::Orders::on_drop_matching(const wire::Match& match,
                                           Reply<wire::RemoveMatchingAnswer> reply) {
  node_.drop_matching(partition_, match, std::move(reply));
}

void ClusterNode::Orders::on_list(const wire::Match& match, Reply<wire::ListAnswer> reply) {
  node_.list(partition_, match, std::move(reply));
}

void ClusterNode::Orders::on_copy(const wire::Copy& order, Done done) {
  node_.copy(order, std::move(done));
}

void ClusterNode::Orders::on_unreachable(const Status& why) {
  spdlog::warn("event=master_unreachable partition={} cause=\"{}\"", partition_, why.text());
}

void ClusterNode::Orders::on_fenced() { node_.set_fenced(); }

metadata::Load ClusterNode::load() const {
  metadata::Load load;
  for (const auto& tenant : tenants_) load.used_bytes += tenant->store().live_bytes();
  return load;
}

void ClusterNode::drop(const wire::Drop& order) {
  for (const metadata::RemoveItem& item : order.items) {
    fetcher_->locations().forget(item.hash);
    fetcher_->dropped(item.hash, item.up_to_version);
    for (const auto& tenant : tenants_) {
      StripeHolder::drop(*tenant, item.hash, item.up_to_version);
      const std::uint32_t entry = tenant->find(item.hash);
      if (entry == kNoEntry || tenant->book().row(entry).version > item.up_to_version) continue;
      tenant->drop(entry);
    }
  }
}

void ClusterNode::drop_matching(std::uint32_t partition, const wire::Match& match,
                                MasterOrders::Reply<wire::RemoveMatchingAnswer> reply) {
  ClusterTenant* const tenant = find(match.name_space);
  if (tenant == nullptr) {
    reply(wire::RemoveMatchingAnswer());
    return;
  }
  // The removal must also end copies under way: both earlier copies and copies that begin during
  // the walk.
  fetcher_->dropped(*tenant);
  walks_.remove(*tenant, match, {partition, masters_.count()},
                [this, name = match.name_space,
                 reply = std::move(reply)](const Result<wire::RemoveMatchingAnswer>& removed) {
                  if (const ClusterTenant* const of = find(name)) fetcher_->dropped(*of);
                  reply(removed);
                });
}

void ClusterNode::list(std::uint32_t partition, const wire::Match& match,
                       MasterOrders::Reply<wire::ListAnswer> reply) {
  if (ClusterTenant* const tenant = find(match.name_space)) {
    walks_.list(*tenant, match, {partition, masters_.count()}, std::move(reply));
  } else {
    reply(wire::ListAnswer());
  }
}

void ClusterNode::copy(const wire::Copy& order, MasterOrders::Done done) {
  const auto ended = [done](mc_status status) {
    done(status == MC_OK ? Status() : Status(status, "the copy could not be made"));
  };
  if (order.parts != 0) return mover_->move(order, mc::now_ns(), ended);
  std::vector<ClusterTenant*> all;
  for (const auto& tenant : tenants_) all.push_back(tenant.get());
  fetcher_->copy(all, order.key, order.source, mc::now_ns() + kCopyNs, ended);
}

}  // namespace mc::agent
