// SPDX-License-Identifier: Apache-2.0
//
// Which users may connect, and which requests another user may send. Needs root, to change the
// user.
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "attack_test.h"
#include "libmc/client/admin.h"

namespace mc::hostile {

namespace {

constexpr uid_t kGuest = 65533;

int as_user(uid_t uid, const std::function<int()>& what) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(uid, uid, uid) != 0 ||
        ::setresuid(uid, uid, uid) != 0) {
      ::_exit(99);
    }
    ::_exit(what());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Credentials : public AttackTest {
 protected:
  explicit Credentials(std::vector<std::string> flags = {"--socket-mode", "0666", "--allow-uids",
                                                         std::to_string(kGuest)})
      : AttackTest(std::move(flags)) {
    ::chmod(agent_.directory().c_str(), 0711);
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
    AttackTest::SetUp();
  }
  void TearDown() override {
    if (!IsSkipped()) AttackTest::TearDown();
  }
};

TEST_F(Credentials, AUserNotOnTheListIsRefusedWithTheRemedy) {
  const int code = as_user(kStranger, [&] {
    HostileSession session(socket_path());
    if (session.open()) return 1;
    return session.refusal().find("allow_uids") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Credentials, AUserNotOnTheListCannotEvenAskForTheStatus) {
  const int code = as_user(kStranger, [&] {
    Json::Value request;
    request["verb"] = "status";
    const auto answer = client::admin_call(socket_path(), request, kWatchdogNs);
    return answer ? 1 : 0;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Credentials, VerbsThatChangeAnythingAreForRootAndTheAgentsUser) {
  const int code = as_user(kGuest, [&] {
    int number = 1;
    for (const char* verb : {"resize", "create_namespace", "drop_namespace", "no_such_verb"}) {
      Json::Value request;
      request["verb"] = verb;
      request["namespace"] = "default";
      request["name"] = "mine";
      request["pool_bytes"] = Json::UInt64{1 << 20};
      const auto answer = client::admin_call(socket_path(), request, kWatchdogNs);
      if (answer || answer.error().code() != MC_PERMISSION_DENIED) return number;
      ++number;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Credentials, ASessionOfAnotherUserCannotBeResumed) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open());
  shm::ClientHello resume = make_hello();
  resume.resume_session = session.welcome().session_id;
  resume.resume_secret = session.welcome().session_secret;
  const int code = as_user(kGuest, [&] {
    auto socket = connect_unix(socket_path(), kWatchdogNs);
    if (!socket) return 1;
    return converse(socket->get(), bytes_of(resume)).fds.empty() ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(session.open_channel());
}

TEST_F(Credentials, ConnectingCountsAndNotWhoHoldsTheDescriptorNow) {
  auto socket = connect_unix(socket_path(), kWatchdogNs);
  ASSERT_TRUE(socket.has_value());
  // The stranger says hello on root's connection: the session belongs to root and ends with root.
  const int code = as_user(kStranger, [&] {
    return converse(socket->get(), bytes_of(make_hello())).fds.empty() ? 1 : 0;
  });
  EXPECT_EQ(code, 0);
  const Json::Value status = agent_.ask("status");
  bool found = false;
  for (const Json::Value& one : status["sessions"]) {
    found |= one["label"].asString() == "hostile" && one["uid"].asUInt() == ::geteuid() &&
             one["pid"].asInt() == ::getpid();
  }
  EXPECT_TRUE(found);
  converse(socket->get(), bytes_of(make_control(shm::ControlType::kGoodbye)));
}

TEST_F(Credentials, KeysOfANamespaceAreShownToItsUsersOnly) {
  const std::string config = agent_.directory() + "/tenants.toml";
  FILE* file = std::fopen(config.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fprintf(file,
               "[[namespace]]\nname = \"other\"\npool_bytes = \"4MiB\"\nallow_uids = [65532]\n");
  std::fclose(file);
  AgentProcess agent(
      {"--config", config, "--socket-mode", "0666", "--allow-uids", std::to_string(kGuest)});
  ::chmod(agent.directory().c_str(), 0711);
  const int code = as_user(kGuest, [&] {
    Json::Value request;
    request["namespace"] = "other";
    for (const char* const verb : {"where", "copy", "move", "rm", "ls"}) {
      request["verb"] = verb;
      const auto other = client::admin_call(agent.socket(), request, kWatchdogNs);
      if (other || other.error().code() != MC_NO_SUCH_NAMESPACE) return 1;
    }
    request["namespace"] = "default";
    if (!client::admin_call(agent.socket(), request, kWatchdogNs)) return 2;
    HostileSession session(agent.socket(), "other");
    return session.open() ? 3 : 0;
  });
  EXPECT_EQ(code, 0);
}

class ClosedSocket : public Credentials {
 protected:
  ClosedSocket() : Credentials({"--socket-mode", "0600"}) {}
};

TEST_F(ClosedSocket, ItsModeKeepsOthersOutBeforeTheyAreLookedAt) {
  const int code = as_user(kStranger, [&] {
    const auto socket = connect_unix(socket_path(), 0);
    return !socket && socket.error().code() == MC_PERMISSION_DENIED ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace

}  // namespace mc::hostile
