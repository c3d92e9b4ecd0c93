// SPDX-License-Identifier: Apache-2.0
#include "cluster/cluster_fixture.h"

#include <unistd.h>

#include "libmc/client/admin.h"

namespace mc::cluster {

using conformance::AgentProcess;

ClusterTest::ClusterTest() { ::alarm(kTestSeconds); }

ClusterTest::~ClusterTest() {
  for (const Opened& opened : clients_) mc_close(opened.client);
  agents_.clear();
  ::alarm(0);
}

void ClusterTest::start(std::size_t agents, AgentOptions options, std::vector<std::string> master) {
  options_ = std::move(options);
  if (master.empty()) master = {"--cluster-store", "memory://", "--recover-ms", option_time(100)};
  master_ = std::make_unique<metadata::MasterProcess>(master);
  options_.try_emplace("masters", master_->address());
  options_.try_emplace("pool_bytes", "64MiB");
  options_.try_emplace("max_pool_bytes", "128MiB");
  options_.try_emplace("huge_pages", "off");
  for (std::size_t i = 0; i < agents; ++i) {
    agents_.push_back(std::make_unique<AgentProcess>());
    agents_.back()->start(options_);
  }
  wait_until_joined();
}

void ClusterTest::wait_until_joined() {
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    ASSERT_TRUE(until([&] {
      const Json::Value cluster = ask(i, "status")["cluster"];
      return cluster["master_ready"].asBool() && cluster["members"].asUInt64() >= agents_.size();
    })) << agents_[i]->log();
  }
}

void ClusterTest::start_agent(std::size_t number) {
  agents_[number]->start(options_);
  ASSERT_TRUE(until([&] { return ask(number, "status")["cluster"]["master_ready"].asBool(); }));
}

mc_client* ClusterTest::client(std::size_t agent, const std::string& name_space) {
  for (const Opened& opened : clients_) {
    if (opened.agent == agent && opened.name_space == name_space) return opened.client;
  }
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  const std::string socket = agents_[agent]->socket();
  options.agent = socket.c_str();
  options.name_space = name_space.c_str();
  options.timeout_ns = 5 * kSecondNs;
  mc_client* opened = nullptr;
  EXPECT_EQ(mc_open(&options, &opened), MC_OK) << mc_last_error();
  clients_.push_back({agent, name_space, opened});
  return opened;
}

void ClusterTest::close_clients(std::size_t agent) {
  std::erase_if(clients_, [&](const Opened& opened) {
    if (opened.agent != agent) return false;
    mc_close(opened.client);
    return true;
  });
}

mc_status ClusterTest::put(std::size_t agent, std::string_view key, std::string_view value,
                           const mc_put_options* options) {
  return mc_put(client(agent), conformance::slice(key), conformance::slice(value), options);
}

std::string ClusterTest::get(std::size_t agent, std::string_view key) {
  std::string value(64, '\0');
  std::size_t length = 0;
  mc_status status =
      mc_get(client(agent), conformance::slice(key), value.data(), value.size(), &length);
  if (status == MC_BUFFER_TOO_SMALL) {
    value.resize(length);
    status = mc_get(client(agent), conformance::slice(key), value.data(), value.size(), &length);
  }
  value.resize(length);
  return status == MC_OK ? value : "<" + std::string(mc_status_name(status)) + ">";
}

bool ClusterTest::exists(std::size_t agent, std::string_view key) {
  return mc_exists(client(agent), conformance::slice(key)) == MC_OK;
}

Json::Value ClusterTest::ask(std::size_t agent, const std::string& verb, Json::Value request) {
  request["verb"] = verb;
  auto answer = client::admin_call(agents_[agent]->socket(), request, kWatchdogNs);
  EXPECT_TRUE(answer) << (answer ? "" : answer.error().to_string());
  return answer ? *answer : Json::Value();
}

std::string ClusterTest::mcctl(std::size_t agent, const std::string& words) {
  const std::string command =
      MC_TEST_BIN "/mcctl --agent " + agents_[agent]->socket() + " " + words + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string all;
  char text[4096];
  while (std::fgets(text, sizeof text, pipe.get()) != nullptr) all += text;
  return all;
}

std::uint64_t ClusterTest::counter(std::size_t agent, const std::string& group,
                                   const std::string& name) {
  return ask(agent, "status")["cluster"][group][name].asUInt64();
}

std::size_t ClusterTest::holders(std::size_t agent, std::string_view key) {
  Json::Value request;
  request["key"] = std::string(key);
  return ask(agent, "where", request)["holders"].size();
}

}  // namespace mc::cluster
