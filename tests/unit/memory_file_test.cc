// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/memory_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

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

}  // namespace
}  // namespace mc
