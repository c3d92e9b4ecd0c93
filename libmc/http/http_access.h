// SPDX-License-Identifier: Apache-2.0
//
// The token of an HTTP server. A server with a token answers a request only if the request carries
//   the token as a bearer token or in X-API-Key. /health is open.
// Threads: any.
// Trusts: the operator's file and environment.
#pragma once

#include <string>
#include <string_view>

#include "libmc/auth/cluster_key.h"
#include "mc/status.h"

namespace mc::http {

// The token of a server at the host: the first line of the file, without a path of
// $MC_HTTP_TOKEN_FILE, else $ADMIN_API_KEY. A server that other hosts reach has without these two a
// token that follows from the cluster's key. Empty: no token.
// Errors: MC_INVALID_ARGUMENT for an unreadable file, and for a host that needs a token.
Result<std::string> find_token(const std::string& path, const std::string& host,
                               const auth::ClusterKey& key, bool insecure);

// Whether a request with these header fields may be answered. Compares in constant time.
bool may_pass(std::string_view token, std::string_view path, std::string_view authorization,
              std::string_view api_key);

}  // namespace mc::http
