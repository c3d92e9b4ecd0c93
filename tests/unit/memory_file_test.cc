// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include <cstring>
#include <thread>
#include <vector>

namespace mc {
namespace {

Result<MemoryFile> file_of(std::uint64_t bytes) {
  auto file = MemoryFile::create("memory_file_test", bytes);
  if (file && !file->reserve(0, 4096).ok()) return fail(MC_NO_MEMORY, "cannot reserve a page");
  return file;
}

bool aligned(const Mapping& mapping) {
  return reinterpret_cast<std::uintptr_t>(mapping.data()) % kHugePageBytes == 0;
}

TEST(MemoryFile, TwoMappingsOfOneFileShareItsBytes) {
  const auto file = file_of(8192);
  ASSERT_TRUE(file);
  const auto writer = Mapping::map(file->fd(), 4096, Mapping::Access::kReadWrite);
  const auto reader = Mapping::map(file->fd(), 4096, Mapping::Access::kRead);
  ASSERT_TRUE(writer && reader);
  std::memcpy(writer->data(), "bytes", 6);
  EXPECT_STREQ(reinterpret_cast<const char*>(reader->data()), "bytes");
}

TEST(MemoryFile, ALimitOfFileSizesIsAnErrorWithARemedyAndNotTheEnd) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit lower{1u << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &lower), 0);
  const auto refused = MemoryFile::create("memory_file_test", (1u << 20) + 1);
  const auto fits = MemoryFile::create("memory_file_test", 1u << 20);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("ulimit -f"), std::string::npos) << refused.error().text();
  EXPECT_TRUE(fits);
}

TEST(MemoryFile, MappingBeyondTheEndOfTheFileIsRefused) {
  const auto file = file_of(4096);
  ASSERT_TRUE(file);
  const auto mapping = Mapping::map(file->fd(), 4097, Mapping::Access::kRead);
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code(), MC_CORRUPT);
}

TEST(MemoryFile, MappingOfZeroBytesIsRefused) {
  const auto file = file_of(4096);
  ASSERT_TRUE(file);
  EXPECT_FALSE(Mapping::map(file->fd(), 0, Mapping::Access::kRead));
}

TEST(MemoryFile, MappingMovesWithItsAddress) {
  const auto file = file_of(4096);
  ASSERT_TRUE(file);
  auto first = Mapping::map(file->fd(), 4096, Mapping::Access::kRead);
  ASSERT_TRUE(first);
  const std::byte* const at = first->data();
  Mapping second = std::move(*first);
  EXPECT_EQ(second.data(), at);
  EXPECT_EQ(second.size_bytes(), 4096u);
  EXPECT_FALSE(*first);
}

TEST(MemoryFile, LargeMappingsBeginAtAMultipleOfAHugePageWhileThreadsMapAtOnce) {
  constexpr std::uint64_t kBytes = 3 * kHugePageBytes + 4096;
  const auto file = file_of(kBytes);
  ASSERT_TRUE(file);
  std::vector<int> misaligned(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < misaligned.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 200; ++n) {
        const auto mapping = Mapping::map(file->fd(), kBytes, Mapping::Access::kRead);
        misaligned[i] += !mapping || mapping->size_bytes() != kBytes || !aligned(*mapping);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int count : misaligned) EXPECT_EQ(count, 0);
}

constexpr std::uint64_t kGrowingParts[] = {3 * kHugePageBytes, kHugePageBytes};

MemoryFile growing_file() {
  return std::move(*MemoryFile::create_growing("memory_file_test", kGrowingParts));
}

