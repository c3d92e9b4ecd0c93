// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "ctl/bench/bare_stream.h"
#include "ctl/bench/cases.h"
#include "ctl/bench/transport_target.h"
#include "libmc/base/clock.h"
#include "transport/flow/waiter.h"
#include "transport/tcp/socket.h"

namespace mc::ctl {

using namespace transport;  // NOLINT: this file is about nothing else

namespace {

// Short: on a busy host the target may wait for this processor.
constexpr std::uint64_t kAskerSpinNs = 20'000;

// A requesting transport with memory and a bare stream.
class Asker {
 public:
  static Result<std::unique_ptr<Asker>> create(const TransportPlan& plan, const HostPort& target,
                                               const TargetDescriptor& descriptor, unsigned number,
                                               std::uint64_t timeout_ns) {
    auto memory = BenchMemory::map(*std::ranges::max_element(plan.block_bytes) * plan.batch);
    if (!memory) return fail(memory.error());
    auto node = TransportNode::create(plan, kTargetNode + 1 + number, target);
    if (!node) return fail(node.error());
    auto stream = open_stream(target, timeout_ns);
    if (!stream) return fail(stream.error());
    auto made = std::unique_ptr<Asker>(
        new Asker(plan, descriptor, std::move(*node), std::move(*memory), std::move(*stream)));
    made->timeout_ns_ = timeout_ns;
    RegionSpec spec;
    spec.data = made->memory_.bytes().data();
    spec.size_bytes = made->memory_.bytes().size();
    const auto region = made->transport().register_region(spec);
    if (!region) return fail(region.error());
    const auto peer = made->transport().connect({kTargetNode, 4});
    if (!peer) return fail(peer.error());
    made->peer_ = *peer;
    const auto remote = made->transport().import_region(*peer, descriptor.region);
    if (!remote) return fail(remote.error());
    made->remote_ = *remote;
    made->copy_from_.assign(made->copies() ? made->memory_.bytes().size() : 0, std::byte{1});
    return made;
  }

  // The limit is memcpy, because the bytes do not leave this host's memory.
  bool copies() const { return plan_.transport == "fabric" && plan_.provider == "shm"; }

  // A batch, at the next position of the target's memory.
  mc_status move(std::uint64_t block, bool write) {
    const std::uint64_t bytes = block * plan_.batch;
    if (offset_ + bytes > descriptor_.memory_bytes) offset_ = 0;
    pieces_.resize(plan_.batch);
    operations_.assign(plan_.batch, {});
    const std::uint64_t deadline_ns = now_ns() + timeout_ns_;
    for (std::uint64_t i = 0; i < plan_.batch; ++i) {
      pieces_[i] = {memory_.bytes().data() + i * block, block, kNoRegion};
      Operation& operation = operations_[i];
      operation.verb = write ? transport::Verb::kWrite : transport::Verb::kRead;
      operation.peer = peer_;
      operation.deadline_ns = deadline_ns;
      operation.region = remote_;
      operation.offset_bytes = offset_ + i * block;
      operation.pieces = {&pieces_[i], 1};
    }
    last_offset_ = offset_;
    offset_ += bytes;
    return wait();
  }
  // The same bytes over the bare stream.
  mc_status move_bare(std::uint64_t block) {
    const auto bytes = memory_.bytes().first(block * plan_.batch);
    if (copies()) {
      for (std::uint64_t at = 0; at < bytes.size(); at += block) {
        std::memcpy(bytes.data() + at, copy_from_.data() + at, block);
      }
      return MC_OK;
    }
    const bool moved =
        plan_.write ? stream_write(stream_.get(), bytes) : stream_read(stream_.get(), bytes);
    return moved ? MC_OK : MC_AGENT_UNAVAILABLE;
  }

