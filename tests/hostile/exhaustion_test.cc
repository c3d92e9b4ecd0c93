// SPDX-License-Identifier: Apache-2.0
//
// Hosts that lack a resource. The agent either reports cause and remedy with exit code 1, or works
// with the available amount. No signal ends the agent, and no failure comes later.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "attack_test.h"

namespace mc::hostile {

namespace {

class Exhaustion : public ::testing::Test {
 protected:
  void SetUp() override { directory_ = make_directory(); }
  void TearDown() override { remove_directory(directory_); }

  // An agent that must refuse to start.
  Ended start(std::vector<std::string> flags) const {
    return start_in(directory_, std::move(flags));
  }
  static Ended start_in(const std::string& directory, std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {program("mc-agent"), "--runtime-dir", directory, "--keep-seconds", "1"});
    return run_program(flags);
  }
  static void expect_refusal(const Ended& ended, int code, const std::string& words) {
    EXPECT_EQ(ended.exit_code, code) << ended.output;
    EXPECT_NE(ended.output.find(words), std::string::npos) << ended.output;
  }
  // The same in a shell, which prepares the environment.
  static Ended run_shell(const std::string& script) {
    return run_program({"/bin/sh", "-c", script});
  }
  std::string agent_command(const std::string& flags) const {
    return program("mc-agent") + " --runtime-dir " + directory_ + " --keep-seconds 1 " + flags;
  }

