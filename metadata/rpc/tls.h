// SPDX-License-Identifier: Apache-2.0
//
// The certificates of one side of a link. A listener shows a certificate.
//   A dialer checks the certificate against its CA and the dialled name. The dialer has no
//   certificate; the cluster key proves the dialer inside the TLS session.
//   Renewed files count from the next handshake on.
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "libmc/auth/tls_context.h"
#include "mc/status.h"

namespace mc::metadata::rpc {

struct TlsOptions {
  std::string ca;    // dialer: PEM file that turns TLS on. Listener: not needed
  std::string cert;  // listener: PEM files that turn TLS on
  std::string key;
  std::string server_name;  // dialer: the name in the certificate; empty: the host
  auth::TlsWarning warn;    // told of renewed files that cannot be used
};

using TlsContext = std::shared_ptr<auth::TlsContexts>;

// Null: TLS is off. Errors: MC_INVALID_ARGUMENT names the file that cannot be used.
Result<TlsContext> listener_tls(const TlsOptions& options);
Result<TlsContext> dialer_tls(const TlsOptions& options);

}  // namespace mc::metadata::rpc
