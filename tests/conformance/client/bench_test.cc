// SPDX-License-Identifier: Apache-2.0
//
// mcctl bench beside the objects of others.
#include <sys/wait.h>

#include <cstdio>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

class Bench : public AgentTest {
 public:
  // Runs mcctl bench. Returns the exit status, and the output with the errors.
  int bench(const std::string& options, std::string& output) {
    const std::string command = "MC_AGENT=" + agent().socket() + " " MC_TEST_BIN "/mcctl bench " +
                                options + " --seconds 0.05 --rounds 2 --keys 100 2>&1";
    FILE* const pipe = ::popen(command.c_str(), "r");
    char text[4096];
    output.clear();
    while (std::fgets(text, sizeof text, pipe) != nullptr) output += text;
    return WEXITSTATUS(::pclose(pipe));
  }
};
INSTANTIATE_TEST_SUITE_P(, Bench, testing::Values(Setting{Place::kProcess, Mode::kDirect}),
                         setting_name);

TEST_P(Bench, NoObjectOfOthersIsEvicted) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  constexpr int kObjects = 100;
  for (int i = 0; i < kObjects; ++i) {
    const std::string key = std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, 60000)), MC_OK);
  }
  std::string output;
  EXPECT_EQ(bench("--pool-bytes 16MiB --cases get_copy,put,put_batch --sizes 4KiB,64KiB", output),
            0)
      << output;
  EXPECT_NE(output.find("put_batch x32, 2 clients"), std::string::npos) << output;
  for (int i = 0; i < kObjects; ++i) {
    EXPECT_EQ(exists(client, std::to_string(i)), MC_OK) << i;
  }
  Json::Value request;
  request["verb"] = "segments";
  EXPECT_EQ(ask(request)["segments"].size(), 1u) << "bench left its namespace";
}

TEST_P(Bench, AnExistingNamespaceMustBeEmpty) {
  serve({{"pool_bytes", "16MiB"}});
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", "value"), MC_OK);
  std::string output;
  EXPECT_EQ(bench("--existing --cases get_copy --sizes 4KiB", output), 1);
  EXPECT_NE(output.find("holds 1 objects"), std::string::npos) << output;
  EXPECT_EQ(get(client, "key"), "value");
  ASSERT_EQ(remove(client, "key"), MC_OK);
  EXPECT_EQ(bench("--existing --cases get_copy --sizes 4KiB", output), 0) << output;
}

TEST_P(Bench, AnAgentWithTooLittleMemoryIsAnErrorWithARemedy) {
  serve({{"pool_bytes", "8MiB"}});
  std::string output;
  EXPECT_EQ(bench("--pool-bytes 100TiB --cases get_copy", output), 1);
  EXPECT_NE(output.find("--pool-bytes 256MiB"), std::string::npos) << output;
  EXPECT_EQ(bench("--pool-bytes much --cases get_copy", output), 2);
}

}  // namespace
}  // namespace mc::conformance
