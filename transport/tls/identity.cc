// SPDX-License-Identifier: Apache-2.0
#include "transport/tls/identity.h"

#include <openssl/ssl.h>

#include "transport/tls/session.h"

namespace mc::transport::tls {

namespace {

Status prepare_for_lanes(SSL_CTX* context) {
  // 128-bit AES first: a third faster, and not the weakest part of this connection.
  if (::SSL_CTX_set_ciphersuites(context,
                                 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                 "TLS_CHACHA20_POLY1305_SHA256") != 1) {
    return {MC_INVALID_ARGUMENT, "OpenSSL lacks the cipher suites of TLS 1.3"};
  }
  // A lane lives long, so sessions are not resumed, and no ticket can be stolen.
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_num_tickets(context, 0);
  // A single system call reads many records. An idle lane keeps no buffers.
  ::SSL_CTX_set_read_ahead(context, 1);
  ::SSL_CTX_set_default_read_buffer_len(context, kBatchBytes);
  ::SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  return {};
}

}  // namespace

Result<std::unique_ptr<Identity>> Identity::open(const Files& files, auth::TlsWarning warn) {
  if (files.cert.empty() || files.key.empty() || files.ca.empty()) {
    return fail(MC_INVALID_ARGUMENT,
                "TLS between agents needs all of peer_tls_cert, peer_tls_key and peer_tls_ca");
  }
  auth::TlsSettings settings;
  settings.cert = {"peer_tls_cert", files.cert};
  settings.key = {"peer_tls_key", files.key};
  settings.ca = {"peer_tls_ca", files.ca};
  settings.verify_peer = true;
  settings.finish = prepare_for_lanes;
  auto contexts = auth::TlsContexts::open(std::move(settings), std::move(warn));
  if (!contexts) return fail(contexts.error());
  return std::unique_ptr<Identity>(new Identity(files, std::move(*contexts)));
}

std::unique_ptr<tcp::TlsSession> Identity::make(int socket, const std::string* dialed) const {
  SSL* const ssl = ::SSL_new(contexts_->current().get());
  // A session without memory fails at its handshake, with this cause.
  if (ssl == nullptr) return std::make_unique<OpenSslSession>(nullptr, socket, dialed != nullptr);
  if (dialed != nullptr) {
    if (!files_.name.empty()) {
      ::SSL_set1_host(ssl, files_.name.c_str());
    } else {
      ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl), dialed->c_str());
    }
  }
  return std::make_unique<OpenSslSession>(ssl, socket, dialed != nullptr);
}

std::unique_ptr<tcp::TlsSession> Identity::accept(int socket) const {
  return make(socket, nullptr);
}

std::unique_ptr<tcp::TlsSession> Identity::dial(int socket, const std::string& address) const {
  return make(socket, &address);
}

}  // namespace mc::transport::tls
