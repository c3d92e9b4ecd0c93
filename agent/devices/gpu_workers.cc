// SPDX-License-Identifier: Apache-2.0
#include "agent/devices/gpu_workers.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "shm/device_lane.h"

namespace mc::agent {

using gpu::LinkMessage;
using gpu::LinkType;

namespace {

constexpr std::uint32_t kMaxLanes = MC_MAX_CHANNELS;  // of a session and worker
constexpr std::uint64_t kReportEveryNs = 200'000'000;
constexpr std::uint64_t kPatienceNs = 5'000'000'000;  // for an answer
constexpr std::string_view kKeptPrefix = "worker.";

void kill(const Fd& pidfd) {
  // Fails for a worker of root, which systemd ends.
  static_cast<void>(::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0));
}

// The bytes at the start of each part.
std::vector<std::uint64_t> backed_parts(const ExtentPool& pool) {
  std::vector<std::uint64_t> backed(pool.file().part_count(), 0);
  const std::uint64_t part_bytes = pool.max_bytes() / backed.size();
  for (const shm::ExtentRecord& range : pool.reserved_ranges()) {
    backed[range.offset_bytes / part_bytes] = range.length_bytes;
  }
  return backed;
}

}  // namespace

GpuWorkers::~GpuWorkers() {
  for (const auto& [fd, worker] : workers_) {
    if (events_.watches(fd)) events_.unwatch(fd);
    events_.unwatch(worker.process.pidfd.get());
  }
  for (const auto& [fd, process] : earlier_) events_.unwatch(fd);
}

Status GpuWorkers::attach(Fd link, Fd pidfd, pid_t pid) {
  const int fd = link.get();
  const std::uint64_t now = now_ns();
  const std::string name =
      std::string(kKeptPrefix) + std::to_string(pid) + "." + std::to_string(now);
  Status status = kept_.try_keep(name, pidfd.get());
  if (!status.ok()) return status;
  status = events_.watch(fd, [this, fd] { on_message(fd); });
  if (status.ok()) {
    status = events_.watch(pidfd.get(), [this, fd] { on_end(fd); });
    if (!status.ok()) events_.unwatch(fd);
  }
  if (!status.ok()) {
    kept_.forget(name);
    return status;
  }
  Worker& worker = workers_[fd];
  worker.link = std::move(link);
  worker.process = {name, std::move(pidfd)};
  worker.pid = pid;
  worker.number = now;
  MC_FAILPOINT("workers.attached");
  return {};
}

// A broken link is of no matter here, because the worker ends with the link.
bool GpuWorkers::try_send(Worker& worker, const LinkMessage& message, std::span<const int> fds) {
  if (!worker.unsent.empty()) return false;
  const Status status = send_message(worker.link.get(), std::as_bytes(std::span(&message, 1)), fds);
  return status.code() != MC_BUSY;
}

void GpuWorkers::send(Worker& worker, const LinkMessage& message) {
  if (!try_send(worker, message, {})) worker.unsent.push_back(message);
}

void GpuWorkers::send_rest(Worker& worker) {
  std::deque<LinkMessage> rest = std::exchange(worker.unsent, {});
  for (const LinkMessage& message : rest) send(worker, message);
}

void GpuWorkers::ask(Worker& worker, LinkMessage message) {
  message.ticket = next_ticket_++;
  worker.asked_ns[message.ticket] = now_ns();
  send(worker, message);
}

