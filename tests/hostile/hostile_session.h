// SPDX-License-Identifier: Apache-2.0
//
// What it is: a session whose owner writes what he likes: the bare socket, the bare memory, the
// bare
//   descriptors, without libmc in between.
// Threads: one.
#pragma once

#include <optional>
#include <string>

#include "libmc/base/fd.h"
#include "libmc/base/memory_file.h"
#include "shm/messages.h"
#include "shm/ring.h"

namespace mc::hostile {

// A hello as libmc would send it.
shm::Hello make_hello(const std::string& name_space = "default", std::uint32_t channels = 1);
template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
// A bare header as a message.
shm::ControlHeader make_control(shm::ControlType type, std::uint64_t value = 0);
// Sends, then waits for the answer. An empty message: the agent closed.
Message converse(int socket, std::span<const std::byte> bytes);

class HostileSession {
 public:
  explicit HostileSession(const std::string& socket_path, const std::string& name_space = "default",
                          std::uint32_t channels = 1);
  // Says goodbye, so that the agent can forget it while this process lives on.
  ~HostileSession();

  bool open() const { return static_cast<bool>(session_); }
  // Why it is not: the agent's words.
  const std::string& refusal() const { return refusal_; }
  const shm::Welcome& welcome() const { return welcome_; }
  int socket() const { return socket_.get(); }
  // Index, pool, session, agent's bell, client's bell, in direct namespaces the pool for writing.
  const std::vector<Fd>& fds() const { return fds_; }
  // Session memory for this many bytes; its descriptor.
  Fd open_staging(std::uint64_t bytes);

  bool open_channel(std::uint32_t number = 0);
  shm::Channel& channel(std::uint32_t number = 0) const;
  shm::SessionHeader& header() const {
    return *reinterpret_cast<shm::SessionHeader*>(session_.data());
  }

  // Puts a record into the ring of channel 0, whatever it says, and rings.
  void publish(const shm::RecordWords& words);
  void ring() const { signal_eventfd(fds_[3].get()); }
  bool has_answer() const { return completions_.has_record(); }
  // The next completion, or nullopt at the watchdog.
  std::optional<shm::Completion> answer();
  shm::Completion ask(shm::Request request);
  // Reservations of this size, as many as the agent grants in one request.
  std::vector<shm::ReservedItem> reserve(std::uint64_t bytes, std::uint32_t count);
  // Writes items with their keys behind the room for results; a request for them.
  shm::Request items(shm::Op op, const std::vector<std::pair<shm::PutItem, std::string>>& items);

 private:
  Fd socket_;
  shm::Welcome welcome_;
  std::string refusal_;
  std::vector<Fd> fds_;
  Mapping session_;
  shm::RingProducer requests_;
  shm::RingConsumer completions_;
};

}  // namespace mc::hostile
