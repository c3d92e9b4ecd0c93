// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/tls.h"

namespace mc::metadata::rpc {

namespace {

namespace ssl = boost::asio::ssl;

TlsContext make_context() {
  auto context = std::make_shared<ssl::context>(ssl::context::tls);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                       ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                       ssl::context::no_tlsv1_2);
  return context;
}

tl::unexpected<Status> cannot_use(const char* what, const std::string& path,
                                  const boost::system::error_code& error) {
  return fail(MC_INVALID_ARGUMENT,
              std::string("the ") + what + " " + path + " cannot be used: " + error.message());
}

}  // namespace

Result<TlsContext> listener_tls(const TlsOptions& options) {
  if (options.cert.empty() && options.key.empty()) return TlsContext();
  if (options.cert.empty() || options.key.empty()) {
    return fail(MC_INVALID_ARGUMENT, "TLS needs both a certificate and its private key");
  }
  TlsContext context = make_context();
  boost::system::error_code error;
  context->use_certificate_chain_file(options.cert, error);
  if (error) return cannot_use("certificate", options.cert, error);
  context->use_private_key_file(options.key, ssl::context::pem, error);
  if (error) return cannot_use("private key", options.key, error);
  return context;
}

Result<TlsContext> dialer_tls(const TlsOptions& options) {
  if (options.ca.empty()) return TlsContext();
  TlsContext context = make_context();
  boost::system::error_code error;
  context->load_verify_file(options.ca, error);
  if (error) return cannot_use("CA certificate", options.ca, error);
  context->set_verify_mode(ssl::verify_peer, error);
  if (error) return cannot_use("CA certificate", options.ca, error);
  return context;
}

}  // namespace mc::metadata::rpc
