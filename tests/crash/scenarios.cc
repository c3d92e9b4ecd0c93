// SPDX-License-Identifier: Apache-2.0
#include "crash/scenarios.h"

#include <cstdlib>
#include <string_view>

namespace mc::crash {

namespace {

constexpr std::size_t kLarge = 256 * 1024;

void connect(Cell& cell) {
  cell.begin();
  cell.open();
  cell.close();
}

void resume(Cell& cell) {
  cell.prepare({"by-0", "c-0"});
  cell.open();
  cell.get("c-0");
  cell.begin();
  cell.ping();
  cell.get("c-0");
}

void put(Cell& cell) {
  cell.open();
  cell.begin();
  cell.put("c-0");
  cell.put("c-0");
  cell.put("c-1", 1000 * 256);
  cell.get("c-0");
}

void upsert(Cell& cell) {
  cell.prepare({"by-0", "c-0", "c-1"});
  cell.open();
  cell.view("c-0");
  cell.begin();
  cell.upsert("c-0");
  cell.get("c-0");
  cell.upsert("c-1", 64 * 1024);
  cell.upsert("c-0");
  cell.get("c-0");
  cell.get("c-1");
  cell.check_views();
  cell.release_views();
}

void batch(Cell& cell) {
  cell.open();
  cell.begin();
  std::vector<std::string> keys;
  for (int i = 0; i < 40; ++i) keys.push_back("c-" + std::to_string(i));
  cell.batch(keys);
}

void read(Cell& cell) {
  cell.prepare({"by-0", "c-0", "c-1", "c-2"});
  cell.open();
  cell.begin();
  cell.get("c-0");
  cell.view("c-1");
  cell.view("c-2");
  cell.remove("c-1");
  cell.check_views();
  cell.release_views();
}

void remove(Cell& cell) {
  cell.prepare({"by-0", "c-0", "c-1"});
  cell.open();
  cell.begin();
  cell.remove("c-0");
  cell.remove("c-1");
  cell.put("c-0");
}

void evict(Cell& cell) {
  cell.prepare({"by-0"});
  cell.may_evict();
  cell.open();
  cell.begin();
  for (int i = 0; i < 40; ++i) cell.put("c-" + std::to_string(i), kLarge);
  cell.view("c-39");
  for (int i = 40; i < 60; ++i) cell.put("c-" + std::to_string(i), kLarge);
  cell.check_views();
  cell.release_views();
}

// Objects that leave the pool for a disk, and come back.
void disk(Cell& cell) {
  cell.prepare({"by-0"});
  cell.may_evict();
  cell.open();
  cell.begin();
  int count = 0;
  const auto put_some = [&](int some) {
    for (int i = 0; i < some; ++i) cell.put("c-" + std::to_string(count++), kLarge);
  };
  put_some(30);
  for (int round = 0; round < 3; ++round) {
    put_some(1);
    cell.wait_for_disk();
  }
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < count; ++i) cell.get("c-" + std::to_string(i));
  }
  cell.remove("c-0");
  cell.upsert("c-1", kLarge);
  cell.get("c-0");
  cell.get("c-1");
}

// Fills a disk. Each object takes a segment, which has 2 MiB on a disk of 64 MiB. Objects that were
// read stay, so the cleaner copies them.
void full_disk(Cell& cell) {
  constexpr std::size_t kMost = 1152 * 1024;
  cell.prepare({"by-0"});
  cell.may_evict();
  cell.open();
  cell.begin();
  int count = 0;
  for (int round = 0; round < 9; ++round) {
    for (int i = 0; i < 5; ++i) cell.put("c-" + std::to_string(count++), kMost);
    if (round == 1) {
      for (int i = 0; i < 4; ++i) cell.get("c-" + std::to_string(i));
    }
    cell.evict_to_disk();
    cell.wait_for_disk();
  }
  for (int i = 0; i < count; ++i) cell.get("c-" + std::to_string(i));
}

void group(Cell& cell) {
  cell.prepare({"by-0"});
  cell.open();
  cell.begin();
  cell.group({"g-0", "g-1", "g-2"});
  cell.group({"h-0", "h-1"});
}

void reserve(Cell& cell) {
  cell.open();
  cell.begin();
  cell.reserve();
  cell.commit("c-0", 2048);
  cell.reserve(kLarge);
  cell.commit("c-1", kLarge);
  cell.reserve();
  cell.abandon();
}

void resize(Cell& cell) {
  std::vector<std::string> keys;
  for (int i = 0; i < 24; ++i) keys.push_back("c-" + std::to_string(i));
  cell.prepare(keys, kLarge);
  cell.open();
  cell.view("c-23");
  // Makes room in front for the objects behind.
  for (int i = 0; i < 16; ++i) cell.remove(keys[static_cast<std::size_t>(i)]);
  // An actor that stopped earlier leaves more objects than fit.
  if (!cell.actor_alive()) cell.may_evict();
  cell.begin();
  cell.resize(4);
  cell.host().status_becomes(
      [](const Json::Value& status) { return pool_in(status, "default")["moves"].asUInt64() > 0; },
      kSecondNs / 2);
  cell.get("c-20");
  cell.check_views();
  cell.release_views();
  // Now the end of the pool is free.
  cell.host().status_becomes(
      [](const Json::Value& status) {
        return pool_in(status, "default")["reserved_bytes"].asUInt64() == 4u << 20;
      },
      kSecondNs);
}

void staged(Cell& cell) {
  cell.prepare({"by-0", "c-2"});
  cell.open();
  cell.begin();
  cell.put("c-0");
  cell.put_from_session_memory("c-1", kLarge);
  cell.upsert("c-2");
  cell.get("c-2");
  cell.group({"g-0", "g-1", "g-2"});
  cell.get("c-0");
}

// A client that leaves with reservations, views and unpublished writes.
void session_end(Cell& cell) {
  cell.prepare({"by-0", "c-0"});
  cell.open();
  cell.put("c-1");
  cell.begin();
  cell.view("c-0");
  cell.reserve(kLarge);
  cell.close();
}

void client_death(Cell& cell) {
  cell.prepare({"by-0", "c-0"});
  cell.open();
  cell.begin();
  cell.view("c-0");
  cell.reserve(kLarge);
  cell.reserve();
  cell.kill_actor();
}

// An agent that dies again while it takes over from a dead agent.
void restart(Cell& cell) {
  cell.prepare({"by-0", "c-0", "c-1"});
  cell.open();
  cell.view("c-0");
  cell.reserve(kLarge);
  cell.upsert("c-1");
  cell.begin();
  cell.ping();
  cell.get("c-1");
  cell.check_views();
  cell.release_views();
  cell.abandon();
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all{
      {"connect", connect},
      {"resume", resume},
      {"put", put},
      {"upsert", upsert},
      {"batch", batch},
      {"read", read},
      {"remove", remove},
      {"evict", evict},
      {"disk", disk, false, true},
      {"full_disk", full_disk, false, true},
      {"group", group},
      {"reserve", reserve},
      {"resize", resize},
      {"staged", staged, true},
      {"staged_connect", connect, true},
      {"session_end", session_end},
      {"client_death", client_death},
      {"restart", restart},
  };
  return all;
}

const Scenario& scenario(const std::string& name) {
  for (const Scenario& one : scenarios()) {
    if (name == one.name) return one;
  }
  std::abort();
}

}  // namespace mc::crash
