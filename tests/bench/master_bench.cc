// SPDX-License-Identifier: Apache-2.0
//
// A real mc-master on loopback. Measures the keys per second that a client publishes and locates in
// batches of 128 with 32 batches in flight; the same with two partitions on one and on two masters;
// the seconds until a report of a million objects has arrived; and the cost of encoding and
// decoding a batch.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "libmc/base/clock.h"
#include "metadata/master/client/master_client.h"
#include "metadata/placement/spread.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {
namespace {

constexpr std::size_t kBatch = 128;
constexpr std::size_t kWindow = 32;
constexpr std::uint64_t kReported = 1'000'000;
constexpr std::uint64_t kDeadlineNs = 60'000'000'000;

KeyHash key_of(std::uint64_t number) { return {mix64(2 * number), mix64(2 * number + 1)}; }

std::vector<PublishItem> batch_of(std::uint64_t first, std::size_t count) {
  std::vector<PublishItem> items(count);
  for (std::size_t i = 0; i < count; ++i) {
    items[i] = {key_of(first + i), 7, 65536, {}, PublishItem::What::kHolds};
  }
  return items;
}

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "master_bench: %s\n", why);
  std::exit(1);
}

class Process {
 public:
  // number: index among the masters that run at the same time.
  explicit Process(int number = 0, std::uint32_t partitions = 1)
      : port_(20000 + static_cast<int>(::getpid() % 20000) + number),
        partitions_(std::to_string(partitions)) {
    start();
  }
  ~Process() { stop(); }
  void start() {
    const auto program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mc-master";
    const std::string address = this->address();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execl(program.c_str(), "mc-master", "--listen", address.c_str(), "--recover-ms", "0",
              "--log-level", "warn", "--partitions", partitions_.c_str(), nullptr);
      ::_exit(127);
    }
  }
  void stop() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Processor time of the loop's thread.
  [[nodiscard]] std::uint64_t processor_ns() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/schedstat");
    std::uint64_t spent_ns = 0;
    file >> spent_ns;
    return spent_ns;
  }

 private:
  int port_;
  const std::string partitions_;
  pid_t pid_ = 0;
};

class Agent final : public AgentSide {
 public:
  explicit Agent(std::uint64_t objects) : objects_(objects) {}
  Load load() override { return {}; }
  std::uint64_t latest_version() override { return 0; }
  void heard_version(std::uint64_t) override {}
  bool next_report(bool first, std::vector<PublishItem>& items) override {
    if (first) named_ = 0;
    const auto count = std::min<std::uint64_t>(wire::kMaxItems, objects_ - named_);
    for (std::uint64_t i = 0; i < count; ++i) {
      items.push_back({key_of(named_ + i), 7, 65536, {}, PublishItem::What::kHolds});
    }
    named_ += count;
    return true;
  }
  void on_report_verdict(const PublishItem&, Verdict) override { give_up("refused"); }
  void on_drop(const wire::Drop&, Done done) override { done({}); }
  void on_drop_matching(const wire::Match&, Reply<wire::RemoveMatchingAnswer> reply) override {
    reply(wire::RemoveMatchingAnswer{});
  }
  void on_list(const wire::Match&, Reply<wire::ListAnswer> reply) override {
    reply(wire::ListAnswer{});
  }
  void on_copy(const wire::Copy&, Done done) override { done(MC_NOT_FOUND); }
  void on_fenced() override { give_up("fenced"); }

 private:
  const std::uint64_t objects_;
  std::uint64_t named_ = 0;
};

std::unique_ptr<MasterClient> client_of(const Process& process, AgentSide* agent,
                                        std::uint32_t partition = 0, std::uint32_t partitions = 0) {
  MasterClientOptions options;
  options.partition = partition;
  options.partitions = partitions;
  options.masters = {process.address()};
  options.descriptor = {1, 1, "127.0.0.1:9", 1, 0, 1ull << 40};
  auto client = MasterClient::create(options, agent);
  if (!client) give_up("no client");
  const std::uint64_t end_ns = now_ns() + kDeadlineNs;
  while (!(*client)->ready()) {
    if (now_ns() > end_ns) give_up("no master");
    ::usleep(200);
  }
  return std::move(*client);
}

