// SPDX-License-Identifier: Apache-2.0
//
// Reads of memory that the agent has not reserved: they must make no pages that nobody counts.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "attack_test.h"
#include "libmc/base/clock.h"
#include "libmc/client/admin.h"

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
  static bool until(const std::function<bool()>& holds) {
    const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
    while (!holds()) {
      if (now_ns() >= deadline_ns) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
};

// Reads a byte of each page in a child process. Returns the number of pages, or minus the signal that
// ended the child.
int read_pages(const std::byte* from, std::uint64_t bytes) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler of its own
    int pages = 0;
    for (std::uint64_t at = 0; at < bytes; at += kReadPage, ++pages) {
      static_cast<void>(*static_cast<const volatile std::byte*>(from + at));
    }
    ::_exit(pages > 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) return -WTERMSIG(status);
  return static_cast<int>(bytes / kReadPage);
}

TEST_F(UnreservedMemory, AReadBeyondThePoolEndsTheReaderAndMakesNoPage) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open());
  const std::uint64_t reserved = reserved_bytes();
  const MappablePart pool{session.pool_fds()[0].get(), session.welcome().pool_max_bytes};
  ASSERT_GT(pool.bytes, reserved);
  const auto mapping = Mapping::map_parts({&pool, 1}, Mapping::Access::kRead);
  ASSERT_TRUE(mapping);
  EXPECT_EQ(read_pages(mapping->data() + reserved, kReadPage), -SIGBUS);
  for (std::size_t part = 0; part < session.index_fds().size(); ++part) {
    const MappablePart index{session.index_fds()[part].get(),
                             session.welcome().index_part_bytes[part]};
    const auto index_map = Mapping::map_parts({&index, 1}, Mapping::Access::kRead);
    ASSERT_TRUE(index_map);
    EXPECT_EQ(read_pages(index_map->data() + index.bytes - kReadPage, kReadPage), -SIGBUS) << part;
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
  EXPECT_EQ(read_pages(mapping->data() + kSmall, kLarge - kSmall),
            static_cast<int>((kLarge - kSmall) / kReadPage));
  EXPECT_TRUE(until([&] { return resident_bytes() == kSmall; })) << resident_bytes();
}

}  // namespace

}  // namespace mc::hostile
