// SPDX-License-Identifier: Apache-2.0
//
// The counters page of an agent that may have died while writing a word, read by mcctl.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/admin/counters_page.h"
#include "bytes.h"
#include "shm/layout.h"

namespace {

// The page's file, in a directory that the fuzzer removes at its end.
struct Page {
  Page() {
    mc::fuzz::require(::mkdtemp(directory) != nullptr);
    mc::fuzz::require(mc::agent::CountersPage::create(directory, 1, 1).has_value());
    path = std::string(directory) + "/counters";
    mc::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat status {};
    mc::fuzz::require(fd && ::fstat(fd.get(), &status) == 0);
    mapping = *mc::Mapping::map(fd.get(), static_cast<std::uint64_t>(status.st_size),
                                mc::Mapping::Access::kReadWrite);
    std::memcpy(header, mapping.data(), sizeof header);
  }
  ~Page() {
    ::unlink(path.c_str());
    ::rmdir(directory);
  }
  char directory[32] = "/tmp/mc-counters-fuzz-XXXXXX";
  std::string path;
  mc::Mapping mapping;
  std::byte header[sizeof(mc::shm::FileHeader)];
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Page page;
  mc::fuzz::Bytes bytes(data, size);
  const std::uint8_t mode = bytes.take<std::uint8_t>();
  const bool fix_header = mode % 4 != 0;
  const std::size_t begin = fix_header ? sizeof page.header : 0;
  std::memset(page.mapping.data(), 0, 4096);
  if (fix_header) std::memcpy(page.mapping.data(), page.header, sizeof page.header);
  bytes.fill(page.mapping.data() + begin, page.mapping.size_bytes() - begin);
  // Seven of eight inputs get a valid length: a length near the page's end copies the whole page.
  if (fix_header && mode / 4 % 8 != 0) {
    std::byte* const at = page.mapping.data() + sizeof page.header + sizeof(mc::shm::Word64);
    std::uint64_t length = 0;
    std::memcpy(&length, at, sizeof length);
    length %= 4096;
    std::memcpy(at, &length, sizeof length);
  }
  const auto text = mc::agent::read_counters_text(page.directory);
  if (text) mc::fuzz::require(!text->empty() && text->size() <= page.mapping.size_bytes());
  return 0;
}
