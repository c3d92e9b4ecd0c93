// SPDX-License-Identifier: Apache-2.0
#include "crash/cell.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "crash/worker.h"
#include "defect.h"
#include "libmc/base/clock.h"

namespace mc::crash {

namespace {

// Time that a stopped agent stays stopped if the bystander cannot finish without the agent.
constexpr std::uint64_t kStopNs = 50'000'000;
const std::string kTimeoutMs = option_time(8000);

std::vector<std::string> failpoint_environment(const CellOrder& order) {
  return {"MC_FAILPOINTS=" + order.failpoints, "MC_FAILPOINT_FD=" + std::to_string(order.pause_fd)};
}

HostOptions host_options(const CellOrder& order) {
  HostOptions options;
  options.pool_mib = order.pool_mib;
  options.with_isolated = order.isolated;
  return options;
}

}  // namespace

Cell::Cell(const CellOrder& order) : order_(order), host_(host_options(order)) {
  if (order_.on_disk) {
    host_.options().flags = {"--tier-paths", host_.directory() + "/disk", "--tier-bytes", "64MiB"};
  }
  host_.while_waiting([this] { look_at_processes(); });
  host_.serve();
  bystander_ = start_client(false);
  actor_ = start_client(order_.victim == Victim::kActor);
  allow(tell(bystander_, "open " + name_space() + " " + kTimeoutMs).status, {MC_OK},
        "the bystander's open");
}

Cell::~Cell() = default;

void Cell::fail(const std::string& what) {
  if (!failed_) {
    ADD_FAILURE() << what << "\n" << host_.log_text();
  }
  failed_ = true;
}

void Cell::start_agent(bool armed) {
  armed_ = armed;
  if (armed) {
    host_.start_agent(failpoint_environment(order_), order_.pause_fd);
  } else {
    host_.start_agent();
  }
}

Child Cell::start_client(bool armed) {
  Command command = client_command(kScriptedRole, host_);
  if (armed) {
    command.environment = failpoint_environment(order_);
    command.passed_fd = order_.pause_fd;
  }
  return Child(command);
}

void Cell::evict_to_disk() {
  Json::Value request;
  request["verb"] = "evict";
  request["namespace"] = name_space();
  request["free_bytes"] = Json::Value::UInt64{order_.pool_mib << 20};
  // A step of the agent is bounded. After a kill, the next agent answers.
  for (;;) {
    const Json::Value answer = host_.ask(request);
    if (!answer["done"].isBool()) return fail("evict: " + answer.toStyledString());
    if (answer["done"].asBool() || answer["exhausted"].asBool()) return;
    if (answer["evicted"] == 0) wait_for_disk();
  }
}

void Cell::wait_for_disk() {
  const bool written = host_.status_becomes([&](const Json::Value& status) {
    return pool_in(status, name_space())["limbo_bytes"].asUInt64() == 0;
  });
  if (!written) fail("evicted objects stay on their way to the disk");
}

void Cell::begin() {
  if (order_.victim == Victim::kAgent) restart_agent();
}

void Cell::restart_agent() {
  host_.kill_agent();
  start_agent(order_.victim == Victim::kAgent);
}

// ---- Processes ----------------------------------------------------------------------------------

void Cell::look_at_processes() {
  switch (host_.agent().look()) {
    case Child::State::kKilled:
      if (!armed_ || host_.agent().exit_status() != SIGKILL) fail("the agent died by itself");
      reached_ = true;
      start_agent(false);
      break;
    case Child::State::kEnded:
      fail("the agent ended by itself");
      start_agent(false);
      break;
    case Child::State::kStopped: {
      reached_ = true;
      bystander_.say("get by-0");
      bystander_owes_answer_ = true;
      const std::uint64_t until_ns = now_ns() + kStopNs;
      std::uint64_t now = now_ns();
      while (now < until_ns && !wait_readable(bystander_.output(), until_ns - now)) now = now_ns();
      host_.agent().signal(SIGCONT);
      break;
    }
    case Child::State::kRunning:
      break;
  }
  if (!actor_.alive()) return;
  switch (actor_.look()) {
    case Child::State::kKilled:
      if (actor_.exit_status() != SIGKILL) fail("the actor crashed");
      reached_ = true;
      break;
    case Child::State::kEnded:
      fail("the actor ended by itself");
      break;
    case Child::State::kStopped:
      reached_ = true;
      bystander_works();
      actor_.signal(SIGCONT);
      break;
    case Child::State::kRunning:
      break;
  }
}

// An event of another process is no reason to wait.
void Cell::bystander_works() {
  const std::string key = "by-work";
  const std::string version = std::to_string(++version_);
  const mc_status put = tell(bystander_, "upsert " + key + " " + version + " 4096").status;
  const Outcome got = tell(bystander_, "get " + key);
  const mc_status removed = tell(bystander_, "remove " + key).status;
  if (put != MC_OK || (!evicting_ && (got.status != MC_OK || removed != MC_OK))) {
    fail(std::string("the bystander is held up: put ") + mc_status_name(put) + ", get " +
         mc_status_name(got.status) + ", remove " + mc_status_name(removed));
  }
}

std::optional<std::string> Cell::answer_of(Child& client) {
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  for (;;) {
    if (auto line = client.line()) return line;
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) break;
    wait_for_any({client.output()}, deadline_ns - now);
    look_at_processes();
    const bool ended = !client.read_more() && !client.alive();
    if (ended && !client.line()) return std::nullopt;
  }
  fail("an operation does not end");
  return std::nullopt;
}

