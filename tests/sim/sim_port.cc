// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_port.h"

#include <algorithm>
#include <stdexcept>

namespace mc::sim {

namespace wire = metadata::wire;

namespace {

// Says that an object is gone that nobody has ever held.
metadata::PublishItem nothing() {
  metadata::PublishItem item;
  item.version = 1;
  item.what = metadata::PublishItem::What::kDropped;
  return item;
}

}  // namespace

// The agent's orders, seen on their way.
class SimPort::Orders final : public agent::MasterOrders {
 public:
  Orders(SimPort& port, agent::MasterOrders& inner) : port_(port), inner_(inner) {}

  void on_partitions(std::uint32_t partitions) override { inner_.on_partitions(partitions); }
  metadata::Load load() override { return inner_.load(); }
  std::uint64_t latest_version() override { return inner_.latest_version(); }
  void heard_version(std::uint64_t version) override { inner_.heard_version(version); }
  bool next_report(bool first, std::vector<metadata::PublishItem>& items) override {
    const bool all = inner_.next_report(first, items);
    if (items.empty() && port_.reports_never_end_) items.push_back(nothing());
    port_.look_at(items);
    return all;
  }
  void on_report_verdict(const metadata::PublishItem& item, metadata::Verdict verdict) override {
    inner_.on_report_verdict(item, verdict);
  }
  void on_drop(const wire::Drop& order, Done done) override {
    if (port_.faults_.lies_about_drops) return done({});
    inner_.on_drop(order, std::move(done));
  }
  void on_drop_matching(const wire::Match& match,
                        Reply<wire::RemoveMatchingAnswer> reply) override {
    inner_.on_drop_matching(match, std::move(reply));
  }
  void on_list(const wire::Match& match, Reply<wire::ListAnswer> reply) override {
    inner_.on_list(match, std::move(reply));
  }
  void on_copy(const wire::Copy& order, Done done) override {
    inner_.on_copy(order, std::move(done));
  }
  void on_unreachable(const Status& why) override { inner_.on_unreachable(why); }
  void on_fenced() override { inner_.on_fenced(); }

 private:
  SimPort& port_;
  agent::MasterOrders& inner_;
};

SimPort::SimPort(const metadata::MasterClientOptions& options, agent::MasterOrders& orders,
                 metadata::MasterClient::Outside outside, const Faults& faults)
    : faults_(faults), orders_(std::make_unique<Orders>(*this, orders)) {
  auto link = agent::MasterLink::open_simulated(options, *orders_, std::move(outside));
  if (!link) throw std::runtime_error(link.error().to_string());
  link_ = std::move(*link);
}

SimPort::~SimPort() = default;

void SimPort::look_at(std::vector<metadata::PublishItem>& items) {
  for (metadata::PublishItem& item : items) {
    latest_version_ = std::max(latest_version_, item.version);
    if (!faults_.takes_a_part_for_the_whole || !item.attributes.striped) continue;
    item.attributes.parts = 1;
    item.attributes.part = 0;
  }
}

void SimPort::publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
                      std::uint64_t deadline_ns, Done<std::vector<metadata::Verdict>> done) {
  look_at(items);
  link_->publish(std::move(items), removals_seen, deadline_ns, std::move(done));
}

}  // namespace mc::sim
