// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/disk/open_disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "agent/tier/disk/threaded_disk.h"
#include "agent/tier/disk/uring_disk.h"
#include "libmc/base/fd.h"

namespace mc::tier {

namespace {

constexpr char kFileInDirectory[] = "mc.tier";
constexpr int kTries = 50;
constexpr std::chrono::milliseconds kPause{20};

std::uint64_t whole_blocks(std::uint64_t bytes) { return bytes / kBlockBytes * kBlockBytes; }

std::string mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Status open_error(const std::string& path, int error) {
  const std::string text = errno_text("cannot open the tier's disk " + path, error);
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return {MC_PERMISSION_DENIED, text + "; let the agent's user read and write the path"};
    case ENOENT:
    case ENOTDIR:
      return {MC_INVALID_ARGUMENT,
              text + "; create the directory " + folder_of(path) + " or correct the path"};
    case ELOOP:
      return {MC_INVALID_ARGUMENT, text + "; name the file itself and not a symbolic link"};
    case EBUSY:
      return {MC_BUSY, text + "; another agent has the disk, or the device is mounted: name " +
                           "another device, or unmount the device"};
    default:
      return {MC_INVALID_ARGUMENT, text + "; name a block device, a file or a directory"};
  }
}

Status check_kind(const std::string& path, const struct stat& found) {
  if (S_ISREG(found.st_mode) || S_ISBLK(found.st_mode)) return {};
  const char* kind = "a pipe or a socket";
  if (S_ISCHR(found.st_mode)) kind = "a character device";
  if (S_ISDIR(found.st_mode)) kind = "a directory";
  return {MC_INVALID_ARGUMENT, "the tier's disk " + path + " is " + kind +
                                   "; name a block device, a file or a directory"};
}

// Opens the file or device without O_DIRECT: posix_fallocate() of the C library writes single bytes
// where a filesystem cannot reserve room.
Result<Fd> open_place(std::string& path) {
  path = path_of_disk(path);
  struct stat found {};
  const bool exists = ::stat(path.c_str(), &found) == 0;
  if (!exists && errno != ENOENT) return fail(open_error(path, errno));
  if (!exists && path.starts_with("/dev/") && !path.starts_with("/dev/shm/")) {
    // A file would take the host's memory there.
    return fail(MC_INVALID_ARGUMENT, "there is no device " + path + "; correct the path");
  }
  if (exists) {
    // Before open(), which starts some character devices.
    if (Status status = check_kind(path, found); !status.ok()) return fail(status);
  }
  int flags = O_RDWR | O_CLOEXEC;
  if (!exists) {
    flags |= O_CREAT | O_NOFOLLOW;
  } else if (S_ISBLK(found.st_mode)) {
    flags |= O_EXCL;  // fails if the device is mounted or another opener has O_EXCL
  } else {
    flags |= O_NOFOLLOW;
  }
  Fd fd(::open(path.c_str(), flags, 0600));
  if (!fd) return fail(open_error(path, errno));
  // The path may name another file by now.
  if (::fstat(fd.get(), &found) != 0) return fail(open_error(path, errno));
  if (Status status = check_kind(path, found); !status.ok()) return fail(status);
  return fd;
}

Status lock(const std::string& path, int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK) {
    return {MC_BUSY, "another agent has the tier's disk " + path +
                         "; give each agent a disk of its own, or end the other agent"};
  }
  return {MC_INVALID_ARGUMENT,
          errno_text("cannot lock the tier's disk " + path, errno) + "; name a disk of this host"};
}

// Opens and locks. Waits up to a second for an agent that ends: the kernel keeps its files open for its last
// operations, and no event tells of the end of a lock.
Result<Fd> take_place(std::string& path) {
  for (int tries = 1;; ++tries) {
    auto fd = open_place(path);
    if (fd) {
      if (Status status = lock(path, fd->get()); !status.ok()) fd = fail(status);
    }
    if (fd || fd.error().code() != MC_BUSY || tries == kTries) return fd;
    std::this_thread::sleep_for(kPause);
  }
}

