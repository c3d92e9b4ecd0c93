// SPDX-License-Identifier: Apache-2.0
//
// A session with an agent, in two halves. Memory has the mappings, which live as long
//   as any reader uses them. AgentLink has the socket and the bells, which change at a restart of the
//   agent.
// Threads: immutable after construction, except for Memory::let_go(). ask() needs the client's
//   control lock.
// Owns: descriptors and mappings.
// Trusts: the agent, after a check of headers and sizes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libmc/base/fd.h"
#include "libmc/base/memory_file.h"
#include "shm/index_reader.h"
#include "shm/messages.h"

namespace mc::client {

struct Memory {
  // Another number for each session of this process, also where a later Memory has the address of an
  // earlier one.
  const std::uint64_t serial = next_serial();
  std::uint64_t session_id = 0;
  std::uint64_t session_secret = 0;
  std::uint64_t node_id = 0;
  std::uint64_t reservation_cache_bytes = 0;
  std::uint32_t channel_count = 0;
  bool isolated = false;
  bool clustered = false;
  bool on_disks = false;  // the agent may find an object on its disks
  Mapping index_map;
  Mapping pool_map;        // always read-only
  Mapping pool_write_map;  // only in direct namespaces
  Mapping session_map;
  shm::IndexReader index;

  // Call before a write into the pool. The first write to a 2 MiB region faults in the whole region
  // with one call. One call for 512 pages costs a tenth of 512 faults.
  void prepare_write(std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint64_t last = (offset + bytes - 1) / kHugePageBytes;
    for (std::uint64_t region = offset / kHugePageBytes; region <= last; ++region) {
      if (!region_touched[region].load(std::memory_order_relaxed)) touch_region(region);
    }
  }
  void touch_region(std::uint64_t region) const;
  std::unique_ptr<std::atomic<bool>[]> region_touched;  // of pool_write_map

  const std::byte* pool() const { return pool_map.data(); }
  std::byte* pool_for_writing() const { return pool_write_map.data(); }
  shm::SessionHeader* session_header() const {
    return reinterpret_cast<shm::SessionHeader*>(session_map.data());
  }
  shm::Channel* channel(std::uint32_t number) const {
    return reinterpret_cast<shm::Channel*>(session_map.data() + shm::channel_offset(number));
  }
  // Lets go of the pool and the index of a session that is gone. Threads that still use them find
  // nothing. Returns false while a view points into the pool; then the views stay valid. One thread.
  bool let_go();
  bool has_pins() const;

  // True if [offset, offset + bytes) lies in memory that the agent has reserved for the pool. Any other
  // access would raise SIGBUS.
  bool in_pool(std::uint64_t offset, std::uint64_t bytes) const {
    return bytes <= shm::reserved_bytes_at(index.header(), pool_map.size_bytes(), offset);
  }

 private:
  static std::uint64_t next_serial();
  bool gone_ = false;
};

struct AgentLink {
  Fd socket;
  Fd agent_event;
  Fd client_event;
  std::uint32_t epoch = 0;
  std::uint64_t incarnation = 0;
  // The agent asked for the client's reservation cache, in a notice that a thread received.
  std::atomic<bool> reservation_cache_wanted{false};
};

struct Connection {
  std::shared_ptr<Memory> memory;
  std::shared_ptr<AgentLink> link;
};

struct HelloTexts {
  std::string name_space;
  std::string label;
  std::uint32_t channel_count = 16;
};

// Says hello on a fresh socket. resume: the memory of the session to resume, or null.
Result<Connection> say_hello(Fd socket, const HelloTexts& texts,
                             const std::shared_ptr<Memory>& resume, std::uint64_t timeout_ns);

struct Answer {
  std::uint64_t value = 0;
  std::vector<Fd> fds;
};
// Sends a control question, with an optional text, and waits for the answer.
Result<Answer> ask(AgentLink& link, shm::ControlType type, std::uint64_t value,
                   std::uint64_t timeout_ns, std::string_view text = {});
// Takes in unsolicited messages of the agent. REQUIRES: no thread waits for an answer.
void take_notice(AgentLink& link);

}  // namespace mc::client
