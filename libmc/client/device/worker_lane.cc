// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/worker_lane.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "shm/doorbell.h"
#include "shm/messages.h"

namespace mc::client {

using device::Calls;

namespace {

constexpr std::uint64_t kWorkerSpinNs = 100'000;  // then the thread sleeps
constexpr std::uint32_t kEpoch = 1;               // a lane has a single worker
constexpr int kPosixDescriptor = 1;               // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

// Places of the agent's descriptors.
constexpr std::size_t kFile = 0, kWorkerBell = 1, kClientBell = 2, kSocket = 3, kWorker = 4,
                      kCount = 5;

shm::LaneRequest request_of(shm::LaneOp op, std::uint64_t a, std::uint64_t b) {
  shm::LaneRequest request{};
  request.op = static_cast<std::uint32_t>(op);
  request.a = a;
  request.b = b;
  return request;
}

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

Result<std::unique_ptr<WorkerLane>> WorkerLane::open(std::vector<Fd> fds, WorkerOfSession worker) {
  if (fds.size() != kCount) return fail(MC_VERSION_MISMATCH, "the agent sent no whole lane");
  auto file = Mapping::map(fds[kFile].get(), sizeof(shm::DeviceLane), Mapping::Access::kReadWrite);
  if (!file) return fail(file.error());
  file->forget_in_children();
  if (!shm::check_header(reinterpret_cast<const shm::DeviceLane*>(file->data())->file,
                         shm::FileKind::kLane, file->size_bytes())) {
    return fail(MC_VERSION_MISMATCH, "the agent made a lane of another version");
  }
  return std::unique_ptr<WorkerLane>(new WorkerLane(std::move(*file), std::move(fds), worker));
}

WorkerLane::WorkerLane(Mapping file, std::vector<Fd> fds, WorkerOfSession worker)
    : file_(std::move(file)),
      fds_(std::move(fds)),
      worker_(worker),
      requests_(shared().requests, kEpoch),
      completions_(shared().completions, kEpoch) {}

bool WorkerLane::has_ended() const { return wait_readable(fds_[kWorker].get(), 0); }

Status WorkerLane::copy(std::span<const shm::LaneCopy> copies) {
  while (!copies.empty()) {
    std::size_t count = 0;
    for (std::uint64_t bytes = 0; count < std::min<std::size_t>(copies.size(), shm::kMaxLaneCopies);
         ++count) {
      bytes += copies[count].bytes;
      if (bytes > shm::kMaxLaneBytes) break;
    }
    shm::LaneRequest request = request_of(shm::LaneOp::kCopy, 0, 0);
    request.item_count = static_cast<std::uint32_t>(count);
    Status status = ask(request, std::as_bytes(copies.first(count)));
    if (!status.ok()) return status;
    copies = copies.subspan(count);
  }
  return {};
}

Status WorkerLane::share(const device::Driver& driver, RegisteredMemory& memory) {
  const MutexLock lock(memory.sharing);
  if (memory.told == worker_) return memory.answer;
  memory.answer = memory.handle_error.ok()
                      ? ask(request_of(shm::LaneOp::kOpenMemory, memory.number, memory.bytes),
                            std::as_bytes(std::span(memory.handle.bytes)))
                      : share_chunks(driver, memory);
  memory.told = worker_;
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
    const std::byte one{1};
    Status status = send_message(fds_[kSocket].get(), std::span(&one, 1), fds);
    if (!status.ok()) return status;
    shm::LaneRequest request = request_of(shm::LaneOp::kAddChunks, memory.number, memory.bytes);
    request.item_count = static_cast<std::uint32_t>(chunks.size());
    status = ask(request, std::as_bytes(std::span(bytes)));
    if (!status.ok()) return status;
  }
  return {};
}

Status WorkerLane::close(const RegisteredMemory& memory) {
  return ask(request_of(shm::LaneOp::kCloseMemory, memory.number, 0), {});
}

// No request is under way meanwhile: the arguments have the whole room.
Status WorkerLane::ask(shm::LaneRequest request, std::span<const std::byte> arguments) {
  if (!arguments.empty()) {
    std::memcpy(shared().arguments, arguments.data(), arguments.size());
  }
  request.argument_bytes = static_cast<std::uint32_t>(arguments.size());
  request.request_id = ++last_id_;
  requests_.publish(std::bit_cast<shm::RecordWords>(request));
  MC_FAILPOINT("client.lane_asked");
  if (shm::agent_needs_bell(shared().header)) signal_eventfd(fds_[kWorkerBell].get());
  Status status;
  if (wait_for_answer(last_id_, &status)) return status;
  return {MC_AGENT_UNAVAILABLE, "the worker of the GPU has ended"};
}

bool WorkerLane::take_answer(std::uint64_t request_id, Status* status) {
  shm::RecordWords words;
  while (completions_.poll(words)) {
    const auto completion = std::bit_cast<shm::LaneCompletion>(words);
    if (completion.request_id != request_id) continue;
    *status = Status(static_cast<mc_status>(shm::known_status(completion.status)));
    return true;
  }
  return false;
}

// False: the worker has ended without an answer.
bool WorkerLane::wait_for_answer(std::uint64_t request_id, Status* status) {
  const std::uint64_t start_ns = now_ns();
  while (now_ns() < start_ns + kWorkerSpinNs) {
    for (int spins = 0; spins < 64; ++spins) {
      if (take_answer(request_id, status)) return true;
      cpu_relax();
    }
  }
  for (;;) {
    const bool ended = has_ended();
    shm::announce_client_sleep(shared().header, shm::kClientInPoll);
    const bool answered = take_answer(request_id, status);
    if (!answered && !ended) {
      pollfd events[2] = {{fds_[kClientBell].get(), POLLIN, 0}, {fds_[kWorker].get(), POLLIN, 0}};
      static_cast<void>(::poll(events, 2, -1));
      epoll_event ring;
      static_cast<void>(::epoll_wait(fds_[kClientBell].get(), &ring, 1, 0));
    }
    shm::announce_client_awake(shared().header);
    if (answered || ended) return answered;
  }
}

}  // namespace mc::client
