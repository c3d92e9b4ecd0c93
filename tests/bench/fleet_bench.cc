// SPDX-License-Identifier: Apache-2.0
//
// Cost of a get and a put in a cluster of 64 agents, relative to a cluster of 4: processor time of
// the master and of the agents that take part. Agents, master, links and codecs are real.
// The network and the clock are simulated (tests/sim), all in a single thread; the cost of the
// simulated network is excluded. Prints a table, or with --json a line per row.
//
//   cost of an operation ── turns of the asker, of the holder, of the master, and of the links
//   background           ── turns of all agents and of the master per second without operations
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <string>
#include <vector>

#include "shm/pins.h"
#include "sim/fleet.h"

namespace mc::sim {
namespace {

constexpr std::uint64_t kValueBytes = 1024;
constexpr std::uint64_t kPoolBytes = 16u << 20;
constexpr std::uint64_t kBackgroundNs = 200 * kMs;
constexpr std::size_t kRounds = 7;
constexpr unsigned kOperations = 1'000;  // per round
// Operations of a pair of agents before the next pair. On real hosts, each agent has its own CPU
// caches; here all agents share the caches.
constexpr unsigned kGroup = 50;

// Processor time of this thread, independent of the simulated clock.
std::uint64_t processor_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// The operations of a fleet and the cost.
class Meter {
 public:
  explicit Meter(std::uint64_t size)
      : random_(size), fleet_({.size = size, .pool_bytes = kPoolBytes}) {}

  SimNode& any() { return fleet_.node(random_.next() % fleet_.size()); }
  SimNode& other_than(const SimNode& node) {
    for (;;) {
      if (SimNode& found = any(); &found != &node) return found;
    }
  }

  // Runs until the master has acknowledged the put.
  void put(SimNode& node, const std::string& key) {
    const std::uint64_t before_ns = processor_ns();
    const auto remote_request = fleet_.put(node, key, kValueBytes);
    cost_ns_ += processor_ns() - before_ns;
    finish(*remote_request, node, node);
  }
  void get(SimNode& node, SimNode& holder, const std::string& key) {
    shm::Word64 pin{};
    const std::uint64_t before_ns = processor_ns();
    const auto remote_request = fleet_.get(node, key, pin);
    cost_ns_ += processor_ns() - before_ns;
    finish(*remote_request, node, holder);
    shm::clear_pin(pin);
  }

  std::uint64_t take_cost_ns() { return std::exchange(cost_ns_, 0); }

  // Cost of all agents and the master in a second without operations.
  std::uint64_t background_ns() {
    const std::uint64_t before_ns = processor_ns();
    fleet_.turn_until([] { return false; }, 1'000 * kMs);
    return processor_ns() - before_ns;
  }

 private:
  void finish(const agent::RemoteRequest& remote_request, SimNode& node, SimNode& holder) {
    while (!remote_request.over()) {
      if (fleet_.now_ns() > remote_request.deadline_ns) {
        throw std::runtime_error("an operation does not end");
      }
      fleet_.step();
      const std::uint64_t before_ns = processor_ns();
      fleet_.turn(node);
      if (&holder != &node) fleet_.turn(holder);
      fleet_.turn_links();
      cost_ns_ += processor_ns() - before_ns;
    }
    if (remote_request.items[0].status != MC_OK)
      throw std::runtime_error("an operation has failed");
    // Deliver all messages between the agents and the master before the measurement.
    if (fleet_.now_ns() < next_background_ns_) return;
    for (int i = 0; i < 4; ++i) fleet_.turn_all();
    next_background_ns_ = fleet_.now_ns() + kBackgroundNs;
  }

  Random random_;
  Fleet fleet_;
  std::uint64_t next_background_ns_ = 0;
  std::uint64_t cost_ns_ = 0;
};

struct Cost {
  double put_us = 0, get_new_us = 0, get_us = 0, background_ms = 0;
};

Cost round_of(Meter& fleet, std::size_t round) {
  struct Object {
    SimNode* holder;
    SimNode* asker;
    std::string key;
  };
  std::vector<Object> objects;
  for (unsigned i = 0; i < kOperations; ++i) {
    if (i % kGroup == 0) {
      SimNode& holder = fleet.any();
      objects.push_back({&holder, &fleet.other_than(holder), {}});
    } else {
      objects.push_back(objects.back());
    }
    const std::string number = std::to_string(round * kOperations + i);
    objects.back().key = std::string(64 - number.size(), '/') + number;
    fleet.put(*objects.back().holder, objects.back().key);
  }
  const auto each_us = [&] {
    return static_cast<double>(fleet.take_cost_ns()) / 1e3 / kOperations;
  };
  Cost cost;
  cost.put_us = each_us();
  const auto get_all = [&] {
    for (const Object& object : objects) fleet.get(*object.asker, *object.holder, object.key);
    return each_us();
  };
  cost.get_new_us = get_all();
  cost.get_us = get_all();
  cost.background_ms = static_cast<double>(fleet.background_ns()) / 1e6;
  return cost;
}

double median(std::vector<Cost> costs, double Cost::*part) {
  std::ranges::sort(costs, {}, part);
  return costs[costs.size() / 2].*part;
}

int run(bool json) {
  std::vector<Cost> few, many;
  {
    Meter four(4);
    for (std::size_t i = 0; i <= kRounds; ++i) few.push_back(round_of(four, i));
  }
  {
    Meter sixty_four(64);
    for (std::size_t i = 0; i <= kRounds; ++i) many.push_back(round_of(sixty_four, i));
  }
  few.erase(few.begin());  // the first results are warm-up
  many.erase(many.begin());
  const struct {
    const char* name;
    const char* unit;
    double Cost::*part;
  } rows[] = {{"put, acknowledged", "us", &Cost::put_us},
              {"get, place unknown", "us", &Cost::get_new_us},
              {"get, place known", "us", &Cost::get_us},
              {"background of all, a second", "ms", &Cost::background_ms}};
  if (!json)
    std::printf("%-30s%14s%14s%8s\n", "processor time of", "4 agents", "64 agents", "ratio");
  for (const auto& row : rows) {
    const double a = median(few, row.part), b = median(many, row.part);
    std::printf(json ? "{\"case\":\"%s\",\"unit\":\"%s\",\"agents_4\":%.3f,\"agents_64\":%.3f,"
                       "\"ratio\":%.3f}\n"
                     : "%-30s%s%11.2f%14.2f%8.2f\n",
                row.name, row.unit, a, b, b / a);
  }
  return 0;
}

}  // namespace
}  // namespace mc::sim

int main(int count, char** words) {
  const bool json = count == 2 && std::string(words[1]) == "--json";
  if (count > 1 && !json) {
    std::fprintf(stderr, "usage: fleet_bench [--json]\n");
    return 2;
  }
  spdlog::set_level(spdlog::level::off);
  return mc::sim::run(json);
}
