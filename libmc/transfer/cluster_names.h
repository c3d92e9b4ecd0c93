// SPDX-License-Identifier: Apache-2.0
//
// Names of transfer engines in a cluster store, under "transfer/<name>", with a lease if
//   the store has leases.
// Threads: any thread. Calls wait for the store until the deadline. A separate thread renews the
//   lease.
// Owns: the store and the published name, until the destructor.
// Trusts: nothing. Text from the store becomes an address or an error.
#pragma once

#include <memory>
#include <string>

#include "transport/engine/name_store.h"

namespace mc::transfer {

// url: of a cluster store. Empty or "p2p": a name is an address. Errors: MC_INVALID_ARGUMENT.
Result<std::unique_ptr<NameStore>> open_names(const std::string& url, const std::string& cluster);

}  // namespace mc::transfer
