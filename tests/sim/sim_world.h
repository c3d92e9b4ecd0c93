// SPDX-License-Identifier: Apache-2.0
//
// One run: hosts, a master for each partition of the keys, clients and a schedule of
//   faults, all from one seed.
//
//   0 s            1.2 s                        4.2 s                       about 10 s
//   │ hosts join   │ operations, under faults   │ faults end, time goes on  │ all keys are read
//
//   Each step moves the time on by a random amount, delivers due messages, and gives every running
//   host a turn, in a random order.
// Threads: The simulator's.
// Owns: Everything.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "shm/layout.h"
#include "sim/history.h"
#include "sim/sim_clock.h"
#include "sim/sim_links.h"
#include "sim/sim_master.h"
#include "sim/sim_node.h"
#include "sim/sim_random.h"
#include "sim/sim_store.h"

namespace mc::sim {

// Deliberate bugs of the simulated world, to test the checks.
struct Bugs {
  bool drops_are_lies = false;     // holders confirm drops without dropping
  bool memory_flips_bits = false;  // of live objects, at rest
  bool guards_are_lax = false;     // peers read the bytes that lie there now
  // a restart loses the pool's memory that should survive
  bool memory_is_forgotten = false;
  bool parts_are_wholes = false;  // holders announce a few stripes as the whole object
};

// The kinds of faults of a run; chosen by its seed.
struct Faults {
  bool noise = false;  // of the peers' transport: loss, delay, doubling, reordering, flipped bits
  bool slow_links = false, broken_links = false;
  bool partitions = false, crashes = false, memory_losses = false, pauses = false;
  bool clock_jumps = false, outages = false, store_losses = false, small_pools = false;
  bool store_failures = false;  // the store refuses writes, or masters cannot reach the store
  bool store_silences = false;  // the store does not answer
  bool endless_reports = false;
  bool master_pauses =
      false;             // a master stands still, and two masters take themselves for the leader
  bool stripes = false;  // large objects lie on several hosts
  bool choices = false;  // clients name hosts for objects, and copy and move objects
  bool disks = false;    // evicted objects go to a disk of their host
  std::uint64_t drained = 0;  // node that is drained from some time on; 0: none
};

class SimWorld {
 public:
  explicit SimWorld(std::uint64_t seed, const Bugs& bugs = {});
  ~SimWorld();

  void run();
  const History& history() const { return history_; }
  std::string story() const;  // the faults of the run

 private:
  struct Held {  // an object that a client reads in place
    shm::Word64 pin{};
    std::uint32_t entry = 0;
    unsigned key = 0;
    std::vector<std::byte> bytes;
    std::uint64_t until_ns = 0;
    bool is_held() const { return !bytes.empty(); }
  };
  struct Client {
    enum class Doing : std::uint8_t { kNothing, kReserving, kWriting, kPublishing, kWaiting };
    unsigned id = 0;
    std::size_t node = 0;
    Doing doing = Doing::kNothing;
    std::uint64_t next_ns = 0, begin_ns = 0, deadline_ns = 0;
    agent::RemoteRequest::Kind kind{};
    std::vector<unsigned> keys;
    // Fields of a put.
    History::Number put = 0;
    bool upsert = false, local = false, was_ready = false;
    std::uint8_t replicas = 1;  // of the put
    MemoryFile staging;         // the bytes for another host to pull
    std::uint64_t reign = 0;    // the leader when the put was requested
    std::uint32_t entry = 0;
    std::size_t remove = 0;
    std::shared_ptr<agent::RemoteRequest> remote_request;
    std::shared_ptr<agent::RemoteRequest> forgets;  // of a put: earlier objects leave the disk
    bool is_last = false;      // the client's one read at the end of the history
    bool server_cuts = false;  // the request ends at the deadline, as in the agent's server
    Held held[2];
  };
  struct Later {
    std::uint64_t at_ns;
    std::function<void()> what;
  };

