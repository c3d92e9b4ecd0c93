// SPDX-License-Identifier: Apache-2.0
//
// The events of a tier under a writer: requests, acknowledgements and restarts, in their order. They decide
//   which objects a start may find after a power cut between two events.
// Threads: one.
// Trusts: the file, which a writer of this program has made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mc::tier::cuts {

struct Event {
  enum class Kind : std::uint8_t {
    kPut,      // the put of a version begins
    kDone,     // the put is acknowledged
    kRemove,   // a removal begins
    kRemoved,  // the removal is acknowledged: all lower versions are gone
    kDropped,  // the version has left to make room
    kRestart,  // the agent restarts: requests under way get no answer
    kCut,      // the power is cut; the log of writes has all later events
    kFound,    // after a restart or cut: the version is there
    kLost,     // after a restart or cut: the key is a miss
  };
  Kind kind = Kind::kPut;
  std::uint32_t key = 0;
  std::uint64_t version = 0;
};
inline constexpr std::array kKindNames{"put",     "done", "remove", "removed", "dropped",
                                       "restart", "cut",  "found",  "lost"};

// Objects of a key from here on have more bytes.
inline constexpr std::uint32_t kFirstLargeKey = 10'000;
std::string name_of_key(std::uint32_t key);
// Bytes that name their key and version.
std::vector<std::byte> value_of(std::uint32_t key, std::uint64_t version);

// Returns no event if there is no file.
std::vector<Event> read_history(const std::string& path);
void write_history(const std::string& path, const std::vector<Event>& history);

// The state of a key that a start may find.
struct Allowed {
  std::vector<std::uint64_t> versions;  // one of these, whole
  bool must_exist = false;              // no miss
};
// The states after a power cut at which `before` events were durable, and the event `after` had not begun.
std::map<std::uint32_t, Allowed> allowed_at(const std::vector<Event>& history, std::size_t before,
                                            std::size_t after);

// The history of a disk whose power is cut there.
std::vector<Event> cut_history(const std::vector<Event>& history, std::size_t before,
                               std::size_t after);
// Keys that a restart or a start after a cut has lost or brought back, in words.
std::vector<std::string> defects_of(const std::vector<Event>& history);

}  // namespace mc::tier::cuts
