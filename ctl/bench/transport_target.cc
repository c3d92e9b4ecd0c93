// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/transport_target.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "ctl/bench/bare_stream.h"
#include "libmc/base/clock.h"
#include "transport/flow/waiter.h"
#include "transport/limits.h"
#include "transport/one_sided/control_message.h"
#include "transport/tcp/socket.h"

namespace mc::ctl {

using namespace transport;  // NOLINT: this file is about nothing else

namespace {

constexpr std::uint64_t kQuestionMagic = 0x3148434e4542434dull;  // "MCBENCH1"
constexpr std::uint64_t kWantsDescriptor = 1;
constexpr std::uint64_t kWantsStream = 2;
// The longest wait for the first bytes of a connection.
constexpr std::uint64_t kFirstBytesNs = 1'000'000'000;
constexpr std::uint64_t kListenNs = 10'000'000;  // between two checks for connections
constexpr std::uint64_t kTargetSpinNs = 20'000;
constexpr std::size_t kMaxFresh = 64;
constexpr int kEndTries = 1000;  // until a target that does not end is killed
constexpr useconds_t kEndUs = 1000;
constexpr std::uint64_t kStreamIdleNs = 600'000'000'000;  // after that, a silent stream is closed
constexpr std::size_t kStreamBytes = std::size_t{1} << 20;

struct Question {
  std::uint64_t magic;
  std::uint64_t kind;
};
static_assert(sizeof(Question) == 16);

struct DescriptorHead {
  std::uint64_t magic;
  std::uint64_t memory_bytes;
  std::uint32_t name_bytes;
  std::uint32_t error_bytes;
  std::uint32_t region_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(DescriptorHead) == 32);

Result<Fd> ask(const HostPort& target, std::uint64_t kind, std::uint64_t timeout_ns) {
  const auto unreachable = [&](const std::string& why) {
    return fail(MC_AGENT_UNAVAILABLE, "no target answers at " + target.host + ":" +
                                          std::to_string(target.port) + ": " + why +
                                          "; start one with mcctl bench --transport … --listen");
  };
  auto socket = tcp::start_connect(target.host, target.port);
  if (!socket) return unreachable(socket.error().to_string());
  if (!become_blocking(socket->get(), timeout_ns)) return unreachable("it is not reached");
  set_no_delay(socket->get());
  const Question question{kQuestionMagic, kind};
  if (!send_all(socket->get(), &question, sizeof question)) {
    return unreachable(errno_text("send", errno));
  }
  return std::move(*socket);
}

// Connections whose first bytes have not arrived yet.
class Door {
 public:
  Door(const Fd& listener, const TargetDescriptor& descriptor, TransportNode* node)
      : listener_(listener), descriptor_(encode_descriptor(descriptor)), node_(node) {}

  void poll(std::uint64_t now_ns) {
    while (fresh_.size() < kMaxFresh) {
      Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) break;
      fresh_.push_back({std::move(socket), now_ns + kFirstBytesNs});
    }
    std::erase_if(fresh_, [&](Fresh& fresh) { return let_in(fresh, now_ns); });
  }
  bool is_busy() const { return !fresh_.empty(); }

 private:
  struct Fresh {
    Fd socket;
    std::uint64_t until_ns = 0;
  };

