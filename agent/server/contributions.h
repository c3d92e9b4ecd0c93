// SPDX-License-Identifier: Apache-2.0
//
// The memory that the processes of this host add to a namespace's pool, such as the
//   global_segment_size of Mooncake's setup(). A session contributes; a goodbye withdraws. If a
//   process ends without a goodbye, the memory stays for a time, so that a restarted engine finds
//   the objects.
// Threads: the agent's loop.
// Owns: the list of contributions.
// Trusts: the caller has checked the sizes.
#pragma once

#include <cstdint>
#include <vector>

namespace mc::agent {

class Contributions {
 public:
  struct Part {
    std::uint64_t bytes = 0;         // room for objects
    std::uint64_t buffer_bytes = 0;  // the largest object of another host that the process reads
  };
  static constexpr std::uint64_t kNever = UINT64_MAX;

  // Replaces the session's part. Growth first takes over memory that stays for ended processes,
  // because a restarted engine contributes the same memory again.
  void set(std::uint64_t session, const Part& part);
  // The session has ended. The session's part stays until then; 0: the part ends now.
  void end(std::uint64_t session, std::uint64_t until_ns);
  // Bytes that an earlier agent held for processes that have ended.
  void keep(std::uint64_t bytes, std::uint64_t until_ns) { add({0, {bytes, 0}, until_ns}); }
  // Ends the parts whose time is over. Returns true if the sums have changed since the last call.
  bool changed(std::uint64_t now_ns);

  bool empty() const { return parts_.empty(); }
  std::uint64_t bytes() const;
  std::uint64_t largest_buffer_bytes() const;

 private:
  struct Held {
    std::uint64_t session;  // 0: the session has ended
    Part part;
    std::uint64_t until_ns;
  };
  void add(const Held& held);

  std::vector<Held> parts_;
  bool changed_ = false;
};

}  // namespace mc::agent
