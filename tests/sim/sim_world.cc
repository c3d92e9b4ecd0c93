// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_world.h"

#include <algorithm>
#include <cmath>

namespace mc::sim {

namespace {

constexpr std::uint64_t kStartNs = 1'000 * kMs;
constexpr std::uint64_t kJoinedNs = kStartNs + 1'200 * kMs;
constexpr std::uint64_t kMendNs = kJoinedNs + 3'000 * kMs;
constexpr std::uint64_t kSettleNs = 4'500 * kMs;  // after the repair, and under each new leader
constexpr std::uint64_t kAllReadyNs = kMendNs + 2 * kSettleNs;
constexpr std::uint64_t kMostOffsetNs = 2'000 * kMs;  // of a host's wall clock
// From the start of a master until the agents may have found their leader.
constexpr std::uint64_t kTakeOverNs = 1'500 * kMs;

}  // namespace

SimWorld::SimWorld(std::uint64_t seed, const Bugs& bugs)
    : seed_(seed),
      bugs_(bugs),
      random_(seed),
      partition_random_(seed ^ 0x77),
      drain_random_(seed ^ 0x99),
      pause_random_(seed ^ 0xbb),
      choice_random_(seed ^ 0xdd),
      disk_random_(seed ^ 0xd15c),
      store_random_(seed ^ 0xff),
      silence_random_(seed ^ 0x55),
      report_random_(seed ^ 0x44),
      history_(seed),
      links_(Random(seed ^ 0x11), [this](HostId from, HostId to) { return passes(from, to); }),
      store_(seed ^ 0x33),
      // With short messages, fewer objects come with the holders' answers, and more are read at their places.
      network_({.max_notification_bytes =
                    Random(seed ^ 0x66).chance(0.5) ? 2048u : transport::kMaxNotificationBytes}) {
  clock_.set(now_ns_);
  const std::uint32_t partitions =
      partition_random_.chance(0.5) ? 1
                                    : static_cast<std::uint32_t>(partition_random_.between(2, 3));
  epochs_.resize(partitions);
  reigns_.resize(partitions);
  const std::uint64_t master_count = partition_random_.between(1, 3);
  for (std::uint64_t i = 0; i < master_count; ++i) {
    SimMaster::Options options;
    options.host = kMasterHost + i;
    options.partitions = partitions;
    masters_.push_back(std::make_unique<SimMaster>(links_, store_, options));
  }
  faults_.noise = random_.chance(0.6);
  faults_.slow_links = random_.chance(0.3);
  const bool calm = random_.chance(0.3);
  if (!calm) {
    faults_.broken_links = random_.chance(0.4);
    faults_.partitions = random_.chance(0.4);
    faults_.crashes = random_.chance(0.5);
    faults_.memory_losses = faults_.crashes && random_.chance(0.4);
    faults_.pauses = random_.chance(0.3);
    faults_.clock_jumps = random_.chance(0.2);
    faults_.outages = random_.chance(0.4);
    faults_.store_losses = faults_.outages && random_.chance(0.6);
  }
  faults_.master_pauses = !calm && master_count > 1 && pause_random_.chance(0.5);
  faults_.store_failures = !calm && store_random_.chance(0.4);
  faults_.store_silences = !calm && silence_random_.chance(0.4);
  faults_.endless_reports = !calm && report_random_.chance(0.3);
  faults_.small_pools = random_.chance(0.2);
  faults_.choices = choice_random_.chance(0.5);
  faults_.disks = disk_random_.chance(faults_.small_pools ? 0.7 : 0.2);
  key_count_ = static_cast<unsigned>(random_.between(3, 12));
  largest_bytes_ = random_.chance(0.5) ? 600 : 6'000;
  if (faults_.slow_links) links_.set_slowness(random_.between(2, 20));
  transport::testing::FaultPlan plan;
  if (faults_.noise) {
    plan.lose = static_cast<double>(random_.between(0, 20)) / 100;
    plan.duplicate = static_cast<double>(random_.between(0, 30)) / 100;
    plan.delay = static_cast<double>(random_.between(0, 50)) / 100;
    plan.reorder = static_cast<double>(random_.between(0, 50)) / 100;
    plan.flip_bit = random_.chance(0.5) ? 0.02 : 0;
    plan.max_delay_ns = random_.between(1, 30) * kMs;
  }
  const std::uint64_t node_count = random_.between(2, 5);
  faults_.stripes = bugs_.parts_are_wholes || random_.chance(0.5);
  if (faults_.stripes) stripe_bytes_ = random_.between(64, largest_bytes_ / 3);
  evictions_seen_.resize(node_count);
  if (drain_random_.chance(0.3)) faults_.drained = drain_random_.between(1, node_count);
  for (std::uint64_t i = 0; i < node_count; ++i) {
    NodeOptions options;
    options.node = i + 1;
    options.pool_bytes = faults_.small_pools ? 24u << 10 : 512u << 10;
    options.seed = seed;
    options.plan = plan;
    options.faults.lies_about_drops = bugs_.drops_are_lies;
    options.faults.takes_a_part_for_the_whole = bugs_.parts_are_wholes;
    options.stripe_bytes = stripe_bytes_;
    if (faults_.disks) options.disk_bytes = 4u << 20;
    options.partitions = partitions;
    options.checks_no_generations = bugs_.guards_are_lax;
    for (const auto& master : masters_) options.masters.push_back(master_address(master->host()));
    const auto outside = [this, host = options.node] {
      return outside_of(host, links_, store_, masters_);
    };
    const auto pins = [this, i](std::vector<std::uint64_t>& all) {
      for (const auto& client : clients_) {
        if (client->node != i) continue;
        for (const Held& held : client->held) {
          if (held.pin.load_relaxed() != 0) all.push_back(held.pin.load_relaxed());
        }
      }
    };
    nodes_.push_back(std::make_unique<SimNode>(options, network_, outside, pins));
    const std::uint64_t client_count = random_.between(1, 3);
    for (std::uint64_t j = 0; j < client_count; ++j) {
      clients_.push_back(std::make_unique<Client>());
      clients_.back()->id = static_cast<unsigned>(clients_.size());
      clients_.back()->node = i;
    }
  }
}

SimWorld::~SimWorld() {
  for (const auto& node : nodes_) node->kill(false);
  for (const auto& master : masters_) master->stop();
}

// ---- Time ---------------------------------------------------------------------------------------

void SimWorld::later(std::uint64_t at_ns, std::function<void()> what) {
  later_.push_back({at_ns, std::move(what)});
}

void SimWorld::tell(const std::string& what) {
  if (story_.size() < 200) story_.push_back(std::to_string(now_ns_ / 1000) + " us: " + what);
}

void SimWorld::step(std::uint64_t most_ns) {
  // Mix short and long steps: simultaneous events, and events with time in between.
  const std::uint64_t scale = random_.between(0, 3);
  now_ns_ += random_.between(10'000, std::max<std::uint64_t>(20'000, most_ns >> (2 * scale)));
  clock_.set(now_ns_);
  ++steps_;
  for (std::size_t i = 0; i < later_.size(); ++i) {
    if (later_[i].at_ns > now_ns_) continue;
    const auto what = std::move(later_[i].what);
    later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(i--));
    what();
  }
  links_.deliver(now_ns_);
  for (const auto& master : masters_) master->poll();
  count_reigns();
  const std::size_t first = random_.next() % nodes_.size();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::size_t at = (first + i) % nodes_.size();
    SimNode& node = *nodes_[at];
    if (!node.up() || now_ns_ < node.paused_until_ns) continue;
    clock_.set(now_ns_, node.wall_offset_ns);
    store_.run_threads(node.id());
    node.poll(now_ns_);
    for (const auto& client : clients_) {
      if (client->node == at) act(*client);
    }
    node.advance(now_ns_);
    if (node.cluster().take_ended()) history_.note(steps_);
    note_evictions(at);
  }
  clock_.set(now_ns_);
  if (!drain_done_ && now_ns_ >= next_drain_ns_) go_on_draining();
  if (steps_ % 16 == 0) check_nodes(false);
}

