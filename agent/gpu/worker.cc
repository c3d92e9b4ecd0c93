// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "shm/atomic.h"

namespace mc::gpu {

namespace {

constexpr std::uint64_t kSpinNs = 50'000;          // without work, before the loop sleeps
constexpr std::uint64_t kPinEveryNs = 10'000'000;  // a piece, also while there is work
constexpr std::uint64_t kNapNs = 20'000;           // between looks at stamps of streams
constexpr unsigned kRoundsBetweenMessages = 64;
constexpr std::uint64_t kRefusedPinNs = 1'000'000'000;  // until the next try
// Of a client, whose further requests stay in the ring: other clients wait for no more than this.
constexpr std::uint64_t kMostPendingBytes = 256 << 20;

}  // namespace

Worker::Worker(const device::Driver& driver, int device, Fd link)
    : driver_(driver), device_(device), link_(std::move(link)), imports_(driver, device) {}

Worker::~Worker() {
  copier_.reset();  // waits for its copies
  clients_.clear();
}

Result<std::unique_ptr<Worker>> Worker::create(const device::Driver& driver, int device, Fd link) {
  std::unique_ptr<Worker> made(new Worker(driver, device, std::move(link)));
  ::fcntl(made->link_.get(), F_SETFL, O_NONBLOCK);
  made->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!made->epoll_) return fail(MC_NO_MEMORY, errno_text("epoll_create1", errno));
  epoll_event event{.events = EPOLLIN, .data = {.fd = made->link_.get()}};
  ::epoll_ctl(made->epoll_.get(), EPOLL_CTL_ADD, made->link_.get(), &event);
  auto copier = Copier::create(driver, device);
  if (!copier) return fail(copier.error());
  made->copier_ = std::move(*copier);
  LinkMessage hello;
  if (const Status status = driver.call<&device::Calls::get_device_uuid>(&hello.device, device);
      !status.ok()) {
    return fail(status);
  }
  made->send(hello);
  return made;
}

void Worker::send(const LinkMessage& message) {
  // A link that is gone ends the loop soon.
  static_cast<void>(send_message(link_.get(), std::as_bytes(std::span(&message, 1))));
}

// ---- Requests ---------------------------------------------------------------------------------

Status Worker::serve_lanes(bool* busy) {
  for (auto& [id, client] : clients_) {
    for (const auto& lane : client.lanes) {
      if (client.ending || client.pending_bytes >= kMostPendingBytes) break;
      Lane::Started started;
      if (!lane->take(imports_, &started)) continue;
      *busy = true;
      if (started.copies.empty()) continue;
      const std::uint64_t tag = next_tag_++;
      if (const Status status = copier_->submit(started.copies, tag); !status.ok()) return status;
      std::uint64_t bytes = 0;
      for (const Copy& copy : started.copies) {
        bytes += copy.bytes;
        (copy.to_device ? counters_.bytes_to_device : counters_.bytes_from_device) += copy.bytes;
      }
      pending_[tag] = {lane.get(), id, started.request, bytes, std::move(started.used)};
      client.pending_bytes += bytes;
      ++client.pending;
      ++counters_.requests;
      MC_FAILPOINT("gpu.copy_submitted");
    }
  }
  return {};
}

Status Worker::take_ended() {
  ended_.clear();
  if (const Status status = copier_->poll(ended_); !status.ok()) return status;
  for (const std::uint64_t tag : ended_) {
    const auto at = pending_.find(tag);
    const Pending& pending = at->second;
    for (const Imports::Name& name : pending.used) imports_.done(name);
    Client& client = clients_[pending.client];
    MC_FAILPOINT("gpu.copy_ended");
    pending.lane->answer(pending.request, {});
    client.pending_bytes -= pending.bytes;
    --client.pending;
    if (client.ending && client.pending == 0) forget(pending.client);
    pending_.erase(at);
  }
  return {};
}

// ---- The agent's messages ---------------------------------------------------------------------

Result<bool> Worker::take_message() {
  auto message = receive_message(link_.get(), sizeof(LinkMessage));
  if (!message) {
    if (message.error().code() == MC_BUSY) return true;
    return fail(message.error());
  }
  if (message->bytes.empty()) return false;  // the agent is gone
  const auto link = decode_link(message->bytes);
  if (!link) return fail(MC_VERSION_MISMATCH, "the agent and mc-gpu are of different versions");
  if (const Status status = on_message(*link, std::move(message->fds)); !status.ok()) {
    return fail(status);
  }
  return true;
}