// Keeps kWindow batches in flight until `batches` are done.
template <typename Send>
void pump(std::uint64_t batches, Send send) {
  std::atomic<std::uint64_t> done{0};
  for (std::uint64_t sent = 0; sent < batches; ++sent) {
    for (std::uint64_t now; sent - (now = done.load()) >= kWindow;) done.wait(now);
    send(sent, [&done] {
      ++done;
      done.notify_one();
    });
  }
  for (std::uint64_t now; (now = done.load()) < batches;) done.wait(now);
}

void publish_over_loopback(benchmark::State& state) {
  const Process process;
  Agent agent(0);
  const auto client = client_of(process, &agent);
  std::uint64_t first = 0;
  constexpr std::uint64_t kBatches = 4096;
  for (auto _ : state) {
    pump(kBatches, [&](std::uint64_t, auto done) {
      client->publish(batch_of(first, kBatch), 0, now_ns() + kDeadlineNs,
                      [done](const Result<std::vector<Verdict>>& verdicts) {
                        if (!verdicts || (*verdicts)[0] != Verdict::kAccepted) give_up("refused");
                        done();
                      });
      first += kBatch;
    });
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(first));
}
BENCHMARK(publish_over_loopback)->UseRealTime()->Unit(benchmark::kMillisecond)->Iterations(4);

void locate_over_loopback(benchmark::State& state) {
  const Process process;
  Agent agent(kReported);
  const auto client = client_of(process, &agent);
  std::uint64_t asked = 0;
  constexpr std::uint64_t kBatches = 4096;
  for (auto _ : state) {
    pump(kBatches, [&](std::uint64_t, auto done) {
      wire::Locate request;
      for (std::size_t i = 0; i < kBatch; ++i) {
        request.keys.push_back(key_of(mix64(asked + i) % kReported));
      }
      asked += kBatch;
      client->locate(request, now_ns() + kDeadlineNs, [done](const Result<LocateAnswer>& answer) {
        if (!answer || answer->keys[0].state != Lookup::kFound) give_up("not found");
        done();
      });
    });
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(asked));
}
BENCHMARK(locate_over_loopback)->UseRealTime()->Unit(benchmark::kMillisecond)->Iterations(4);

// Two partitions of the keys, led by one master or by two. An agent has a client for each.
class TwoPartitions {
 public:
  static constexpr std::uint32_t kPartitions = 2;
  TwoPartitions(benchmark::State& state, std::uint64_t reported)
      : masters_(static_cast<std::size_t>(state.range(0))) {
    for (std::size_t i = 0; i < masters_; ++i) {
      processes_.push_back(std::make_unique<Process>(static_cast<int>(i), kPartitions));
    }
    for (std::uint32_t partition = 0; partition < kPartitions; ++partition) {
      agents_.push_back(std::make_unique<Agent>(reported / kPartitions));
      clients_.push_back(client_of(*processes_[partition % masters_], agents_.back().get(),
                                   partition, kPartitions));
    }
    before_ns_ = spent_ns();
  }
  MasterClient& client(std::uint64_t batch) { return *clients_[batch % kPartitions]; }
  void end(benchmark::State& state, std::uint64_t keys) const {
    state.SetItemsProcessed(static_cast<std::int64_t>(keys));
    state.counters["master_ns_per_key"] =
        static_cast<double>(spent_ns() - before_ns_) / static_cast<double>(keys);
  }

 private:
  std::uint64_t spent_ns() const {
    std::uint64_t sum_ns = 0;
    for (const auto& process : processes_) sum_ns += process->processor_ns();
    return sum_ns;
  }

  const std::size_t masters_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::vector<std::unique_ptr<MasterClient>> clients_;
  std::uint64_t before_ns_ = 0;
};

