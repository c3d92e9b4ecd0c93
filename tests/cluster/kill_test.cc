// SPDX-License-Identifier: Apache-2.0
//
// The kill matrix of several hosts. A process is killed, or stopped for a while, during puts and
// gets. Every call ends in time, no byte is wrong, and each acknowledged object is found afterwards
// on every host.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "cluster/cluster_fixture.h"
#include "conformance/store/store_servers.h"
#include "defect.h"
#include "libmc/base/clock.h"
#include "process_stop.h"

namespace mc::cluster {
namespace {

using conformance::slice;

enum class KillVictim { kOwnAgent, kOtherAgent, kMaster, kStore, kClient };
enum class Action { kKill, kStop };
struct KillCell {
  KillVictim victim;
  Action action;
};

std::string kill_name(const ::testing::TestParamInfo<KillCell>& info) {
  constexpr const char* kVictims[] = {"OwnAgent", "OtherAgent", "Master", "Store", "Client"};
  return std::string(kVictims[static_cast<int>(info.param.victim)]) +
         (info.param.action == Action::kKill ? "Killed" : "Stopped");
}

const std::uint64_t kCallNs = 2 * kSecondNs;
// The deadline, a second (I7), and a margin for a loaded machine.
const std::uint64_t kLongestNs = kCallNs + kSecondNs + 4 * kSecondNs;

std::string kill_value(const std::string& key) {
  return content(key, 1000 + key.size() * 977 % 9000);
}

// Puts keys on one host, and reads own keys and the keys of others.
class Load {
 public:
  Load(std::string socket, std::string name, std::vector<std::string> others)
      : name_(std::move(name)), others_(std::move(others)) {
    mc_open_options options = MC_OPEN_OPTIONS_INIT;
    options.agent = socket.c_str();
    options.timeout_ns = kCallNs;
    EXPECT_EQ(mc_open(&options, &client_), MC_OK) << mc_last_error();
    thread_ = std::thread([this] { run(); });
  }
  ~Load() {
    stop();
    mc_close(client_);
  }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const std::vector<std::string>& acknowledged() const { return acknowledged_; }
  std::uint64_t longest_ns() const { return longest_ns_; }
  std::uint64_t wrong() const { return wrong_; }
  std::uint64_t calls() const { return calls_; }

 private:
  template <typename Call>
  mc_status timed(Call call) {
    const std::uint64_t start_ns = now_ns();
    const mc_status status = call();
    longest_ns_ = std::max(longest_ns_, now_ns() - start_ns);
    ++calls_;
    return status;
  }
  void read(const std::string& key) {
    const std::string wanted = kill_value(key);
    std::string bytes(wanted.size() + 1, '\0');
    std::size_t length = 0;
    const mc_status status =
        timed([&] { return mc_get(client_, slice(key), bytes.data(), bytes.size(), &length); });
    if (status == MC_OK && bytes.substr(0, length) != wanted) {
      mark_wrong_bytes(key);
      ++wrong_;
    }
  }
  void run() {
    for (std::uint64_t i = 0; !stop_; ++i) {
      const std::string key = name_ + "/" + std::to_string(i);
      const std::string value = kill_value(key);
      if (timed([&] { return mc_put(client_, slice(key), slice(value), nullptr); }) == MC_OK) {
        acknowledged_.push_back(key);
      }
      if (!others_.empty()) read(others_[i % others_.size()]);
      if (!acknowledged_.empty()) read(acknowledged_[i * 7919 % acknowledged_.size()]);
    }
  }

  const std::string name_;
  const std::vector<std::string> others_;
  mc_client* client_ = nullptr;
  std::atomic<bool> stop_{false};
  std::vector<std::string> acknowledged_;
  std::uint64_t longest_ns_ = 0;
  std::uint64_t wrong_ = 0;
  std::atomic<std::uint64_t> calls_{0};
  std::thread thread_;
};

class KillTest : public ClusterTest, public ::testing::WithParamInterface<KillCell> {
 protected:
  static void rest(std::uint64_t milliseconds) {
    ::usleep(static_cast<useconds_t>(milliseconds * kSecondNs / 1'000'000));
  }

  // Waits for many more calls.
  static bool goes_on(const Load& load) {
    const std::uint64_t before = load.calls();
    return until([&] { return load.calls() > before + 100; });
  }

