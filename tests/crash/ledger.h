// SPDX-License-Identifier: Apache-2.0
//
// The acknowledgements that a loading client received, key by key, in a file that
//   outlives the client.
// Threads: the client writes records; the supervisor reads after the client's end.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace mc::crash {

inline constexpr unsigned kLedgerClients = 4;
inline constexpr unsigned kLedgerKeys = 64;
// In LedgerLine::pending: no operation is under way.
inline constexpr std::uint64_t kNothingPending = ~std::uint64_t{0};

struct LedgerLine {
  std::atomic<std::uint64_t> stored;   // version that must exist; 0: the key must be absent
  std::atomic<std::uint64_t> pending;  // version that the current operation would make
  std::atomic<std::uint64_t> also;     // version that an unanswered operation may have made
};

struct LedgerPart {
  LedgerLine keys[kLedgerKeys];
  std::atomic<std::uint64_t> operations;
  std::atomic<std::uint64_t> failures;  // operations that ended with an error
  std::atomic<std::uint64_t> wrong;     // reads that no put explains
};

struct Ledger {
  LedgerPart parts[kLedgerClients];
};

// Maps the file, and creates the file if needed. Null on failure.
Ledger* open_ledger(const std::string& path);

inline std::string ledger_key(unsigned client, unsigned key) {
  return "load-" + std::to_string(client) + "-" + std::to_string(key);
}

}  // namespace mc::crash
