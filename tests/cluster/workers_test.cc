// SPDX-License-Identifier: Apache-2.0
//
// The network cost of a host's workers. The agent has the connections and the registered memory, so
// eight workers need as much as a single worker.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cluster/cluster_fixture.h"

namespace mc::cluster {
namespace {

constexpr std::size_t kWorkers = 8;
constexpr std::size_t kObjects = 64;
constexpr std::size_t kBytes = 256 * 1024;

std::string key_of(std::size_t number) { return "block " + std::to_string(number); }

// The established TCP connections of a process.
std::size_t connections_of(int pid) {
  std::set<std::string> established;
  std::ifstream table("/proc/" + std::to_string(pid) + "/net/tcp");
  std::string line;
  std::getline(table, line);  // the header
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, again, user, timeout, inode;
    words >> number >> local >> remote >> state >> queues >> timer >> again >> user >> timeout >>
        inode;
    if (state == "01") established.insert("socket:[" + inode + "]");
  }
  std::size_t count = 0;
  std::error_code ignored;  // a descriptor may be closed meanwhile
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
    count += established.count(std::filesystem::read_symlink(entry.path(), ignored).string());
  }
  return count;
}

// A process with a client that reads all objects. False: a byte was wrong.
class Worker {
 public:
  explicit Worker(const std::string& agent) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(read_all(agent) ? 0 : 1);
  }
  bool succeeded() const {
    int status = 0;
    return ::waitpid(pid_, &status, 0) == pid_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  static bool read_all(const std::string& agent) {
    ::alarm(kTestSeconds);
    mc_open_options options = MC_OPEN_OPTIONS_INIT;
    options.agent = agent.c_str();
    mc_client* client = nullptr;
    if (mc_open(&options, &client) != MC_OK) return false;
    std::string value(kBytes, '\0');
    for (std::size_t i = 0; i < kObjects; ++i) {
      const std::string key = key_of(i);
      std::size_t length = 0;
      if (mc_get(client, conformance::slice(key), value.data(), value.size(), &length) != MC_OK ||
          length != kBytes || value != content(key, kBytes)) {
        return false;
      }
    }
    mc_close(client);
    return true;
  }
  const pid_t pid_;
};

TEST_F(ClusterTest, EightWorkersHaveTheConnectionsOfOne) {
  start(2);
  for (std::size_t i = 0; i < kObjects; ++i) {
    ASSERT_EQ(put(0, key_of(i), content(key_of(i), kBytes)), MC_OK) << mc_last_error();
  }
  const std::string agent = agents_[1]->socket();
  ASSERT_TRUE(Worker(agent).succeeded());
  const std::size_t of_one = connections_of(agents_[1]->pid());
  const auto lanes = [&] { return ask(1, "rails")["peers"][0]["rails"].size(); };
  const std::size_t lanes_of_one = lanes();
  ASSERT_GE(of_one, 2u) << "a master and a peer at least";

  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0; i < kWorkers; ++i) workers.push_back(std::make_unique<Worker>(agent));
  for (const auto& worker : workers) EXPECT_TRUE(worker->succeeded());
  // A connection that breaks is made anew, and is missing meanwhile.
  EXPECT_TRUE(until([&] { return connections_of(agents_[1]->pid()) == of_one; }))
      << connections_of(agents_[1]->pid()) << " instead of " << of_one;
  EXPECT_EQ(lanes(), lanes_of_one);
}

}  // namespace
}  // namespace mc::cluster
