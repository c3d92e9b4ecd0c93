// SPDX-License-Identifier: Apache-2.0
//
// What it is: the certificates of one side, for asio's TLS streams. A listener shows a certificate;
//   a dialer checks it against its CA and the name it dialled. Who the dialer is, the cluster key
//   proves, inside.
// Threads: made once, then any.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "mc/status.h"

namespace mc::metadata::rpc {

struct TlsOptions {
  std::string ca;    // dialer: PEM file; with it TLS is used. Listener: not needed
  std::string cert;  // listener: PEM files; with them TLS is used
  std::string key;
  std::string server_name;  // dialer: what the certificate must say, if not the host
};

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Null: no TLS wanted. Errors: MC_INVALID_ARGUMENT names the file that cannot be used.
Result<TlsContext> listener_tls(const TlsOptions& options);
Result<TlsContext> dialer_tls(const TlsOptions& options);

}  // namespace mc::metadata::rpc
