// SPDX-License-Identifier: Apache-2.0
//
// What it is: a host that reaches peers by TCP on loopback and by RDMA devices of a fabric.
// Threads: one. Owns the transports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conformance/memory_arena.h"
#include "conformance/rdma_pair.h"
#include "conformance/tcp_node.h"
#include "conformance/verbs_fabric.h"
#include "transport/choice/choice_transport.h"

namespace mc::transport::testing {

class ChoiceNode {
 public:
  ChoiceNode(PortBook& book, NodeId node, const std::vector<std::string>& devices)
      : tcp_(std::make_unique<TcpNode>(book, options(node))) {
    rdma::RdmaOptions rdma = RdmaPair::options(node, devices);
    rdma.opening_threads = 0;  // the fabric is of one thread
    auto by_rdma = rdma::RdmaTransport::create(rdma, VerbsFabric::verbs(), *tcp_).value();
    rdma::RdmaTransport& rdma_transport = *by_rdma;
    transport_ =
        choice::ChoiceTransport::create(tcp_->take_transport(), std::move(by_rdma)).value();
    tcp_->drive(*transport_, rdma_transport);
  }

  choice::ChoiceTransport& transport() { return *transport_; }
  void step(std::uint64_t now_ns, std::vector<Event>& events) {
    tcp_->step(now_ns);
    transport_->poll(now_ns, events);
  }

 private:
  static tcp::TcpOptions options(NodeId node) {
    tcp::TcpOptions result;
    result.node = node;
    result.incarnation = 1;
    return result;
  }
  std::unique_ptr<TcpNode> tcp_;
  std::unique_ptr<choice::ChoiceTransport> transport_;
};

}  // namespace mc::transport::testing
