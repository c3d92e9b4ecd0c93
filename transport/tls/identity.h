// SPDX-License-Identifier: Apache-2.0
//
// What it is: an agent's certificate, and the authority whose certificates it accepts: what makes
//   the sessions of its lanes. TLS 1.3 alone, and both sides show a certificate. Who dials compares
//   it with the address that was dialed; that the other side belongs to the cluster, the cluster's
//   key proves, inside.
// Threads: made once; the sessions belong to the agent's loop.
// Trusts: nobody without a certificate of that authority.
#pragma once

#include <memory>
#include <string>

#include "transport/tcp/wire.h"

struct ssl_ctx_st;

namespace mc::transport::tls {

struct Files {
  std::string cert;  // PEM: the chain, and its key
  std::string key;
  std::string ca;    // PEM: who signs the members' certificates
  std::string name;  // that peers' certificates must say; empty: the address dialed
  bool wanted() const { return !cert.empty() || !key.empty() || !ca.empty() || !name.empty(); }
};

class Identity {
 public:
  // Errors: MC_INVALID_ARGUMENT names the file that is missing or cannot be used, and why.
  static Result<std::unique_ptr<Identity>> open(const Files& files);

  // Sessions over a connected socket that does not block and that outlives them. They outlive this.
  std::unique_ptr<tcp::Session> accept(int socket) const;
  std::unique_ptr<tcp::Session> dial(int socket, const std::string& address) const;

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  Identity(Files files, std::unique_ptr<ssl_ctx_st, Free> context)
      : files_(std::move(files)), context_(std::move(context)) {}
  std::unique_ptr<tcp::Session> make(int socket, const std::string* dialed) const;

  const Files files_;
  const std::unique_ptr<ssl_ctx_st, Free> context_;
};

}  // namespace mc::transport::tls
