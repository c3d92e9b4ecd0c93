// SPDX-License-Identifier: Apache-2.0
//
// What it is: the factory: a cluster store from a URL (store_url.h has the forms). A new backend is
//   a folder and a line here.
// Threads: any. Trusts nothing.
#pragma once

#include <memory>
#include <string_view>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

// Connects to nothing yet: the first call does. Errors: MC_INVALID_ARGUMENT with the remedy,
// without the URL itself.
Result<std::unique_ptr<ClusterStore>> open_cluster_store(std::string_view url,
                                                         std::string_view cluster_id);

}  // namespace mc::metadata
