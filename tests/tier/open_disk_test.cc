// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/disk/open_disk.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "libmc/base/clock.h"
#include "libmc/base/fd.h"
#include "patience.h"
#include "tier/block_memory.h"
#include "tier/temporary_folder.h"

namespace mc::tier::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1u << 20;

class OpenDisk : public ::testing::Test {
 protected:
  std::string path() const { return folder_.file("disk"); }
  // A file of this length with a word at its begin.
  void make_file(std::uint64_t bytes) const {
    std::ofstream(path()) << "kept";
    std::filesystem::resize_file(path(), bytes);
  }
  std::string begin_of_file() const {
    std::string text(4, '\0');
    std::ifstream(path()).read(text.data(), 4);
    return text;
  }
  static std::string error_of(const DiskPlace& place, mc_status code) {
    auto opened = open_disk(place);
    if (opened) {
      ADD_FAILURE() << "opened " << opened->path;
      return "";
    }
    EXPECT_EQ(opened.error().code(), code) << opened.error().to_string();
    return std::string(opened.error().text());
  }

  TemporaryFolder folder_;
};

TEST_F(OpenDisk, MakesAFileThatIsAbsent) {
  auto opened = open_disk({path(), 64 * kMiB + 100});
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_TRUE(opened->created);
  EXPECT_EQ(opened->path, path());
  EXPECT_EQ(opened->disk->shape().bytes, 64 * kMiB);
  EXPECT_EQ(kBlockBytes % opened->disk->shape().sector_bytes, 0u);
  struct stat found {};
  ASSERT_EQ(::stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777u, 0600u);
  EXPECT_EQ(static_cast<std::uint64_t>(found.st_size), 64 * kMiB);
  // The room is reserved.
  EXPECT_GE(static_cast<std::uint64_t>(found.st_blocks) * 512, 64 * kMiB);
}

TEST_F(OpenDisk, GivesADiskThatReadsItsWrites) {
  auto opened = open_disk({path(), 64 * kMiB});
  ASSERT_TRUE(opened) << opened.error().to_string();
  const BlockMemory written(kBlockBytes, 1);
  const BlockMemory read(kBlockBytes);
  std::vector<BlockEnd> ended;
  for (const auto kind : {BlockOperation::Kind::kWrite, BlockOperation::Kind::kRead}) {
    const bool reads = kind == BlockOperation::Kind::kRead;
    std::byte* const memory = reads ? read.data() : written.data();
    opened->disk->submit({kind, 63 * kMiB, memory, kBlockBytes, 0});
    ended.clear();
    EXPECT_TRUE(until([&] {
      opened->disk->wait(kMs);
      opened->disk->take_ended(ended);
      return !ended.empty();
    }));
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_EQ(ended[0].error, 0);
  }
  EXPECT_TRUE(read == written);
}

TEST_F(OpenDisk, TakesAnEmptyFileAsCreated) {
  std::ofstream(path()).flush();
  auto opened = open_disk({path(), 64 * kMiB});
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_TRUE(opened->created);
}

TEST_F(OpenDisk, MakesItsFileInADirectory) {
  for (const bool first : {true, false}) {
    auto opened = open_disk({folder_.path(), first ? 64 * kMiB : 0});
    ASSERT_TRUE(opened) << opened.error().to_string();
    EXPECT_EQ(opened->created, first);
    EXPECT_EQ(opened->path, folder_.file("mc.tier"));
    EXPECT_EQ(opened->disk->shape().bytes, 64 * kMiB);
  }
}

TEST_F(OpenDisk, KeepsTheContentOfAFile) {
  make_file(65 * kMiB + 1);
  auto opened = open_disk({path(), 0});
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_FALSE(opened->created);
  EXPECT_EQ(opened->disk->shape().bytes, 65 * kMiB);
  EXPECT_EQ(begin_of_file(), "kept");
  EXPECT_EQ(std::filesystem::file_size(path()), 65 * kMiB + 1);
}

TEST_F(OpenDisk, LetsAShortFileGrowAndKeepsItsContent) {
  Superblock superblock{.segment_bytes = kSmallestSegmentBytes};
  seal(superblock);
  std::string content(kSuperblocks * kBlockBytes, '\0');
  std::memcpy(content.data() + kBlockBytes, &superblock, sizeof(superblock));
  std::ofstream(path(), std::ios::binary) << "kept" << content.substr(4);
  auto opened = open_disk({path(), 65 * kMiB});
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_FALSE(opened->created);
  EXPECT_EQ(opened->disk->shape().bytes, 65 * kMiB);
  EXPECT_EQ(begin_of_file(), "kept");
}

TEST_F(OpenDisk, LetsNoForeignFileGrow) {
  make_file(4096);
  EXPECT_THAT(error_of({path(), 65 * kMiB}, MC_INVALID_ARGUMENT),
              HasSubstr("has other data, and is not written"));
  EXPECT_EQ(std::filesystem::file_size(path()), 4096u);
}

TEST_F(OpenDisk, UsesTheFirstBytesOfALongerFile) {
  make_file(80 * kMiB);
  auto opened = open_disk({path(), 64 * kMiB});
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_EQ(opened->disk->shape().bytes, 64 * kMiB);
  EXPECT_EQ(std::filesystem::file_size(path()), 80 * kMiB);
}

