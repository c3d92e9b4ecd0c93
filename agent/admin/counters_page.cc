// SPDX-License-Identifier: Apache-2.0
#include "agent/admin/counters_page.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shm/layout.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kPageFileBytes = 256 * 1024;

struct Page {
  shm::FileHeader header;
  shm::Word64 sequence;  // odd during a write of the text
  shm::Word64 length;
  char text[kPageFileBytes - 128];
};
static_assert(sizeof(Page) <= kPageFileBytes);

std::string path_of(const std::string& runtime_dir) { return runtime_dir + "/counters"; }

}  // namespace

Result<CountersPage> CountersPage::create(const std::string& runtime_dir, std::uint64_t node_id,
                                          std::uint64_t incarnation) {
  const std::string path = path_of(runtime_dir);
  // Each agent creates a new file: a reader that maps the old file keeps the last status of the
  // previous agent.
  ::unlink(path.c_str());
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) return fail(MC_PERMISSION_DENIED, errno_text("create " + path, errno));
  const int error = ::posix_fallocate(fd.get(), 0, kPageFileBytes);
  if (error != 0) {
    return fail(MC_NO_SPACE, errno_text("reserve " + path, error) +
                                 "; make room on that file system or choose another runtime_dir");
  }
  auto mapping = Mapping::map(fd.get(), kPageFileBytes, Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  CountersPage page;
  page.mapping_ = std::move(*mapping);
  auto* shared = reinterpret_cast<Page*>(page.mapping_.data());
  shared->header = shm::make_header(shm::FileKind::kCounters, kPageFileBytes, node_id, incarnation);
  return page;
}

void CountersPage::write(std::string_view json) {
  auto* page = reinterpret_cast<Page*>(mapping_.data());
  if (page == nullptr || json.size() > sizeof page->text) return;
  const std::uint64_t sequence = page->sequence.load_relaxed();
  page->sequence.store_relaxed(sequence + 1);
  shm::full_fence();
  std::memcpy(page->text, json.data(), json.size());
  page->length.store_relaxed(json.size());
  page->sequence.store_release(sequence + 2);
}

std::optional<std::string> read_counters_text(const std::string& runtime_dir) {
  Fd fd(::open(path_of(runtime_dir).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  auto mapping = Mapping::map(fd.get(), kPageFileBytes, Mapping::Access::kRead);
  if (!mapping) return std::nullopt;
  const auto* page = reinterpret_cast<const Page*>(mapping->data());
  if (!shm::check_header(page->header, shm::FileKind::kCounters, kPageFileBytes)) {
    return std::nullopt;
  }
  for (int tries = 0; tries < 1000; ++tries) {
    const std::uint64_t sequence = page->sequence.load_acquire();
    const std::uint64_t length = page->length.load_relaxed();
    if (length == 0 || length > sizeof page->text) return std::nullopt;
    // An odd number can come from a writer that died during a write; then the text is incomplete.
    if (sequence % 2 != 0) continue;
    std::string text(page->text, length);
    shm::acquire_fence();
    if (page->sequence.load_relaxed() == sequence) return text;
  }
  return std::nullopt;
}

}  // namespace mc::agent
