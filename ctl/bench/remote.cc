// SPDX-License-Identifier: Apache-2.0

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>

#include "ctl/agent_question.h"
#include "ctl/bench/bare_stream.h"
#include "ctl/bench/cases.h"
#include "ctl/processes.h"
#include "ctl/replay/stage.h"
#include "ctl/temporary_namespace.h"
#include "libmc/base/fd.h"

namespace mc::ctl {

namespace {

constexpr const char* kNamespace = "bench-remote";
constexpr std::uint64_t kRemotePoolBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kSmallBytes = 4096;
constexpr int kPeerPort = 7555;

Result<Client> open_client(const std::string& agent, std::uint64_t timeout_ns) {
  mc_open_options open = MC_OPEN_OPTIONS_INIT;
  open.agent = agent.c_str();
  open.name_space = kNamespace;
  open.label = "mcctl-bench";
  open.timeout_ns = timeout_ns;
  return open_session(open);
}

bool enter(const std::string& net) {
  if (net.empty()) return true;
  const Fd fd(::open(("/run/netns/" + net).c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::setns(fd.get(), CLONE_NEWNET) == 0;
}

// A bare connection between the hosts of two agents, with blocking calls on both sides.
class BarePeer {
 public:
  Status start(const Stage& stage) {
    const std::string net = stage.net(1), address = stage.address(1);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(kPeerPort);
    ::inet_pton(AF_INET, address.c_str(), &at.sin_addr);
    // setns() changes the network namespace of the calling thread only, so use a thread for this.
    Status status;
    Fd listener;
    std::thread([&] {
      listener.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!enter(net)) status = {MC_PERMISSION_DENIED, errno_text("enter " + net, errno)};
      listener.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int one = 1;
      ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
          ::listen(listener.get(), 1) != 0) {
        status = {MC_BUSY, errno_text("listen on " + address, errno)};
      }
    }).join();
    if (!status.ok()) return status;
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      stay_on(stage.processors(1));
      std::vector<std::byte> bytes(std::size_t{1} << 20, std::byte{'x'});
      serve_stream(::accept(listener.get(), nullptr, nullptr), bytes);
      ::_exit(0);
    }
    std::thread([&] {
      enter(stage.net(0));
      socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      set_no_delay(socket_.get());
      if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
        status = {MC_AGENT_UNAVAILABLE, errno_text("connect to " + address, errno)};
      }
    }).join();
    return status;
  }
  ~BarePeer() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  mc_status ask(std::uint64_t bytes) {
    buffer_.resize(std::max<std::size_t>(buffer_.size(), bytes));
    return stream_read(socket_.get(), std::span(buffer_).first(bytes)) ? MC_OK
                                                                       : MC_AGENT_UNAVAILABLE;
  }
  mc_status ask(std::uint64_t bytes, std::uint64_t count) {
    mc_status status = MC_OK;
    for (std::uint64_t i = 0; i < count && status == MC_OK; ++i) status = ask(bytes);
    return status;
  }

 private:
  pid_t child_ = 0;
  Fd socket_;
  std::vector<std::byte> buffer_;
};

std::string key_of(std::string_view kind, std::uint64_t number) {
  const std::string text = std::to_string(number);
  std::string key(64, '/');
  kind.copy(key.data(), std::min<std::size_t>(kind.size(), 32));
  text.copy(key.data() + 40, text.size());
  return key;
}

// The objects that are put on the other host and read here, and the way of reading.
class Cases {
 public:
  Cases(mc_client* here, mc_client* there, BarePeer& bare, const SamplePlan& plan)
      : here_(here), there_(there), bare_(bare), plan_(plan) {}

  // The knowledge that this host has of an object before the measured get.
  enum class Known : std::uint8_t { kNothing, kHolder, kPlace };
  // A single get at a time. kHolder: after exists(), as engines do. kPlace: after another get.
  CaseResult get(const char* name, std::uint64_t size, Known known) {
    const std::string kind = std::string(name) + std::to_string(size);
    Subject ours;
    ours.prepare = [=, this](std::uint64_t first, std::uint64_t count) {
      make_room(count * size);
      for (std::uint64_t i = first; i < first + count; ++i) {
        put(kind, i, size);
        if (known == Known::kPlace) fetch(kind, i);
        if (known == Known::kHolder) there_is(kind, i);
      }
    };
    ours.run = [=, this](std::uint64_t first, std::uint64_t count) {
      mc_status status = MC_OK;
      for (std::uint64_t i = first; i < first + count && status == MC_OK; ++i) {
        status = fetch(kind, i);
      }
      return status;
    };
    CaseResult result = run(name, size, std::move(ours), size);
    result.size = size;
    return result;
  }

  CaseResult get_batch(std::uint64_t size, std::uint64_t batch) {
    const std::string kind = "batch" + std::to_string(size);
    std::vector<std::string> keys(batch);
    std::vector<mc_slice> slices(batch);
    std::vector<mc_view> views(batch);
    std::vector<mc_status> statuses(batch);
    Subject ours;
    ours.prepare = [&, this](std::uint64_t first, std::uint64_t count) {
      make_room(count * batch * size);
      for (std::uint64_t i = first * batch; i < (first + count) * batch; ++i) put(kind, i, size);
    };
    ours.run = [&, this](std::uint64_t first, std::uint64_t count) {
      mc_status status = MC_OK;
      for (std::uint64_t call = first; call < first + count && status == MC_OK; ++call) {
        for (std::uint64_t i = 0; i < batch; ++i) {
          keys[i] = key_of(kind, call * batch + i);
          slices[i] = {keys[i].data(), keys[i].size()};
        }
        status = mc_get_view_batch(here_, slices.data(), batch, views.data(), statuses.data());
        for (mc_view& view : views) mc_view_release(&view);
      }
      return status;
    };
    CaseResult result = run("remote_get_batch", size * batch, std::move(ours), size * batch);
    result.size = size;
    result.batch = batch;
    return result;
  }

