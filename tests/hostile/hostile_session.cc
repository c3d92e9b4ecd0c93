// SPDX-License-Identifier: Apache-2.0
#include "hostile_session.h"

#include <thread>

#include "agent_process.h"
#include "libmc/base/clock.h"

namespace mc::hostile {

shm::ClientHello make_hello(const std::string& name_space, std::uint32_t channels) {
  shm::ClientHello hello;
  hello.header.type = static_cast<std::uint32_t>(shm::ControlType::kHello);
  hello.channel_count = channels;
  name_space.copy(hello.name_space, sizeof hello.name_space - 1);
  std::string("hostile").copy(hello.label, sizeof hello.label - 1);
  return hello;
}

shm::ControlHeader make_control(shm::ControlType type, std::uint64_t value) {
  shm::ControlHeader header;
  header.type = static_cast<std::uint32_t>(type);
  header.value = value;
  return header;
}

Message converse(int socket, std::span<const std::byte> bytes) {
  // The agent may have sent a reason before closing.
  const bool sent = send_message(socket, bytes).ok();
  if (!wait_readable(socket, sent ? kWatchdogNs : 0)) return {};
  auto message = receive_message(socket, shm::kMaxControlBytes);
  return message ? std::move(*message) : Message{};
}

HostileSession::HostileSession(const std::string& socket_path, const std::string& name_space,
                               std::uint32_t channels) {
  auto socket = connect_unix(socket_path, kWatchdogNs);
  if (!socket) {
    refusal_ = socket.error().text();
    return;
  }
  socket_ = std::move(*socket);
  Message message = converse(socket_.get(), bytes_of(make_hello(name_space, channels)));
  const auto welcome = shm::decode_control<shm::Welcome>(message.bytes, shm::ControlType::kWelcome);
  if (!welcome || message.fds.size() <= shm::kFirstPartFd) {
    std::string_view text;
    shm::decode_control<shm::ControlHeader>(message.bytes, shm::ControlType::kAnswer, &text);
    refusal_ = text;
    return;
  }
  welcome_ = *welcome;
  fds_ = std::move(message.fds);
  auto mapping = Mapping::map(session_fd(), welcome_.session_bytes, Mapping::Access::kReadWrite);
  if (mapping) session_ = std::move(*mapping);
}

HostileSession::~HostileSession() {
  if (socket_) converse(socket_.get(), bytes_of(make_control(shm::ControlType::kGoodbye)));
}

Mapping HostileSession::map_index() const {
  std::vector<MappablePart> parts;
  for (std::size_t i = 0; i < index_fds().size(); ++i) {
    parts.push_back({index_fds()[i].get(), welcome_.index_part_bytes[i]});
  }
  return *Mapping::map_parts(parts, Mapping::Access::kRead);
}

Fd HostileSession::open_staging(std::uint64_t bytes) {
  Message message =
      converse(socket_.get(), bytes_of(make_control(shm::ControlType::kOpenStaging, bytes)));
  return message.fds.empty() ? Fd() : std::move(message.fds.front());
}

bool HostileSession::open_channel(std::uint32_t number) {
  const Message message =
      converse(socket_.get(), bytes_of(make_control(shm::ControlType::kOpenChannel, number)));
  const auto answer =
      shm::decode_control<shm::ControlHeader>(message.bytes, shm::ControlType::kAnswer);
  if (!answer || answer->status != MC_OK) return false;
  if (number == 0) {
    requests_ = shm::RingProducer(channel().requests, welcome_.epoch);
    completions_ = shm::RingConsumer(channel().completions, welcome_.epoch);
  }
  return true;
}

shm::Channel& HostileSession::channel(std::uint32_t number) const {
  return *reinterpret_cast<shm::Channel*>(session_.data() + shm::channel_offset(number));
}

void HostileSession::publish(const shm::RecordWords& words) {
  requests_.publish(words);
  shm::full_fence();
  if (channel().header.agent_asleep.exchange(0) != 0) ring();
}

std::optional<shm::Completion> HostileSession::answer() {
  shm::RecordWords words;
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (!completions_.poll(words)) {
    if (now_ns() >= deadline_ns) return std::nullopt;
    std::this_thread::yield();
  }
  return std::bit_cast<shm::Completion>(words);
}

shm::Completion HostileSession::ask(shm::Request request) {
  publish(shm::to_words(request));
  const auto completion = answer();
  EXPECT_TRUE(completion.has_value()) << "no answer to operation " << request.op;
  return completion.value_or(shm::Completion{});
}

std::vector<shm::ReservedItem> HostileSession::reserve(std::uint64_t bytes, std::uint32_t count) {
  shm::Request request{};
  request.op = static_cast<std::uint16_t>(shm::Op::kReserve);
  request.item_count = count;
  request.argument_bytes = static_cast<std::uint32_t>(count * sizeof(shm::ReservedItem));
  request.deadline_ns = now_ns() + kWatchdogNs;
  request.a = bytes;
  const shm::Completion completion = ask(request);
  std::vector<shm::ReservedItem> granted;
  if (completion.status != MC_OK) return granted;
  granted.resize(completion.item_count);
  std::memcpy(granted.data(), channel().arguments, granted.size() * sizeof granted[0]);
  return granted;
}

shm::Request HostileSession::items(shm::Op op,
                                   const std::vector<std::pair<shm::PutItem, std::string>>& list) {
  shm::Request request{};
  request.op = static_cast<std::uint16_t>(op);
  request.item_count = static_cast<std::uint32_t>(list.size());
  request.deadline_ns = now_ns() + 1000000;
  std::uint32_t at = shm::result_bytes(request.item_count);
  for (auto [fields, key] : list) {
    if (fields.key_bytes == 0) fields.key_bytes = static_cast<std::uint16_t>(key.size());
    std::memcpy(channel().arguments + at, &fields, sizeof fields);
    std::memcpy(channel().arguments + at + sizeof fields, key.data(), key.size());
    at += static_cast<std::uint32_t>(sizeof fields) +
          shm::padded_key_bytes(static_cast<std::uint32_t>(key.size()));
  }
  request.argument_bytes = at;
  return request;
}

}  // namespace mc::hostile
