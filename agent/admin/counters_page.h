// SPDX-License-Identifier: Apache-2.0
//
// What it is: the agent's last status in a file of its runtime directory, readable when the agent
// is
//   dead: a JSON text between two sequence numbers.
// Threads: the writer belongs to the agent's loop; readers are other processes.
// Trusts: a reader bounds the length and gives up on a text that keeps changing.
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
  // Longer texts than the page holds are not written.
  void write(std::string_view json);

 private:
  Mapping mapping_;
};

// The text last written, or nullopt when there is no such file or it is damaged.
std::optional<std::string> read_counters_text(const std::string& runtime_dir);

}  // namespace mc::agent
