// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/worker_lane.h"

#include <poll.h>

#include <algorithm>

#include "libmc/base/clock.h"

namespace mc::client {

using device::Calls;

namespace {

constexpr std::uint64_t kWorkerSpinNs = 100'000;  // then the thread sleeps
constexpr int kPosixDescriptor = 1;               // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

// A descriptor of the chunk for another process.
Result<Fd> export_chunk(const device::Driver& driver, const RegisteredMemory::Chunk& chunk) {
  unsigned long long handle = 0;
  Status status = driver.call<&Calls::retain_chunk>(&handle, reinterpret_cast<void*>(chunk.base));
  if (!status.ok()) return fail(status);
  int fd = -1;
  status =
      driver.call<&Calls::export_chunk>(static_cast<void*>(&fd), handle, kPosixDescriptor, 0ULL);
  static_cast<void>(driver.calls().release_chunk(handle));
  if (!status.ok()) return fail(status);
  return Fd(fd);
}

}  // namespace

std::span<const shm::LaneCopy> first_request(std::span<const shm::LaneCopy> copies) {
  std::size_t count = 0;
  for (std::uint64_t bytes = 0; count < std::min<std::size_t>(copies.size(), shm::kMaxLaneCopies);
       ++count) {
    bytes += copies[count].bytes;
    if (bytes > shm::kMaxLaneBytes) break;
  }
  return copies.first(count);
}

Status WorkerLane::copy(std::span<const shm::LaneCopy> copies) {
  while (!copies.empty()) {
    const auto first = first_request(copies);
    shm::LaneRequest request = lane_request(shm::LaneOp::kCopy);
    request.item_count = static_cast<std::uint32_t>(first.size());
    if (Status status = ask(request, std::as_bytes(first)); !status.ok()) return status;
    copies = copies.subspan(first.size());
  }
  return {};
}

Status WorkerLane::share(const device::Driver& driver, RegisteredMemory& memory) {
  const MutexLock lock(memory.sharing);
  if (memory.told == end_->worker()) return memory.answer;
  memory.answer = memory.handle_error.ok()
                      ? ask(lane_request(shm::LaneOp::kOpenMemory, memory.number, memory.bytes),
                            std::as_bytes(std::span(memory.handle.bytes)))
                      : share_chunks(driver, memory);
  memory.told = end_->worker();
  return memory.answer;
}

Status WorkerLane::share_chunks(const device::Driver& driver, const RegisteredMemory& memory) {
  for (std::size_t first = 0; first < memory.chunks.size(); first += shm::kMaxLaneChunks) {
    const auto chunks = std::span(memory.chunks)
                            .subspan(first, std::min<std::size_t>(shm::kMaxLaneChunks,
                                                                  memory.chunks.size() - first));
    std::vector<Fd> exported;
    std::vector<int> fds;
    std::vector<std::uint64_t> bytes;
    for (const RegisteredMemory::Chunk& chunk : chunks) {
      auto fd = export_chunk(driver, chunk);
      if (!fd) return fd.error();
      fds.push_back(fd->get());
      exported.push_back(std::move(*fd));
      bytes.push_back(chunk.bytes);
    }
    Status status = end_->send_descriptors(fds);
    if (!status.ok()) return status;
    shm::LaneRequest request = lane_request(shm::LaneOp::kAddChunks, memory.number, memory.bytes);
    request.item_count = static_cast<std::uint32_t>(chunks.size());
    status = ask(request, std::as_bytes(std::span(bytes)));
    if (!status.ok()) return status;
  }
  return {};
}

Status WorkerLane::close(const RegisteredMemory& memory) {
  return ask(lane_request(shm::LaneOp::kCloseMemory, memory.number, 0), {});
}

// No request is under way meanwhile: the arguments have the whole room.
Status WorkerLane::ask(shm::LaneRequest request, std::span<const std::byte> arguments) {
  request.request_id = ++last_id_;
  end_->publish(request, 0, arguments);
  Status status;
  if (wait_for_answer(&status)) return status;
  return {MC_AGENT_UNAVAILABLE, "the worker of the GPU has ended"};
}

bool WorkerLane::take_answer(Status* status) {
  while (const auto completion = end_->poll()) {
    if (completion->request_id != last_id_) continue;
    *status = Status(status_of(*completion));
    return true;
  }
  return false;
}

// False: the worker has ended without an answer.
bool WorkerLane::wait_for_answer(Status* status) {
  const std::uint64_t start_ns = now_ns();
  while (now_ns() < start_ns + kWorkerSpinNs) {
    for (int spins = 0; spins < 64; ++spins) {
      if (take_answer(status)) return true;
      cpu_relax();
    }
  }
  for (;;) {
    const bool ended = has_ended();
    end_->expect_bell();
    const bool answered = take_answer(status);
    if (!answered && !ended) {
      const auto [worker, socket] = end_->ends();
      pollfd events[3] = {{end_->bell(), POLLIN, 0}, {worker, POLLIN, 0}, {socket, 0, 0}};
      static_cast<void>(::poll(events, 3, -1));
    }
    end_->take_bell();
    if (answered || ended) return answered;
  }
}

}  // namespace mc::client
