// SPDX-License-Identifier: Apache-2.0
//
// The client processes of the crash tests: this program with a role as the first
//   argument. A scripted client executes an operation for each input line, and answers with a line
//   "STATUS VERSION": the mc_status, and the version of the value that was read (0: none, -1: bytes
//   of no put of that key). A loading client works alone until the input ends.
// Threads: the main thread of the client's process.
// Trusts: the supervisor.
#pragma once

#include <string>

namespace mc::crash {

inline constexpr const char* kScriptedRole = "--scripted-client";
inline constexpr const char* kLoadingRole = "--loading-client";

// socket: of the agent.
int run_scripted_client(const std::string& socket);
// ledger: see ledger.h. number: this client's number, below count; readers also look at the keys of
// other clients.
int run_loading_client(const std::string& socket, const std::string& ledger, unsigned number,
                       unsigned count, unsigned seed);

}  // namespace mc::crash