  // Writes a batch, reads the batch back and compares.
  Status check(std::uint64_t block) {
    const auto bytes = memory_.bytes().first(block * plan_.batch);
    std::uint64_t word = now_ns();
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>((word = word * 25214903917u + 11) >> 40);
    const std::vector<std::byte> sent(bytes.begin(), bytes.end());
    if (const mc_status status = move(block, true); status != MC_OK) return {status, error_};
    offset_ = last_offset_;
    std::ranges::fill(bytes, std::byte{0});
    if (const mc_status status = move(block, false); status != MC_OK) return {status, error_};
    if (std::ranges::equal(bytes, sent)) return {};
    return {MC_CORRUPT, "what was written to the target and what was read back differ"};
  }
  const std::string& error() const { return error_; }

 private:
  Asker(const TransportPlan& plan, const TargetDescriptor& descriptor,
        std::unique_ptr<TransportNode> node, BenchMemory memory, Fd stream)
      : plan_(plan),
        descriptor_(descriptor),
        memory_(std::move(memory)),
        node_(std::move(node)),
        stream_(std::move(stream)) {}

  Transport& transport() { return node_->transport(); }
  mc_status wait() {
    std::size_t submitted = 0;
    std::size_t ended = 0;
    while (ended < operations_.size()) {
      const std::uint64_t now = now_ns();
      if (submitted < operations_.size()) {
        submitted += transport().submit(std::span(operations_).subspan(submitted), now);
      }
      events_.clear();
      node_->step(now, events_);
      for (const Event& event : events_) {
        if (event.kind != Event::Kind::kCompleted) continue;
        ++ended;
        if (event.outcome == Outcome::kDone || !error_.empty()) continue;
        const Status status = to_status(event.outcome);
        error_ = std::string(status.text());
        code_ = status.code();
      }
      const std::uint64_t until_ns = std::min(transport().next_poll_ns(), now + kMaxSleepNs);
      waiter_.wait(transport().wait_fd(), now, !events_.empty(),
                   ended < operations_.size() ? until_ns : 0);
    }
    return error_.empty() ? MC_OK : code_;
  }

  static constexpr std::uint64_t kMaxSleepNs =
      5'000'000;  // short, because handshakes need progress too