Cell::Outcome Cell::tell(Child& client, const std::string& line) {
  look_at_processes();
  if (!client.alive() || failed_) return {};
  if (&client == &bystander_ && bystander_owes_answer_) {
    bystander_owes_answer_ = false;
    static_cast<void>(answer_of(bystander_));
  }
  client.say(line);
  const auto text = answer_of(client);
  if (!text) return {};
  Outcome outcome;
  int status = 0;
  std::istringstream(*text) >> status >> outcome.version;
  outcome.status = static_cast<mc_status>(status);
  outcome.answered = true;
  return outcome;
}

void Cell::allow(mc_status status, std::initializer_list<mc_status> fine, const std::string& what) {
  if (std::find(fine.begin(), fine.end(), status) != fine.end()) return;
  fail(what + " says " + mc_status_name(status));
}

// ---- Operations ---------------------------------------------------------------------------------

mc_status Cell::open() {
  const Outcome outcome = tell(actor_, "open " + name_space() + " " + kTimeoutMs);
  allow(outcome.status, {MC_OK}, "open");
  actor_open_ = true;
  return outcome.status;
}

mc_status Cell::close() {
  actor_open_ = false;
  return tell(actor_, "close").status;
}

mc_status Cell::store(const char* verb, const std::string& key, std::size_t size, bool upsert) {
  if (!actor_.alive()) return MC_CLOSED;
  const std::uint64_t version = ++version_;
  Versions before = model_.contains(key) ? model_[key] : Versions{0};
  model_[key] = before;
  model_[key].insert(version);
  const Outcome outcome = tell(actor_, std::string(verb) + " " + key + " " +
                                           std::to_string(version) + " " + std::to_string(size));
  if (!outcome.answered) return MC_CLOSED;
  allow(outcome.status, {MC_OK}, std::string(verb) + " " + key);
  if (outcome.status != MC_OK || evicting_) return outcome.status;
  if (upsert) {
    model_[key] = {version};
  } else if (!before.contains(0)) {
    model_[key] = before;
  } else {
    model_[key].erase(0);
  }
  return outcome.status;
}

mc_status Cell::put(const std::string& key, std::size_t size) {
  return store("put", key, size, false);
}
mc_status Cell::upsert(const std::string& key, std::size_t size) {
  return store("upsert", key, size, true);
}
mc_status Cell::put_from_session_memory(const std::string& key, std::size_t size) {
  return store("alloc", key, size, false);
}
mc_status Cell::commit(const std::string& key, std::size_t size) {
  return store("commit", key, size, false);
}

mc_status Cell::store_many(const char* verb, const std::vector<std::string>& keys,
                           bool all_or_none) {
  if (!actor_.alive()) return MC_CLOSED;
  const std::uint64_t version = ++version_;
  std::string line = std::string(verb) + " " + std::to_string(version) + " 4096";
  for (const std::string& key : keys) {
    line += " " + key;
    model_[key] = {0, version};
  }
  if (all_or_none) groups_.emplace_back(keys.begin(), keys.end());
  const Outcome outcome = tell(actor_, line);
  if (!outcome.answered) return MC_CLOSED;
  // If the agent ended in the middle of a group, the client does not repeat the group: the group is
  // absent, and the status says so.
  const bool may_abort = all_or_none && order_.victim == Victim::kAgent;
  if (may_abort && outcome.status == MC_GROUP_ABORTED) {
    for (const std::string& key : keys) model_[key] = {0};
  } else {
    allow(outcome.status, {MC_OK}, verb);
    for (const std::string& key : keys) model_[key] = {version};
  }
  return outcome.status;
}

mc_status Cell::group(const std::vector<std::string>& keys) {
  return store_many("group", keys, true);
}
mc_status Cell::batch(const std::vector<std::string>& keys) {
  return store_many("batch", keys, false);
}

void Cell::check_read(const std::string& key, const Outcome& outcome) {
  if (!outcome.answered) return;
  allow(outcome.status, {MC_OK, MC_NOT_FOUND}, "get " + key);
  const std::uint64_t version = static_cast<std::uint64_t>(std::max(outcome.version, 0L));
  Versions& allowed = model_.try_emplace(key, Versions{0}).first->second;
  if (outcome.version < 0) fail(kWrongBytes + ("get " + key + " returned bytes of no put"));
  if (allowed.contains(version)) return;
  if (version == 0 && evicting_) return;
  std::string expected;
  for (const std::uint64_t one : allowed) expected += " " + std::to_string(one);
  fail((version == 0 ? kLostObject : kWrongBytes) + ("get " + key + " returned version ") +
       std::to_string(version) + ", expected one of" + expected);
}

