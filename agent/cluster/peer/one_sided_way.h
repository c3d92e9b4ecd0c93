// SPDX-License-Identifier: Apache-2.0
//
// What it is: the one-sided transport that carries large reads beside TCP, if this host has one and
//   its options want it: RDMA before libfabric.
// Threads: any; before the agent's loop runs.
#pragma once

#include <memory>
#include <string>

#include "agent/options/options.h"
#include "transport/one_sided/one_sided.h"

namespace mc::agent {

struct OneSidedWay {
  std::unique_ptr<transport::OneSidedTransport> transport;  // null: TCP alone
  std::string why_not;                                      // empty: none is wanted
};

// address: that this host's peers dial. Errors: what is wrong with the transport that options name,
// with the remedy.
Result<OneSidedWay> open_one_sided_way(const Options& options, transport::NodeId node,
                                       std::uint64_t incarnation, const std::string& address,
                                       transport::Dialer& dialer);

}  // namespace mc::agent