Status Worker::on_message(const LinkMessage& message, std::vector<Fd> fds) {
  switch (message.type) {
    case LinkType::kPool:
      return add_pool(message, fds);
    case LinkType::kBacked:
      return set_backed(message);
    case LinkType::kLane:
      return add_lane(message, std::move(fds));
    case LinkType::kEndClient:
      end_client(message);
      return {};
    case LinkType::kReport:
      report(message.ticket);
      return {};
    case LinkType::kDropPool:
      pools_.erase(message.pool);
      return {};
    default:
      return {MC_INVALID_ARGUMENT, "the agent sent an unknown message"};
  }
}

Status Worker::add_pool(const LinkMessage& message, const std::vector<Fd>& fds) {
  std::vector<MappablePart> parts;
  for (const Fd& fd : fds) parts.push_back({fd.get(), message.bytes});
  const auto access = message.writable != 0 ? Mapping::Access::kReadWrite : Mapping::Access::kRead;
  auto mapping = Mapping::map_parts(parts, access);
  if (!mapping) return mapping.error();
  Memory& pool = pools_[message.pool];
  pool.pinned = std::make_unique<PinnedMemory>(driver_, device_, std::move(*mapping), message.bytes,
                                               message.writable != 0);
  pool.backed.assign(parts.size(), 0);
  return {};
}

Status Worker::set_backed(const LinkMessage& message) {
  const auto at = pools_.find(message.pool);
  if (at == pools_.end() || message.part >= at->second.backed.size()) {
    return {MC_INVALID_ARGUMENT, "the agent sent the size of an unknown part of a pool"};
  }
  Memory& pool = at->second;
  const bool less = message.bytes < pool.backed[message.part];
  pool.backed[message.part] = message.bytes;
  if (less) {
    // Only a client that does not keep to reserved extents copies to free memory.
    while (!copier_->is_idle()) {
      if (Status status = take_ended(); !status.ok()) return status;
    }
    pool.pinned->shrink(message.part, message.bytes);
    MC_FAILPOINT("gpu.unpinned");
  }
  LinkMessage answer = message;
  answer.type = LinkType::kUnpinned;
  if (answer.ticket != 0) send(answer);
  return {};
}

Status Worker::add_lane(const LinkMessage& message, std::vector<Fd> fds) {
  const auto pool = pools_.find(message.pool);
  if (pool == pools_.end() || fds.size() < kStagingFd) {
    return {MC_INVALID_ARGUMENT, "the agent sent a lane without its pool or descriptors"};
  }
  auto file =
      Mapping::map(fds[kLaneFd].get(), sizeof(shm::DeviceLane), Mapping::Access::kReadWrite);
  if (!file) return file.error();
  if (!shm::check_header(reinterpret_cast<const shm::DeviceLane*>(file->data())->file,
                         shm::FileKind::kLane, file->size_bytes())) {
    return {MC_VERSION_MISMATCH, "the agent made a lane of another version"};
  }
  Client& client = clients_[message.client];
  if (fds.size() > kStagingFd && client.staging.pinned == nullptr) {
    auto staging = Mapping::map(fds[kStagingFd].get(), message.bytes, Mapping::Access::kReadWrite);
    if (!staging) return staging.error();
    client.staging.pinned =
        std::make_unique<PinnedMemory>(driver_, device_, std::move(*staging), message.bytes, true);
    client.staging.backed.assign(1, message.bytes);
  }
  // A bell is edge-triggered and never read: the client shares the file description, and could make a
  // read block.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = fds[kWorkerBellFd].get()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fds[kWorkerBellFd].get(), &event);
  client.lanes.push_back(std::make_unique<Lane>(
      message.client, std::move(*file), std::move(fds[kClientBellFd]), std::move(fds[kChunksFd]),
      *pool->second.pinned, client.staging.pinned.get()));
  client.bells.push_back(std::move(fds[kWorkerBellFd]));
  MC_FAILPOINT("gpu.lane_added");
  return {};
}