void publish_through_masters(benchmark::State& state) {
  TwoPartitions cluster(state, 0);
  std::uint64_t first = 0;
  constexpr std::uint64_t kBatches = 4096;
  for (auto _ : state) {
    pump(kBatches, [&](std::uint64_t batch, auto done) {
      cluster.client(batch).publish(batch_of(first, kBatch), 0, now_ns() + kDeadlineNs,
                                    [done](const Result<std::vector<Verdict>>& verdicts) {
                                      if (!verdicts || (*verdicts)[0] != Verdict::kAccepted)
                                        give_up("refused");
                                      done();
                                    });
      first += kBatch;
    });
  }
  cluster.end(state, first);
}
BENCHMARK(publish_through_masters)
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(4);

void locate_through_masters(benchmark::State& state) {
  TwoPartitions cluster(state, kReported);
  std::uint64_t asked = 0;
  constexpr std::uint64_t kBatches = 4096;
  for (auto _ : state) {
    pump(kBatches, [&](std::uint64_t batch, auto done) {
      wire::Locate request;
      for (std::size_t i = 0; i < kBatch; ++i) {
        request.keys.push_back(key_of(mix64(asked + i) % (kReported / TwoPartitions::kPartitions)));
      }
      asked += kBatch;
      cluster.client(batch).locate(request, now_ns() + kDeadlineNs,
                                   [done](const Result<LocateAnswer>& answer) {
                                     if (!answer || answer->keys[0].state != Lookup::kFound) {
                                       give_up("not found");
                                     }
                                     done();
                                   });
    });
  }
  cluster.end(state, asked);
}
BENCHMARK(locate_through_masters)
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(4);

void locate_one_batch_at_a_time(benchmark::State& state) {
  const Process process;
  Agent agent(kReported);
  const auto client = client_of(process, &agent);
  wire::Locate request;
  for (std::size_t i = 0; i < kBatch; ++i) request.keys.push_back(key_of(i * 1000));
  for (auto _ : state) {
    const auto answer = wait_for<LocateAnswer>(
        [&](auto done) { client->locate(request, now_ns() + kDeadlineNs, std::move(done)); });
    if (!answer) give_up("not found");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}
BENCHMARK(locate_one_batch_at_a_time)->UseRealTime()->Unit(benchmark::kMicrosecond);

// From the first connection to the end of the report.
void report_of_a_million(benchmark::State& state) {
  for (auto _ : state) {
    const Process process;
    { const auto tool = client_of(process, nullptr); }
    Agent agent(kReported);
    const std::uint64_t start_ns = now_ns();
    const auto client = client_of(process, &agent);
    state.SetIterationTime(static_cast<double>(now_ns() - start_ns) * 1e-9);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kReported));
}
BENCHMARK(report_of_a_million)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(3);

void encode_and_decode_publish(benchmark::State& state) {
  wire::Publish sent{1, 2, batch_of(0, kBatch)};
  wire::Publish received;
  std::string bytes;
  for (auto _ : state) {
    wire::encode(sent, bytes);
    if (!wire::decode(bytes, received).ok()) give_up("codec");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
  state.counters["bytes_per_key"] = static_cast<double>(bytes.size()) / kBatch;
}
BENCHMARK(encode_and_decode_publish);

void encode_and_decode_locate(benchmark::State& state) {
  wire::Locate sent;
  LocateAnswer answer;
  for (std::uint64_t i = 0; i < kBatch; ++i) {
    sent.keys.push_back(key_of(i));
    answer.keys.push_back({Lookup::kFound, {}, static_cast<std::uint32_t>(2 * i), 2, 7, 65536});
    answer.holders.insert(answer.holders.end(), {i + 1, i + 2});
  }
  wire::Locate received;
  LocateAnswer back;
  std::string bytes;
  for (auto _ : state) {
    wire::encode(sent, bytes);
    if (!wire::decode(bytes, received).ok()) give_up("codec");
    wire::encode(answer, bytes);
    if (!wire::decode(bytes, back).ok()) give_up("codec");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}
BENCHMARK(encode_and_decode_locate);

}  // namespace
}  // namespace mc::metadata

BENCHMARK_MAIN();
