// SPDX-License-Identifier: Apache-2.0
//
// The factory for cluster stores from a URL (store_url.h has the forms). A new backend
//   is a folder and a line here.
// Threads: any.
// Trusts: nothing.
#pragma once

#include <memory>
#include <string_view>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

// Does not connect; the first call does. Errors: MC_INVALID_ARGUMENT with the remedy and without
// the URL.
Result<std::unique_ptr<ClusterStore>> open_cluster_store(std::string_view url,
                                                         std::string_view cluster_id);

}  // namespace mc::metadata
