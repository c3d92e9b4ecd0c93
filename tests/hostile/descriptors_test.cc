// SPDX-License-Identifier: Apache-2.0
//
// Attempts of a client to misuse its descriptors.
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "attack_test.h"
#include "libmc/base/clock.h"
#include "libmc/client/admin.h"

namespace mc::hostile {

namespace {

// The possible changes of a file through a descriptor, one letter each.
std::string tried_on(int fd) {
  std::string done;
  const auto note = [&](bool succeeded, const char* letter) {
    if (succeeded) done += letter;
  };
  struct stat status {};
  ::fstat(fd, &status);
  void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  note(at != MAP_FAILED, "w");  // writing mapping
  if (at != MAP_FAILED) ::munmap(at, 4096);
  at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) {
    note(::mprotect(at, 4096, PROT_READ | PROT_WRITE) == 0, "p");  // protection raised
    ::munmap(at, 4096);
  }
  note(::ftruncate(fd, status.st_size + 4096) == 0, "g");  // grown
  note(::ftruncate(fd, status.st_size / 2) == 0, "s");     // shrunk
  note(::fallocate(fd, 0, status.st_size, 4096) == 0, "G");
  // A hole in the last, unused page.
  note(
      ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, status.st_size - 4096, 4096) == 0,
      "h");
  note(::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0, "f");  // sealed against others
  const char byte = 0;
  note(::pwrite(fd, &byte, 0, 0) == 0, "W");
  return done;
}

bool reopens(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const Fd again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return static_cast<bool>(again);
}

// Runs `what` in a child process as another user and returns the exit code; 0 means success.
int as_stranger(const std::function<int()>& what) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(kStranger, kStranger, kStranger) != 0 ||
        ::setresuid(kStranger, kStranger, kStranger) != 0) {
      ::_exit(99);
    }
    ::_exit(what());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Descriptors : public AttackTest {
 protected:
  Descriptors() : AttackTest({"--socket-mode", "0666", "--allow-uids", std::to_string(kStranger)}) {
    // Opens the directory of the socket, so that the stranger reaches the socket.
    ::chmod(agent_.directory().c_str(), 0711);
  }
  void TearDown() override {
    if (isolated_) {
      Json::Value request;
      request["verb"] = "drop_namespace";
      request["name"] = "vault";
      EXPECT_TRUE(client::admin_call(socket_path(), request, kWatchdogNs).has_value());
    }
    AttackTest::TearDown();
  }
  void make_isolated() {
    Json::Value request;
    request["verb"] = "create_namespace";
    request["name"] = "vault";
    request["pool_bytes"] = Json::UInt64{8 << 20};
    request["mode"] = "isolated";
    const auto made = client::admin_call(socket_path(), request, kWatchdogNs);
    ASSERT_TRUE(made.has_value());
    ASSERT_EQ((*made)["mode"].asString(), "isolated");
    isolated_ = true;
  }

  bool isolated_ = false;
};

TEST_F(Descriptors, ReadersOfAPoolCannotChangeItInAnyWay) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open()) << session.refusal();
  EXPECT_EQ(session.index_fds().size(), 5u);
  for (const Fd& part : session.index_fds()) EXPECT_EQ(tried_on(part.get()), "") << "index";
  for (const Fd& part : session.pool_fds()) EXPECT_EQ(tried_on(part.get()), "") << "pool";
}

// Another process may have mapped the memory: a file that gets smaller would kill the process.
TEST_F(Descriptors, APoolThatAClientMayWriteCanNotGetSmaller) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open()) << session.refusal();
  ASSERT_EQ(session.writable_pool_fds().size(), session.welcome().pool_parts);
  for (const Fd& part : session.writable_pool_fds()) EXPECT_EQ(tried_on(part.get()), "wpgGhW");
}

TEST_F(Descriptors, ItsOwnMemoryAClientCanNeitherResizeNorSeal) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open()) << session.refusal();
  const Fd staging = session.open_staging(65536);
  ASSERT_TRUE(staging);
  EXPECT_EQ(tried_on(session.session_fd()), "wphW") << "session";
  EXPECT_EQ(tried_on(staging.get()), "wphW") << "staging";
}

