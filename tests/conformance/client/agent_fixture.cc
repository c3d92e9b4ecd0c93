// SPDX-License-Identifier: Apache-2.0
#include "conformance/client/agent_fixture.h"

#include <json/reader.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/embedded.h"
#include "keepers.h"
#include "libmc/base/fd.h"
#include "libmc/client/admin.h"
#include "pool_memory.h"
#include "process_stop.h"

namespace mc::conformance {

namespace {

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void register_once() {
  static const bool done = [] {
    mc::agent::register_embedded_agent();
    return true;
  }();
  static_cast<void>(done);
}

// For an embedded agent. Its client asks, because no socket leads to the agent.
bool has_memory(mc_client* client) {
  const auto keep = [](void* context, const char* text, std::size_t size) {
    static_cast<std::string*>(context)->assign(text, size);
  };
  std::string text;
  const mc_status status =
      mc_ask(client, slice(R"({"verb":"segments"})"), keep, &text, kWatchdogNs);
  EXPECT_EQ(status, MC_OK) << mc_last_error();
  if (status != MC_OK) return true;
  Json::Value answer;
  std::istringstream(text) >> answer;
  return pools_have_memory(answer);
}

}  // namespace

std::string setting_name(const testing::TestParamInfo<Setting>& info) {
  return std::string(info.param.place == Place::kProcess ? "Agent" : "Embedded") +
         (info.param.mode == Mode::kDirect ? "Direct" : "Isolated");
}

// ---- Agent ------------------------------------------------------------------------------------

AgentProcess::AgentProcess() {
  std::string pattern = testing::TempDir() + "mc-XXXXXX";
  directory_ = ::mkdtemp(pattern.data());
}

AgentProcess::~AgentProcess() {
  if (running()) {
    pause(false);
    stop();
  } else {
    end_keeper(directory_);
  }
  if (testing::Test::HasFailure()) {
    std::fprintf(stderr, "---- the agent's log\n%s----\n", log().c_str());
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void AgentProcess::start(const AgentOptions& options) {
  options_ = options;
  std::vector<std::string> words{(MC_TEST_BIN "/mc-agent"), "--runtime-dir", directory_,
                                 "--keep-seconds", option_time(20)};
  for (const auto& [name, value] : options) {
    std::string flag = "--" + name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    words.push_back(flag);
    words.push_back(value);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log_path = directory_ + "/agent.log";
  std::FILE* const log_file = std::fopen(log_path.c_str(), "ae");
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(::fileno(log_file), STDERR_FILENO);
    if (!failpoint_.empty()) ::setenv("MC_FAILPOINTS", failpoint_.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::fclose(log_file);
  auto connected = connect_unix(socket(), kWatchdogNs);
  ASSERT_TRUE(connected) << "no agent: " << log();
  until([&] {
    const auto answer = client::admin_call(socket(), pool_memory_question(), kWatchdogNs);
    return answer ? pools_have_memory(*answer) : has_ended();
  });
}

bool AgentProcess::has_ended() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

void AgentProcess::end(int signal) {
  ASSERT_TRUE(running());
  ::kill(pid_, signal);
  int status = 0;
  ASSERT_EQ(::waitpid(pid_, &status, 0), pid_);
  pid_ = 0;
  if (signal == SIGKILL) {
    EXPECT_TRUE(WIFSIGNALED(status)) << "the agent had ended before";
    return;
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
}

int AgentProcess::wait_for_end() {
  int status = 0;
  EXPECT_TRUE(running() && ::waitpid(pid_, &status, 0) == pid_);
  pid_ = 0;
  return status;
}

void AgentProcess::wait_until_killed() {
  const int status = wait_for_end();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "wait status " << status;
}

void AgentProcess::pause(bool paused) {
  if (paused) {
    stop_process(pid_);
  } else {
    ::kill(pid_, SIGCONT);
  }
}

std::string AgentProcess::log() const { return text_of_file(directory_ + "/agent.log"); }

// ---- Fixture ----------------------------------------------------------------------------------

ClientTest::ClientTest() {
  register_once();
  // The default action of SIGALRM ends the program, so a test that hangs fails the whole program.
  ::alarm(kTestSeconds);
}

ClientTest::~ClientTest() {
  while (!clients_.empty()) close(clients_.back());
  agent_.reset();
  ::alarm(0);
}

void ClientTest::serve(AgentOptions options) {
  options.try_emplace("pool_bytes", "64MiB");
  options.try_emplace("max_pool_bytes", "512MiB");
  options.try_emplace("log_level", "info");
  if (isolated()) {
    options["mode"] = "isolated";
    options["isolated_allow_same_user"] = "true";
  }
  if (embedded()) {
    embedded_config_.clear();
    for (const auto& [name, value] : options) {
      if (name != "log_level") embedded_config_ += name + "=" + value + "\n";
    }
    return;
  }
  agent_ = std::make_unique<AgentProcess>();
  agent_->start(options);
}

mc_status ClientTest::try_open(mc_client** client,
                               const std::function<void(mc_open_options&)>& change) {
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  std::string path;
  if (embedded()) {
    options.agent = "embedded";
    options.embedded_config = embedded_config_.c_str();
  } else {
    path = agent_->socket();
    options.agent = path.c_str();
  }
  options.timeout_ns = kWatchdogNs;
  if (change) change(options);
  const mc_status status = mc_open(&options, client);
  if (status == MC_OK && embedded()) {
    until([&] { return has_memory(*client); });
  }
  return status;
}

mc_client* ClientTest::open(const std::function<void(mc_open_options&)>& change) {
  mc_client* client = nullptr;
  const mc_status status = try_open(&client, change);
  EXPECT_EQ(status, MC_OK) << mc_last_error();
  if (client != nullptr) clients_.push_back(client);
  return client;
}

void ClientTest::close(mc_client* client) {
  std::erase(clients_, client);
  mc_close(client);
}

void ClientTest::wait_for_memory() {
  until([&] { return pools_have_memory(ask(pool_memory_question())); });
}

Json::Value ClientTest::ask(const Json::Value& request) {
  auto answer = client::admin_call(agent_->socket(), request, kWatchdogNs);
  EXPECT_TRUE(answer) << answer.error().to_string();
  return answer ? *answer : Json::Value();
}

Json::Value ClientTest::tenant(const std::string& name) {
  Json::Value request;
  request["verb"] = "status";
  const Json::Value status = ask(request);
  for (const Json::Value& one : status["namespaces"]) {
    if (one["name"].asString() == name) return one;
  }
  return {};
}

Json::Value ClientTest::session() {
  Json::Value request;
  request["verb"] = "status";
  const Json::Value sessions = ask(request)["sessions"];
  EXPECT_EQ(sessions.size(), 1u);
  return sessions[0];
}

// ---- Short words ------------------------------------------------------------------------------

int in_child(const std::vector<std::function<bool()>>& steps) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kTestSeconds);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!steps[i]()) ::_exit(static_cast<int>(i) + 1);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

mc_slice slice(std::string_view text) { return {text.data(), text.size()}; }

std::string content(std::string_view key, std::size_t size) {
  std::uint64_t state = std::hash<std::string_view>{}(key) | 1;
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at < size; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + at, &state, std::min<std::size_t>(8, size - at));
  }
  return bytes;
}

mc_status put(mc_client* client, std::string_view key, std::string_view value,
              const mc_put_options* options) {
  return mc_put(client, slice(key), slice(value), options);
}

mc_put_options put_options(mc_pin pin, std::uint64_t timeout_ns) {
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  options.pin = pin;
  options.timeout_ns = timeout_ns;
  return options;
}

std::optional<std::string> get(mc_client* client, std::string_view key) {
  std::size_t length = 0;
  mc_status status = mc_get(client, slice(key), nullptr, 0, &length);
  // Between two calls another thread may put a longer value.
  while (status == MC_BUFFER_TOO_SMALL) {
    std::string bytes(length, '\0');
    status = mc_get(client, slice(key), bytes.data(), bytes.size(), &length);
    if (status != MC_OK) continue;
    bytes.resize(length);
    return bytes;
  }
  return std::nullopt;
}

mc_status exists(mc_client* client, std::string_view key) { return mc_exists(client, slice(key)); }

mc_status remove(mc_client* client, std::string_view key) {
  return mc_remove(client, slice(key), 0);
}

mc_stat_info stat(mc_client* client, std::string_view key) {
  mc_stat_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(mc_stat(client, slice(key), &info), MC_OK) << key << ": " << mc_last_error();
  return info;
}

std::string bytes_of(const mc_view& view) {
  mc_slice spans[MC_MAX_EXTENTS];
  const std::size_t count = mc_view_spans(&view, spans, MC_MAX_EXTENTS);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.append(static_cast<const char*>(spans[i].data), spans[i].size);
  }
  return bytes;
}

std::vector<mc_slice> cut(std::string_view text, const std::vector<std::size_t>& sizes) {
  std::vector<mc_slice> pieces;
  for (std::size_t at = 0, i = 0; at < text.size(); ++i) {
    const std::size_t size = std::min(sizes[i % sizes.size()], text.size() - at);
    pieces.push_back({text.data() + at, size});
    at += size;
  }
  return pieces;
}

testing::AssertionResult says(mc_status wanted, mc_status got) {
  const std::string text = mc_last_error();
  if (got != wanted) {
    return testing::AssertionFailure()
           << mc_status_name(got) << " (" << text << ") instead of " << mc_status_name(wanted);
  }
  if (wanted != MC_OK && text.empty())
    return testing::AssertionFailure() << "mc_last_error() is empty";
  return testing::AssertionSuccess();
}

void until(const std::function<bool()>& holds) {
  while (!holds()) ::sched_yield();
}

std::size_t push_out(mc_client* client, std::string_view victim, std::size_t size,
                     const std::string& prefix) {
  std::size_t count = 0;
  while (exists(client, victim) == MC_OK) {
    const std::string key = prefix + std::to_string(count++);
    EXPECT_EQ(put(client, key, content(key, size)), MC_OK) << mc_last_error();
    if (testing::Test::HasFailure()) break;
  }
  return count;
}

}  // namespace mc::conformance
