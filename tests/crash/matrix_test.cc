// SPDX-License-Identifier: Apache-2.0
//
// The kill matrix: every failpoint in the sources x {killed, stopped for a moment} x the process
// that reaches it, in every scenario about that failpoint.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "crash/cell.h"
#include "crash/scenarios.h"

namespace mc::crash {

namespace {

using Names = std::set<std::string>;

constexpr int kMostRuns = 5;

bool long_run() { return std::getenv("MC_TEST_LONG") != nullptr; }

// Failpoints that only an agent in a cluster or with GPUs reaches; tests/cluster and
// tests/hostile/gpu_*_test.cc kill there.
bool is_tested_elsewhere(const std::string& name) {
  return std::ranges::any_of(std::array{"client.lane", "fetch.", "gather.", "gpu.",
                                        "serve_unpublished.", "striper.", "stripes.", "workers."},
                             [&](const char* part) { return name.starts_with(part); });
}

Names failpoints_in_sources() {
  Names names;
  const std::regex literal("MC_FAILPOINT\\(\"([a-z0-9_.]+)\"\\)");
  for (const char* folder : {"agent", "libmc", "shm", "transport", "metadata"}) {
    const std::filesystem::path root = std::filesystem::path(MC_SOURCE_DIR) / folder;
    if (!std::filesystem::exists(root)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      std::ifstream file(entry.path());
      std::stringstream text;
      text << file.rdbuf();
      const std::string source = text.str();
      for (std::sregex_iterator at(source.begin(), source.end(), literal), end; at != end; ++at) {
        if (!is_tested_elsewhere((*at)[1])) names.insert((*at)[1]);
      }
    }
  }
  return names;
}

// Continues processes that pause at failpoints, and notes the failpoints.
class Gatekeeper {
 public:
  Gatekeeper() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    mine_.reset(ends[0]);
    theirs_.reset(ends[1]);
    thread_ = std::thread([this] { serve(); });
  }
  Names close() {
    ::shutdown(mine_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    return names_;
  }
  ~Gatekeeper() { close(); }
  int fd() const { return theirs_.get(); }

 private:
  void serve() {
    std::string name;
    for (char c = 0; ::read(mine_.get(), &c, 1) == 1;) {
      if (c != '\n') {
        name += c;
        continue;
      }
      names_.insert(std::exchange(name, {}));
      if (::write(mine_.get(), "g", 1) != 1) return;
    }
  }

  Fd mine_;
  Fd theirs_;
  Names names_;
  std::thread thread_;
};

// The failpoints that a process reaches in a scenario.
Names reached_in(const Scenario& story, Victim victim) {
  Gatekeeper gate;
  CellOrder order;
  order.isolated = story.isolated;
  order.on_disk = story.on_disk;
  order.victim = victim;
  order.pause_fd = gate.fd();
  for (const std::string& name : failpoints_in_sources()) {
    order.failpoints += (order.failpoints.empty() ? "" : ",") + name + "=pause";
  }
  Cell cell(order);
  story.run(cell);
  cell.finish();
  return gate.close();
}

// The failpoints of the scenario, without the failpoints of every start of an agent or a client.
Names focus_of(const Scenario& story, Victim victim) {
  Names names = reached_in(story, victim);
  const std::string usual = victim == Victim::kAgent ? "resume" : "connect";
  if (story.name == usual || story.name == std::string_view("restart")) return names;
  std::vector<const char*> others{usual.c_str()};
  // These scenarios meet the failpoints of puts and removals more quickly.
  if (story.on_disk) others.insert(others.end(), {"evict", "remove", "upsert"});
  if (story.name == std::string_view("full_disk")) others.push_back("disk");
  for (const char* const other : others) {
    for (const std::string& name : reached_in(scenario(other), victim)) names.erase(name);
  }
  return names;
}

unsigned run_cells(const Scenario& story, Victim victim) {
  unsigned cells = 0;
  for (const std::string& name : focus_of(story, victim)) {
    for (const char* action : {"kill", "stop"}) {
      for (int at = 1; at <= (long_run() ? 4 : 2); ++at) {
        CellOrder order;
        order.isolated = story.isolated;
        order.on_disk = story.on_disk;
        order.victim = victim;
        order.failpoints = name + "@" + std::to_string(at) + "=" + action;
        SCOPED_TRACE(std::string(story.name) + ", " + order.failpoints +
                     (victim == Victim::kAgent ? " in the agent" : " in the actor"));
        // A failpoint that depends on the order of events may need several runs.
        bool reached = false;
        for (int run = 0; run < kMostRuns && !reached; ++run) {
          Cell cell(order);
          story.run(cell);
          cell.finish();
          reached = cell.reached() || at > 1;
        }
        ++cells;
        EXPECT_TRUE(reached) << "the failpoint was not reached";
      }
    }
  }
  return cells;
}

}  // namespace

TEST(KillMatrix, EveryFailpointOfTheSourcesIsReachedBySomeScenario) {
  const Names all = failpoints_in_sources();
  ASSERT_GT(all.size(), 30u) << "the sources are not where they are looked for: " MC_SOURCE_DIR;
  Names reached;
  for (const Scenario& story : scenarios()) {
    for (const Victim victim : {Victim::kAgent, Victim::kActor}) {
      SCOPED_TRACE(story.name);
      reached.merge(reached_in(story, victim));
    }
  }
  for (const std::string& name : all) {
    EXPECT_TRUE(reached.contains(name)) << "no scenario reaches the failpoint " << name;
  }
}

class KillMatrix : public ::testing::TestWithParam<const char*> {};

TEST_P(KillMatrix, NothingIsLostWhoeverIsKilledOrStoppedIn) {
  const Scenario& story = scenario(GetParam());
  const unsigned agents = run_cells(story, Victim::kAgent);
  const unsigned actors = run_cells(story, Victim::kActor);
  std::printf("cells: scenario=%s agent=%u client=%u\n", story.name, agents, actors);
}

INSTANTIATE_TEST_SUITE_P(
    All, KillMatrix,
    [] {
      std::vector<const char*> names;
      for (const Scenario& story : scenarios()) names.push_back(story.name);
      return ::testing::ValuesIn(names);
    }(),
    [](const auto& param) { return std::string(param.param); });

}  // namespace mc::crash
