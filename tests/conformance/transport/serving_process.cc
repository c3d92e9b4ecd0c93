// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/serving_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "conformance/transport/transport_fixture.h"
#include "libmc/base/clock.h"
#include "transport/tcp/socket.h"

namespace mc::transport::testing {

namespace {

class Nobody : public Dialer {
  void dial(const DialRequest&) override {}
};

// Says port and description on the pipe, then serves for ever.
[[noreturn]] void serve(int pipe, const ServingProcess::Make& make, std::size_t bytes,
                        std::uint64_t seed) {
  // The starting process may end without a destructor.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Nobody nobody;
  const auto transport = make(nobody);
  Memory memory = pattern(bytes, seed);
  RegionSpec spec;
  spec.data = memory.data();
  spec.size_bytes = memory.size();
  spec.rights = kRemoteRead;
  const auto text = transport->describe(transport->register_region(spec).value()).value();
  const Fd listener = tcp::listen_tcp("127.0.0.1", 0).value();
  const std::uint32_t head[2] = {tcp::local_port(listener.get()).value(),
                                 static_cast<std::uint32_t>(text.size())};
  if (::write(pipe, head, sizeof head) < 0 || ::write(pipe, text.data(), text.size()) < 0) {
    ::_exit(1);
  }
  std::vector<Event> events;
  for (;;) {
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      Link link;
      link.socket = std::move(socket);
      link.accepted = true;
      link.node = kNodeA;
      link.incarnation = 1;
      static_cast<void>(transport->attach(std::move(link)));
    }
    events.clear();
    transport->poll(mc::now_ns(), events);
    if (transport->next_poll_ns() > mc::now_ns()) wait_readable(transport->wait_fd(), 100'000);
  }
}

}  // namespace

ServingProcess::ServingProcess(const Make& make, std::size_t bytes, std::uint64_t seed) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  pid_ = ::fork();
  if (pid_ == 0) serve(ends[1], make, bytes, seed);
  ::close(ends[1]);
  std::uint32_t head[2] = {0, 0};
  EXPECT_EQ(::read(ends[0], head, sizeof head), static_cast<ssize_t>(sizeof head));
  port_ = static_cast<std::uint16_t>(head[0]);
  description_.resize(std::min<std::uint32_t>(head[1], kMaxDescriptorBytes));
  EXPECT_EQ(::read(ends[0], description_.data(), description_.size()),
            static_cast<ssize_t>(description_.size()));
  ::close(ends[0]);
}

void ServingProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  // The files that libfabric's shm leaves behind a killed process.
  const std::string ours = std::to_string(std::exchange(pid_, -1)) + ":";
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) {
    if (entry.path().filename().string().starts_with(ours)) {
      std::filesystem::remove(entry.path(), none);
    }
  }
}

void make_links(Transport& transport, std::vector<DialRequest>& dialed, std::uint16_t port) {
  for (const DialRequest& request : std::exchange(dialed, {})) {
    auto socket = tcp::start_connect("127.0.0.1", port);
    Link link;
    link.peer = request.peer;
    link.node = request.node;
    if (socket) link.socket = std::move(*socket);
    if (!link.socket || !transport.attach(std::move(link)).ok()) {
      transport.dial_failed(request.peer, request.lane);
    }
  }
}

}  // namespace mc::transport::testing
