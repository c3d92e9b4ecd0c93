// SPDX-License-Identifier: Apache-2.0
//
// Asks a master for the cluster, for a process that knows only the address of the master.
// Threads: any; blocks the caller.
// Trusts: a master that has proven the cluster key. The form of the id is checked.
#pragma once

#include <cstdint>
#include <string>

#include "metadata/rpc/dialer.h"

namespace mc::metadata {

struct MasterFacts {
  std::string cluster;  // the cluster's id
  std::string address;  // of the master, for other processes
};

// dialing: address, key, TLS. Follows a standby to the leader, and waits for a master and a leader.
// Errors: those of rpc::dial(); MC_TIMEOUT: no master leads; MC_VERSION_MISMATCH: the master tells
// no id.
Result<MasterFacts> ask_master(rpc::DialOptions dialing, std::uint64_t deadline_ns);

}  // namespace mc::metadata
