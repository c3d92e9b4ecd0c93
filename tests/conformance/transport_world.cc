// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport_world.h"

#include "conformance/tcp_node.h"
#include "libmc/base/clock.h"
#include "transport/fault/fault_transport.h"
#include "transport/loop/loop_transport.h"

namespace mc::transport::testing {

namespace {

constexpr std::uint64_t kStepNs = 20'000;

class LoopWorld : public World {
 public:
  Transport& a() override { return *a_; }
  Transport& b() override { return *b_; }
  std::uint64_t now_ns() const override { return now_ns_; }
  void step(std::vector<Event>& at_a, std::vector<Event>& at_b) override {
    now_ns_ += kStepNs;
    a_->poll(now_ns_, at_a);
    if (b_) b_->poll(now_ns_, at_b);
  }
  void kill_b() override { b_.reset(); }

 protected:
  loop::LoopNetwork network_;
  std::uint64_t now_ns_ = 1'000'000;
  std::unique_ptr<Transport> a_ = network_.make(kNodeA);
  std::unique_ptr<Transport> b_ = network_.make(kNodeB);
};

// Everything but loss and wrong bits: the contract must hold without a difference.
class FaultyLoopWorld : public LoopWorld {
 public:
  FaultyLoopWorld() {
    fault::FaultPlan plan;
    plan.duplicate = 0.2;
    plan.delay = 0.3;
    plan.reorder = 0.3;
    for (std::unique_ptr<Transport>* side : {&a_, &b_}) {
      auto faulty = std::make_unique<fault::FaultTransport>(std::move(*side), 7);
      faulty->set_plan(plan);
      *side = std::move(faulty);
    }
  }
};

class TcpWorld : public World {
 public:
  Transport& a() override { return a_->transport(); }
  Transport& b() override { return b_->transport(); }
  std::uint64_t now_ns() const override { return mc::now_ns(); }
  void step(std::vector<Event>& at_a, std::vector<Event>& at_b) override {
    const std::uint64_t now = mc::now_ns();
    a_->step(now);
    a_->transport().poll(now, at_a);
    if (!b_) return;
    b_->step(now);
    b_->transport().poll(now, at_b);
  }
  void kill_b() override { b_.reset(); }

 private:
  static tcp::TcpOptions options(NodeId node) {
    tcp::TcpOptions result;
    result.node = node;
    result.incarnation = 1;
    return result;
  }
  PortBook book_;
  std::unique_ptr<TcpNode> a_ = std::make_unique<TcpNode>(book_, options(kNodeA));
  std::unique_ptr<TcpNode> b_ = std::make_unique<TcpNode>(book_, options(kNodeB));
};

}  // namespace

std::vector<WorldKind> world_kinds() {
  return {{"loop", [] { return std::make_unique<LoopWorld>(); }},
          {"tcp", [] { return std::make_unique<TcpWorld>(); }},
          {"fault", [] { return std::make_unique<FaultyLoopWorld>(); }}};
}

}  // namespace mc::transport::testing
