// SPDX-License-Identifier: Apache-2.0
//
// Reads of memory that the agent has not reserved: they must make no pages that nobody counts.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "attack_test.h"
#include "libmc/client/admin.h"
#include "patience.h"

namespace mc::hostile {

namespace {

constexpr std::uint64_t kReadPage = 4096;

class UnreservedMemory : public AttackTest {
 protected:
  Json::Value segment() const {
    Json::Value request;
    request["verb"] = "segments";
    return (*client::admin_call(socket_path(), request, kWatchdogNs))["segments"][0];
  }
  std::uint64_t resident_bytes() const { return segment()["resident_bytes"].asUInt64(); }
  std::uint64_t reserved_bytes() const { return segment()["reserved_bytes"].asUInt64(); }
  void resize(std::uint64_t bytes) {
    Json::Value request;
    request["verb"] = "resize";
    request["namespace"] = "default";
    request["pool_bytes"] = Json::UInt64{bytes};
    ASSERT_TRUE(client::admin_call(socket_path(), request, kWatchdogNs));
    ASSERT_TRUE(until([&] { return segment()["settled"].asBool(); }));
  }
};

// Reads a byte of each page in a child process. Returns the signal that ended the child; 0: none did.
int signal_of_reading(const std::byte* from, std::uint64_t bytes) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler of its own
    for (std::uint64_t at = 0; at < bytes; at += kReadPage) {
      static_cast<void>(*static_cast<const volatile std::byte*>(from + at));
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

std::uint64_t pages_in_bytes(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512 : 0;
}

TEST_F(UnreservedMemory, AReadBeyondThePoolEndsTheReaderAndMakesNoPage) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open());
  const std::uint64_t reserved = reserved_bytes();
  const MappablePart pool{session.pool_fds()[0].get(), session.welcome().pool_max_bytes};
  ASSERT_GT(pool.bytes, reserved);
  const auto mapping = Mapping::map_parts({&pool, 1}, Mapping::Access::kRead);
  ASSERT_TRUE(mapping);
  EXPECT_EQ(signal_of_reading(mapping->data() + reserved, kReadPage), SIGBUS);
  for (std::size_t part = 0; part < session.index_fds().size(); ++part) {
    const MappablePart index{session.index_fds()[part].get(),
                             session.welcome().index_part_bytes[part]};
    const auto index_map = Mapping::map_parts({&index, 1}, Mapping::Access::kRead);
    ASSERT_TRUE(index_map);
    const std::byte* const last = index_map->data() + index.bytes - kReadPage;
    EXPECT_EQ(signal_of_reading(last, kReadPage), SIGBUS) << part;
  }
  EXPECT_EQ(resident_bytes(), reserved);
}

TEST_F(UnreservedMemory, PagesThatAReaderMakesInAShrunkenPoolAreGivenBack) {
  constexpr std::uint64_t kSmall = 8u << 20, kLarge = 64u << 20;
  resize(kLarge);
  resize(kSmall);
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open());
  const MappablePart pool{session.pool_fds()[0].get(), kLarge};
  const auto mapping = Mapping::map_parts({&pool, 1}, Mapping::Access::kRead);
  ASSERT_TRUE(mapping);
  ASSERT_TRUE(until([&] { return resident_bytes() == kSmall; }));
  // The agent may give the pages back at once.
  EXPECT_TRUE(until([&] {
    EXPECT_EQ(signal_of_reading(mapping->data() + kSmall, kLarge - kSmall), 0);
    return pages_in_bytes(pool.fd) > kSmall;
  }));
  EXPECT_TRUE(until([&] { return resident_bytes() == kSmall; })) << resident_bytes();
}

}  // namespace

}  // namespace mc::hostile
