// SPDX-License-Identifier: Apache-2.0
#include "libmc/auth/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <cerrno>

#include "libmc/base/fd.h"

namespace mc::auth {

namespace {

tl::unexpected<Status> cannot_use(const TlsSettings::File& file) {
  const char* const reason = ::ERR_reason_error_string(::ERR_peek_last_error());
  ::ERR_clear_error();
  std::string why = reason != nullptr ? reason : "OpenSSL gives no reason";
  if (::access(file.path.c_str(), R_OK) != 0) why = errno_text("open", errno);
  return fail(MC_INVALID_ARGUMENT, "TLS: " + file.name + " " + file.path + " cannot be used (" +
                                       why + "); it must be a readable PEM file");
}

}  // namespace

void TlsContextFree::operator()(ssl_ctx_st* context) const { ::SSL_CTX_free(context); }

Result<TlsContextPointer> make_tls_context(const TlsSettings& settings) {
  ::ERR_clear_error();
  TlsContextPointer made(::SSL_CTX_new(::TLS_method()));
  SSL_CTX* const context = made.get();
  if (context == nullptr) return fail(MC_NO_MEMORY, "OpenSSL has no memory for a context");
  ::SSL_CTX_set_min_proto_version(context,
                                  settings.allow_tls_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION);
  if (!settings.cert.path.empty() &&
      ::SSL_CTX_use_certificate_chain_file(context, settings.cert.path.c_str()) != 1) {
    return cannot_use(settings.cert);
  }
  if (!settings.key.path.empty() &&
      (::SSL_CTX_use_PrivateKey_file(context, settings.key.path.c_str(), SSL_FILETYPE_PEM) != 1 ||
       ::SSL_CTX_check_private_key(context) != 1)) {
    return cannot_use(settings.key);
  }
  if (!settings.ca.path.empty()) {
    if (::SSL_CTX_load_verify_locations(context, settings.ca.path.c_str(), nullptr) != 1) {
      return cannot_use(settings.ca);
    }
  } else if (settings.system_ca) {
    ::SSL_CTX_set_default_verify_paths(context);
  }
  if (settings.verify_peer) {
    ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return made;
}

}  // namespace mc::auth
