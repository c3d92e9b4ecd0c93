// SPDX-License-Identifier: Apache-2.0
//
// What it is: which provider of libfabric, and which of its domains, a transport uses: those with
//   reliable datagram endpoints that read and write remote memory.
// Threads: any. Owns: nothing beyond what it returns.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transport/fabric/fabric_options.h"
#include "transport/fabric/library.h"

namespace mc::transport::fabric {

using Info = std::unique_ptr<fi_info, void (*)(fi_info*)>;

// One for each domain, in libfabric's order. Errors: MC_UNSUPPORTED, with what was looked for.
Result<std::vector<Info>> find_domains(const Library& library, const FabricOptions& options);

}  // namespace mc::transport::fabric