TEST_F(OpenDisk, RefusesADiskThatAnotherOpenHolds) {
  auto first = open_disk({path(), 64 * kMiB});
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_THAT(error_of({path(), 128 * kMiB}, MC_BUSY),
              AllOf(HasSubstr("another agent has the tier's disk " + path()),
                    HasSubstr("give each agent a disk of its own")));
  // The refused open has not changed the file.
  EXPECT_EQ(std::filesystem::file_size(path()), 64 * kMiB);
  first->disk.reset();
  EXPECT_TRUE(open_disk({path(), 0}));
}

TEST_F(OpenDisk, RefusesLessThanTheLeastSize) {
  EXPECT_THAT(error_of({path(), 64 * kMiB - 1}, MC_INVALID_ARGUMENT),
              AllOf(HasSubstr("63 MiB, fewer than 64 MiB"), HasSubstr("raise tier_bytes")));
  EXPECT_THAT(error_of({path(), 0}, MC_INVALID_ARGUMENT), HasSubstr("raise tier_bytes"));
}

TEST_F(OpenDisk, SaysHowMuchRoomIsMissing) {
  make_file(0);
  EXPECT_THAT(error_of({path(), std::uint64_t{1} << 60}, MC_NO_SPACE),
              AllOf(HasSubstr("cannot reserve 1099511627776 MiB for the tier's disk " + path()),
                    HasSubstr(" MiB free; lower tier_bytes or free room")));
  EXPECT_EQ(std::filesystem::file_size(path()), 0u);
}

TEST_F(OpenDisk, RefusesAFileBeyondTheLimitOfTheProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64 * kMiB;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const std::string text = error_of({path(), 65 * kMiB}, MC_NO_SPACE);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  make_file(65 * kMiB);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  EXPECT_EQ(error_of({path(), 0}, MC_NO_SPACE), text);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(text, AllOf(HasSubstr("needs 65 MiB, but files of this process have at most 64 MiB"),
                          HasSubstr("ulimit -f unlimited")));
}

TEST_F(OpenDisk, NamesADirectoryThatIsMissing) {
  EXPECT_THAT(error_of({folder_.file("absent/disk"), 64 * kMiB}, MC_INVALID_ARGUMENT),
              HasSubstr("create the directory " + folder_.file("absent") + " or correct the path"));
}

TEST_F(OpenDisk, MakesNoFileWhereADeviceIsMissing) {
  EXPECT_THAT(error_of({"/dev/mc-tier-absent", 64 * kMiB}, MC_INVALID_ARGUMENT),
              HasSubstr("there is no device /dev/mc-tier-absent"));
  EXPECT_FALSE(std::filesystem::exists("/dev/mc-tier-absent"));
}

TEST_F(OpenDisk, RefusesACharacterDevice) {
  EXPECT_THAT(
      error_of({"/dev/null", 64 * kMiB}, MC_INVALID_ARGUMENT),
      AllOf(HasSubstr("/dev/null is a character device"), HasSubstr("name a block device")));
}

TEST_F(OpenDisk, RefusesAPipe) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(error_of({path(), 64 * kMiB}, MC_INVALID_ARGUMENT), HasSubstr("is a pipe"));
}

TEST_F(OpenDisk, RefusesASymbolicLinkToAFile) {
  make_file(64 * kMiB);
  const std::string link = folder_.file("link");
  std::filesystem::create_symlink(path(), link);
  EXPECT_THAT(error_of({link, 0}, MC_INVALID_ARGUMENT), HasSubstr("name the file itself"));
  std::filesystem::remove(path());
  EXPECT_THAT(error_of({link, 64 * kMiB}, MC_INVALID_ARGUMENT), HasSubstr("name the file itself"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(OpenDisk, FollowsASymbolicLinkToADirectory) {
  const std::string link = folder_.file("link");
  std::filesystem::create_directory(folder_.file("directory"));
  std::filesystem::create_symlink(folder_.file("directory"), link);
  auto opened = open_disk({link, 64 * kMiB});
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_EQ(opened->path, link + "/mc.tier");
}

TEST_F(OpenDisk, RefusesADirectoryInThePlaceOfItsFile) {
  std::filesystem::create_directory(folder_.file("mc.tier"));
  EXPECT_THAT(error_of({folder_.path(), 64 * kMiB}, MC_INVALID_ARGUMENT),
              HasSubstr("is a directory"));
}

TEST_F(OpenDisk, RefusesAFileOfAnotherUser) {
  make_file(64 * kMiB);
  ASSERT_EQ(::chmod(path().c_str(), 0400), 0);
  std::string text;
  std::thread other([&] {
    // The raw call changes the user of this thread alone. Root could open the file.
    constexpr int kNobody = 65534;
    if (::geteuid() == 0) {
      ASSERT_EQ(::syscall(SYS_setresuid, -1, kNobody, -1), 0);
    }
    text = error_of({path(), 0}, MC_PERMISSION_DENIED);
  });
  other.join();
  EXPECT_THAT(text, AllOf(HasSubstr("Permission denied"),
                          HasSubstr("let the agent's user read and write the path")));
}

}  // namespace
}  // namespace mc::tier::testing
