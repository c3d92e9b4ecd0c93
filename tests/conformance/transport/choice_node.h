// SPDX-License-Identifier: Apache-2.0
//
// A host that reaches peers by TCP over loopback and by a one-sided transport: RDMA
//   devices of a fabric in this process, or libfabric over loopback.
// Threads: a single thread.
// Owns: the transports.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conformance/transport/fabric_pair.h"
#include "conformance/transport/memory_arena.h"
#include "conformance/transport/rdma_pair.h"
#include "conformance/transport/tcp_node.h"
#include "conformance/transport/verbs_fabric.h"
#include "transport/choice/choice_transport.h"

namespace mc::transport::testing {

using MakeOneSided = std::function<std::unique_ptr<OneSidedTransport>(NodeId, Dialer&)>;

inline MakeOneSided by_rdma(const std::vector<std::string>& devices) {
  return [devices](NodeId node, Dialer& dialer) {
    rdma::RdmaOptions options = RdmaPair::options(node, devices);
    options.opening_threads = 0;  // the fabric is single-threaded
    return rdma::RdmaTransport::create(options, VerbsFabric::verbs(), dialer).value();
  };
}

inline MakeOneSided by_fabric(const fabric::Library& library) {
  return [library](NodeId node, Dialer& dialer) {
    return fabric::FabricTransport::create(FabricPair::options(node, "tcp;ofi_rxm", "127.0.0.1"),
                                           library, dialer)
        .value();
  };
}

class ChoiceNode {
 public:
  ChoiceNode(PortBook& book, NodeId node, const MakeOneSided& make,
             std::uint64_t direct_bytes = choice::kProbedBytes)
      : tcp_(std::make_unique<TcpNode>(book, options(node))) {
    auto direct = make(node, *tcp_);
    OneSidedTransport& one_sided = *direct;
    transport_ =
        choice::ChoiceTransport::create(tcp_->take_transport(), std::move(direct), direct_bytes)
            .value();
    tcp_->drive(*transport_, one_sided);
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
