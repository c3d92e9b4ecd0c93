// SPDX-License-Identifier: Apache-2.0
//
// What it is: two hosts of an RDMA network in one process, stepped by one thread: two transports
//   with devices of their own, and the links between them over loopback.
// Threads: one. Owns the transports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conformance/transport_world.h"
#include "transport/rdma/rdma_transport.h"

namespace mc::transport::testing {

class RdmaPair : private Dialer {
 public:
  // Throws if there is no such device.
  RdmaPair(const rdma::Verbs& verbs, const rdma::RdmaOptions& a, const rdma::RdmaOptions& b);

  rdma::RdmaTransport& a() { return *a_; }
  rdma::RdmaTransport& b() { return *b_; }
  bool has_b() const { return b_ != nullptr; }
  void step(std::uint64_t now_ns, std::vector<Event>& at_a, std::vector<Event>& at_b);
  void kill_b() { b_.reset(); }
  // Another incarnation of it.
  void start_b(const rdma::RdmaOptions& options);
  // Ends the link under both sides' feet.
  void break_link();
  // From now on dialing fails, or no longer does.
  void refuse_links(bool refuse) { refuses_ = refuse; }

  static rdma::RdmaOptions options(NodeId node, std::vector<std::string> devices);

 private:
  void dial(const DialRequest& request) override { dialed_.push_back(request); }

  const rdma::Verbs verbs_;
  std::uint64_t b_incarnation_ = 1;
  bool refuses_ = false;
  std::vector<DialRequest> dialed_;
  Fd second_;  // of the link
  std::unique_ptr<rdma::RdmaTransport> a_;
  std::unique_ptr<rdma::RdmaTransport> b_;
};

}  // namespace mc::transport::testing