void SimWorld::count_reigns() {
  for (std::uint32_t partition = 0; partition < epochs_.size(); ++partition) {
    for (const auto& master : masters_) {
      if (master->epoch(partition) <= epochs_[partition]) continue;
      epochs_[partition] = master->epoch(partition);
      ++reigns_[partition];
      last_reign_ns_ = now_ns_;
    }
  }
}

void SimWorld::run_until(std::uint64_t ns, std::uint64_t most_step_ns) {
  while (now_ns_ < ns && history_.failures().empty()) step(most_step_ns);
}

void SimWorld::note_evictions(std::size_t node) {
  const std::uint64_t evictions = nodes_[node]->store().counters().evictions;
  if (evictions == evictions_seen_[node]) return;
  evictions_seen_[node] = evictions;
  history_.evicted();
}

void SimWorld::check_nodes(bool quiet) {
  for (const auto& node : nodes_) {
    if (!node->up()) continue;
    const std::string wrong = node->check_sums(quiet);
    if (!wrong.empty()) history_.fail(wrong);
  }
}

// ---- Faults -------------------------------------------------------------------------------------

bool SimWorld::passes(HostId from, HostId to) const {
  for (const HostId host : {from, to}) {
    if (!is_master_host(host) && (host > nodes_.size() || !nodes_[host - 1]->up())) return false;
  }
  return !parted_.contains({from, to});
}

