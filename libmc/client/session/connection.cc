// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/session/connection.h"

#include <sys/socket.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "libmc/base/failpoint.h"
#include "shm/doorbell.h"
#include "shm/pins.h"

namespace mc::client {

namespace {

Status closed_by_agent() {
  return {MC_AGENT_UNAVAILABLE, "the agent closed the connection; see its log"};
}

Result<Message> receive_within(int socket, std::uint64_t timeout_ns) {
  if (!wait_readable(socket, timeout_ns)) {
    return fail(MC_TIMEOUT, "the agent accepted the connection but does not answer; see its log");
  }
  auto message = receive_message(socket, shm::kMaxControlBytes);
  if (message && message->bytes.empty()) return fail(closed_by_agent());
  return message;
}

// The agent's own text if the message is a refusal.
std::optional<Status> refusal_in(const Message& message) {
  std::string_view text;
  const auto header =
      shm::decode_control<shm::ControlHeader>(message.bytes, shm::ControlType::kAnswer, &text);
  if (!header || header->status == MC_OK) return std::nullopt;
  return Status(static_cast<mc_status>(shm::known_status(header->status)), std::string(text));
}

bool is_notice(const Message& message) {
  return shm::decode_control<shm::ControlHeader>(message.bytes,
                                                 shm::ControlType::kReservationCacheWanted)
      .has_value();
}

// The field is zero before: the last byte ends the text.
void copy_text(char* field, std::size_t size, const std::string& text) {
  text.copy(field, size - 1);
}

bool has_right_descriptors(const shm::Welcome& welcome, std::size_t count) {
  if (welcome.index_parts == 0 || welcome.index_parts > shm::kMaxIndexParts) return false;
  if (welcome.pool_parts == 0 || welcome.pool_parts > shm::kMaxArenas) return false;
  const std::size_t pools = welcome.isolated != 0 ? 1 : 2;
  return count == shm::kFirstPartFd + welcome.index_parts + pools * welcome.pool_parts;
}

// True if the parts of the index end behind [offset, offset + bytes) of the mapping.
bool holds(const shm::Welcome& welcome, const std::vector<Fd>& fds, std::uint64_t offset,
           std::uint64_t bytes) {
  for (std::uint32_t part = 0; part < welcome.index_parts; ++part) {
    const std::uint64_t part_bytes = welcome.index_part_bytes[part];
    if (offset >= part_bytes) {
      offset -= part_bytes;
      continue;
    }
    struct stat status {};
    if (::fstat(fds[shm::kFirstPartFd + part].get(), &status) != 0) return false;
    const auto end = static_cast<std::uint64_t>(status.st_size);
    return offset <= end && bytes <= end - offset;
  }
  return bytes == 0;
}

// The reader would get SIGBUS beyond the end of a part. The agent reserves memory before it counts
// the memory in the header.
bool holds_what_it_counts(const shm::IndexHeader& header, const shm::Welcome& welcome,
                          const std::vector<Fd>& fds) {
  for (const shm::TableDescriptor& table : header.tables) {
    const std::uint64_t buckets = table.bucket_count.load_acquire();
    if (buckets > header.table_max_bytes / sizeof(shm::Bucket) ||
        !holds(welcome, fds, table.offset_bytes.load_relaxed(), buckets * sizeof(shm::Bucket))) {
      return false;
    }
  }
  const std::uint64_t entries = header.entry_count.load_acquire();
  const std::uint64_t key_bytes = header.keys_reserved_bytes.load_acquire();
  return entries <= header.max_entries &&
         holds(welcome, fds, header.entries_offset, entries * sizeof(shm::Entry)) &&
         holds(welcome, fds, header.keys_offset, key_bytes);
}

Status map_memory(Memory& memory, const shm::Welcome& welcome, const std::vector<Fd>& fds) {
  using Access = Mapping::Access;
  const auto take = [](Result<Mapping> mapping, Mapping& to) {
    if (!mapping) return mapping.error();
    mapping->forget_in_children();
    to = std::move(*mapping);
    return Status();
  };
  std::size_t next_fd = shm::kFirstPartFd;
  const auto map_parts = [&](std::uint32_t count, const auto& bytes_of, Access access,
                             Mapping& to) {
    std::vector<MappablePart> parts;
    for (std::uint32_t i = 0; i < count; ++i) parts.push_back({fds[next_fd++].get(), bytes_of(i)});
    return take(Mapping::map_parts(parts, access), to);
  };
  const auto index_bytes = [&](std::uint32_t part) { return welcome.index_part_bytes[part]; };
  const auto pool_bytes = [&](std::uint32_t) {
    return welcome.pool_max_bytes / welcome.pool_parts;
  };
  Status status =
      take(Mapping::map(fds[shm::kSessionFd].get(), welcome.session_bytes, Access::kReadWrite),
           memory.session_map);
  if (status.ok()) {
    status = map_parts(welcome.index_parts, index_bytes, Access::kRead, memory.index_map);
  }
  if (status.ok()) {
    status = map_parts(welcome.pool_parts, pool_bytes, Access::kRead, memory.pool_map);
  }
  if (status.ok() && !memory.isolated) {
    status = map_parts(welcome.pool_parts, pool_bytes, Access::kReadWrite, memory.pool_write_map);
  }
  if (!status.ok()) return status;
  memory.region_touched =
      std::make_unique<std::atomic<bool>[]>(welcome.pool_max_bytes / kHugePageBytes + 1);
  if (!holds(welcome, fds, 0, shm::kPageBytes)) {
    return {MC_VERSION_MISMATCH, "the agent's index file has no header"};
  }
  const auto reader =
      shm::IndexReader::open(memory.index_map.data(), memory.index_map.size_bytes());
  if (!reader || !holds_what_it_counts(reader->header(), welcome, fds)) {
    return {MC_VERSION_MISMATCH, "the agent's index file has another layout"};
  }
  memory.index = *reader;
  memory.index.set_pool(memory.pool_map.data(), memory.pool_map.size_bytes());
  if (welcome.session_bytes < shm::session_file_bytes(welcome.channel_count)) {
    return {MC_VERSION_MISMATCH, "the agent's session file has another layout"};
  }
  return {};
}

}  // namespace

void Memory::touch_region(std::uint64_t region) const {
  region_touched[region].store(true, std::memory_order_relaxed);
  // Touch only what the agent has reserved: a touched hole would take memory that no quota counts.
  const std::uint64_t begin = region * kHugePageBytes;
  if (!in_pool(begin, kHugePageBytes)) return;
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_WRITE = 23;
#endif
  // Kernels before 5.14 do not know this advice; then each page takes a separate fault.
  ::madvise(pool_write_map.data() + begin, kHugePageBytes, MADV_POPULATE_WRITE);
}

std::uint64_t Memory::next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool Memory::has_pins() const {
  for (std::uint32_t number = 0; number < channel_count; ++number) {
    for (const shm::Word64& pin : channel(number)->pins) {
      const std::uint64_t value = pin.load_acquire();
      // The agent that was to set a wanted pin is gone.
      if (value != 0 && value != shm::kPinWanted) return true;
    }
  }
  return false;
}

bool Memory::let_go() {
  if (gone_) return true;
  index.close();
  shm::full_fence();
  if (has_pins()) return false;
  gone_ = index_map.let_go() && pool_map.let_go() && pool_write_map.let_go();
  return gone_;
}

Result<Connection> say_hello(Fd socket, const HelloTexts& texts,
                             const std::shared_ptr<Memory>& resume, std::uint64_t timeout_ns) {
  shm::ClientHello hello;
  hello.header.type = static_cast<std::uint32_t>(shm::ControlType::kHello);
  hello.channel_count = texts.channel_count;
  if (resume) {
    hello.resume_session = resume->session_id;
    hello.resume_secret = resume->session_secret;
  }
  copy_text(hello.name_space, sizeof hello.name_space, texts.name_space);
  copy_text(hello.label, sizeof hello.label, texts.label);
  if (Status status = send_message(socket.get(), std::as_bytes(std::span(&hello, 1)));
      !status.ok()) {
    // An agent that refuses a user sends the reason and closes before reading anything.
    if (auto last = receive_within(socket.get(), 0)) {
      if (const auto refusal = refusal_in(*last)) return fail(*refusal);
    }
    return fail(status);
  }
  MC_FAILPOINT("client.hello_sent");
  auto message = receive_within(socket.get(), timeout_ns);
  if (!message) return fail(message.error());
  if (const auto refusal = refusal_in(*message)) return fail(*refusal);
  const auto welcome =
      shm::decode_control<shm::Welcome>(message->bytes, shm::ControlType::kWelcome);
  if (!welcome || !has_right_descriptors(*welcome, message->fds.size()) ||
      welcome->channel_count == 0 || welcome->channel_count > MC_MAX_CHANNELS) {
    return fail(MC_VERSION_MISMATCH, "the agent speaks another protocol; upgrade the older side");
  }
  Connection connection;
  connection.memory = resume;
  if (!resume) {
    auto memory = std::make_shared<Memory>();
    memory->session_id = welcome->session_id;
    memory->session_secret = welcome->session_secret;
    memory->node_id = welcome->node_id;
    memory->reservation_cache_bytes = welcome->reservation_cache_bytes;
    memory->channel_count = welcome->channel_count;
    memory->isolated = welcome->isolated != 0;
    memory->clustered = welcome->clustered != 0;
    memory->on_disks = welcome->on_disks != 0;
    if (Status status = map_memory(*memory, *welcome, message->fds); !status.ok()) {
      return fail(status);
    }
    connection.memory = std::move(memory);
  }
  connection.link = std::make_shared<AgentLink>();
  connection.link->socket = std::move(socket);
  connection.link->agent_event = std::move(message->fds[shm::kAgentEventFd]);
  connection.link->client_event = std::move(message->fds[shm::kClientEventFd]);
  connection.link->epoch = welcome->epoch;
  connection.link->incarnation = welcome->incarnation;
  MC_FAILPOINT("client.mapped");
  return connection;
}

Result<Answer> ask(AgentLink& link, shm::ControlType type, std::uint64_t value,
                   std::uint64_t timeout_ns, std::string_view text) {
  shm::ControlHeader header;
  header.type = static_cast<std::uint32_t>(type);
  header.value = value;
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> question(sizeof header + text.size());
  std::memcpy(question.data(), &header, sizeof header);
  if (!text.empty()) std::memcpy(question.data() + sizeof header, text.data(), text.size());
  const int socket = link.socket.get();
  if (Status status = send_message(socket, question); !status.ok()) return fail(status);
  auto message = receive_within(socket, timeout_ns);
  // Notices are few. Each costs another wait.
  while (message && is_notice(*message)) {
    link.reservation_cache_wanted.store(true, std::memory_order_relaxed);
    message = receive_within(socket, timeout_ns);
  }
  if (!message) {
    // A late answer must not be taken for the answer to the next question, so the link starts anew.
    ::shutdown(socket, SHUT_RDWR);
    return fail(message.error());
  }
  if (const auto refusal = refusal_in(*message)) return fail(*refusal);
  const auto answer =
      shm::decode_control<shm::ControlHeader>(message->bytes, shm::ControlType::kAnswer);
  if (!answer) return fail(MC_VERSION_MISMATCH, "the agent gave an answer of another protocol");
  Answer result;
  result.value = answer->value;
  result.fds = std::move(message->fds);
  return result;
}

void take_notice(AgentLink& link) {
  if (!wait_readable(link.socket.get(), 0)) return;
  auto message = receive_message(link.socket.get(), shm::kMaxControlBytes);
  if (message && is_notice(*message))
    link.reservation_cache_wanted.store(true, std::memory_order_relaxed);
}

}  // namespace mc::client
