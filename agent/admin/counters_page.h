// SPDX-License-Identifier: Apache-2.0
//
// The agent's last status in a file of the runtime directory, which stays readable when
//   the agent is dead. The file holds a JSON text between two sequence numbers.
// Threads: only the agent's loop writes; readers are other processes.
// Trusts: a reader bounds the length, and gives up on a text that keeps changing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "libmc/base/memory_file.h"

namespace mc::agent {

class CountersPage {
 public:
  // Creates <runtime_dir>/counters, mode 0644. Errors: MC_NO_SPACE, MC_PERMISSION_DENIED.
  static Result<CountersPage> create(const std::string& runtime_dir, std::uint64_t node_id,
                                     std::uint64_t incarnation);
  // A text longer than the page is not written.
  void write(std::string_view json);

 private:
  Mapping mapping_;
};

// The last written text, or nullopt if the file is missing or damaged.
std::optional<std::string> read_counters_text(const std::string& runtime_dir);

}  // namespace mc::agent
