// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/fabric_pair.h"

#include <stdexcept>

namespace mc::transport::testing {

namespace {

auto maker(const fabric::FabricOptions& options, const fabric::Library& library) {
  return [options, library](Dialer& dialer) {
    auto made = fabric::FabricTransport::create(options, library, dialer);
    if (!made) throw std::runtime_error(made.error().to_string());
    return std::move(*made);
  };
}

}  // namespace

fabric::FabricOptions FabricPair::options(NodeId node, const std::string& provider,
                                          const std::string& address) {
  fabric::FabricOptions result;
  result.node = node;
  result.incarnation = 1;
  result.provider = provider;
  result.address = address;
  return result;
}

FabricPair::FabricPair(const fabric::Library& library, const fabric::FabricOptions& a,
                       const fabric::FabricOptions& b)
    : LinkedPair(maker(a, library), maker(b, library)), library_(library) {}

void FabricPair::start_b(const fabric::FabricOptions& options) {
  LinkedPair::start_b(maker(options, library_), options.incarnation);
}

}  // namespace mc::transport::testing