  void strike() {
    const bool kill = GetParam().action == Action::kKill;
    const auto strike_agent = [&](std::size_t number) {
      if (kill) {
        agents_[number]->kill_hard();
        rest(200);
        start_agent(number);
        return;
      }
      agents_[number]->pause(true);
      rest(1500);  // longer than the second after which a host counts as gone
      agents_[number]->pause(false);
    };
    switch (GetParam().victim) {
      case KillVictim::kOwnAgent:
        strike_agent(0);
        break;
      case KillVictim::kOtherAgent:
        strike_agent(1);
        break;
      case KillVictim::kMaster:
        if (kill) {
          master_->kill_hard();
          rest(300);
          master_->start();
        } else {
          master_->pause(true);
          rest(1500);
          master_->pause(false);
        }
        break;
      case KillVictim::kStore:
        if (kill) {
          redis_->kill_hard();
          rest(500);
          redis_->start();
        } else {
          redis_->pause(true);
          rest(1500);
          redis_->pause(false);
        }
        break;
      case KillVictim::kClient:
        if (kill) {
          ::kill(child_, SIGKILL);
          rest(300);
        } else {
          stop_process(child_);
          rest(300);
          ::kill(child_, SIGCONT);
        }
        break;
    }
  }

  std::unique_ptr<conformance::StoreServer> redis_;
  pid_t child_ = 0;
};

TEST_P(KillTest, EveryCallEndsAndAcknowledgedObjectsAreFoundEverywhere) {
  redis_ = std::make_unique<conformance::StoreServer>(conformance::redis_command());
  const std::string url = "redis://" + redis_->host();
  start(2, {{"cluster_store", url}, {"pool_bytes", "256MiB"}, {"max_pool_bytes", "256MiB"}},
        {"--cluster-store", url, "--recover-ms", option_time(300)});
  std::vector<std::string> there;
  for (int i = 0; i < 200; ++i) {
    there.push_back("there/" + std::to_string(i));
    ASSERT_EQ(put(1, there.back(), kill_value(there.back())), MC_OK) << mc_last_error();
  }
  if (GetParam().victim == KillVictim::kClient) {
    child_ = ::fork();
    if (child_ == 0) {
      // The child needs a client; the parent's client belongs to the parent.
      Load load(agents_[0]->socket(), "child", there);
      for (;;) ::pause();
    }
  }
  std::vector<std::string> acknowledged;
  {
    Load here(agents_[0]->socket(), "here", there);
    Load beside(agents_[1]->socket(), "beside", {});
    for (const Load* const load : {&here, &beside}) EXPECT_TRUE(goes_on(*load));
    strike();
    for (const Load* const load : {&here, &beside}) EXPECT_TRUE(goes_on(*load));
    for (Load* const load : {&here, &beside}) {
      load->stop();
      EXPECT_EQ(load->wrong(), 0u);
      EXPECT_LT(load->longest_ns(), kLongestNs);
      acknowledged.insert(acknowledged.end(), load->acknowledged().begin(),
                          load->acknowledged().end());
    }
  }
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  // The load may put more than a pool holds, so the test looks for the latest objects only.
  if (acknowledged.size() > 4000)
    acknowledged.erase(acknowledged.begin(), acknowledged.end() - 4000);
  for (std::size_t agent = 0; agent < 2; ++agent) {
    ASSERT_TRUE(until([&] { return ask(agent, "status")["cluster"]["master_ready"].asBool(); }));
  }
  std::size_t missing = 0;
  for (std::size_t i = 0; i < acknowledged.size(); i += 1 + acknowledged.size() / 300) {
    const std::string& key = acknowledged[i];
    for (std::size_t agent = 0; agent < 2; ++agent) {
      const bool found = until([&] { return get(agent, key) == kill_value(key); });
      EXPECT_TRUE(found) << key << " at " << agent;
      missing += found ? 0 : 1;
    }
    ASSERT_LT(missing, 3u) << "and more, most likely";
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, KillTest,
                         ::testing::Values(KillCell{KillVictim::kOwnAgent, Action::kKill},
                                           KillCell{KillVictim::kOwnAgent, Action::kStop},
                                           KillCell{KillVictim::kOtherAgent, Action::kKill},
                                           KillCell{KillVictim::kOtherAgent, Action::kStop},
                                           KillCell{KillVictim::kMaster, Action::kKill},
                                           KillCell{KillVictim::kMaster, Action::kStop},
                                           KillCell{KillVictim::kStore, Action::kKill},
                                           KillCell{KillVictim::kStore, Action::kStop},
                                           KillCell{KillVictim::kClient, Action::kKill},
                                           KillCell{KillVictim::kClient, Action::kStop}),
                         kill_name);

}  // namespace
}  // namespace mc::cluster
