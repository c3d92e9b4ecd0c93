// SPDX-License-Identifier: Apache-2.0
//
// The one builder of OpenSSL contexts: versions, certificates, authorities and
//   verification. Links of masters, lanes of agents and cluster stores build their contexts here.
// Threads: any.
// Owns: a context owns copies of the files' content.
// Trusts: the operator's files.
#pragma once

#include <memory>
#include <string>

#include "mc/status.h"

struct ssl_ctx_st;

namespace mc::auth {

struct TlsContextFree {
  void operator()(ssl_ctx_st* context) const;
};
using TlsContextPointer = std::unique_ptr<ssl_ctx_st, TlsContextFree>;

struct TlsSettings {
  struct File {
    std::string name;  // for errors: "peer_tls_cert"
    std::string path;  // a PEM file; empty: none
  };
  File cert;  // this side's certificate chain, with `key`
  File key;
  File ca;                     // authorities of the peer's certificate
  bool system_ca = false;      // without `ca`: the system's authorities
  bool verify_peer = false;    // requires a certificate of a known authority
  bool allow_tls_1_2 = false;  // else TLS 1.3 only
};

// Errors: MC_INVALID_ARGUMENT names the file that cannot be used and the cause. MC_NO_MEMORY.
Result<TlsContextPointer> make_tls_context(const TlsSettings& settings);

}  // namespace mc::auth
