// SPDX-License-Identifier: Apache-2.0
//
// A session whose owner writes arbitrary values: the bare socket, memory and descriptors, without
//   libmc.
// Threads: one.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "libmc/base/fd.h"
#include "libmc/base/memory_file.h"
#include "shm/messages.h"
#include "shm/ring.h"

namespace mc::hostile {

// A hello like that of libmc.
shm::ClientHello make_hello(const std::string& name_space = "default", std::uint32_t channels = 1);
template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
// A message that is only a header.
shm::ControlHeader make_control(shm::ControlType type, std::uint64_t value = 0);
// Sends a message and waits for the answer. Empty: the agent closed the connection.
Message converse(int socket, std::span<const std::byte> bytes);

class HostileSession {
 public:
  explicit HostileSession(const std::string& socket_path, const std::string& name_space = "default",
                          std::uint32_t channels = 1);
  // Says goodbye, so that the agent ends the session while this process lives.
  ~HostileSession();

  bool open() const { return static_cast<bool>(session_); }
  // The agent's reason for refusing the session.
  const std::string& refusal() const { return refusal_; }
  const shm::Welcome& welcome() const { return welcome_; }
  int socket() const { return socket_.get(); }
  const std::vector<Fd>& fds() const { return fds_; }
  int session_fd() const { return fds_[shm::kSessionFd].get(); }
  // Parts of the index, of the pool, and in direct namespaces of the pool for writing.
  std::span<const Fd> index_fds() const { return parts(0, welcome_.index_parts); }
  std::span<const Fd> pool_fds() const { return parts(welcome_.index_parts, welcome_.pool_parts); }
  std::span<const Fd> writable_pool_fds() const {
    return parts(welcome_.index_parts + welcome_.pool_parts,
                 welcome_.isolated != 0 ? 0 : welcome_.pool_parts);
  }
  Mapping map_index() const;
  // Opens session memory of this size; returns the descriptor.
  Fd open_staging(std::uint64_t bytes);

  bool open_channel(std::uint32_t number = 0);
  shm::Channel& channel(std::uint32_t number = 0) const;
  shm::SessionHeader& header() const {
    return *reinterpret_cast<shm::SessionHeader*>(session_.data());
  }

  // Puts an arbitrary record into the ring of channel 0 and rings the bell.
  void publish(const shm::RecordWords& words);
  void ring() const { signal_eventfd(fds_[shm::kAgentEventFd].get()); }
  bool has_answer() const { return completions_.has_record(); }
  // The next completion; nullopt if the watchdog expires.
  std::optional<shm::Completion> answer();
  shm::Completion ask(shm::Request request);
  // Requests reservations of this size; returns all that one request grants.
  std::vector<shm::ReservedItem> reserve(std::uint64_t bytes, std::uint32_t count);
  // Writes items and keys behind the space for results; returns the request.
  shm::Request items(shm::Op op, const std::vector<std::pair<shm::PutItem, std::string>>& items);

 private:
  std::span<const Fd> parts(std::size_t first, std::size_t count) const {
    return std::span(fds_).subspan(shm::kFirstPartFd + first, count);
  }

  Fd socket_;
  shm::Welcome welcome_;
  std::string refusal_;
  std::vector<Fd> fds_;
  Mapping session_;
  shm::RingProducer requests_;
  shm::RingConsumer completions_;
};

}  // namespace mc::hostile