TEST_F(Descriptors, AStrangerCannotReopenAnythingForWritingInAnIsolatedNamespace) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  make_isolated();
  const int code = as_stranger([&] {
    HostileSession session(socket_path(), "vault");
    if (!session.open()) return 1;
    if (session.welcome().isolated != 1 || !session.writable_pool_fds().empty()) return 2;
    for (const auto& parts : {session.index_fds(), session.pool_fds()}) {
      for (const Fd& part : parts) {
        if (reopens(part.get())) return 3;
        if (!tried_on(part.get()).empty()) return 4;
      }
    }
    const Fd staging = session.open_staging(65536);
    if (!staging || tried_on(staging.get()) != "wphW") return 6;
    // A client may write its own memory, but may not reopen the file of another user.
    if (reopens(staging.get()) || reopens(session.session_fd())) return 7;
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Descriptors, AStrangerInADirectNamespaceWritesOnlyThroughWhatItWasGiven) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const int code = as_stranger([&] {
    HostileSession session(socket_path());
    if (!session.open()) return 1;
    for (const auto& parts : {session.index_fds(), session.pool_fds()}) {
      for (const Fd& part : parts) {
        if (reopens(part.get())) return 2;
      }
    }
    return tried_on(session.writable_pool_fds()[0].get()) == "wpgGhW" ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Descriptors, ARootClientIsToldThatIsolationDoesNotBindIt) {
  make_isolated();
  HostileSession session(socket_path(), "vault");
  EXPECT_FALSE(session.open());
  EXPECT_NE(session.refusal().find("isolated_allow_same_user"), std::string::npos);
}

TEST_F(Descriptors, HolesInSessionAndStagingReadAsZerosForTheAgent) {
  HostileSession session(socket_path(), "default", 2);
  ASSERT_TRUE(session.open_channel(0) && session.open_channel(1));
  const Fd staging = session.open_staging(1 << 20);
  ASSERT_TRUE(staging);
  for (int i = 0; i < 200; ++i) {
    shm::PutItem item{};
    item.length = 1 << 20;
    const auto request = session.items(shm::Op::kPutStaged, {{item, "hole-" + std::to_string(i)}});
    session.publish(shm::to_words(request));
    ASSERT_EQ(::fallocate(staging.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20),
              0);
    ASSERT_TRUE(session.answer().has_value());
    ASSERT_EQ(::fallocate(session.session_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<off_t>(shm::channel_offset(1)), sizeof(shm::Channel)),
              0);
  }
}

TEST_F(Descriptors, BellsMadeBlockingDoNotHoldTheAgentUp) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open_channel());
  // Flags belong to the open file description, which client and agent share.
  for (const std::size_t bell : {shm::kAgentEventFd, shm::kClientEventFd})
    ASSERT_EQ(::fcntl(session.fds()[bell].get(), F_SETFL, 0), 0);
  const std::uint64_t nearly_full = ~std::uint64_t{0} - 2;
  static_cast<void>(::fcntl(session.fds()[shm::kClientEventFd].get(), F_SETFL, O_NONBLOCK));
  static_cast<void>(
      ::write(session.fds()[shm::kClientEventFd].get(), &nearly_full, sizeof nearly_full));
  ASSERT_EQ(::fcntl(session.fds()[shm::kClientEventFd].get(), F_SETFL, 0), 0);
  {
    const std::jthread thief([&](const std::stop_token& stop) {
      std::uint64_t count = 0;
      while (!stop.stop_requested()) {
        // Drains the eventfd between the wake-up and the read of the agent.
        ::fcntl(session.fds()[shm::kAgentEventFd].get(), F_SETFL, O_NONBLOCK);
        static_cast<void>(::read(session.fds()[shm::kAgentEventFd].get(), &count, sizeof count));
        ::fcntl(session.fds()[shm::kAgentEventFd].get(), F_SETFL, 0);
      }
    });
    bool answered = true;
    for (int i = 0; i < 5000; ++i) {
      session.channel().header.client_asleep.store_relaxed(shm::kClientInPoll);
      // Only the hostile session loses wake-ups.
      if (answered) session.publish(shm::to_words(shm::Request{}));
      session.ring();
      answered = session.has_answer() && session.answer().has_value();
    }
    if (answered) session.publish(shm::to_words(shm::Request{}));
    EXPECT_TRUE(honest_->works_on(20)) << honest_->trouble();
  }
  session.ring();
  EXPECT_TRUE(session.answer().has_value());
}

}  // namespace

}  // namespace mc::hostile