  const TransportPlan& plan_;
  const TargetDescriptor& descriptor_;
  std::uint64_t timeout_ns_ = 0;
  BenchMemory memory_;
  std::unique_ptr<TransportNode> node_;  // destroyed before the memory
  Fd stream_;
  PeerId peer_ = kNoPeer;
  RemoteRegionId remote_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t last_offset_ = 0;
  std::vector<std::byte> copy_from_;
  std::vector<Piece> pieces_;
  std::vector<Operation> operations_;
  std::vector<Event> events_;
  Waiter waiter_{kAskerSpinNs};
  std::string error_;
  mc_status code_ = MC_OK;
};

// Runs all askers at once. The first asker uses the calling thread; each other asker has a thread.
class AskerCrew {
 public:
  explicit AskerCrew(std::vector<std::unique_ptr<Asker>> askers) : askers_(std::move(askers)) {
    for (std::size_t i = 1; i < askers_.size(); ++i) {
      threads_.emplace_back([this, i] { work(*askers_[i]); });
    }
  }
  ~AskerCrew() {
    order_ = {};
    round_.fetch_add(1);
    round_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Asker& first() { return *askers_.front(); }

  struct Order {
    std::uint32_t kind = 0;  // 0: stop, 1: the transport, 2: the limit
    std::uint32_t count = 0;
  };
  mc_status run(const Order& order, std::uint64_t block, bool write) {
    block_ = block;
    write_ = write;
    order_ = order;
    busy_.store(static_cast<std::uint32_t>(threads_.size()));
    round_.fetch_add(1);
    round_.notify_all();
    const mc_status own = carry_out(first(), order);
    for (std::uint32_t left = busy_.load(); left != 0; left = busy_.load()) busy_.wait(left);
    return own != MC_OK ? own : failure_.load();
  }
  std::string error() const {
    for (const auto& asker : askers_) {
      if (!asker->error().empty()) return asker->error();
    }
    return {};
  }

 private:
  mc_status carry_out(Asker& asker, const Order& order) const {
    mc_status status = MC_OK;
    for (std::uint32_t i = 0; i < order.count && status == MC_OK; ++i) {
      status = order.kind == 1 ? asker.move(block_, write_) : asker.move_bare(block_);
    }
    return status;
  }
  void work(Asker& asker) {
    for (std::uint32_t seen = 0;;) {
      round_.wait(seen);
      seen = round_.load();
      const Order order = order_;
      if (order.kind == 0) return;
      if (const mc_status status = carry_out(asker, order); status != MC_OK) failure_ = status;
      busy_.fetch_sub(1);
      busy_.notify_all();
    }
  }

  std::vector<std::unique_ptr<Asker>> askers_;
  // Written before round_ grows; read only after a thread has seen the new round_.
  std::uint64_t block_ = 0;
  bool write_ = false;
  Order order_{};
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> busy_{0};
  std::atomic<mc_status> failure_{MC_OK};
  std::vector<std::thread> threads_;
};

CaseResult run_case(AskerCrew& crew, const TransportPlan& plan, std::uint64_t block) {
  const auto subject = [&](std::uint32_t kind) {
    Subject made;
    made.run = [&crew, &plan, block, kind](std::uint64_t, std::uint64_t count) {
      return crew.run({kind, static_cast<std::uint32_t>(count)}, block, plan.write);
    };
    return made;
  };
  SamplePlan sample = plan.sample;
  sample.group = block * plan.batch >= (1u << 20) ? 1 : 16;
  const SampleRun run = measure({subject(1), subject(2)}, sample);
  CaseResult result;
  result.name = plan.transport + (plan.write ? "_write" : "_read");
  result.size = block;
  result.batch = plan.batch;
  result.clients = plan.threads;
  result.limit = crew.first().copies() ? "memcpy" : "bare TCP";
  set_samples(result, run, static_cast<double>(block * plan.batch * plan.threads));
  if (run.status != MC_OK) {
    result.error = crew.error().empty() ? mc_status_name(run.status) : crew.error();
  }
  return result;
}

}  // namespace

Status run_transport_cases(const TransportPlan& plan, std::uint64_t timeout_ns,
                           const std::function<void(const CaseResult&)>& take) {
  std::optional<TargetProcess> own;
  auto target = parse_host_port(plan.connect);
  if (plan.connect.empty()) {
    auto started = TargetProcess::start(plan);
    if (!started) return started.error();
    own.emplace(std::move(*started));
    target = own->address();
  }
  if (!target) return {MC_INVALID_ARGUMENT, "--connect: \"" + plan.connect + "\" is not HOST:PORT"};
  const auto descriptor = ask_descriptor(*target, timeout_ns);
  if (!descriptor) return descriptor.error();
  if (descriptor->transport != plan.transport) {
    return {MC_INVALID_ARGUMENT, "the target serves " + descriptor->transport +
                                     "; ask with --transport " + descriptor->transport};
  }
  const std::uint64_t largest = *std::ranges::max_element(plan.block_bytes) * plan.batch;
  if (descriptor->memory_bytes < largest) {
    return {MC_INVALID_ARGUMENT, "a batch is larger than the target's memory of " +
                                     std::to_string(descriptor->memory_bytes) + " bytes"};
  }
  std::vector<std::unique_ptr<Asker>> askers;
  for (unsigned i = 0; i < plan.threads; ++i) {
    auto made = Asker::create(plan, *target, *descriptor, i, timeout_ns);
    if (!made) return made.error();
    for (const std::uint64_t block : plan.block_bytes) {
      if (Status status = (*made)->check(block); !status.ok()) return status;
    }
    askers.push_back(std::move(*made));
  }
  AskerCrew crew(std::move(askers));
  for (const std::uint64_t block : plan.block_bytes) take(run_case(crew, plan, block));
  return {};
}

Status listen_as_target(const TransportPlan& plan, const std::string& host_port) {
  const auto at = parse_host_port(host_port);
  if (!at) return {MC_INVALID_ARGUMENT, "--listen: \"" + host_port + "\" is not HOST:PORT"};
  const auto listener = tcp::listen_tcp(at->host, at->port);
  if (!listener) return listener.error();
  serve_target(plan, *listener);
  return {};
}

}  // namespace mc::ctl
