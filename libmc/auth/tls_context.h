// SPDX-License-Identifier: Apache-2.0
//
// The one builder of OpenSSL contexts: versions, certificates, authorities and
//   verification. Links of masters, lanes of agents and cluster stores build their contexts here.
//   Certificates end and are renewed while the process runs, so the files are read again once they
//   have changed.
// Threads: any.
// Owns: a context owns copies of the files' content.
// Trusts: the operator's files.
#pragma once

#include <sys/types.h>

#include <array>
#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include "libmc/base/mutex.h"
#include "mc/status.h"

struct ssl_ctx_st;
struct ssl_st;

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
  // Sets more at each new context.
  std::function<Status(ssl_ctx_st*)> finish;
};

// Told of changed files that cannot be used, once for each change. Called in the thread of a handshake.
using TlsWarning = std::function<void(const Status&)>;

class TlsContexts {
 public:
  // Errors: MC_INVALID_ARGUMENT names the file that cannot be used and the cause. MC_NO_MEMORY.
  static Result<std::shared_ptr<TlsContexts>> open(TlsSettings settings, TlsWarning warn = {});

  // The context for the next handshake: of the files as they are now, else of the files as they were
  // when they last could be used.
  [[nodiscard]] TlsContextPointer current() MC_EXCLUDES(mutex_);

 private:
  // A renewal replaces a file, or writes it anew.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    std::time_t seconds = 0;
    long nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 3>;

  TlsContexts(TlsSettings settings, TlsWarning warn)
      : settings_(std::move(settings)), warn_(std::move(warn)) {}
  [[nodiscard]] Stamps stamps() const;
  [[nodiscard]] Result<TlsContextPointer> read() const;

  const TlsSettings settings_;
  const TlsWarning warn_;
  Mutex mutex_;
  TlsContextPointer context_ MC_GUARDED_BY(mutex_);
  Stamps used_ MC_GUARDED_BY(mutex_);     // of the files of context_
  Stamps refused_ MC_GUARDED_BY(mutex_);  // of the files that warn_ knows
};

// Why the certificate of the session's peer is refused; empty: the certificate is accepted. For a
// certificate outside its dates the text has the remedy; the caller adds other remedies.
std::string certificate_trouble(const ssl_st* session);

}  // namespace mc::auth