Status no_room(const std::string& path, int fd, std::uint64_t needed_bytes) {
  struct statvfs system {};
  std::uint64_t free_bytes = 0;
  if (::fstatvfs(fd, &system) == 0) free_bytes = system.f_bavail * system.f_frsize;
  return {MC_NO_SPACE, "cannot reserve " + mib(needed_bytes) + " for the tier's disk " + path +
                           ": " + mib(free_bytes) + " free; lower tier_bytes or free room"};
}

// A file that has content grows only if the content is ours. The log refuses other content later.
bool is_ours(int fd) {
  std::vector<std::byte> start(kSuperblocks * kBlockBytes);
  if (::pread(fd, start.data(), start.size(), 0) != static_cast<ssize_t>(start.size()))
    return false;
  for (std::uint64_t copy = 0; copy < kSuperblocks; ++copy) {
    const auto found = read_superblock(std::span(start).subspan(copy * kBlockBytes));
    if (found) return found->format <= kFormat;
  }
  return false;
}

// Beyond the process's limit of file sizes the kernel sends SIGXFSZ, which ends a process.
Status check_limit(const std::string& path, std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return {};
  return {MC_NO_SPACE, "the tier's disk " + path + " needs " + mib(bytes) +
                           ", but files of this process have at most " + mib(limit.rlim_cur) +
                           "; lower tier_bytes or raise the limit: ulimit -f unlimited"};
}

// Lets a file grow from old_bytes to new_bytes.
Status grow(const std::string& path, int fd, std::uint64_t old_bytes, std::uint64_t new_bytes) {
  const std::uint64_t more_bytes = new_bytes - old_bytes;
  // Some filesystems fill up before posix_fallocate() fails. Other programs need that room.
  struct statvfs system {};
  const bool tells_room = ::fstatvfs(fd, &system) == 0 && system.f_blocks > 0;
  if (tells_room && more_bytes > system.f_bfree * system.f_frsize) {
    return no_room(path, fd, more_bytes);
  }
  int error = 0;
  do {
    error = ::posix_fallocate(fd, static_cast<off_t>(old_bytes), static_cast<off_t>(more_bytes));
  } while (error == EINTR);
  if (error == 0) return {};
  // Gives back the room that the failed call has taken. There is no content behind old_bytes.
  const bool shrunk = ::ftruncate(fd, static_cast<off_t>(old_bytes)) == 0;
  if (error == ENOSPC && shrunk) return no_room(path, fd, more_bytes);
  return {MC_NO_SPACE,
          errno_text("cannot reserve " + mib(more_bytes) + " for the tier's disk " + path, error) +
              "; lower tier_bytes or free room"};
}

// A new name survives a power cut only after a flush of the directory. An error is no reason to
// refuse the disk: without the name, the next agent makes a new file.
void flush_name(const std::string& path, int fd) {
  const Fd folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (::fsync(fd) == 0 && folder) (void)::fsync(folder.get());
}

struct Size {
  std::uint64_t bytes = 0;
  bool created = false;
};

