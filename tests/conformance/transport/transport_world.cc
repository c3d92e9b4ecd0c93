// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/transport_world.h"

#include <cstdlib>
#include <sstream>

#include "conformance/transport/authority.h"
#include "conformance/transport/choice_node.h"
#include "conformance/transport/fabric_pair.h"
#include "conformance/transport/fault_transport.h"
#include "conformance/transport/loop_transport.h"
#include "conformance/transport/memory_arena.h"
#include "conformance/transport/rdma_pair.h"
#include "conformance/transport/tcp_node.h"
#include "conformance/transport/verbs_fabric.h"
#include "libmc/base/clock.h"

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
  LoopNetwork network_;
  std::uint64_t now_ns_ = 1'000'000;
  std::unique_ptr<Transport> a_ = network_.make(kNodeA);
  std::unique_ptr<Transport> b_ = network_.make(kNodeB);
};

// Everything but loss and wrong bits: the contract must hold without a difference.
class FaultyLoopWorld : public LoopWorld {
 public:
  FaultyLoopWorld() {
    FaultPlan plan;
    plan.duplicate = 0.2;
    plan.delay = 0.3;
    plan.reorder = 0.3;
    for (std::unique_ptr<Transport>* side : {&a_, &b_}) {
      auto faulty = std::make_unique<FaultTransport>(std::move(*side), 7);
      faulty->set_plan(plan);
      *side = std::move(faulty);
    }
  }
};

class TcpWorld : public World {
 public:
  explicit TcpWorld(const tls::Identity* tls) : tls_(tls) {}
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
  const tls::Identity* const tls_;
  PortBook book_;
  std::unique_ptr<TcpNode> a_ = std::make_unique<TcpNode>(book_, options(kNodeA), 0, tls_);
  std::unique_ptr<TcpNode> b_ = std::make_unique<TcpNode>(book_, options(kNodeB), 0, tls_);
};

// Real verbs devices, or devices of a fabric in this process.
class RdmaWorld : public World {
 public:
  RdmaWorld(const rdma::Verbs& verbs, const std::vector<std::string>& devices_a,
            const std::vector<std::string>& devices_b, std::uint8_t ack_timeout,
            std::uint32_t opening_threads)
      : pair_(verbs, options(kNodeA, devices_a, ack_timeout, opening_threads),
              options(kNodeB, devices_b, ack_timeout, opening_threads)) {
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(pair_.a().register_region(spec).value());
  }
  Transport& a() override { return pair_.a(); }
  Transport& b() override { return pair_.b(); }
  std::uint64_t now_ns() const override { return mc::now_ns(); }
  void step(std::vector<Event>& at_a, std::vector<Event>& at_b) override {
    pair_.step(mc::now_ns(), at_a, at_b);
  }
  void kill_b() override { pair_.kill_b(); }

 private:
  static rdma::RdmaOptions options(NodeId node, const std::vector<std::string>& devices,
                                   std::uint8_t ack_timeout, std::uint32_t opening_threads) {
    rdma::RdmaOptions result = RdmaPair::options(node, devices);
    result.ack_timeout = ack_timeout;
    result.opening_threads = opening_threads;
    return result;
  }
  RdmaPair pair_;
};

// Devices of a network in this process.
class RdmaInMemoryWorld : public World {
 public:
  Transport& a() override { return world_->a(); }
  Transport& b() override { return world_->b(); }
  std::uint64_t now_ns() const override { return world_->now_ns(); }
  void step(std::vector<Event>& at_a, std::vector<Event>& at_b) override {
    world_->step(at_a, at_b);
  }
  void kill_b() override { world_->kill_b(); }

 private:
  struct Fabric : VerbsFabric {
    Fabric() {
      for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) {
        const std::string number = std::to_string(subnet);
        add({.name = "a" + number, .subnet = subnet, .host = 1});
        add({.name = "b" + number, .subnet = subnet, .host = 2});
      }
    }
  };
  Fabric fabric_;
  std::unique_ptr<RdmaWorld> world_ =
      std::make_unique<RdmaWorld>(VerbsFabric::verbs(), std::vector<std::string>{"a0", "a1"},
                                  std::vector<std::string>{"b0", "b1"}, std::uint8_t{14}, 0u);
};

