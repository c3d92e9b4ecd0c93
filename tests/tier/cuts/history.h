// SPDX-License-Identifier: Apache-2.0
//
// What a writer has asked of a tier and what the tier has acknowledged, one event after another, and
//   what a start may find after a power cut between two of these events.
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
    kPut,      // begins: a version of a key
    kDone,     // the put is acknowledged
    kRemove,   // begins
    kRemoved,  // acknowledged: all lower versions are gone
    kDropped,  // the version has left to make room
    kRestart,  // what is under way gets no answer
    kFound,    // after a restart: the version is there
    kLost,     // after a restart: the key is a miss
  };
  Kind kind = Kind::kPut;
  std::uint32_t key = 0;
  std::uint64_t version = 0;
};
inline constexpr std::array<const char*, 8> kKindNames{"put",     "done",    "remove", "removed",
                                                       "dropped", "restart", "found",  "lost"};

// Objects of a key from here on have more bytes.
inline constexpr std::uint32_t kFirstLargeKey = 10'000;
std::string name_of_key(std::uint32_t key);
// Bytes that name their key and version.
std::vector<std::byte> value_of(std::uint32_t key, std::uint64_t version);

std::vector<Event> read_history(const std::string& path);

// The state of a key that a start may find.
struct Allowed {
  std::vector<std::uint64_t> versions;  // one of these, whole
  bool must_exist = false;              // no miss
};
// After `before` events are acknowledged durably, and before the event `after` begins.
std::map<std::uint32_t, Allowed> allowed_at(const std::vector<Event>& history, std::size_t before,
                                            std::size_t after);

}  // namespace mc::tier::cuts
