// SPDX-License-Identifier: Apache-2.0
//
// Two hosts of a libfabric network in a single process, stepped by a single thread, and
//   the links between them over loopback.
// Threads: a single thread.
// Owns: the transports.
#pragma once

#include <string>

#include "conformance/transport/linked_pair.h"
#include "transport/fabric/fabric_transport.h"

namespace mc::transport::testing {

class FabricPair : public LinkedPair<fabric::FabricTransport> {
 public:
  // Throws if the host lacks the provider.
  FabricPair(const fabric::Library& library, const fabric::FabricOptions& a,
             const fabric::FabricOptions& b);

  // Starts another incarnation of b.
  void start_b(const fabric::FabricOptions& options);

  static fabric::FabricOptions options(NodeId node, const std::string& provider,
                                       const std::string& address);

 private:
  const fabric::Library library_;
};

}  // namespace mc::transport::testing
