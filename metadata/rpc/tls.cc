// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/tls.h"

#include <utility>

namespace mc::metadata::rpc {

Result<TlsContext> listener_tls(const TlsOptions& options) {
  if (options.cert.empty() && options.key.empty()) return TlsContext();
  if (options.cert.empty() || options.key.empty()) {
    return fail(MC_INVALID_ARGUMENT, "TLS needs both a certificate and its private key");
  }
  auth::TlsSettings settings;
  settings.cert = {"the certificate", options.cert};
  settings.key = {"the private key", options.key};
  return auth::TlsContexts::open(std::move(settings), options.warn);
}

Result<TlsContext> dialer_tls(const TlsOptions& options) {
  if (options.ca.empty()) return TlsContext();
  auth::TlsSettings settings;
  settings.ca = {"the CA certificate", options.ca};
  settings.verify_peer = true;
  return auth::TlsContexts::open(std::move(settings), options.warn);
}

}  // namespace mc::metadata::rpc
