// SPDX-License-Identifier: Apache-2.0
//
// A client's end of the lane to a worker of a device, without libmc.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "device/fake/abi.h"
#include "libmc/base/fd.h"
#include "libmc/base/memory_file.h"
#include "patience.h"
#include "shm/device_lane.h"
#include "shm/doorbell.h"

namespace mc::device::testing {

class ClientLane {
 public:
  // A new lane, for a test that plays the agent.
  ClientLane() {
    const MemoryFile file = MemoryFile::create("lane", sizeof(shm::DeviceLane)).value();
    EXPECT_TRUE(file.reserve(0, sizeof(shm::DeviceLane)).ok());
    const Mapping made = Mapping::map_all(file, Mapping::Access::kReadWrite).value();
    reinterpret_cast<shm::DeviceLane*>(made.data())->file =
        shm::make_header(shm::FileKind::kLane, sizeof(shm::DeviceLane), 0, 0);
    file_ = Fd(::dup(file.fd()));
    worker_bell_ = make_eventfd().value();
    client_bell_ = make_eventfd().value();
    int sockets[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    socket_.reset(sockets[0]);
    workers_socket_.reset(sockets[1]);
    map();
  }
  // A lane from an agent.
  ClientLane(Fd file, Fd worker_bell, Fd client_bell, Fd socket)
      : file_(std::move(file)),
        worker_bell_(std::move(worker_bell)),
        client_bell_(std::move(client_bell)),
        socket_(std::move(socket)) {
    map();
  }
  shm::DeviceLane& lane() { return *reinterpret_cast<shm::DeviceLane*>(mapping_.data()); }
  int worker_bell() const { return worker_bell_.get(); }
  // For the worker.
  std::vector<int> fds() const {
    return {file_.get(), worker_bell_.get(), client_bell_.get(), workers_socket_.get()};
  }

  void publish(const shm::LaneRequest& request) {
    requests_.publish(std::bit_cast<shm::RecordWords>(request));
    if (shm::agent_needs_bell(lane().header)) signal_eventfd(worker_bell_.get());
  }
  std::optional<shm::LaneCompletion> poll() {
    shm::RecordWords words;
    if (!completions_.poll(words)) return std::nullopt;
    return std::bit_cast<shm::LaneCompletion>(words);
  }
  // Sends the request and waits for the answer.
  int ask(shm::LaneRequest request) {
    request.request_id = ++last_id_;
    publish(request);
    std::optional<shm::LaneCompletion> answer;
    EXPECT_TRUE(until([&] { return (answer = poll()).has_value(); }));
    EXPECT_EQ(answer ? answer->request_id : 0, last_id_);
    return answer ? answer->status : -1;
  }
  static shm::LaneRequest request(shm::LaneOp op, std::size_t items, std::size_t argument_bytes,
                                  std::uint64_t a = 0, std::uint64_t b = 0) {
    shm::LaneRequest request{};
    request.op = static_cast<std::uint32_t>(op);
    request.item_count = static_cast<std::uint32_t>(items);
    request.argument_bytes = static_cast<std::uint32_t>(argument_bytes);
    request.a = a;
    request.b = b;
    return request;
  }
  int open(std::uint64_t allocation, const CUipcHandle& handle, std::uint64_t bytes) {
    std::memcpy(lane().arguments, handle.bytes, sizeof handle.bytes);
    return ask(request(shm::LaneOp::kOpenMemory, 0, sizeof handle.bytes, allocation, bytes));
  }
  void send_descriptors(const std::vector<int>& fds) {
    const std::byte one{1};
    EXPECT_TRUE(send_message(socket_.get(), std::span(&one, 1), fds).ok());
  }
  // Sends the descriptors of chunks of these bytes, and the request.
  int add_chunks(std::uint64_t allocation, std::uint64_t whole_bytes, const std::vector<int>& fds,
                 const std::vector<std::uint64_t>& bytes) {
    send_descriptors(fds);
    std::memcpy(lane().arguments, bytes.data(), bytes.size() * sizeof bytes[0]);
    return ask(request(shm::LaneOp::kAddChunks, bytes.size(), bytes.size() * sizeof bytes[0],
                       allocation, whole_bytes));
  }
  // A request whose arguments are in the lane.
  shm::LaneRequest copies(const std::vector<shm::LaneCopy>& copies) {
    std::memcpy(lane().arguments, copies.data(), copies.size() * sizeof(shm::LaneCopy));
    return request(shm::LaneOp::kCopy, copies.size(), copies.size() * sizeof(shm::LaneCopy));
  }
  int copy(const std::vector<shm::LaneCopy>& items) { return ask(copies(items)); }

 private:
  void map() {
    mapping_ =
        Mapping::map(file_.get(), sizeof(shm::DeviceLane), Mapping::Access::kReadWrite).value();
    requests_ = {lane().requests, 1};
    completions_ = {lane().completions, 1};
  }

  Fd file_;
  Mapping mapping_;
  Fd worker_bell_;
  Fd client_bell_;
  Fd socket_;
  Fd workers_socket_;
  shm::RingProducer requests_;
  shm::RingConsumer completions_;
  std::uint64_t last_id_ = 0;
};

}  // namespace mc::device::testing
