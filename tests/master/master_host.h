// SPDX-License-Identifier: Apache-2.0
//
// Real mc-master processes on free loopback ports, and a member that holds objects by
//   name, as an agent does.
// Threads: processes belong to the test's thread. The client's thread and the test call
//   HoldingAgent, under its lock.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "metadata/master/client/master_client.h"
#include "patience.h"

namespace mc::metadata {

class MasterProcess {
 public:
  // Listens on a free port of `host`, and on another port if the first port turns out to be taken.
  // Store, key file and so on are flags. The times after which a host counts as gone, and a leader
  // as dead, are longer on a slow machine, unless flags give the times.
  explicit MasterProcess(std::vector<std::string> flags, std::string host = "127.0.0.1");
  ~MasterProcess();
  MasterProcess(const MasterProcess&) = delete;
  MasterProcess& operator=(const MasterProcess&) = delete;

  void start();  // on the same port
  void kill_hard();
  void pause(bool paused);  // returns when the process has stopped
  [[nodiscard]] std::string address() const { return host_ + ":" + std::to_string(port_); }

 private:
  // Returns the output of a process that ended before it was ready.
  std::optional<std::string> try_start();

  const std::vector<std::string> flags_;
  const std::string host_;
  int port_ = 0;
  pid_t pid_ = 0;
};

// Runs mc-master to the end. Returns the exit status and the output.
std::pair<int, std::string> run_master_once(const std::vector<std::string>& flags);

// A member whose pool is a map.
class HoldingAgent final : public AgentSide {
 public:
  // held: objects that the pool kept from an earlier run; the report names them. report_waits: the report names
  // nothing so many times before.
  HoldingAgent(MasterClientOptions options, NodeId node, Incarnation incarnation = 1,
               const std::vector<std::string>& held = {}, bool stalling = false,
               int report_waits = 0);

  // Holds and publishes the objects. Every verdict must be kAccepted.
  void put(const std::vector<std::string>& keys, std::uint8_t replicas = 1);
  [[nodiscard]] bool holds(const std::string& key);
  [[nodiscard]] bool until_ready();
  [[nodiscard]] bool fenced() const { return fenced_; }
  [[nodiscard]] int copies() const { return copies_; }
  MasterClient& client() { return *client_; }
  // The next `times` Drop orders are answered MC_BUSY.
  void be_busy(int times) { busy_ = times; }
  [[nodiscard]] int busy_left() const { return busy_; }
  // Removals by pattern wait until stall_matching(false).
  void stall_matching(bool stalled);
  [[nodiscard]] bool has_stalled();
  // The process dies without a farewell.
  void die() { client_.reset(); }

  Load load() override;
  std::uint64_t latest_version() override { return 0; }
  void heard_version(std::uint64_t) override {}
  bool next_report(bool first, std::vector<PublishItem>& items) override;
  void on_report_verdict(const PublishItem& item, Verdict verdict) override;
  void on_drop(const wire::Drop& order, Done done) override;
  void on_drop_matching(const wire::Match& match, Reply<wire::RemoveMatchingAnswer> reply) override;
  void on_list(const wire::Match& match, Reply<wire::ListAnswer> reply) override;
  void on_copy(const wire::Copy& order, Done done) override;
  void on_fenced() override { fenced_ = true; }

 private:
  struct Object {
    PublishItem item;
  };
  static bool matches(const wire::Match& match, const std::string& key);

  std::mutex mutex_;
  std::map<std::string, Object> objects_;
  std::map<KeyHash, PublishItem> copies_held_;
  std::string reported_;
  std::atomic<bool> fenced_{false};
  std::atomic<int> copies_{0};
  std::atomic<int> busy_{0};
  int report_waits_ = 0;
  bool stalling_ = false;
  std::vector<std::function<void()>> stalled_;
  std::unique_ptr<MasterClient> client_;
};

// A deadline that no call reaches on a machine that works.
std::uint64_t soon();
// A client without a pool.
std::unique_ptr<MasterClient> tool(const MasterClientOptions& options);
wire::StatsAnswer stats(MasterClient& client);
KeyHash hash_of(const std::string& key);
std::vector<std::string> names(const std::string& prefix, int count);
Result<LocateAnswer> locate(MasterClient& client, const std::vector<std::string>& keys,
                            std::uint32_t wait_ms = 0);

}  // namespace mc::metadata
