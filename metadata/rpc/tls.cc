// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/tls.h"

#include "libmc/auth/tls_context.h"

namespace mc::metadata::rpc {

namespace {

Result<TlsContext> make_context(const auth::TlsSettings& settings) {
  auto context = auth::make_tls_context(settings);
  if (!context) return fail(context.error());
  return std::make_shared<boost::asio::ssl::context>(context->release());  // takes ownership
}

}  // namespace

Result<TlsContext> listener_tls(const TlsOptions& options) {
  if (options.cert.empty() && options.key.empty()) return TlsContext();
  if (options.cert.empty() || options.key.empty()) {
    return fail(MC_INVALID_ARGUMENT, "TLS needs both a certificate and its private key");
  }
  auth::TlsSettings settings;
  settings.cert = {"the certificate", options.cert};
  settings.key = {"the private key", options.key};
  return make_context(settings);
}

Result<TlsContext> dialer_tls(const TlsOptions& options) {
  if (options.ca.empty()) return TlsContext();
  auth::TlsSettings settings;
  settings.ca = {"the CA certificate", options.ca};
  settings.verify_peer = true;
  return make_context(settings);
}

}  // namespace mc::metadata::rpc
