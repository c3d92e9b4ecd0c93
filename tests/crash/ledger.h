// SPDX-License-Identifier: Apache-2.0
//
// What it is: what a loading client was acknowledged, key by key, in a file that outlives its
// death. Threads: the client writes its own part; the supervisor reads after it has ended.
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
  std::atomic<std::uint64_t> stored;   // version that must be there; 0: the key must be absent
  std::atomic<std::uint64_t> pending;  // what an operation under way would make of it
  std::atomic<std::uint64_t> also;     // what one that ended without an answer may have made of it
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

// Maps the file, after making it if it is not there. Null: it cannot.
Ledger* open_ledger(const std::string& path);

inline std::string ledger_key(unsigned client, unsigned key) {
  return "load-" + std::to_string(client) + "-" + std::to_string(key);
}

}  // namespace mc::crash
