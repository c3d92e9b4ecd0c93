// SPDX-License-Identifier: Apache-2.0
#include "master/master_host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <regex>
#include <thread>

#include "conformance/store/store_servers.h"
#include "libmc/base/clock.h"
#include "metadata/master/master_options.h"
#include "process_stop.h"

namespace mc::metadata {

namespace {

constexpr int kPortAttempts = 5;
// Returns the pid; output becomes its standard error, or -1.
pid_t spawn(const std::vector<std::string>& flags, int& output) {
  std::vector<std::string> words = {MC_TEST_BIN "/mc-master"};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 2);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  output = ends[0];
  return pid;
}

std::vector<std::string> with_timers(std::vector<std::string> flags) {
  const MasterOptions usual;
  for (const auto& [name, time_ms] :
       {std::pair("--suspect-ms", usual.suspect_ms), std::pair("--gone-ms", usual.gone_ms),
        std::pair("--leader-ttl-ms", usual.leader_ttl_ms)}) {
    if (std::ranges::count(flags, name) == 0)
      flags.insert(flags.end(), {name, option_time(time_ms)});
  }
  return flags;
}

}  // namespace

MasterProcess::MasterProcess(std::vector<std::string> flags, std::string host)
    : flags_(with_timers(std::move(flags))), host_(std::move(host)) {
  std::optional<std::string> refusal;
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    port_ = conformance::free_port();
    refusal = try_start();
    if (!refusal) return;
  }
  ADD_FAILURE() << "mc-master did not start: " << refusal.value_or("");
}

MasterProcess::~MasterProcess() { kill_hard(); }

void MasterProcess::start() {
  const auto refusal = try_start();
  if (refusal) ADD_FAILURE() << "mc-master did not start: " << refusal.value_or("");
}

std::optional<std::string> MasterProcess::try_start() {
  std::vector<std::string> flags = flags_;
  flags.insert(flags.end(), {"--listen", address()});
  int output = -1;
  pid_ = spawn(flags, output);
  std::string said;
  char bytes[512];
  while (said.find("event=ready") == std::string::npos) {
    const ssize_t count = ::read(output, bytes, sizeof(bytes));
    if (count <= 0) {
      ::close(output);
      kill_hard();
      return said;
    }
    said.append(bytes, static_cast<std::size_t>(count));
  }
  // Drain the rest, because a full pipe would stop the process.
  std::thread([output] {
    char rest[4096];
    while (::read(output, rest, sizeof(rest)) > 0) continue;
    ::close(output);
  }).detach();
  return std::nullopt;
}

void MasterProcess::kill_hard() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void MasterProcess::pause(bool paused) {
  if (paused) {
    stop_process(pid_);
  } else {
    ::kill(pid_, SIGCONT);
  }
}

std::pair<int, std::string> run_master_once(const std::vector<std::string>& flags) {
  int output = -1;
  const pid_t pid = spawn(flags, output);
  std::string said;
  char bytes[512];
  for (ssize_t count; (count = ::read(output, bytes, sizeof(bytes))) > 0;) {
    said.append(bytes, static_cast<std::size_t>(count));
    // The process started unexpectedly. End it; the exit status tells the caller.
    if (said.find("event=ready") != std::string::npos) ::kill(pid, SIGTERM);
  }
  ::close(output);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, said};
}

std::uint64_t soon() { return now_ns() + kWatchdogNs; }

std::unique_ptr<MasterClient> tool(const MasterClientOptions& options) {
  auto client = MasterClient::create(options, nullptr);
  EXPECT_TRUE(client.has_value());
  return std::move(*client);
}

wire::StatsAnswer stats(MasterClient& client) {
  return wait_for<wire::StatsAnswer>([&](auto done) { client.stats(soon(), std::move(done)); })
      .value_or(wire::StatsAnswer{});
}

KeyHash hash_of(const std::string& key) {
  return KeyHasher(key_hash_secret("default", "")).name("ns", key);
}

std::vector<std::string> names(const std::string& prefix, int count) {
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) keys.push_back(prefix + std::to_string(i));
  return keys;
}

Result<LocateAnswer> locate(MasterClient& client, const std::vector<std::string>& keys,
                            std::uint32_t wait_ms) {
  wire::Locate request;
  for (const std::string& key : keys) request.keys.push_back(hash_of(key));
  request.wait_ms = wait_ms;
  return wait_for<LocateAnswer>(
      [&](auto done) { client.locate(request, soon(), std::move(done)); });
}

HoldingAgent::HoldingAgent(MasterClientOptions options, NodeId node, Incarnation incarnation,
                           const std::vector<std::string>& held, bool stalling, int report_waits)
    : report_waits_(report_waits), stalling_(stalling) {
  for (const std::string& key : held) {
    objects_[key] = {{hash_of(key), 1, 4096, {}, PublishItem::What::kHolds}};
  }
  options.role = auth::Role::kAgent;
  const std::string address = "127.0.0.1:" + std::to_string(8 + node);
  options.descriptor = {node, incarnation, address, node, 0, 1ull << 30};
  auto client = MasterClient::create(options, this);
  EXPECT_TRUE(client.has_value()) << client.error().to_string();
  client_ = std::move(*client);
}