// TCP and a one-sided transport together. Either of the two carries the suite's operations.
class ChoiceWorld : public World {
 public:
  ChoiceWorld(const MakeOneSided& a, const MakeOneSided& b)
      : a_(std::make_unique<ChoiceNode>(book_, kNodeA, a)),
        b_(std::make_unique<ChoiceNode>(book_, kNodeB, b)) {
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(a_->transport().register_region(spec).value());
  }
  Transport& a() override { return a_->transport(); }
  Transport& b() override { return b_->transport(); }
  std::uint64_t now_ns() const override { return mc::now_ns(); }
  void step(std::vector<Event>& at_a, std::vector<Event>& at_b) override {
    const std::uint64_t now = mc::now_ns();
    a_->step(now, at_a);
    if (b_) b_->step(now, at_b);
  }
  void kill_b() override { b_.reset(); }

 private:
  PortBook book_;
  std::unique_ptr<ChoiceNode> a_;
  std::unique_ptr<ChoiceNode> b_;
};

struct OneRail : VerbsFabric {
  OneRail() {
    add({.name = "a0", .subnet = 0, .host = 1});
    add({.name = "b0", .subnet = 0, .host = 2});
  }
};

class RdmaChoiceWorld : private OneRail, public ChoiceWorld {
 public:
  RdmaChoiceWorld() : ChoiceWorld(by_rdma({"a0"}), by_rdma({"b0"})) {}
};

class FabricWorld : public World {
 public:
  FabricWorld(const fabric::Library& library, const std::string& provider,
              const std::string& address_a, const std::string& address_b)
      : why_immortal_(provider == "shm"
                          ? "libfabric's shm knows peers of its own process by pointer; "
                            "a killed process may leave it locked"
                          : ""),
        pair_(library, FabricPair::options(kNodeA, provider, address_a),
              FabricPair::options(kNodeB, provider, address_b)) {
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(pair_.a().register_region(spec).value());
  }
  Transport& a() override { return pair_.a(); }
  Transport& b() override { return pair_.b(); }
  std::uint64_t now_ns() const override { return mc::now_ns(); }
  void step(std::vector<Event>& at_a, std::vector<Event>& at_b) override {
    pair_.step(mc::now_ns(), at_a, at_b);
  }
  void kill_b() override { pair_.kill_b(); }
  std::string why_immortal() const override { return why_immortal_; }

 private:
  const std::string why_immortal_;
  FabricPair pair_;
};

std::unique_ptr<World> fabric_world(const char* provider, const char* address_a,
                                    const char* address_b) {
  const auto library = fabric::load_libfabric();
  if (!library) return nullptr;
  return std::make_unique<FabricWorld>(*library, provider, address_a, address_b);
}

std::vector<std::string> words(const char* text) {
  std::istringstream stream(text == nullptr ? "" : text);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}

}  // namespace

std::vector<WorldKind> world_kinds() {
  std::vector<WorldKind> kinds = {
      {"loop", [] { return std::make_unique<LoopWorld>(); }},
      {"tcp", [] { return std::make_unique<TcpWorld>(nullptr); }},
      {"tcp_tls", [] { return std::make_unique<TcpWorld>(&mc::conformance::loopback_identity()); }},
      {"fault", [] { return std::make_unique<FaultyLoopWorld>(); }},
      {"rdma_in_memory", [] { return std::make_unique<RdmaInMemoryWorld>(); }},
      {"choice", [] { return std::make_unique<RdmaChoiceWorld>(); }}};
  // Over loopback, and through shared memory of this host.
  kinds.push_back(
      {"fabric_tcp", [] { return fabric_world("tcp;ofi_rxm", "127.0.0.1", "127.0.0.1"); }});
  kinds.push_back({"fabric_shm", [] { return fabric_world("shm", "", ""); }});
  kinds.push_back({"choice_fabric", []() -> std::unique_ptr<World> {
                     const auto library = fabric::load_libfabric();
                     if (!library) return nullptr;
                     return std::make_unique<ChoiceWorld>(by_fabric(*library), by_fabric(*library));
                   }});
  // The variable is set in the virtual machine that tests/run --rdma starts.
  const auto ours = words(std::getenv("MC_RDMA_DEVICES_A"));
  const auto theirs = words(std::getenv("MC_RDMA_DEVICES_B"));
  if (!ours.empty() && !theirs.empty()) {
    kinds.push_back({"rdma", [ours, theirs] {
                       // An emulated processor answers late: 1 s until a packet is sent again.
                       return std::make_unique<RdmaWorld>(rdma::load_verbs().value(), ours, theirs,
                                                          std::uint8_t{18}, 4u);
                     }});
    kinds.push_back({"fabric_verbs", [] {
                       // The addresses of both ends of the machine's first rail.
                       return fabric_world("verbs;ofi_rxm", "10.77.0.1", "10.77.0.2");
                     }});
  }
  return kinds;
}

}  // namespace mc::transport::testing