  // Time and faults: sim_world.cc.
  void step(std::uint64_t most_ns);
  void run_until(std::uint64_t ns, std::uint64_t most_step_ns);
  void schedule_faults();
  void one_fault(std::uint64_t at_ns);
  void pause_a_master(std::uint64_t at_ns);
  void fail_the_store(std::uint64_t at_ns);
  void silence_the_store(std::uint64_t at_ns);
  void report_without_end(std::uint64_t at_ns);
  void later(std::uint64_t at_ns, std::function<void()> what);
  void tell(const std::string& what);
  void mend();
  bool passes(HostId from, HostId to) const;
  void part(HostId from, HostId to, bool parted);
  void kill(std::size_t node, bool keeps_memory);
  bool is_held_elsewhere(std::size_t node, const agent::StripeLabel& stripe) const;
  void restart(std::size_t node);
  void check_nodes(bool quiet);
  void read_everything();
  void remove_everything();
  std::string stripes_left() const;
  void go_on_draining();
  std::string drain_left() const;

  // Clients: sim_clients.cc.
  void act(Client& client);
  void begin_something(Client& client);
  void begin_put(Client& client);
  void place_elsewhere(Client& client);
  void relocate(SimNode& node, const std::string& key);
  agent::MemberId any_member();
  void begin_get(Client& client);
  void go_on_putting(Client& client);
  void publish(Client& client);
  void forget_earlier(Client& client, agent::LocalDisks& disks, const agent::PutOrder& order,
                      agent::ObjectStore::Put result);
  void end_put(Client& client, History::Ending ending);
  void may_have_replaced(const Client& client);
  void send_remote_request(Client& client, agent::RemoteRequest::Kind kind);
  void look_at_remote_request(Client& client);
  void end_get(Client& client);
  std::optional<History::Number> hold(Client& client, Held& held, unsigned key,
                                      std::uint32_t entry);
  bool still_there(Client& client, const Held& held);
  void let_go(Held& held);
  void end(Client& client);
  void node_died(std::size_t node, bool keeps_memory);
  std::vector<std::byte> bytes_at(agent::ObjectStore& store, std::uint32_t entry);
  void note_evictions(std::size_t node);
  std::uint32_t partition_of(unsigned key) const;
  void count_reigns();
  std::string key_text(unsigned key) const { return "key-" + std::to_string(key); }

  const std::uint64_t seed_;
  const Bugs bugs_;
  Random random_;
  // Own streams: histories of one partition stay as before partitions came.
  Random partition_random_;
  Random drain_random_;
  Random pause_random_;    // of masters
  Random choice_random_;   // of named hosts, and of copies and moves
  Random disk_random_;     // of disks
  Random store_random_;    // of a store that fails
  Random silence_random_;  // of a store that does not answer
  Random report_random_;   // of reports that do not end
  Clock clock_;
  std::uint64_t now_ns_ = 1'000 * kMs;
  History history_;
  Faults faults_;
  unsigned key_count_ = 0;
  std::uint64_t largest_bytes_ = 0;
  std::uint64_t stripe_bytes_ = 0;  // larger objects without room are put in stripes; 0: none
  bool working_ = false;            // clients begin operations
  std::uint64_t next_drain_ns_ = UINT64_MAX;  // time of the next drain request
  bool may_end_drain_ = false;                // no client puts or reads any more
  unsigned drain_dones_ = 0;                  // "done" answers in a row; the first may be outdated
  bool drain_done_ = true;
  std::vector<std::string> story_;
  std::set<std::pair<HostId, HostId>> parted_;  // from, to
  LinkWorld links_;
  StoreWorld store_;
  SimMaster::All masters_;
  std::vector<std::uint64_t> epochs_;  // by partition: of the last leader
  std::vector<std::uint64_t> reigns_;  // by partition: leaders so far
  std::uint64_t last_reign_ns_ = 0;    // when the last leader of any partition began
  std::uint64_t memory_ = 0;           // times that the store has lost its content
  transport::testing::LoopNetwork network_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::uint64_t> evictions_seen_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Later> later_;
  std::uint64_t steps_ = 0;
};

}  // namespace mc::sim
