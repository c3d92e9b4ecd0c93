// SPDX-License-Identifier: Apache-2.0
//
// An agent's certificate and the authority whose certificates the agent accepts. The
//   identity makes the TLS sessions of lanes: TLS 1.3 only, and both sides show a certificate. The
//   dialer compares the certificate with the dialed address. Inside the session, the cluster key
//   proves membership.
//   The certificate and the authority may be renewed: later sessions have the new ones.
// Threads: made once. Sessions belong to the agent's loop.
// Trusts: no peer without a certificate of that authority.
#pragma once

#include <memory>
#include <string>

#include "libmc/auth/tls_context.h"
#include "transport/tcp/wire.h"

namespace mc::transport::tls {

struct Files {
  std::string cert;  // PEM: the chain
  std::string key;
  std::string ca;    // PEM: the authority that signs members' certificates
  std::string name;  // name in peers' certificates; empty: the dialed address
  bool wanted() const { return !cert.empty() || !key.empty() || !ca.empty() || !name.empty(); }
};

class Identity {
 public:
  // Errors: MC_INVALID_ARGUMENT names the file that is missing or cannot be used, and the cause.
  // warn: told of renewed files that cannot be used.
  static Result<std::unique_ptr<Identity>> open(const Files& files, auth::TlsWarning warn = {});

  // Make a session over a connected, non-blocking socket, which must outlive the session. The
  // session outlives the identity.
  std::unique_ptr<tcp::TlsSession> accept(int socket) const;
  std::unique_ptr<tcp::TlsSession> dial(int socket, const std::string& address) const;

 private:
  Identity(Files files, std::shared_ptr<auth::TlsContexts> contexts)
      : files_(std::move(files)), contexts_(std::move(contexts)) {}
  std::unique_ptr<tcp::TlsSession> make(int socket, const std::string* dialed) const;

  const Files files_;
  const std::shared_ptr<auth::TlsContexts> contexts_;
};

}  // namespace mc::transport::tls