  CaseResult put_visible() {
    std::uint64_t round = 0;
    Subject ours;
    ours.run = [&, this](std::uint64_t first, std::uint64_t count) {
      mc_status status = MC_OK;
      for (std::uint64_t i = first; i < first + count && status == MC_OK; ++i) {
        const std::string key = key_of("visible", i);
        status =
            mc_put(here_, {key.data(), key.size()}, {value(kSmallBytes), kSmallBytes}, nullptr);
      }
      ++round;
      return status;
    };
    CaseResult result = run("remote_put", 8, std::move(ours), kSmallBytes);
    result.size = kSmallBytes;
    return result;
  }

  CaseResult exists() {
    Subject ours;
    ours.prepare = [this](std::uint64_t first, std::uint64_t count) {
      for (std::uint64_t i = first; i < first + count; ++i) put("exists", i, 64);
    };
    ours.run = [this](std::uint64_t first, std::uint64_t count) {
      mc_status status = MC_OK;
      for (std::uint64_t i = first; i < first + count && status == MC_OK; ++i) {
        status = there_is("exists", i);
      }
      return status;
    };
    return run("remote_exists", 8, std::move(ours), 0);
  }

 private:
  const void* value(std::uint64_t size) {
    if (value_.size() < size) value_.assign(size, 'v');
    return value_.data();
  }
  void put(std::string_view kind, std::uint64_t number, std::uint64_t size) {
    const std::string key = key_of(kind, number);
    const mc_status status = mc_put(there_, {key.data(), key.size()}, {value(size), size}, nullptr);
    if (status != MC_OK && error_.empty()) error_ = mc_last_error();
    keys_.push_back(key);
    put_bytes_ += size;
  }
  // Remove the measured objects first, so that the next puts do not evict each other.
  void make_room(std::uint64_t bytes) {
    if (put_bytes_ + bytes < kRemotePoolBytes / 4) return;
    for (const std::string& key : keys_) mc_remove(there_, {key.data(), key.size()}, 0);
    keys_.clear();
    put_bytes_ = 0;
  }
  mc_status fetch(std::string_view kind, std::uint64_t number) {
    const std::string key = key_of(kind, number);
    mc_view view;
    const mc_status status = mc_get_view(here_, {key.data(), key.size()}, &view);
    if (status == MC_OK) mc_view_release(&view);
    return status;
  }
  mc_status there_is(std::string_view kind, std::uint64_t number) {
    const std::string key = key_of(kind, number);
    return mc_exists(here_, {key.data(), key.size()});
  }
  CaseResult run(const char* name, std::uint64_t limit_bytes, Subject ours, std::uint64_t bytes) {
    Subject limit;
    limit.run = [this, limit_bytes](std::uint64_t, std::uint64_t count) {
      return bare_.ask(limit_bytes, count);
    };
    SamplePlan plan = plan_;
    plan.group = bytes >= (1u << 20) ? 1 : 16;
    const SampleRun run = measure({std::move(ours), std::move(limit)}, plan);
    CaseResult result;
    result.name = name;
    result.limit = "bare TCP";
    set_samples(result, run, static_cast<double>(bytes));
    if (run.status != MC_OK) result.error = mc_status_name(run.status);
    if (!error_.empty()) result.error = error_;
    return result;
  }

  mc_client* here_;
  mc_client* there_;
  BarePeer& bare_;
  const SamplePlan plan_;
  std::string value_;
  std::vector<std::string> keys_;  // of the stored objects
  std::uint64_t put_bytes_ = 0;
  std::string error_;
};

}  // namespace

Status run_remote_cases(const SamplePlan& plan, std::uint64_t timeout_ns,
                        const std::function<void(const CaseResult&)>& take) {
  auto stage = Stage::open(2, std::max<std::uint64_t>(timeout_ns, 20'000'000'000));
  if (!stage) return stage.error();
  stay_on((*stage)->processors(0));
  BarePeer bare;
  if (Status status = bare.start(**stage); !status.ok()) return status;
  std::vector<TemporaryNamespace> spaces;
  for (const std::string& socket : (*stage)->sockets()) {
    auto made = TemporaryNamespace::create(
        socket,
        {.name = kNamespace, .pool_bytes = kRemotePoolBytes, .policy = "", .clustered = true},
        timeout_ns);
    if (!made) return made.error();
    spaces.push_back(std::move(*made));
  }
  for (const TemporaryNamespace& space : spaces) space.wait_until_grown(timeout_ns);
  {
    const auto here = open_client((*stage)->sockets()[0], timeout_ns);
    if (!here) return here.error();
    const auto there = open_client((*stage)->sockets()[1], timeout_ns);
    if (!there) return there.error();
    Cases cases(here->get(), there->get(), bare, plan);
    take(cases.get("remote_get", kSmallBytes, Cases::Known::kPlace));
    take(cases.get("remote_get_after_exists", kSmallBytes, Cases::Known::kHolder));
    take(cases.get("remote_get_new", kSmallBytes, Cases::Known::kNothing));
    take(cases.get_batch(kSmallBytes, 32));
    take(cases.get("remote_get", std::uint64_t{1} << 20, Cases::Known::kPlace));
    take(cases.get("remote_get_new", std::uint64_t{1} << 20, Cases::Known::kNothing));
    take(cases.get("remote_get_new", std::uint64_t{64} << 20, Cases::Known::kNothing));
    take(cases.get_batch(std::uint64_t{4} << 20, 16));
    take(cases.put_visible());
    take(cases.exists());
  }
  return {};
}

}  // namespace mc::ctl
