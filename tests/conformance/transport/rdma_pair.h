// SPDX-License-Identifier: Apache-2.0
//
// Two hosts of an RDMA network in a process, stepped by a single thread: two transports
//   with separate devices, and the links between them over loopback.
// Threads: a single thread.
// Owns: the transports.
#pragma once

#include <string>
#include <vector>

#include "conformance/transport/linked_pair.h"
#include "transport/rdma/rdma_transport.h"

namespace mc::transport::testing {

class RdmaPair : public LinkedPair<rdma::RdmaTransport> {
 public:
  // Throws if the host lacks a device.
  RdmaPair(const rdma::Verbs& verbs, const rdma::RdmaOptions& a, const rdma::RdmaOptions& b);

  // Starts another incarnation of b.
  void start_b(const rdma::RdmaOptions& options);

  static rdma::RdmaOptions options(NodeId node, std::vector<std::string> devices);

 private:
  const rdma::Verbs verbs_;
};

}  // namespace mc::transport::testing
