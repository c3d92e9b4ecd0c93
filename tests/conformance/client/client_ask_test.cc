// SPDX-License-Identifier: Apache-2.0
//
// Questions to the agent through a client, and mc_ready().
#include <thread>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

using Ask = ClientTest;
MC_EVERYWHERE(Ask);

mc_status question(mc_client* client, std::string_view text, std::string* answer = nullptr) {
  const auto keep = [](void* context, const char* said, size_t size) {
    if (context != nullptr) static_cast<std::string*>(context)->assign(said, size);
  };
  return mc_ask(client, slice(text), keep, answer, 0);
}

TEST_P(Ask, TheAgentListsTheNamespacesObjects) {
  serve();
  mc_client* client = open();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(put(client, "listed." + std::to_string(i), "value"), MC_OK);
  }
  ASSERT_EQ(put(client, "other", "value"), MC_OK);
  std::string answer;
  const std::string list =
      R"({"verb":"ls","namespace":"default","prefix":"listed.","cursor":0,"limit":100})";
  ASSERT_EQ(question(client, list, &answer), MC_OK) << mc_last_error();
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(answer.find("\"listed." + std::to_string(i) + "\""), std::string::npos) << answer;
  }
  EXPECT_EQ(answer.find("other"), std::string::npos) << answer;
}

TEST_P(Ask, ARefusalIsAStatus) {
  serve();
  mc_client* client = open();
  EXPECT_EQ(question(client, R"({"verb":"ls","namespace":"nobody's"})"), MC_NO_SUCH_NAMESPACE);
  EXPECT_EQ(question(client, R"({"verb":"dance"})"), MC_UNSUPPORTED);
  EXPECT_NE(question(client, "no JSON"), MC_OK);
  EXPECT_EQ(question(client, ""), MC_INVALID_ARGUMENT);
  EXPECT_EQ(question(client, std::string(MC_MAX_QUESTION_BYTES + 1, ' ')), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_ask(client, slice("{}"), nullptr, nullptr, 0), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_ask(nullptr, slice("{}"), nullptr, nullptr, 0), MC_INVALID_ARGUMENT);
}

TEST_P(Ask, AValueOfAWrongTypeHarmsNothing) {
  serve();
  mc_client* client = open();
  for (const char* verb : {"status", "ls", "segments", "config", "resize", "create_namespace",
                           "drop_namespace", "set_capacity", "evict", "trace", "events", "where",
                           "drain", "replicate", "ping", "copy", "move", "task"}) {
    for (const char* value : {"\"text\"", "[1]", "{\"a\":1}", "-1", "1.5", "null", "true"}) {
      std::string request = R"({"verb":")" + std::string(verb) + "\"";
      for (const char* name :
           {"namespace",  "name",  "pool_bytes", "capacity_bytes", "policy", "mode",   "clustered",
            "free_bytes", "after", "prefix",     "cursor",         "limit",  "key",    "keys",
            "node",       "stop",  "replicas",   "targets",        "source", "target", "task"}) {
        request += ",\"" + std::string(name) + "\":" + value;
      }
      question(client, request + "}");
      ASSERT_EQ(question(client, R"({"verb":"status"})"), MC_OK) << request;
    }
  }
  EXPECT_EQ(question(client, R"({"verb":"create_namespace","name":"new","clustered":"yes"})"),
            MC_INVALID_ARGUMENT);
  EXPECT_NE(std::string(mc_last_error()).find("wrong type"), std::string::npos) << mc_last_error();
}

TEST_P(Ask, AThreadIsReadyOnceItHasCalled) {
  serve();
  mc_client* client = open();
  EXPECT_EQ(mc_ready(nullptr), 0);
  EXPECT_EQ(mc_exists(client, slice("key")), MC_NOT_FOUND);
  EXPECT_EQ(mc_ready(client), 1);
  std::thread([&] {
    EXPECT_EQ(mc_ready(client), 0);
    EXPECT_EQ(mc_exists(client, slice("key")), MC_NOT_FOUND);
    EXPECT_EQ(mc_ready(client), 1);
  }).join();
}

}  // namespace
}  // namespace mc::conformance