  // True: the connection is closed or has another owner now.
  bool let_in(Fresh& fresh, std::uint64_t now_ns) {
    Question question{};
    const ssize_t got =
        ::recv(fresh.socket.get(), &question, sizeof question, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    if (got < static_cast<ssize_t>(sizeof question)) return now_ns >= fresh.until_ns;
    if (question.magic != kQuestionMagic) {
      if (node_ != nullptr) node_->accept(std::move(fresh.socket), now_ns);
      return true;
    }
    static_cast<void>(::recv(fresh.socket.get(), &question, sizeof question, 0));
    static_cast<void>(become_blocking(fresh.socket.get(), kStreamIdleNs));
    if (question.kind == kWantsDescriptor) {
      static_cast<void>(send_all(fresh.socket.get(), descriptor_.data(), descriptor_.size()));
    } else if (question.kind == kWantsStream) {
      std::thread([socket = std::move(fresh.socket)] {
        std::vector<std::byte> bytes(kStreamBytes, std::byte{'x'});
        serve_stream(socket.get(), bytes);
      }).detach();
    }
    return true;
  }

  const Fd& listener_;
  const std::vector<std::byte> descriptor_;
  TransportNode* node_;
  std::vector<Fresh> fresh_;
};

std::uint64_t work_of(const Counters& counters) {
  return counters.served_bytes + counters.taken_bytes;
}

}  // namespace

std::vector<std::byte> encode_descriptor(const TargetDescriptor& descriptor) {
  std::vector<std::byte> bytes;
  append_value(bytes, DescriptorHead{kQuestionMagic, descriptor.memory_bytes,
                                     static_cast<std::uint32_t>(descriptor.transport.size()),
                                     static_cast<std::uint32_t>(descriptor.error.size()),
                                     static_cast<std::uint32_t>(descriptor.region.size()), 0});
  for (const std::string* text : {&descriptor.transport, &descriptor.error}) {
    const auto part = std::as_bytes(std::span(*text));
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  bytes.insert(bytes.end(), descriptor.region.begin(), descriptor.region.end());
  return bytes;
}

std::optional<TargetDescriptor> decode_descriptor(std::span<const std::byte> bytes) {
  DescriptorHead head{};
  if (bytes.size() > kMaxTargetDescriptorBytes || !take_front(bytes, head) ||
      head.magic != kQuestionMagic || head.reserved != 0 ||
      head.region_bytes > transport::kMaxDescriptorBytes ||
      std::uint64_t{head.name_bytes} + head.error_bytes + head.region_bytes != bytes.size()) {
    return std::nullopt;
  }
  const auto text = [&](std::size_t size) {
    std::string taken(reinterpret_cast<const char*>(bytes.data()), size);
    bytes = bytes.subspan(size);
    return taken;
  };
  TargetDescriptor descriptor;
  descriptor.memory_bytes = head.memory_bytes;
  descriptor.transport = text(head.name_bytes);
  descriptor.error = text(head.error_bytes);
  descriptor.region.assign(bytes.begin(), bytes.end());
  return descriptor;
}

Result<TargetDescriptor> ask_descriptor(const HostPort& target, std::uint64_t timeout_ns) {
  auto socket = ask(target, kWantsDescriptor, timeout_ns);
  if (!socket) return fail(socket.error());
  std::vector<std::byte> bytes(kMaxTargetDescriptorBytes + 1);
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::recv(socket->get(), bytes.data() + size, bytes.size() - size, 0);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  auto descriptor = decode_descriptor(std::span(bytes).first(size));
  if (!descriptor) {
    return fail(MC_AGENT_UNAVAILABLE, "the process at " + target.host + ":" +
                                          std::to_string(target.port) +
                                          " is no target of mcctl bench --transport");
  }
  if (!descriptor->error.empty()) return fail(MC_UNSUPPORTED, "the target: " + descriptor->error);
  return std::move(*descriptor);
}

Result<Fd> open_stream(const HostPort& target, std::uint64_t timeout_ns) {
  return ask(target, kWantsStream, timeout_ns);
}

void serve_target(const TransportPlan& plan, const Fd& listener) {
  TargetDescriptor descriptor;
  descriptor.transport = plan.transport;
  descriptor.memory_bytes = plan.target_bytes;
  auto memory = BenchMemory::map(plan.target_bytes);
  auto node = TransportNode::create(plan, kTargetNode, std::nullopt);
  if (!memory) descriptor.error = memory.error().text();
  if (!node) descriptor.error = node.error().text();
  if (descriptor.error.empty()) {
    RegionSpec spec;
    spec.data = memory->bytes().data();
    spec.size_bytes = memory->bytes().size();
    spec.rights = kRemoteRead | kRemoteWrite;
    const auto region = (*node)->transport().register_region(spec);
    if (!region) descriptor.error = region.error().text();
    if (region) descriptor.region = (*node)->transport().describe(*region).value();
  }
  TransportNode* serving = descriptor.error.empty() ? node->get() : nullptr;
  Door door(listener, descriptor, serving);
  Waiter waiter(kTargetSpinNs);
  std::vector<Event> events;
  std::uint64_t work = 0;
  std::uint64_t next_listen_ns = 0;
  for (;;) {
    const std::uint64_t now = now_ns();
    if (now >= next_listen_ns || door.is_busy()) {
      door.poll(now);
      next_listen_ns = now + kListenNs;
    }
    if (serving == nullptr) {
      static_cast<void>(wait_readable(listener.get(), kListenNs));
      continue;
    }
    events.clear();
    serving->step(now, events);
    const std::uint64_t done = work_of(serving->transport().counters());
    const bool worked = done != work || !events.empty() || door.is_busy();
    work = done;
    waiter.wait(serving->transport().wait_fd(), now, worked,
                std::min(serving->transport().next_poll_ns(), next_listen_ns));
  }
}

Result<TargetProcess> TargetProcess::start(const TransportPlan& plan) {
  auto listener = tcp::listen_tcp("127.0.0.1", 0);
  if (!listener) return fail(listener.error());
  const auto port = tcp::local_port(listener->get());
  if (!port) return fail(port.error());
  const pid_t pid = ::fork();
  if (pid < 0) return fail(MC_NO_MEMORY, errno_text("fork", errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    serve_target(plan, *listener);
  }
  return TargetProcess(pid, {"127.0.0.1", *port});
}

TargetProcess::TargetProcess(TargetProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), address_(other.address_) {}

TargetProcess::~TargetProcess() {
  if (pid_ <= 0) return;
  // At this signal, libfabric's shm removes files from /dev/shm, but not at SIGKILL.
  ::kill(pid_, SIGTERM);
  for (int i = 0; i < kEndTries; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
    ::usleep(kEndUs);
  }
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace mc::ctl