// Cuts one direction. A pull belongs to the puller and fails if either direction is cut.
void SimWorld::part(HostId from, HostId to, bool parted) {
  if (parted) {
    parted_.insert({from, to});
  } else {
    parted_.erase({from, to});
  }
  if (is_master_host(from) || is_master_host(to) || !nodes_[to - 1]->up()) return;
  transport::testing::FaultTransport& transport = nodes_[to - 1]->transport();
  if (parted) {
    transport.part(from);
  } else {
    transport.join(from);
  }
}

// True if another host has a replica. Ignored with a drained host, because that host drops objects
// that others have.
bool SimWorld::is_held_elsewhere(std::size_t node, const agent::StripeLabel& stripe) const {
  if (faults_.drained != 0) return false;
  for (std::size_t other = 0; other < nodes_.size(); ++other) {
    if (other == node || !nodes_[other]->up()) continue;
    for (const SimNode::Stripe& held : nodes_[other]->stripes()) {
      const bool same = held.label.facts.put == stripe.facts.put &&
                        held.label.facts.number == stripe.facts.number;
      if (same && held.sealed) return true;
    }
  }
  return false;
}

void SimWorld::kill(std::size_t node, bool keeps_memory) {
  if (!nodes_[node]->up()) return;
  tell("node " + std::to_string(node + 1) + " is killed" + (keeps_memory ? "" : ", memory lost"));
  if (!keeps_memory) {
    agent::ObjectStore& store = nodes_[node]->store();
    for (unsigned key = 0; key < key_count_; ++key) {
      const std::string text = key_text(key);
      if (store.index().find(text, store.index().hash(text))) history_.lost(key, now_ns_);
    }
    for (const SimNode::Stripe& stripe : nodes_[node]->stripes()) {
      if (is_held_elsewhere(node, stripe.label)) continue;
      for (unsigned key = 0; key < key_count_; ++key) {
        if (key_text(key) == stripe.label.key) history_.lost(key, now_ns_);
      }
    }
  }
  node_died(node, keeps_memory);
  nodes_[node]->kill(keeps_memory && !bugs_.memory_is_forgotten);
  if (bugs_.memory_is_forgotten) node_died(node, false);
}