void HoldingAgent::put(const std::vector<std::string>& keys, std::uint8_t replicas) {
  // The master may have been asked before it led. A report then replaces the lost publishes.
  ASSERT_TRUE(until_ready());
  for (std::size_t first = 0; first < keys.size(); first += wire::kMaxItems) {
    std::vector<PublishItem> items;
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t i = first; i < std::min(keys.size(), first + wire::kMaxItems); ++i) {
        PublishItem item{hash_of(keys[i]), 1, 4096, {}, PublishItem::What::kHolds};
        item.attributes.replicas = replicas;
        objects_[keys[i]] = {item};
        items.push_back(item);
      }
    }
    const std::uint64_t removals = client_->removals_seen();
    const auto verdicts = wait_for<std::vector<Verdict>>(
        [&](auto done) { client_->publish(std::move(items), removals, soon(), std::move(done)); });
    ASSERT_TRUE(verdicts.has_value()) << verdicts.error().to_string();
    for (const Verdict verdict : *verdicts) ASSERT_EQ(verdict, Verdict::kAccepted);
  }
}

bool HoldingAgent::holds(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return objects_.contains(key) || copies_held_.contains(hash_of(key));
}

bool HoldingAgent::until_ready() {
  return until([&] { return client_->ready(); });
}

Load HoldingAgent::load() {
  const std::lock_guard lock(mutex_);
  return {.used_bytes = 4096 * (objects_.size() + copies_held_.size())};
}

bool HoldingAgent::next_report(bool first, std::vector<PublishItem>& items) {
  const std::lock_guard lock(mutex_);
  if (first) reported_.clear();
  if (report_waits_ > 0 && report_waits_-- > 0) return false;
  auto at = objects_.upper_bound(reported_);
  for (; at != objects_.end() && items.size() < 500; ++at) {
    items.push_back(at->second.item);
    reported_ = at->first;
  }
  if (first) {
    for (const auto& [hash, item] : copies_held_) items.push_back(item);
  }
  return true;
}

void HoldingAgent::on_report_verdict(const PublishItem& item, Verdict verdict) {
  if (verdict == Verdict::kFull) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(objects_, [&](const auto& each) { return each.second.item.hash == item.hash; });
}

void HoldingAgent::on_drop(const wire::Drop& order, Done done) {
  if (busy_.fetch_sub(1) > 0) {
    done({MC_BUSY, "too much to do"});
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    for (const RemoveItem& item : order.items) {
      std::erase_if(objects_, [&](const auto& each) { return each.second.item.hash == item.hash; });
      copies_held_.erase(item.hash);
    }
  }
  done({});
}

bool HoldingAgent::matches(const wire::Match& match, const std::string& key) {
  if (match.kind == wire::Match::Kind::kPrefix) return key.starts_with(match.pattern);
  return std::regex_search(key, std::regex(match.pattern));
}

void HoldingAgent::on_drop_matching(const wire::Match& match,
                                    Reply<wire::RemoveMatchingAnswer> reply) {
  std::vector<PublishItem> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (stalling_) {
      stalled_.emplace_back([this, match, reply] { on_drop_matching(match, reply); });
      return;
    }
    std::erase_if(objects_, [&](const auto& each) {
      if (!matches(match, each.first)) return false;
      dropped.push_back(each.second.item);
      dropped.back().what = PublishItem::What::kDropped;
      return true;
    });
  }
  const std::uint64_t count = dropped.size();
  client_->publish(std::move(dropped), client_->removals_seen(), soon(),
                   [](const Result<std::vector<Verdict>>&) {});
  reply(wire::RemoveMatchingAnswer{count, 0});
}

void HoldingAgent::stall_matching(bool stalled) {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    stalling_ = stalled;
    if (!stalled) waiting.swap(stalled_);
  }
  for (const auto& go_on : waiting) go_on();
}

bool HoldingAgent::has_stalled() {
  const std::lock_guard lock(mutex_);
  return !stalled_.empty();
}

void HoldingAgent::on_list(const wire::Match& match, Reply<wire::ListAnswer> reply) {
  wire::ListAnswer answer;
  const std::lock_guard lock(mutex_);
  for (auto at = objects_.upper_bound(match.after); at != objects_.end(); ++at) {
    if (!matches(match, at->first)) continue;
    if (answer.keys.size() >= match.limit) {
      answer.more = true;
      break;
    }
    answer.keys.push_back({at->first, at->second.item.bytes});
  }
  reply(answer);
}

void HoldingAgent::on_copy(const wire::Copy& order, Done done) {
  PublishItem item{order.key, order.version, order.bytes, {}, PublishItem::What::kHolds};
  item.attributes.replicas = 2;
  {
    const std::lock_guard lock(mutex_);
    copies_held_[order.key] = item;
  }
  ++copies_;
  client_->publish({item}, client_->removals_seen(), soon(),
                   [done](const Result<std::vector<Verdict>>& verdicts) {
                     const bool ok = verdicts && verdicts->at(0) == Verdict::kAccepted;
                     done(ok ? Status() : Status(MC_NOT_FOUND, "the copy was not taken"));
                   });
}

}  // namespace mc::metadata