mc_status Cell::get(const std::string& key) {
  const Outcome outcome = tell(actor_, "get " + key);
  check_read(key, outcome);
  return outcome.status;
}
mc_status Cell::view(const std::string& key) {
  const Outcome outcome = tell(actor_, "view " + key);
  check_read(key, outcome);
  return outcome.status;
}
mc_status Cell::check_views() {
  const Outcome outcome = tell(actor_, "check");
  allow(outcome.status, {MC_OK}, "a held view");
  return outcome.status;
}
mc_status Cell::release_views() {
  const Outcome outcome = tell(actor_, "release");
  allow(outcome.status, {MC_OK}, "a held view");
  return outcome.status;
}

mc_status Cell::remove(const std::string& key) {
  if (!actor_.alive()) return MC_CLOSED;
  Versions& versions = model_.try_emplace(key, Versions{0}).first->second;
  const bool may_miss = versions.contains(0) || evicting_ || order_.victim == Victim::kAgent;
  versions.insert(0);
  const Outcome outcome = tell(actor_, "remove " + key);
  if (!outcome.answered) return MC_CLOSED;
  // A repeated remove finds nothing if the first remove was done before the agent's end.
  allow(outcome.status, {MC_OK, may_miss ? MC_NOT_FOUND : MC_OK}, "remove " + key);
  model_[key] = {0};
  return outcome.status;
}

mc_status Cell::reserve(std::size_t size) {
  const Outcome outcome = tell(actor_, "reserve " + std::to_string(size));
  allow(outcome.status, {MC_OK}, "reserve");
  return outcome.status;
}
mc_status Cell::abandon() { return tell(actor_, "abandon").status; }
mc_status Cell::ping() {
  const Outcome outcome = tell(actor_, "ping");
  allow(outcome.status, {MC_OK}, "ping");
  return outcome.status;
}

void Cell::kill_actor() {
  actor_.signal(SIGKILL);
  if (actor_.alive()) actor_.wait_for_end();
  // The scenario tests the agent's reaction.
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (bystander_.alive() && now_ns() < deadline_ns) {
    if (tell(bystander_, "ping").status == MC_OK) return;
  }
}

void Cell::resize(std::uint64_t pool_mib) {
  Json::Value request;
  request["verb"] = "resize";
  request["namespace"] = name_space();
  request["pool_bytes"] = Json::Value::UInt64{pool_mib << 20};
  host_.ask(request);
}

void Cell::prepare(const std::vector<std::string>& keys, std::size_t size) {
  for (const std::string& key : keys) {
    const std::uint64_t version = ++version_;
    model_[key] = {version};
    allow(
        tell(bystander_, "put " + key + " " + std::to_string(version) + " " + std::to_string(size))
            .status,
        {MC_OK}, "a put of the bystander");
  }
}

// ---- The end ------------------------------------------------------------------------------------

void Cell::finish() {
  // An answer shows that the agent lives; silence shows that the agent has just met the failpoint.
  if (armed_) host_.status();
  look_at_processes();
  if (armed_) {
    // The following steps must not meet the failpoint.
    host_.agent().signal(SIGCONT);
    host_.kill_agent();
    start_agent(false);
  }
  if (actor_.alive() && actor_open_) {
    allow(tell(actor_, "release").status, {MC_OK}, "a held view");
    allow(tell(actor_, "ping").status, {MC_OK}, "ping at the end");
  }
  const pid_t bystander = bystander_.pid();
  if (!actor_.alive()) {
    const bool alone = host_.status_becomes([&](const Json::Value& status) {
      return status["sessions"].size() == 1 && status["sessions"][0]["pid"].asInt() == bystander;
    });
    if (!alone) fail("a dead client's session stays");
  }
  for (const auto& [key, versions] : model_) {
    check_read(key, tell(bystander_, "get " + key));
  }
  for (const std::set<std::string>& group : groups_) {
    std::size_t present = 0;
    for (const std::string& key : group) {
      present += tell(bystander_, "get " + key).status == MC_OK ? 1u : 0u;
    }
    if (present != 0 && present != group.size() && !evicting_) fail("a part of a group is there");
  }
  if (failed_) return;
  if (const std::string error = accounting_error(host_, name_space()); !error.empty()) fail(error);
  static_cast<void>(tell(actor_, "close"));
  static_cast<void>(tell(bystander_, "close"));
  actor_ = Child();
  bystander_ = Child();
  if (const std::string error = emptying_error(host_, name_space()); !error.empty()) fail(error);
  const unsigned expected =
      Host::kNodeDescriptors + (order_.isolated ? 2 : 1) * Host::kPoolDescriptors;
  if (const unsigned held = host_.await_descriptors(expected); held != expected) {
    fail("the keeper holds " + std::to_string(held) + " files, not " + std::to_string(expected));
  }
}

}  // namespace mc::crash