void SimWorld::restart(std::size_t node) {
  SimNode& host = *nodes_[node];
  if (host.up()) return;
  tell("node " + std::to_string(node + 1) + " is started");
  host.start();
  evictions_seen_[node] = host.store().counters().evictions;
  for (const auto& [from, to] : parted_) {
    if (to == host.id() && !is_master_host(from)) host.transport().part(from);
  }
  // The simulated clients hold no reservation across a restart of their agent.
  for (const auto& [session, entry] : host.store().take_recovered_reservations()) {
    host.store().abandon(session, entry);
  }
}

void SimWorld::schedule_faults() {
  std::uint64_t at_ns = kJoinedNs + random_.between(0, 1'000) * kMs;
  while (at_ns < kMendNs) {
    one_fault(at_ns);
    at_ns += random_.between(50, 1'200) * kMs;
  }
  const auto schedule = [this](bool wanted, Random& random, std::uint64_t most,
                               void (SimWorld::*fault)(std::uint64_t)) {
    if (!wanted) return;
    for (std::uint64_t left = random.between(1, most); left > 0; --left) {
      (this->*fault)(kJoinedNs + random.between(0, 2'500) * kMs);
    }
  };
  schedule(faults_.master_pauses, pause_random_, 3, &SimWorld::pause_a_master);
  schedule(faults_.store_failures, store_random_, 3, &SimWorld::fail_the_store);
  schedule(faults_.store_silences, silence_random_, 3, &SimWorld::silence_the_store);
  schedule(faults_.endless_reports, report_random_, 2, &SimWorld::report_without_end);
  if (!bugs_.memory_flips_bits) return;
  later(kJoinedNs + 1'000 * kMs, [this] {
    for (const auto& node : nodes_) {
      if (!node->up()) continue;
      agent::ObjectStore& store = node->store();
      for (std::uint32_t entry = 0; entry < store.index().entry_count(); ++entry) {
        const auto version = store.index().entry(entry).version.load_relaxed();
        if (shm::state_of(version) != shm::EntryState::kLive) continue;
        store.pool().data()[store.extents(entry).at[0].offset_bytes + 9] ^= std::byte{4};
      }
    }
  });
}

// A pause of more than half a second outlasts the master's lease.
void SimWorld::pause_a_master(std::uint64_t at_ns) {
  const std::size_t which = pause_random_.next() % masters_.size();
  const std::uint64_t until_ns = at_ns + pause_random_.between(100, 1'500) * kMs;
  history_.disturbed(at_ns, until_ns + kTakeOverNs);
  later(at_ns, [this, which, until_ns] {
    tell("master " + std::to_string(which + 1) + " stands still until " +
         std::to_string(until_ns / 1000) + " us");
    masters_[which]->stand_until(until_ns);
  });
}

void SimWorld::fail_the_store(std::uint64_t at_ns) {
  constexpr mc_status kCodes[] = {MC_NO_SPACE,
                                  MC_PERMISSION_DENIED,
                                  MC_UNSUPPORTED,
                                  MC_CORRUPT,
                                  MC_TOO_LARGE,
                                  metadata::kOutcomeUnknown,
                                  metadata::kStoreUnavailable};
  const std::uint64_t until_ns = at_ns + store_random_.between(50, 2'000) * kMs;
  history_.disturbed(at_ns, until_ns + kTakeOverNs);
  if (store_random_.chance(0.5)) {
    const mc_status code = kCodes[store_random_.next() % std::size(kCodes)];
    later(at_ns, [this, code] {
      tell(std::string("the store refuses writes: ") + mc_status_name(code));
      store_.set_write_error(code);
    });
    later(until_ns, [this] {
      tell("the store takes writes");
      store_.set_write_error(MC_OK);
    });
    return;
  }
  const std::uint64_t which = store_random_.next() % (masters_.size() + 1);  // the last: all
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (which != i && which != masters_.size()) continue;
    later(at_ns, [this, i] {
      tell("master " + std::to_string(i + 1) + " cannot reach the store");
      store_.set_reachable(masters_[i]->host(), false);
    });
    later(until_ns, [this, i] {
      tell("master " + std::to_string(i + 1) + " reaches the store");
      if (masters_[i]->up()) store_.set_reachable(masters_[i]->host(), true);
    });
  }
}

// The store stands still, or the way between the store and one host takes packets and delivers none.
void SimWorld::silence_the_store(std::uint64_t at_ns) {
  const std::uint64_t until_ns = at_ns + silence_random_.between(50, 2'000) * kMs;
  history_.disturbed(at_ns, until_ns + kTakeOverNs);
  std::vector<HostId> hosts;
  for (const auto& master : masters_) hosts.push_back(master->host());
  for (const auto& node : nodes_) hosts.push_back(node->id());
  if (silence_random_.chance(0.5)) hosts = {hosts[silence_random_.next() % hosts.size()]};
  const std::string whom = hosts.size() == 1 ? "host " + std::to_string(hosts[0]) : "all hosts";
  const auto set = [this, hosts](bool silent) {
    for (const HostId host : hosts) store_.set_silent(host, silent);
  };
  later(at_ns, [this, whom, set] {
    tell("the store is silent to " + whom);
    set(true);
  });
  later(until_ns, [this, whom, set] {
    tell("the store answers " + whom);
    set(false);
  });
}

void SimWorld::report_without_end(std::uint64_t at_ns) {
  const std::size_t node = report_random_.next() % nodes_.size();
  const std::uint64_t until_ns = at_ns + report_random_.between(50, 2'500) * kMs;
  history_.disturbed(at_ns, until_ns);
  later(at_ns, [this, node] {
    tell("node " + std::to_string(node + 1) + " joins again and does not end its report");
    nodes_[node]->never_end_reports(true);
    links_.cut(nodes_[node]->id());
  });
  later(until_ns, [this, node] {
    tell("node " + std::to_string(node + 1) + " ends its report");
    nodes_[node]->never_end_reports(false);
  });
}

void SimWorld::one_fault(std::uint64_t at_ns) {
  std::vector<std::function<void(std::uint64_t, std::uint64_t)>> kinds;
  const std::size_t node = random_.next() % nodes_.size();
  const std::string who = "node " + std::to_string(node + 1);
  const bool one_way = random_.chance(0.4);
  const bool keeps = !faults_.memory_losses || random_.chance(0.5);
  const bool keeps_store = !faults_.store_losses || random_.chance(0.5);
  const std::size_t which = partition_random_.next() % masters_.size();
  const std::uint64_t dice = random_.next() % (nodes_.size() + 1);  // 0: a master
  const HostId other = dice == 0 ? masters_[which]->host() : dice;
  const std::string master = "master " + std::to_string(which + 1);
  const std::string whom = dice == 0 ? master : std::to_string(dice);
  const auto jump_ns =
      static_cast<std::int64_t>(random_.between(0, 2 * kMostOffsetNs / kMs) * kMs) -
      static_cast<std::int64_t>(kMostOffsetNs);
  if (faults_.broken_links) {
    kinds.push_back([this, node, who](std::uint64_t from_ns, std::uint64_t) {
      history_.disturbed(from_ns, from_ns, {node + 1});
      later(from_ns, [this, node, who] {
        tell("the link of " + who + " to the master breaks");
        links_.cut(nodes_[node]->id());
      });
    });
  }
  if (faults_.partitions) {
    kinds.push_back(
        [this, node, who, one_way, other, whom](std::uint64_t from_ns, std::uint64_t to_ns) {
          const HostId a = node + 1;
          if (other == a) return;
          history_.disturbed(from_ns, to_ns, {a, other});
          later(from_ns, [this, who, a, other, one_way, whom] {
            tell(who + " is cut off from " + whom + (one_way ? ", one way" : ""));
            part(other, a, true);
            if (!one_way) part(a, other, true);
          });
          later(to_ns, [this, who, a, other, whom] {
            tell(who + " is joined to " + whom);
            part(other, a, false);
            part(a, other, false);
          });
        });
  }
  if (faults_.crashes) {
    kinds.push_back([this, node, keeps](std::uint64_t from_ns, std::uint64_t to_ns) {
      history_.disturbed(from_ns, to_ns, {node + 1});
      later(from_ns, [this, node, keeps] { kill(node, keeps); });
      later(to_ns, [this, node] { restart(node); });
    });
  }
  if (faults_.pauses) {
    kinds.push_back([this, node, who](std::uint64_t from_ns, std::uint64_t to_ns) {
      history_.disturbed(from_ns, to_ns, {node + 1});
      later(from_ns, [this, node, who, to_ns] {
        tell(who + " stands still until " + std::to_string(to_ns / 1000) + " us");
        nodes_[node]->paused_until_ns = to_ns;
      });
    });
  }
  if (faults_.clock_jumps) {
    kinds.push_back([this, node, who, jump_ns](std::uint64_t from_ns, std::uint64_t) {
      later(from_ns, [this, node, who, jump_ns] {
        tell("the wall clock of " + who + " is off by " + std::to_string(jump_ns / 1'000) + " us");
        nodes_[node]->wall_offset_ns = jump_ns;
      });
    });
  }
  if (faults_.outages) {
    kinds.push_back([this, keeps_store, which, master](std::uint64_t from_ns, std::uint64_t to_ns) {
      history_.disturbed(from_ns, to_ns + kTakeOverNs);
      later(from_ns, [this, which, master] {
        tell(master + " is killed");
        masters_[which]->stop();
      });
      later(to_ns, [this, keeps_store, which, master] {
        tell(master + (keeps_store ? " is started" : " is started, the store is empty"));
        if (!keeps_store) {
          store_.lose();
          ++memory_;
        }
        masters_[which]->start();
      });
    });
  }
  if (kinds.empty()) return;
  const std::uint64_t lasts_ns = random_.between(1, random_.chance(0.5) ? 200 : 1'500) * kMs;
  kinds[random_.next() % kinds.size()](at_ns, at_ns + lasts_ns);
}

void SimWorld::mend() {
  later_.clear();
  tell("all is mended");
  for (const auto& [from, to] : std::set(parted_)) part(from, to, false);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    restart(i);
    nodes_[i]->paused_until_ns = std::min(nodes_[i]->paused_until_ns, now_ns_);
    nodes_[i]->set_plan({});
    nodes_[i]->never_end_reports(false);
  }
  store_.set_write_error(MC_OK);
  for (const auto& master : masters_) {
    master->start();
    master->stand_until(0);
    store_.set_reachable(master->host(), true);
    store_.set_silent(master->host(), false);
  }
  for (const auto& node : nodes_) store_.set_silent(node->id(), false);
}

// ---- A run --------------------------------------------------------------------------------------

void SimWorld::run() {
  for (const auto& master : masters_) master->start();
  for (const auto& node : nodes_) node->start();
  run_until(kJoinedNs, 10 * kMs);
  schedule_faults();
  working_ = true;
  if (faults_.drained != 0) {
    drain_done_ = false;
    next_drain_ns_ = kJoinedNs + drain_random_.between(0, 2'500) * kMs;
  }
  run_until(kMendNs, 4 * kMs);
  working_ = false;
  history_.disturbed(now_ns_, now_ns_);
  mend();
  // A master may give up a partition, and late puts wait for three seconds of each leader.
  const auto is_ready = [](const auto& node) { return node->ready(); };
  const auto settled = [&] {
    return now_ns_ >= std::max(kMendNs, last_reign_ns_) + kSettleNs &&
           std::ranges::all_of(nodes_, is_ready);
  };
  while (now_ns_ < kAllReadyNs && history_.failures().empty() && !settled()) step(20 * kMs);
  if (!history_.failures().empty()) return;
  for (const auto& node : nodes_) {
    if (!node->ready()) {
      history_.fail("node " + std::to_string(node->id()) + " has not found back to the master");
    }
    // A refused put takes a later version. If hosts guessed that version, clocks would drive each
    // other ahead.
    if (node->latest_version() > wall_ns() + kMostOffsetNs) {
      history_.fail("the versions of node " + std::to_string(node->id()) +
                    " have run ahead of all clocks");
    }
  }
  for (const auto& client : clients_) {
    if (client->doing != Client::Doing::kNothing) {
      history_.fail("I7 client " + std::to_string(client->id) + " waits for ever");
    }
    for (Held& held : client->held) {
      if (held.is_held()) let_go(held);
    }
  }
  read_everything();
  history_.finish(key_count_, memory_);
  may_end_drain_ = true;
  // Two waits are long. A copy ordered by the master may wait 30 s for a lost message. A stripe
  // whose writer never came back is held until the put's time is over.
  const std::uint64_t latest_ns = now_ns_ + 40'000 * kMs;
  const auto busy = [](const auto& node) { return !node->check_sums(true).empty(); };
  do {
    run_until(now_ns_ + 500 * kMs, 50 * kMs);
  } while (now_ns_ < latest_ns && history_.failures().empty() &&
           (std::ranges::any_of(nodes_, busy) || !stripes_left().empty() || !drain_left().empty()));
  check_nodes(true);
  if (const std::string left = drain_left(); !left.empty()) history_.fail(left);
  if (const std::string left = stripes_left(); !left.empty()) history_.fail(left);
  if (history_.failures().empty()) remove_everything();
  for (const auto& node : nodes_) {
    history_.demoted += node->demoted();
    history_.promoted += node->promoted();
  }
}

// Repeats the request, as a tool does that waits for the drain's end: a new leader may not know of
// the drain.
void SimWorld::go_on_draining() {
  next_drain_ns_ = now_ns_ + 300 * kMs;
  const auto asked = std::ranges::find_if(nodes_, [](const auto& node) { return node->ready(); });
  if (asked == nodes_.end()) return;
  tell("node " + std::to_string(faults_.drained) + " is drained");
  (*asked)->cluster().ask("drain", "{\"node\":" + std::to_string(faults_.drained) + "}",
                          [this](const std::string& answer) {
                            const bool done = answer.find("\"done\":true") != std::string::npos;
                            // Objects that are put or read on the node meanwhile must still be
                            // moved.
                            drain_dones_ = done && may_end_drain_ ? drain_dones_ + 1 : 0;
                            if (drain_dones_ == 4) drain_done_ = true;
                          });
}

// Announced objects that a drained node still holds; empty: none.
std::string SimWorld::drain_left() const {
  if (faults_.drained == 0) return {};
  const std::string who = "node " + std::to_string(faults_.drained);
  if (!drain_done_) return "the drain of " + who + " does not end";
  const std::uint64_t left = nodes_[faults_.drained - 1]->store().live_count();
  return left == 0 ? std::string() : who + " is drained and holds " + std::to_string(left);
}

std::uint32_t SimWorld::partition_of(unsigned key) const {
  static const metadata::KeyHasher hasher(kSecret);
  return metadata::partition_of(hasher.hash(kNameSpace, key_text(key)),
                                static_cast<std::uint32_t>(epochs_.size()));
}

// Stripes that are left of incomplete objects; empty: none.
std::string SimWorld::stripes_left() const {
  std::map<std::uint64_t, std::pair<agent::StripeLabel, std::set<std::uint16_t>>> puts;
  for (const auto& node : nodes_) {
    for (const SimNode::Stripe& stripe : node->stripes()) {
      auto& [label, numbers] = puts[stripe.label.facts.put];
      label = stripe.label;
      numbers.insert(stripe.label.facts.number);
    }
  }
  for (const auto& [put, found] : puts) {
    const auto& [label, numbers] = found;
    if (numbers.size() == label.facts.count) continue;
    return "I8 " + std::to_string(numbers.size()) + " of " + std::to_string(label.facts.count) +
           " stripes of " + label.key + " are left in the end";
  }
  return {};
}

void SimWorld::read_everything() {
  std::vector<std::unique_ptr<Client>> readers;
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    for (unsigned key = 0; key < key_count_; ++key) {
      auto reader = std::make_unique<Client>();
      reader->id = static_cast<unsigned>(1000 + node);
      reader->node = node;
      reader->keys = {key};
      reader->is_last = true;
      readers.push_back(std::move(reader));
    }
  }
  const std::uint64_t deadline_ns = now_ns_ + 2'000 * kMs;
  clients_.swap(readers);  // the readers' pins count
  for (const auto& reader : clients_) {
    reader->begin_ns = now_ns_;
    reader->deadline_ns = deadline_ns;
    send_remote_request(*reader, agent::RemoteRequest::Kind::kFetch);
  }
  while (now_ns_ < deadline_ns + 1'500 * kMs && history_.failures().empty()) {
    bool all = true;
    for (const auto& reader : clients_)
      all &= reader->remote_request == nullptr || reader->remote_request->over();
    if (all) break;
    step(10 * kMs);
  }
  run_until(now_ns_ + 300 * kMs, 10 * kMs);  // until all readers have released the pins
}

// No fault of the past holds a removal up.
void SimWorld::remove_everything() {
  clients_.clear();
  std::vector<std::shared_ptr<agent::RemoteRequest>> removals;
  const std::uint64_t deadline_ns = now_ns_ + 2'000 * kMs;
  for (unsigned key = 0; key < key_count_; ++key) {
    clients_.push_back(std::make_unique<Client>());
    Client& client = *clients_.back();
    client.node = key % nodes_.size();
    client.keys = {key};
    client.is_last = true;
    client.begin_ns = now_ns_;
    client.deadline_ns = deadline_ns;
    client.remove = history_.begin_remove(key, memory_, now_ns_);
    send_remote_request(client, agent::RemoteRequest::Kind::kRemove);
    removals.push_back(client.remote_request);
  }
  run_until(deadline_ns, 10 * kMs);
  for (unsigned key = 0; key < key_count_; ++key) {
    const mc_status status = removals[key]->items[0].status;
    if (status != MC_OK && status != MC_NOT_FOUND) {
      history_.fail("I7 the last removal of " + key_text(key) + " ends with " +
                    mc_status_name(status));
    }
    for (const auto& node : nodes_) {
      const auto& index = node->store().index();
      if (node->disk_objects() != 0) {
        history_.fail("all keys are removed, and the disk of node " + std::to_string(node->id()) +
                      " has objects");
      }
      if (!index.find(key_text(key), index.hash(key_text(key)))) continue;
      history_.fail(key_text(key) + " is removed, and node " + std::to_string(node->id()) +
                    " holds the object");
    }
  }
}

std::string SimWorld::story() const {
  std::string text =
      "seed " + std::to_string(seed_) + ": " + std::to_string(nodes_.size()) + " nodes, " +
      std::to_string(clients_.size()) + " clients, " + std::to_string(key_count_) + " keys" +
      (epochs_.size() == 1 ? "" : ", " + std::to_string(epochs_.size()) + " partitions") +
      (masters_.size() == 1 ? "" : ", " + std::to_string(masters_.size()) + " masters") +
      (faults_.noise ? ", noise" : "") + (faults_.slow_links ? ", slow links" : "") +
      (faults_.small_pools ? ", small pools" : "") + (faults_.choices ? ", named hosts" : "") +
      (faults_.disks ? ", disks" : "") +
      (faults_.stripes ? ", stripes of " + std::to_string(stripe_bytes_) : "") +
      (faults_.drained != 0 ? ", node " + std::to_string(faults_.drained) + " is drained" : "") +
      (faults_.clock_jumps ? ", clock jumps" : "") + "\n";
  for (const std::string& line : story_) text += "  " + line + "\n";
  return text;
}

}  // namespace mc::sim
