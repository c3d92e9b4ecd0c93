// SPDX-License-Identifier: Apache-2.0
//
// What it is: Opens the one-sided transport that carries large reads beside TCP, if host and
//   options permit. RDMA comes before libfabric.
// Threads: Any, before the agent's loop runs.
#pragma once

#include <memory>
#include <string>

#include "agent/options/options.h"
#include "transport/one_sided/one_sided.h"

namespace mc::agent {

struct OneSidedWay {
  std::unique_ptr<transport::OneSidedTransport> transport;  // null: TCP alone
  std::string why_not;                                      // empty: the options want none
};

// address: the address that this host's peers dial. Errors: the named transport cannot be opened;
// the text says why, with the remedy.
Result<OneSidedWay> open_one_sided_way(const Options& options, transport::NodeId node,
                                       std::uint64_t incarnation, const std::string& address,
                                       transport::Dialer& dialer);

}  // namespace mc::agent