Result<Size> settle_size(const std::string& path, int fd, std::uint64_t wanted_bytes) {
  struct stat found {};
  if (::fstat(fd, &found) != 0) return fail(open_error(path, errno));
  auto present_bytes = static_cast<std::uint64_t>(found.st_size);
  const bool is_device = S_ISBLK(found.st_mode);
  if (is_device && ::ioctl(fd, BLKGETSIZE64, &present_bytes) != 0) {
    return fail(open_error(path, errno));
  }
  Size size;
  size.created = !is_device && present_bytes == 0;
  size.bytes = whole_blocks(wanted_bytes == 0 ? present_bytes : wanted_bytes);
  if (size.bytes < kLeastDiskBytes) {
    return fail(MC_INVALID_ARGUMENT, "the tier's disk " + path + " would have " + mib(size.bytes) +
                                         ", fewer than " + mib(kLeastDiskBytes) +
                                         "; raise tier_bytes or name a larger disk");
  }
  if (!is_device) {
    if (Status status = check_limit(path, size.bytes); !status.ok()) return fail(status);
  }
  if (size.bytes <= present_bytes) return size;
  if (is_device) {
    return fail(MC_INVALID_ARGUMENT, "the device " + path + " has " + mib(present_bytes) +
                                         ", but tier_bytes asks for " + mib(size.bytes) +
                                         "; lower tier_bytes, or set 0 for the whole device");
  }
  if (present_bytes > 0 && !is_ours(fd)) {
    return fail(MC_INVALID_ARGUMENT,
                "the file " + path +
                    " has other data, and is not written; name another path in "
                    "tier_paths, or remove the file if nobody needs the data");
  }
  if (Status status = grow(path, fd, present_bytes, size.bytes); !status.ok()) return fail(status);
  flush_name(path, fd);
  return size;
}

struct Access {
  bool direct = true;
  std::uint32_t sector_bytes = kBlockBytes;  // of a read
};

constexpr Access kBuffered{.direct = false, .sector_bytes = 512};

// Sets O_DIRECT, if the filesystem does not refuse O_DIRECT. Errors: the file or device needs blocks larger
// than ours.
Result<Access> set_direct(const std::string& path, int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) return kBuffered;
#ifdef STATX_DIOALIGN
  struct statx found {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) != 0) return Access{};
  if ((found.stx_mask & STATX_DIOALIGN) == 0) return Access{};  // before Linux 6.1
  if (found.stx_dio_offset_align == 0) {
    // The filesystem takes the flag, but not for this file, as for an encrypted one.
    (void)::fcntl(fd, F_SETFL, flags);
    return kBuffered;
  }
  const std::uint32_t needed = std::max(found.stx_dio_mem_align, found.stx_dio_offset_align);
  if (needed > kBlockBytes) {
    return fail(MC_INVALID_ARGUMENT, "the tier's disk " + path + " needs blocks of " +
                                         std::to_string(needed) + " bytes, but blocks have " +
                                         std::to_string(kBlockBytes) + "; name another disk");
  }
  if (kBlockBytes % found.stx_dio_offset_align == 0) {
    return Access{.sector_bytes = found.stx_dio_offset_align};
  }
#endif
  return Access{};
}

Result<std::unique_ptr<Disk>> make_disk(Fd fd, DiskShape shape, bool& uring) {
  auto over_ring = UringDisk::create(fd, shape);
  uring = over_ring.has_value();
  if (uring) return std::unique_ptr<Disk>(std::move(*over_ring));
  auto over_threads = ThreadedDisk::create(std::move(fd), shape);
  if (!over_threads) return fail(over_threads.error());
  return std::unique_ptr<Disk>(std::move(*over_threads));
}

}  // namespace

std::string path_of_disk(const std::string& path) {
  struct stat found {};
  const bool is_directory = ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  return is_directory ? (std::filesystem::path(path) / kFileInDirectory).string() : path;
}

Result<OpenedDisk> open_disk(const DiskPlace& place) {
  OpenedDisk opened;
  opened.path = place.path;
  auto fd = take_place(opened.path);
  if (!fd) return fail(fd.error());
  auto size = settle_size(opened.path, fd->get(), place.bytes);
  if (!size) return fail(size.error());
  opened.created = size->created;
  auto access = set_direct(opened.path, fd->get());
  if (!access) return fail(access.error());
  opened.direct = access->direct;
  auto disk = make_disk(std::move(*fd),
                        {.bytes = size->bytes, .sector_bytes = access->sector_bytes}, opened.uring);
  if (!disk) return fail(disk.error());
  opened.disk = std::move(*disk);
  return opened;
}

}  // namespace mc::tier
