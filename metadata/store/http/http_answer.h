// SPDX-License-Identifier: Apache-2.0
//
// The decoder for answers of Mooncake's HTTP metadata protocol. Its servers (the
//   master's embedded server, the Python wheel's server, the Go sample) agree on the status codes:
//   200 done, 400 bad key, 404 no such key. Bodies of errors are free text.
// Threads: any; pure functions.
// Trusts: nothing. Any status with any body gives a value or an error.
#pragma once

#include <string_view>

#include "metadata/store/cluster_store.h"
#include "metadata/store/http/http_client.h"

namespace mc::metadata {

// The value. MC_NOT_FOUND as the contract says.
Result<std::string> decode_http_get(std::string_view key, HttpAnswer answer);
Status decode_http_put(const HttpAnswer& answer);
Status decode_http_remove(std::string_view key, const HttpAnswer& answer);

}  // namespace mc::metadata
