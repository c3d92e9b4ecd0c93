// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/lane_end.h"

#include <poll.h>
#include <sys/epoll.h>

#include <bit>
#include <cstring>

#include "libmc/base/failpoint.h"
#include "shm/doorbell.h"

namespace mc::client {

namespace {

constexpr std::uint32_t kLaneEpoch = 1;  // a lane has a single worker

// Places of the agent's descriptors.
constexpr std::size_t kFile = 0, kWorkerBell = 1, kClientBell = 2, kSocket = 3, kWorker = 4,
                      kCount = 5;

}  // namespace

shm::LaneRequest lane_request(shm::LaneOp op, std::uint64_t a, std::uint64_t b) {
  shm::LaneRequest request{};
  request.op = static_cast<std::uint32_t>(op);
  request.a = a;
  request.b = b;
  return request;
}

Result<std::unique_ptr<LaneEnd>> LaneEnd::open(std::vector<Fd> fds, WorkerOfSession worker) {
  if (fds.size() != kCount) return fail(MC_VERSION_MISMATCH, "the agent sent no whole lane");
  auto file = Mapping::map(fds[kFile].get(), sizeof(shm::DeviceLane), Mapping::Access::kReadWrite);
  if (!file) return fail(file.error());
  file->forget_in_children();
  if (!shm::check_header(reinterpret_cast<const shm::DeviceLane*>(file->data())->file,
                         shm::FileKind::kLane, file->size_bytes())) {
    return fail(MC_VERSION_MISMATCH, "the agent made a lane of another version");
  }
  return std::unique_ptr<LaneEnd>(new LaneEnd(std::move(*file), std::move(fds), worker));
}

LaneEnd::LaneEnd(Mapping file, std::vector<Fd> fds, WorkerOfSession worker)
    : file_(std::move(file)),
      fds_(std::move(fds)),
      worker_(worker),
      requests_(lane().requests, kLaneEpoch),
      completions_(lane().completions, kLaneEpoch) {}

bool LaneEnd::has_ended() const {
  const auto [worker, socket] = ends();
  pollfd events[2] = {{worker, POLLIN, 0}, {socket, 0, 0}};  // POLLHUP is always reported
  return ::poll(events, 2, 0) > 0;
}
int LaneEnd::bell() const { return fds_[kClientBell].get(); }
std::array<int, 2> LaneEnd::ends() const { return {fds_[kWorker].get(), fds_[kSocket].get()}; }

void LaneEnd::publish(shm::LaneRequest request, std::uint32_t argument_offset,
                      std::span<const std::byte> arguments) {
  if (!arguments.empty()) {
    std::memcpy(lane().arguments + argument_offset, arguments.data(), arguments.size());
  }
  request.argument_offset = argument_offset;
  request.argument_bytes = static_cast<std::uint32_t>(arguments.size());
  requests_.publish(std::bit_cast<shm::RecordWords>(request));
  MC_FAILPOINT("client.lane_asked");
  if (shm::agent_needs_bell(lane().header)) signal_eventfd(fds_[kWorkerBell].get());
}

std::optional<shm::LaneCompletion> LaneEnd::poll() {
  shm::RecordWords words;
  if (!completions_.poll(words)) return std::nullopt;
  return std::bit_cast<shm::LaneCompletion>(words);
}

Status LaneEnd::send_descriptors(std::span<const int> fds) {
  const std::byte one{1};
  return send_message(fds_[kSocket].get(), std::span(&one, 1), fds);
}

void LaneEnd::expect_bell() { shm::announce_client_sleep(lane().header, shm::kClientInPoll); }

void LaneEnd::take_bell() {
  epoll_event ring;
  static_cast<void>(::epoll_wait(bell(), &ring, 1, 0));
  shm::announce_client_awake(lane().header);
}

}  // namespace mc::client
