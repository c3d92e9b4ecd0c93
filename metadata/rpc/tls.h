// SPDX-License-Identifier: Apache-2.0
//
// The certificates of one side, for asio's TLS streams. A listener shows a certificate.
//   A dialer checks the certificate against its CA and the dialled name. The dialer has no
//   certificate; the cluster key proves the dialer inside the TLS session.
// Threads: made once, then any.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "mc/status.h"

namespace mc::metadata::rpc {

struct TlsOptions {
  std::string ca;    // dialer: PEM file that turns TLS on. Listener: not needed
  std::string cert;  // listener: PEM files that turn TLS on
  std::string key;
  std::string server_name;  // dialer: the name in the certificate; empty: the host
};

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Null: TLS is off. Errors: MC_INVALID_ARGUMENT names the file that cannot be used.
Result<TlsContext> listener_tls(const TlsOptions& options);
Result<TlsContext> dialer_tls(const TlsOptions& options);

}  // namespace mc::metadata::rpc
