// SPDX-License-Identifier: Apache-2.0
//
// The client's side of a hello: an agent answers with arbitrary bytes and files.
#include <sys/socket.h>

#include <memory>

#include "bytes.h"
#include "libmc/base/memory_file.h"
#include "libmc/client/session/connection.h"

namespace {

constexpr std::uint64_t kFileBytes = 64 * 1024;

// Files of the seeds' sizes; the input gives the content.
struct Files {
  Files() {
    for (mc::MemoryFile& file : files) file = *mc::MemoryFile::create("fuzz", kFileBytes);
    mapping = *mc::Mapping::map(files[0].fd(), kFileBytes, mc::Mapping::Access::kReadWrite);
  }
  mc::MemoryFile files[6];
  mc::Mapping mapping;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Files* const files = new Files;
  mc::fuzz::Bytes bytes(data, size);
  const std::size_t fd_count = bytes.below(16);
  const bool fix_header = bytes.take<std::uint8_t>() % 4 != 0;
  mc::shm::IndexHeader index{};
  bytes.fill(&index, std::min<std::size_t>(sizeof index, 512));
  if (fix_header) {
    index.file = mc::shm::make_header(mc::shm::FileKind::kIndex, kFileBytes, 1, 1);
  }
  std::memcpy(files->mapping.data(), static_cast<const void*>(&index), sizeof index);

  mc::shm::Welcome welcome{};
  const auto welcome_bytes = bytes.text(sizeof welcome);
  if (!welcome_bytes.empty()) {
    std::memcpy(static_cast<void*>(&welcome), welcome_bytes.data(), welcome_bytes.size());
  }
  const auto rest = bytes.text(4096);
  if (fix_header) {
    welcome.header = {};
    welcome.header.type = static_cast<std::uint32_t>(mc::shm::ControlType::kWelcome);
    welcome.header.text_bytes = static_cast<std::uint32_t>(rest.size());
    welcome.index_parts %= 4;
    welcome.pool_parts %= 4;
    for (std::uint64_t& part : welcome.index_part_bytes) part %= 2 * kFileBytes;
    welcome.pool_max_bytes %= 2 * kFileBytes;
    welcome.session_bytes %= 2 * kFileBytes;
  }
  std::vector<std::byte> message(sizeof welcome + rest.size());
  std::memcpy(message.data(), static_cast<const void*>(&welcome), sizeof welcome);
  if (!rest.empty()) std::memcpy(message.data() + sizeof welcome, rest.data(), rest.size());

  int ends[2];
  mc::fuzz::require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  mc::Fd mine(ends[0]);
  mc::Fd agent(ends[1]);
  std::vector<int> fds;
  for (std::size_t i = 0; i < fd_count; ++i) fds.push_back(files->files[i % 6].fd());
  mc::fuzz::require(mc::send_message(agent.get(), message, fds).ok());
  const auto connection =
      mc::client::say_hello(std::move(mine), {"default", "fuzz", 1}, nullptr, 1000000000);
  if (!connection) {
    mc::fuzz::require(connection.error().code() != MC_OK);
    return 0;
  }
  const mc::client::Memory& memory = *connection->memory;
  mc::fuzz::require(memory.channel_count >= 1 && memory.channel_count <= MC_MAX_CHANNELS);
  mc::shm::FoundObject found;
  static_cast<void>(memory.index.find("key", 3, 1, nullptr, found));
  return 0;
}