TEST(GrowingFile, MemoryAppearsInTheMappingsOnceItIsReserved) {
  const MemoryFile file = growing_file();
  EXPECT_EQ(file.size_bytes(), 4 * kHugePageBytes);
  const auto writer = Mapping::map_all(file, Mapping::Access::kReadWrite);
  const auto reader = Mapping::map_all(file, Mapping::Access::kRead);
  ASSERT_TRUE(writer && reader);
  EXPECT_TRUE(aligned(*writer) && aligned(*reader));
  EXPECT_EQ(file.resident_bytes(), 0u);
  // The end of the first part and the begin of the second one.
  const std::uint64_t begin = 3 * kHugePageBytes - 8192;
  ASSERT_TRUE(file.reserve(0, 3 * kHugePageBytes).ok());
  ASSERT_TRUE(file.reserve(3 * kHugePageBytes, 8192).ok());
  std::vector<char> bytes(16384, 'x');
  std::memcpy(writer->data() + begin, bytes.data(), bytes.size());
  EXPECT_EQ(std::memcmp(reader->data() + begin, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(file.resident_bytes(0), 3 * kHugePageBytes);
  EXPECT_EQ(file.resident_bytes(1), 8192u);
  ASSERT_TRUE(file.punch(begin, 16384).ok());
  EXPECT_EQ(file.resident_bytes(), 3 * kHugePageBytes - 8192);
  EXPECT_FALSE(file.reserve(4 * kHugePageBytes, 4096).ok());
}

// In a child process: its end by SIGBUS is expected. A sanitizer has a handler of its own.
void read_byte(const std::byte* at) {
  std::signal(SIGBUS, SIG_DFL);
  static_cast<void>(*static_cast<const volatile std::byte*>(at));
}

TEST(GrowingFile, AReadBeyondTheReservedMemoryMakesNoPage) {
  const MemoryFile file = growing_file();
  ASSERT_TRUE(file.reserve(0, 4096).ok());
  const auto reader = Mapping::map_all(file, Mapping::Access::kRead);
  ASSERT_TRUE(reader);
  for (const std::uint64_t beyond : {std::uint64_t{4096}, 3 * kHugePageBytes}) {
    EXPECT_EXIT(read_byte(reader->data() + beyond), testing::KilledBySignal(SIGBUS), "");
  }
  EXPECT_EQ(file.resident_bytes(), 4096u);
}

long locked_kib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmLck:")) return std::stol(line.substr(6));
  }
  return -1;
}

// False under a limit (RLIMIT_MEMLOCK, without CAP_IPC_LOCK) that is too low for this much memory, and
// under a sanitizer, which makes mlock() do nothing.
bool can_lock_memory(std::uint64_t bytes) {
  void* const range =
      ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const bool within_limit =
      range != MAP_FAILED && ::mlock2(range, bytes, MLOCK_ONFAULT) == 0;  // makes no page
  if (range != MAP_FAILED) ::munmap(range, bytes);
  alignas(4096) static char page[4096];
  const bool locks = ::mlock(page, sizeof page) == 0 && locked_kib() > 0;
  ::munlock(page, sizeof page);
  return within_limit && locks;
}

TEST(GrowingFile, AProcessThatLocksItsMemoryMakesNoPage) {
  if (!can_lock_memory(64u << 20)) {
    GTEST_SKIP() << "mlock() has no effect here: a sanitizer disables it, or ulimit -l is too low";
  }
  const MemoryFile file = growing_file();
  ASSERT_TRUE(file.reserve(0, 4096).ok());
  const auto lock_and_map = [&] {
    if (::mlockall(MCL_FUTURE) != 0) ::_exit(3);
    const auto mapping = Mapping::map_all(file, Mapping::Access::kReadWrite);
    if (!mapping || file.resident_bytes() != 4096) ::_exit(1);
    const long before = locked_kib();
    const bool gone = mapping->let_go();
    ::_exit(gone && mapping->data()[0] == std::byte{0} && locked_kib() < before ? 0 : 2);
  };
  EXPECT_EXIT(lock_and_map(), testing::ExitedWithCode(0), "");
}

TEST(GrowingFile, NoProcessCanMakeItSmaller) {
  const MemoryFile file = growing_file();
  ASSERT_TRUE(file.reserve(0, 8192).ok());
  EXPECT_NE(::ftruncate(file.part_fd(0), 4096), 0);
  EXPECT_NE(::fcntl(file.part_fd(0), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
}

TEST(GrowingFile, TheNextProcessTakesOverTheParts) {
  const MemoryFile file = growing_file();
  ASSERT_TRUE(file.reserve(kHugePageBytes, 4096).ok());
  const auto parts_of = [&] {
    std::vector<Fd> fds;
    for (std::size_t i = 0; i < file.part_count(); ++i) fds.emplace_back(::dup(file.part_fd(i)));
    return fds;
  };
  const auto next = MemoryFile::adopt_growing(parts_of(), kGrowingParts);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->size_bytes(), file.size_bytes());
  EXPECT_EQ(next->resident_bytes(0), 4096u);
  // A client that may write can make a part longer.
  ASSERT_EQ(::ftruncate(file.part_fd(1), 2 * kHugePageBytes), 0);
  EXPECT_TRUE(MemoryFile::adopt_growing(parts_of(), kGrowingParts));
  auto one_less = parts_of();
  one_less.pop_back();
  EXPECT_FALSE(MemoryFile::adopt_growing(std::move(one_less), kGrowingParts));
  std::vector<Fd> others;
  for (int i = 0; i < 2; ++i) others.emplace_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(MemoryFile::adopt_growing(std::move(others), kGrowingParts));
}

}  // namespace
}  // namespace mc