  std::string directory_;
};

TEST_F(Exhaustion, APoolLargerThanTheMemoryIsRefusedAtOnce) {
  expect_refusal(start({"--pool-bytes", "1TiB"}), 1, "lower pool_bytes");
}

TEST_F(Exhaustion, AFullRuntimeFileSystemIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "mounting a small tmpfs needs root";
  const Ended ended = run_program({"/usr/bin/unshare", "-m", "/bin/sh", "-c",
                                   "mount -t tmpfs -o size=64k,mode=0700 none " + directory_ +
                                       " && head -c 61440 /dev/zero > " + directory_ +
                                       "/filler && exec " + agent_command("--pool-bytes 16MiB")});
  if (ended.output.find("mount:") != std::string::npos) GTEST_SKIP() << ended.output;
  expect_refusal(ended, 1, "make room");
}

TEST_F(Exhaustion, ASmallMemoryCgroupIsSeenBeforeAnythingIsTaken) {
  const std::string root = "/sys/fs/cgroup";
  if (!std::filesystem::exists(root + "/cgroup.controllers")) {
    GTEST_SKIP() << "no cgroup v2 with a memory controller is mounted at " << root;
  }
  const std::string group = root + "/mc-exhaustion-" + std::to_string(::getpid());
  if (::mkdir(group.c_str(), 0755) != 0) GTEST_SKIP() << "no right to make a cgroup";
  const std::ofstream limit(group + "/memory.max");
  const bool limited = limit.is_open();
  Ended ended;
  if (limited) {
    ended = run_shell("echo 64M > " + group + "/memory.max && echo $$ > " + group +
                      "/cgroup.procs && exec " + agent_command("--pool-bytes 256MiB"));
  }
  ::rmdir(group.c_str());
  if (!limited) GTEST_SKIP() << "the memory controller is not delegated here";
  expect_refusal(ended, 1, "lower pool_bytes");
}

TEST_F(Exhaustion, AnAgentWithFewDescriptorsTellsItsClientsSo) {
  // The hard limit too, so that the agent cannot raise the limit.
  const std::string script = "ulimit -n 48 && exec " + agent_command("--pool-bytes 16MiB");
  const pid_t pid = ::fork();
  if (pid == 0) {
    const Fd null(::open("/dev/null", O_RDWR));
    ::dup2(null.get(), 2);
    ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  const std::string socket = directory_ + "/agent.sock";
  ASSERT_TRUE(connect_unix(socket, kWatchdogNs).has_value());
  std::vector<std::unique_ptr<HostileSession>> sessions;
  std::string refusal;
  while (refusal.empty() && sessions.size() < 100) {
    sessions.push_back(std::make_unique<HostileSession>(socket));
    refusal = sessions.back()->refusal();
    ASSERT_TRUE(sessions.back()->open() || !refusal.empty());
  }
  EXPECT_NE(refusal.find("descriptors"), std::string::npos) << refusal;
  sessions.clear();
  HonestClient honest(socket);
  EXPECT_TRUE(honest.works_on(20)) << honest.trouble();
  honest.stop();
  ::kill(pid, SIGTERM);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Exhaustion, TooFewDescriptorsToBeginWithIsAnErrorAndNotACrash) {
  for (const int limit : {4, 8, 12, 16}) {
    const Ended ended = run_shell("ulimit -n " + std::to_string(limit) + " && exec timeout 5 " +
                                  agent_command("--pool-bytes 16MiB"));
    // The agent refuses to start, or timeout ends the running agent with code 124.
    EXPECT_TRUE(ended.exit_code == 1 || ended.exit_code == 0 || ended.exit_code == 124 ||
                ended.exit_code == 127)
        << limit << ": " << ended.exit_code << " " << ended.output;
  }
}

TEST_F(Exhaustion, NoLockedMemoryIsNeeded) {
  const Ended ended = run_shell("ulimit -l 0 && exec timeout --foreground -s TERM 2 " +
                                agent_command("--pool-bytes 16MiB"));
  // The signal of timeout stops the agent; timeout returns 124 after an orderly exit. In the
  // foreground timeout signals once. A second SIGTERM to the group would make LeakSanitizer spin at
  // the exit.
  EXPECT_EQ(ended.exit_code, 124) << ended.output;
  EXPECT_NE(ended.output.find("event=ready"), std::string::npos) << ended.output;
}

TEST_F(Exhaustion, HugePagesThatAreRequiredAndMissingAreNamed) {
  std::ifstream file("/proc/sys/vm/nr_hugepages");
  std::uint64_t pages = 0;
  if (file >> pages && pages > 0) GTEST_SKIP() << "this host has huge pages";
  const Ended ended = start({"--pool-bytes", "16MiB", "--huge-pages", "require"});
  EXPECT_EQ(ended.exit_code, 1) << ended.output;
  EXPECT_NE(ended.output.find("nr_hugepages"), std::string::npos) << ended.output;
}

TEST_F(Exhaustion, ASocketPathThatIsTooLongIsRefusedWithTheLimit) {
  const std::string name = directory_ + "/" + std::string(120, 's');
  const Ended ended = start({"--pool-bytes", "16MiB", "--socket", name});
  EXPECT_EQ(ended.exit_code, 2) << ended.output;
  EXPECT_NE(ended.output.find("socket"), std::string::npos) << ended.output;
}

TEST_F(Exhaustion, ARuntimeDirectoryThatCannotBeMadeIsNamed) {
  expect_refusal(start_in("/proc/mc-agent-here", {"--pool-bytes", "16MiB"}), 1, "runtime_dir");
  expect_refusal(start_in(directory_ + "/no/parent", {"--pool-bytes", "16MiB"}), 1, "runtime_dir");
}

TEST_F(Exhaustion, ARuntimeDirectoryOfSomebodyElseIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "giving a directory away needs root";
  ASSERT_EQ(::chown(directory_.c_str(), 65534, 65534), 0);
  expect_refusal(start({"--pool-bytes", "16MiB"}), 1, "chown");
}

TEST_F(Exhaustion, ARuntimeDirectoryThatOthersMayWriteIsRefused) {
  ASSERT_EQ(::chmod(directory_.c_str(), 0777), 0);
  expect_refusal(start({"--pool-bytes", "16MiB"}), 1, "chmod 0700");
}

TEST_F(Exhaustion, ALinkInPlaceOfTheLockIsNotFollowedToAnothersFile) {
  const std::string target = directory_ + "/precious";
  std::ofstream(target) << "precious";
  // Only the same user can create the link. The agent locks the target and never writes to it.
  ASSERT_EQ(::symlink(target.c_str(), (directory_ + "/agent.lock").c_str()), 0);
  start({"--pool-bytes", "1TiB"});
  std::string word;
  std::ifstream(target) >> word;
  EXPECT_EQ(word, "precious");
}

TEST_F(Exhaustion, UnknownOptionsAreRefusedWithTheNearestName) {
  const std::string config = directory_ + "/agent.toml";
  std::ofstream(config) << "pool_byte = \"16MiB\"\n";
  expect_refusal(start({"--config", config}), 2, "pool_bytes");
  const Ended flag = start({"--pool-byte", "16MiB"});
  EXPECT_NE(flag.exit_code, 0);
  EXPECT_FALSE(flag.output.empty());
}

TEST_F(Exhaustion, ASecondAgentInTheSameDirectoryIsRefused) {
  AgentProcess first;
  expect_refusal(start_in(first.directory(), {"--pool-bytes", "16MiB"}), 1, "another mc-agent");
  HonestClient honest(first.socket());
  EXPECT_TRUE(honest.works_on(20)) << honest.trouble();
}

TEST_F(Exhaustion, AnObjectLargerThanThePoolIsTooLargeAndLeavesNothing) {
  AgentProcess agent({}, "16MiB");
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  const std::string socket = agent.socket();
  options.agent = socket.c_str();
  mc_client* client = nullptr;
  ASSERT_EQ(mc_open(&options, &client), MC_OK) << mc_last_error();
  const std::vector<char> value(32 << 20);
  EXPECT_EQ(mc_put(client, {"large", 5}, {value.data(), value.size()}, nullptr), MC_TOO_LARGE);
  mc_reservation* reservation = nullptr;
  EXPECT_EQ(mc_reserve(client, 32 << 20, 0, &reservation), MC_TOO_LARGE);
  EXPECT_EQ(mc_put(client, {"small", 5}, {value.data(), 4096}, nullptr), MC_OK);
  mc_close(client);
  EXPECT_EQ(agent.ask("status")["namespaces"][0]["objects"].asUInt64(), 1u);
}

}  // namespace

}  // namespace mc::hostile
