// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/rdma_pair.h"

#include <stdexcept>

namespace mc::transport::testing {

namespace {

auto maker(const rdma::RdmaOptions& options, const rdma::Verbs& verbs) {
  return [options, verbs](Dialer& dialer) {
    auto made = rdma::RdmaTransport::create(options, verbs, dialer);
    if (!made) throw std::runtime_error(made.error().to_string());
    return std::move(*made);
  };
}

}  // namespace

rdma::RdmaOptions RdmaPair::options(NodeId node, std::vector<std::string> devices) {
  rdma::RdmaOptions result;
  result.node = node;
  result.incarnation = 1;
  result.devices = std::move(devices);
  return result;
}

RdmaPair::RdmaPair(const rdma::Verbs& verbs, const rdma::RdmaOptions& a, const rdma::RdmaOptions& b)
    : LinkedPair(maker(a, verbs), maker(b, verbs)), verbs_(verbs) {}

void RdmaPair::start_b(const rdma::RdmaOptions& options) {
  LinkedPair::start_b(maker(options, verbs_), options.incarnation);
}

}  // namespace mc::transport::testing