void GpuWorkers::end_if_silent(Worker& worker, std::uint64_t now_ns) {
  // Tickets rise: the first is the oldest.
  if (worker.asked_ns.empty() || now_ns < worker.asked_ns.begin()->second + kPatienceNs) return;
  spdlog::error("event=gpu_worker_silent pid={} seconds={} effect=\"killed\"", worker.pid,
                kPatienceNs / 1'000'000'000);
  worker.asked_ns.clear();
  kill(worker.process.pidfd);
}

void GpuWorkers::on_message(int link) {
  Worker& worker = workers_.at(link);
  const auto message = receive_message(link, sizeof(LinkMessage));
  if (!message && message.error().code() == MC_BUSY) return;
  const auto decoded = message ? gpu::decode_link(message->bytes) : std::nullopt;
  if (decoded) return take(worker, *decoded);
  // The pidfd tells the end of the worker.
  events_.unwatch(link);
  ::shutdown(link, SHUT_RDWR);
}

void GpuWorkers::on_end(int link) {
  const auto at = workers_.find(link);
  Worker worker = std::move(at->second);
  if (events_.watches(link)) events_.unwatch(link);
  events_.unwatch(worker.process.pidfd.get());
  workers_.erase(at);
  kept_.forget(worker.process.name);
  spdlog::warn("event=gpu_worker_ended pid={} clients={}", worker.pid, worker.clients.size());
  for (const auto& [session, lanes] : worker.clients) client_ended(session);
}

void GpuWorkers::take(Worker& worker, const LinkMessage& message) {
  worker.asked_ns.erase(message.ticket);
  switch (message.type) {
    case LinkType::kHello:
      worker.introduced = true;
      worker.device = message.device;
      spdlog::info("event=gpu_worker pid={} device={}", worker.pid,
                   device::text_of(message.device));
      tell_pools();
      break;
    case LinkType::kReport:
      worker.counters = message.counters;
      break;
    case LinkType::kClientEnded:
      if (worker.clients.erase(message.client) > 0) client_ended(message.client);
      break;
    case LinkType::kUnpinned: {
      const auto pool = worker.pools.find(message.pool);
      if (pool != worker.pools.end() && pool->second.unpinning > 0) --pool->second.unpinning;
      break;
    }
    default:
      ::shutdown(worker.link.get(), SHUT_RDWR);
  }
}

// ---- Clients ----------------------------------------------------------------------------------

Result<GpuWorkers::LaneFiles> GpuWorkers::open_lane(const Session& session,
                                                    const device::Uuid& device) {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second.introduced && entry.second.device == device;
  });
  if (found == workers_.end()) {
    return fail(MC_UNSUPPORTED,
                "no worker serves this device; start mc-gpu@N.service, or see gpus");
  }
  Worker& worker = found->second;
  const auto pool = find_pool(worker, *session.tenant);
  if (pool == worker.pools.end()) return fail(MC_BUSY, "the worker does not have the pool yet");
  const auto known = worker.clients.find(session.id);
  if (known != worker.clients.end() && known->second >= kMaxLanes) {
    return fail(MC_BUSY, "a client has a lane for each of its channels; close some");
  }
  auto file = MemoryFile::create("lane", sizeof(shm::DeviceLane));
  if (!file) return fail(file.error());
  if (Status status = file->reserve(0, sizeof(shm::DeviceLane)); !status.ok()) return fail(status);
  auto lane_file = Mapping::map_all(*file, Mapping::Access::kReadWrite);
  if (!lane_file) return fail(lane_file.error());
  reinterpret_cast<shm::DeviceLane*>(lane_file->data())->file =
      shm::make_header(shm::FileKind::kLane, sizeof(shm::DeviceLane), 0, 0);
  auto worker_bell = make_eventfd();
  auto client_event = make_eventfd();
  int sockets[2] = {-1, -1};
  static_cast<void>(
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets));
  const Fd worker_socket(sockets[0]);
  auto pidfd = worker.process.pidfd.duplicate();
  Fd lane(::fcntl(file->fd(), F_DUPFD_CLOEXEC, 0));
  LaneFiles files;
  files.socket.reset(sockets[1]);
  files.client_bell.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!worker_bell || !client_event || !pidfd || !lane || !files.client_bell || !files.socket) {
    return fail(MC_NO_MEMORY, errno_text("descriptors of a lane", errno));
  }
  // The client gets an epoll over the bell, as from Sessions::welcome(). Each ring is one event.
  epoll_event ring{};
  ring.events = EPOLLIN | EPOLLET;
  ::epoll_ctl(files.client_bell.get(), EPOLL_CTL_ADD, client_event->get(), &ring);
  LinkMessage message;
  message.type = LinkType::kLane;
  message.client = session.id;
  message.pool = pool->first;
  message.bytes = session.staging_bytes();
  std::vector<int> fds = {lane.get(), worker_bell->get(), client_event->get(), worker_socket.get()};
  if (session.staging_file()) fds.push_back(session.staging_file().fd());
  if (!try_send(worker, message, fds))
    return fail(MC_BUSY, "the worker reads no messages; try again");
  ++worker.clients[session.id];
  MC_FAILPOINT("workers.lane_opened");
  files.lane = std::move(lane);
  files.worker_bell = std::move(*worker_bell);
  files.worker = std::move(*pidfd);
  files.number = worker.number;
  return files;
}

bool GpuWorkers::release(std::uint64_t session, std::function<void()> done) {
  if (!is_used(session)) return true;
  for (auto& [fd, worker] : workers_) {
    if (!worker.clients.contains(session)) continue;
    LinkMessage message;
    message.type = LinkType::kEndClient;
    message.client = session;
    ask(worker, message);
  }
  releasing_[session] = std::move(done);
  MC_FAILPOINT("workers.client_ends");
  return false;
}

bool GpuWorkers::is_used(std::uint64_t session) const {
  return !earlier_.empty() || std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second.clients.contains(session);
  });
}

void GpuWorkers::client_ended(std::uint64_t session) {
  const auto at = releasing_.find(session);
  if (at == releasing_.end() || is_used(session)) return;
  const std::function<void()> done = std::move(at->second);
  releasing_.erase(at);
  done();
}

// ---- Pools ------------------------------------------------------------------------------------

void GpuWorkers::tell_pools() {
  for (auto& entry : workers_) {
    Worker& worker = entry.second;
    if (!worker.introduced) continue;
    std::erase_if(worker.pools, [&](const auto& told) {
      if (!told.second.tenant.expired()) return false;
      LinkMessage message;
      message.type = LinkType::kDropPool;
      message.pool = told.first;
      send(worker, message);
      return true;
    });
    for (const auto& one : namespaces_.all()) {
      const std::shared_ptr<Tenant>& tenant = one.second;
      const auto known = find_pool(worker, *tenant);
      if (known == worker.pools.end()) {
        tell_pool(worker, tenant);
      } else {
        tell_backed(worker, known->second, *tenant);
      }
    }
  }
}

