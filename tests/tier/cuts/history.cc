// SPDX-License-Identifier: Apache-2.0
#include "tier/cuts/history.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>

namespace mc::tier::cuts {

namespace {

using Kind = Event::Kind;

constexpr std::uint64_t kKib = 1024;

// Half of the objects are small, so that a batch has several.
std::size_t size_of(std::uint32_t key, std::uint64_t version) {
  std::mt19937_64 random(key * 1'000'003ull + version);
  const bool large = key >= kFirstLargeKey || random() % 2 == 0;
  return kKib + random() % ((large ? 199u : 15u) * kKib);
}

struct KeyState {
  Allowed allowed;
  std::uint64_t next_version = 1;
  std::uint32_t removals = 0;  // under way

  void take(const Event& event);
};

void KeyState::take(const Event& event) {
  auto& versions = allowed.versions;
  switch (event.kind) {
    case Kind::kPut:
      versions.push_back(event.version);
      next_version = event.version + 1;
      // The earlier version may be gone from now on.
      allowed.must_exist = false;
      break;
    case Kind::kDone:
      std::erase_if(versions, [&](std::uint64_t version) { return version < event.version; });
      allowed.must_exist = versions == std::vector{event.version} &&
                           next_version == event.version + 1 && removals == 0;
      break;
    case Kind::kRemove:
      ++removals;
      allowed.must_exist = false;
      break;
    case Kind::kRemoved:
      --removals;
      std::erase_if(versions, [&](std::uint64_t version) { return version < event.version; });
      break;
    case Kind::kDropped:
      std::erase(versions, event.version);
      if (versions.empty()) allowed.must_exist = false;
      break;
    case Kind::kRestart:
    case Kind::kCut:
      removals = 0;
      break;
    case Kind::kFound:
      allowed = {.versions = {event.version}, .must_exist = true};
      break;
    case Kind::kLost:
      allowed = {};
      break;
  }
}

// The events of all keys.
bool is_start(const Event& event) {
  return event.kind == Kind::kRestart || event.kind == Kind::kCut;
}

}  // namespace

std::string name_of_key(std::uint32_t key) { return "key/" + std::to_string(key); }

std::vector<std::byte> value_of(std::uint32_t key, std::uint64_t version) {
  std::vector<std::byte> bytes(size_of(key, version));
  std::uint64_t word = key * 0x9e3779b97f4a7c15ull + version;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(word)) {
    word = word * 6364136223846793005ull + 1442695040888963407ull;
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
  }
  return bytes;
}

std::vector<Event> read_history(const std::string& path) {
  std::vector<Event> history;
  std::ifstream file(path);
  std::string kind;
  Event event;
  while (file >> kind >> event.key >> event.version) {
    const auto found = std::find(kKindNames.begin(), kKindNames.end(), kind);
    event.kind = static_cast<Kind>(found - kKindNames.begin());
    history.push_back(event);
  }
  return history;
}

void write_history(const std::string& path, const std::vector<Event>& history) {
  std::ofstream file(path, std::ios::trunc);
  for (const Event& event : history) {
    file << kKindNames[static_cast<std::size_t>(event.kind)] << ' ' << event.key << ' '
         << event.version << '\n';
  }
}

std::map<std::uint32_t, Allowed> allowed_at(const std::vector<Event>& history, std::size_t before,
                                            std::size_t after) {
  std::map<std::uint32_t, KeyState> keys;
  for (std::size_t i = 0; i < history.size(); ++i) {
    const Event& event = history[i];
    if (is_start(event)) {
      if (i >= before) continue;
      for (auto& [key, state] : keys) state.take(event);
      continue;
    }
    KeyState& state = keys[event.key];
    if (i < before) {
      state.take(event);
      continue;
    }
    Allowed& allowed = state.allowed;
    if (i < after && event.kind == Kind::kPut) allowed.versions.push_back(event.version);
    const bool begins = event.kind == Kind::kPut || event.kind == Kind::kRemove;
    if (i < after && begins) allowed.must_exist = false;
    // The history learns later that an object has left: how much later is not known.
    const bool left = event.kind == Kind::kLost ||
                      (event.kind == Kind::kDropped &&
                       allowed.versions == std::vector<std::uint64_t>{event.version});
    if (left) allowed.must_exist = false;
  }
  std::map<std::uint32_t, Allowed> result;
  for (auto& [key, state] : keys) result[key] = std::move(state.allowed);
  return result;
}

std::vector<Event> cut_history(const std::vector<Event>& history, std::size_t before,
                               std::size_t after) {
  std::vector<Event> result(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(before));
  for (std::size_t i = before; i < history.size(); ++i) {
    const Event& event = history[i];
    const bool begins = event.kind == Kind::kPut || event.kind == Kind::kRemove;
    if (i < after && begins) result.push_back(event);
    // The object may have left.
    const bool leaves = event.kind == Kind::kDropped || event.kind == Kind::kLost;
    if (leaves) result.push_back({.kind = Kind::kRemove, .key = event.key});
  }
  result.push_back({.kind = Kind::kCut});
  return result;
}

std::vector<std::string> defects_of(const std::vector<Event>& history) {
  std::map<std::uint32_t, KeyState> keys;
  std::vector<std::string> defects;
  for (const Event& event : history) {
    if (is_start(event)) {
      for (auto& [key, state] : keys) state.take(event);
      continue;
    }
    KeyState& state = keys[event.key];
    const Allowed& allowed = state.allowed;
    const bool back = event.kind == Kind::kFound &&
                      std::find(allowed.versions.begin(), allowed.versions.end(), event.version) ==
                          allowed.versions.end();
    // A start may have to make room on a disk that is full.
    const bool lost = event.kind == Kind::kLost && allowed.must_exist && event.key < kFirstLargeKey;
    if (back) {
      defects.push_back(name_of_key(event.key) + " came back with version " +
                        std::to_string(event.version));
    }
    if (lost) defects.push_back(name_of_key(event.key) + " was lost");
    state.take(event);
  }
  return defects;
}

}  // namespace mc::tier::cuts
