// SPDX-License-Identifier: Apache-2.0
//
// A TCP connection, with or without TLS. Every wait ends at a deadline.
//   (Debian 12's hiredis has no TLS and no deadlines.)
// Threads: a single thread at a time.
// Owns: the socket and the TLS session.
// Trusts: nothing. With TLS, certificates are always checked.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "libmc/auth/tls_context.h"
#include "libmc/base/fd.h"
#include "metadata/store/redis/resolve.h"
#include "metadata/store/store_url.h"

namespace mc::metadata {

// The certificates of a store, and the name in the server's certificate.
struct StreamTls {
  // Errors: MC_INVALID_ARGUMENT names the file that cannot be used.
  static Result<StreamTls> open(const TlsFiles& files);

  std::shared_ptr<auth::TlsContexts> contexts;
  std::string server_name;  // empty: the host
};

class Stream {
 public:
  // tls: null for a plain connection. Errors: kStoreUnavailable, MC_PERMISSION_DENIED if a
  // certificate is refused.
  static Result<Stream> open(Resolver& resolver, const Endpoint& endpoint, const StreamTls* tls,
                             std::uint64_t deadline_ns);

  // False: the server closed the connection or sent unexpected bytes.
  bool quiet() const;
  // Errors of both: kOutcomeUnknown.
  Status write(std::string_view bytes, std::uint64_t deadline_ns);
  // Appends 1 byte or more to `to`.
  Status read(std::string& to, std::uint64_t deadline_ns);

 private:
  struct Free {
    void operator()(SSL* session) const;
  };
  Status connect(const Address& address, std::uint64_t deadline_ns);
  Status shake_hands(const StreamTls& tls, const std::string& host, std::uint64_t deadline_ns);
  Status wait(short events, std::uint64_t deadline_ns) const;
  // After an unfinished SSL call: waits until the socket is ready for a retry.
  Status wait_for_tls(int result, std::uint64_t deadline_ns);

  Fd socket_;
  std::unique_ptr<SSL, Free> session_;  // null: no TLS
};

}  // namespace mc::metadata
