// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace {

// The report of mcctl replay --json for the first requests of the recorded hour, without times.
std::string replay(const std::string& directory, const std::string& options) {
  const std::string trace = directory + "/trace.jsonl";
  std::ifstream whole(MC_TEST_DATA "/conversation_trace.jsonl");
  std::ofstream part(trace);
  std::string line;
  for (int i = 0; i < 1500 && std::getline(whole, line); ++i) part << line << '\n';
  part.close();
  const std::string command = "cd " + directory + " && " MC_TEST_BIN "/mcctl replay " + trace +
                              " --embedded --block-bytes 256 --json " + options + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string last;
  char text[4096];
  while (std::fgets(text, sizeof text, pipe.get()) != nullptr) last = text;
  std::string counts;
  for (const char* name : {"block_refs", "hit_refs", "evictions", "wrong_bytes"}) {
    const std::size_t at = last.find(std::string("\"") + name + "\"");
    if (at == std::string::npos) return "no " + std::string(name) + " in: " + last;
    counts += last.substr(at, last.find_first_of(",}", at) - at) + " ";
  }
  return counts;
}

TEST(Replay, ByOneWorkerWithoutAnAgentIsRepeatable) {
  char directory[] = "/tmp/mc-replay-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string options = "--workers 1 --capacity-blocks 500";
  const std::string first = replay(directory, options);
  EXPECT_NE(first.find("\"wrong_bytes\":0"), std::string::npos) << first;
  EXPECT_EQ(first.find("\"hit_refs\":0 "), std::string::npos) << first;
  EXPECT_EQ(replay(directory, options), first);
  std::filesystem::remove_all(directory);
}

}  // namespace