GpuWorkers::Pools::iterator GpuWorkers::find_pool(Worker& worker, const Tenant& tenant) {
  return std::find_if(worker.pools.begin(), worker.pools.end(), [&](const auto& told) {
    // Another namespace may lie where a dropped one lay.
    return told.second.at == &tenant && !told.second.tenant.expired();
  });
}

void GpuWorkers::tell_pool(Worker& worker, const std::shared_ptr<Tenant>& tenant) {
  const ExtentPool& pool = tenant->store->pool();
  LinkMessage message;
  message.type = LinkType::kPool;
  message.pool = next_pool_++;
  message.part_count = static_cast<std::uint32_t>(pool.file().part_count());
  message.bytes = pool.max_bytes() / message.part_count;
  message.writable = tenant->isolated ? 0 : 1;
  std::vector<int> fds;
  for (const MappablePart& part : pool.file().mappable_parts()) fds.push_back(part.fd);
  if (!try_send(worker, message, fds)) return;  // the next tick tries again
  ToldPool& told = worker.pools[message.pool];
  told.number = message.pool;
  told.tenant = tenant;
  told.at = tenant.get();
  told.backed.assign(message.part_count, 0);
  tell_backed(worker, told, *tenant);
}

void GpuWorkers::tell_backed(Worker& worker, ToldPool& told, const Tenant& tenant) {
  const ExtentPool& pool = tenant.store->pool();
  if (told.size_changes == pool.size_changes() && told.losses == pool.losses()) return;
  told.size_changes = pool.size_changes();
  told.losses = pool.losses();
  const std::vector<std::uint64_t> backed = backed_parts(pool);
  for (std::size_t part = 0; part < backed.size(); ++part) {
    if (backed[part] == told.backed[part]) continue;
    LinkMessage message;
    message.type = LinkType::kBacked;
    message.pool = told.number;
    message.part = static_cast<std::uint32_t>(part);
    message.bytes = backed[part];
    const bool less = backed[part] < told.backed[part];
    told.backed[part] = backed[part];
    if (less) {
      ++told.unpinning;
      ask(worker, message);
    } else {
      send(worker, message);
    }
  }
}

bool GpuWorkers::let_go(const Tenant& tenant) {
  if (!earlier_.empty()) return false;
  bool all = true;
  for (auto& [fd, worker] : workers_) {
    const auto pool = find_pool(worker, tenant);
    if (pool == worker.pools.end()) continue;
    tell_backed(worker, pool->second, tenant);
    all &= pool->second.unpinning == 0;
  }
  return all;
}

void GpuWorkers::tick(std::uint64_t now_ns) {
  for (auto& entry : workers_) send_rest(entry.second);
  tell_pools();
  for (auto& [fd, worker] : workers_) {
    end_if_silent(worker, now_ns);
    if (!worker.introduced || now_ns - worker.asked_report_ns < kReportEveryNs) continue;
    worker.asked_report_ns = now_ns;
    LinkMessage message;
    message.type = LinkType::kReport;
    ask(worker, message);
  }
}

std::vector<GpuWorkers::Report> GpuWorkers::reports() const {
  std::vector<Report> reports;
  for (const auto& [fd, worker] : workers_) {
    if (!worker.introduced) continue;
    reports.push_back({worker.pid, worker.device, worker.clients.size(), worker.counters});
  }
  return reports;
}

// ---- Restart ----------------------------------------------------------------------------------

Status GpuWorkers::adopt(KeptDescriptors& kept) {
  for (auto& [name, pidfd] : kept) {
    if (!name.starts_with(kKeptPrefix)) continue;
    const int fd = pidfd.get();
    if (Status status = events_.watch(fd, [this, fd] { on_earlier_end(fd); }); !status.ok()) {
      return status;
    }
    kill(pidfd);
    earlier_[fd] = {name, std::move(pidfd)};
  }
  return {};
}

void GpuWorkers::on_earlier_end(int pidfd) {
  events_.unwatch(pidfd);
  kept_.forget(earlier_.at(pidfd).name);
  earlier_.erase(pidfd);
  if (!earlier_.empty()) return;
  std::vector<std::uint64_t> sessions;
  for (const auto& [session, done] : releasing_) sessions.push_back(session);
  for (const std::uint64_t session : sessions) client_ended(session);
}

void GpuWorkers::keep_all() {
  for (const auto& [fd, worker] : workers_)
    kept_.keep(worker.process.name, worker.process.pidfd.get());
  for (const auto& [fd, process] : earlier_) kept_.keep(process.name, fd);
}

void GpuWorkers::add_kept_names(std::set<std::string>& names) const {
  for (const auto& [fd, process] : earlier_) names.insert(process.name);
}

}  // namespace mc::agent