void Worker::end_client(const LinkMessage& message) {
  Client& client = clients_[message.client];
  client.ending = true;
  client.end_ticket = message.ticket;
  imports_.close_all(message.client);
  if (client.pending == 0) forget(message.client);
}

void Worker::forget(std::uint64_t id) {
  LinkMessage answer;
  answer.type = LinkType::kClientEnded;
  answer.client = id;
  answer.ticket = clients_[id].end_ticket;
  clients_.erase(id);
  MC_FAILPOINT("gpu.client_ended");
  send(answer);
}

void Worker::report(std::uint64_t ticket) {
  LinkMessage answer;
  answer.type = LinkType::kReport;
  answer.ticket = ticket;
  answer.counters = counters_;
  answer.counters.imports = imports_.size();
  answer.counters.opened = imports_.counters().opened;
  for (const auto& [id, pool] : pools_) {
    answer.counters.pinned_bytes += pool.pinned->pinned_bytes();
  }
  send(answer);
}

// ---- The loop ---------------------------------------------------------------------------------

bool Worker::pin_some(std::uint64_t now) {
  if (now < pin_again_ns_) return false;
  const auto grow = [&](Memory& memory) {
    if (memory.pinned == nullptr) return false;
    for (std::size_t part = 0; part < memory.backed.size(); ++part) {
      const auto grown = memory.pinned->grow(part, memory.backed[part]);
      if (grown && *grown) return true;
      if (grown) continue;
      // Copies of unpinned memory are the clients' own. The agent's questions wake the loop later.
      if (pin_again_ns_ == 0) {
        spdlog::warn(
            "event=pin_refused pinned_mib={} cause=\"{}\" effect=\"clients copy the rest\"",
            memory.pinned->pinned_bytes() >> 20, grown.error().text());
      }
      pin_again_ns_ = now + kRefusedPinNs;
      return false;
    }
    return false;
  };
  for (auto& [id, client] : clients_) {
    if (grow(client.staging)) return true;
  }
  for (auto& [id, pool] : pools_) {
    if (grow(pool)) return true;
  }
  return false;
}

void Worker::sleep() {
  const auto announce = [&](bool asleep) {
    for (auto& [id, client] : clients_) {
      for (const auto& lane : client.lanes) lane->announce_sleep(asleep);
    }
  };
  const auto any_lane = [&](const auto& holds) {
    for (auto& [id, client] : clients_) {
      for (const auto& lane : client.lanes) {
        if (!client.ending && holds(*lane)) return true;
      }
    }
    return false;
  };
  announce(true);
  shm::full_fence();
  if (!any_lane([](const Lane& lane) { return lane.has_request(); })) {
    const timespec nap{0, kNapNs};
    const bool streams = any_lane([](const Lane& lane) { return lane.waits(); });
    pollfd bells{epoll_.get(), POLLIN, 0};
    static_cast<void>(::ppoll(&bells, 1, streams ? &nap : nullptr, nullptr));
    epoll_event events[16];
    static_cast<void>(::epoll_wait(epoll_.get(), events, 16, 0));
  }
  announce(false);
}

Status Worker::run() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // for naps
  std::uint64_t quiet_since_ns = now_ns();
  std::uint64_t pinned_ns = 0;
  for (unsigned round = 0;; ++round) {
    bool busy = false;
    if (const Status status = serve_lanes(&busy); !status.ok()) return status;
    if (const Status status = take_ended(); !status.ok()) return status;
    shm::full_fence();
    for (auto& [id, client] : clients_) {
      for (const auto& lane : client.lanes) lane->wake_client();
    }
    const std::uint64_t now = now_ns();
    if (busy || !copier_->is_idle()) quiet_since_ns = now;
    const bool is_quiet = now - quiet_since_ns >= kSpinNs;
    if (round % kRoundsBetweenMessages == 0 || is_quiet) {
      const auto goes_on = take_message();
      if (!goes_on) return goes_on.error();
      if (!*goes_on) return {};
    }
    if (!is_quiet && now - pinned_ns < kPinEveryNs) continue;
    pinned_ns = now;
    if (!pin_some(now) && is_quiet) sleep();
  }
}

}  // namespace mc::gpu
