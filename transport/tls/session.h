// SPDX-License-Identifier: Apache-2.0
//
// What it is: TLS 1.3 over one socket, by OpenSSL. Records are made in memory, many of them, and
//   leave in one call; bytes that lie together in the pool are encrypted from where they lie, small
//   ones are gathered into records first. Keys are replaced long before they are worn out.
//
//     send: vectors ─► records of 16 KiB ─► SSL_write ─► out_ ─► send
//     receive: recv of up to 64 KiB ─► SSL_read ─► vectors
// Threads: the socket's owner. Owns: the session, not the socket.
// Trusts: nothing that OpenSSL has not verified.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/tcp/wire.h"

struct ssl_st;

namespace mc::transport::tls {

inline constexpr std::size_t kRecordBytes = 16 * 1024;
// Of records, in one call of the kernel.
inline constexpr std::size_t kBatchBytes = 64 * 1024;
// AES-GCM is good for 2^24.5 records under one key (RFC 8446, 5.5).
inline constexpr std::uint64_t kRecordsPerKey = 1u << 18;

class OpenSslSession final : public tcp::Session {
 public:
  // Takes ssl; null: there was no memory for it.
  OpenSslSession(ssl_st* ssl, int socket, bool dialer);
  ~OpenSslSession() override;

  Shaken shake() override;
  ssize_t receive(std::span<const iovec> to) override;
  bool has_ended() const override { return ended_; }
  ssize_t send(std::span<const iovec> from) override;
  bool has_unsent() const override;
  bool flush() override;
  std::string binding() const override;
  const Status& status() const override { return status_; }

 private:
  // Both false: failed, with status() and errno.
  bool write_record(const void* from, std::size_t bytes);
  bool greets_in_tls();
  bool fail(Status status, int error);
  Status why_not_shaken(int error) const;
  // Encrypted, not sent yet.
  std::span<const std::byte> unsent() const;

  ssl_st* const ssl_;
  const int socket_;
  const bool dialer_;
  bool ended_ = false;
  bool heard_ = false;    // the peer's first byte, which is one of TLS
  std::size_t sent_ = 0;  // of what lies in the session's memory
  std::uint64_t records_ = 0;
  Status status_;
};

}  // namespace mc::transport::tls
