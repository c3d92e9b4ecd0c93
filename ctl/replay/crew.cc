// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/crew.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>

#include <json/value.h>

#include "ctl/agent_question.h"
#include "ctl/replay/content.h"
#include "ctl/text/json.h"
#include "libmc/base/clock.h"
#include "libmc/base/fd.h"

namespace mc::ctl {
namespace {

constexpr int kTickMs = 100;
constexpr std::uint64_t kStartDelayNs = 1'000'000;  // so that all workers begin at the same moment
constexpr std::uint64_t kTierNs = 30'000'000'000;   // for the disk of a tier to begin, and to end
constexpr int kTierLookMs = 5;

volatile std::sig_atomic_t interrupted = 0;
void note_interrupt(int) { interrupted = 1; }

// While this object exists, Ctrl-C and SIGTERM end the replay through run_crew(), which cleans up.
// A write to a dead worker is then an error and does not kill this process.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &old_pipe_);
  }
  ~InterruptGuard() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
    sigaction(SIGPIPE, &old_pipe_, nullptr);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
  struct sigaction old_pipe_ {};
};

Result<Client> open_client(const CrewPlan& plan, unsigned worker, const std::string& tier = {}) {
  const std::string config = plan.embedded_config + tier;
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  options.agent = plan.embedded         ? "embedded"
                  : plan.agents.empty() ? nullptr
                                        : plan.agents[worker % plan.agents.size()].c_str();
  options.name_space = plan.name_space.empty() ? nullptr : plan.name_space.c_str();
  options.label = "mcctl-replay";
  options.timeout_ns = plan.timeout_ns;
  if (plan.embedded) {
    options.embedded_config = config.c_str();
    options.channel_count = plan.worker.workers + 1;
  }
  return open_session(options);
}

struct Member {
  pid_t pid = 0;  // 0: a thread
  std::thread thread;
  Fd records;  // from the worker
  Fd go;       // to the worker: the time of the start
  RecordReader reader;
  WorkerTotals progress;
  bool ready = false;
  bool done = false;
  std::string error;  // empty: no error so far
};

// The work of a worker that has a client: report readiness, wait for the start, replay, report.
void work(mc_client* client, const Trace& trace, const WorkerPlan& plan, int records, int go) {
  std::uint64_t start_ns = 0;
  if (!write_ready(records) || ::read(go, &start_ns, sizeof(start_ns)) != sizeof(start_ns)) return;
  while (now_ns() < start_ns) cpu_relax();
  const Result<WorkerResult> result = replay_share(client, trace, plan, start_ns, records);
  if (result) {
    write_result(records, *result);
  } else {
    write_error(records, result.error().to_string());
  }
}

[[noreturn]] void worker_process(const Trace& trace, const CrewPlan& crew, const WorkerPlan& plan,
                                 int records, int go) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN);  // the parent handles the signal and kills the workers
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
  {
    const Result<Client> client = open_client(crew, plan.worker);
    if (client) {
      work(client->get(), trace, plan, records, go);
    } else {
      write_error(records, client.error().to_string());
    }
  }
  _exit(0);  // must not run the buffers and handlers of the parent
}

std::string cause_of_death(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    return "it was killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  }
  return "it ended early with exit code " + std::to_string(WEXITSTATUS(status));
}

class Crew {
 public:
  Crew(const Trace& trace, const CrewPlan& plan) : trace_(trace), plan_(plan) {
    for (unsigned i = 0; i < plan.worker.workers; ++i) {
      plans_.push_back(plan.worker);
      plans_.back().worker = i;
      plans_.back().stop = plan.embedded ? &stop_ : nullptr;
    }
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() {
    stop_ = true;
    for (Member& member : members_) {
      member.go.reset();
      if (member.pid > 0 && !member.done) kill(member.pid, SIGKILL);
      if (member.pid > 0) cause_of_death(member.pid);
      if (member.thread.joinable()) member.thread.join();
    }
  }

  Status start() {
    if (plan_.embedded) {
      if (Status opened = open_embedded(); !opened.ok()) return opened;
    }
    members_.resize(plans_.size());
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      if (Status started = start_member(i); !started.ok()) return started;
    }
    return {};
  }

  // Until every worker has finished or failed.
  Status follow(const std::function<void(const WorkerTotals&, double)>& on_tick) {
    while (!all([](const Member& m) { return m.done; })) {
      if (interrupted != 0) return Status(MC_CANCELLED, "interrupted");
      read_records();
      if (start_ns_ == 0 && all([](const Member& m) { return m.ready || m.done; })) give_start();
      tick(on_tick);
    }
    if (start_ns_ == 0) return Status(MC_AGENT_UNAVAILABLE, members_.front().error);
    return {};
  }

  CrewResult result() const {
    CrewResult out;
    out.merged = merged_;
    const std::uint64_t end_ns = merged_.totals.finished_ns;
    out.seconds = end_ns > start_ns_ ? static_cast<double>(end_ns - start_ns_) / 1e9 : 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].error.empty()) continue;
      out.errors.push_back("worker " + std::to_string(i) + ": " + members_[i].error);
    }
    if (plan_.ssd_bytes > 0) {
      add_tier(out);
    } else if (client_) {
      out.resident_blocks = resident_blocks();
    }
    return out;
  }

 private:
  template <typename Predicate>
  bool all(Predicate predicate) const {
    return std::all_of(members_.begin(), members_.end(), predicate);
  }

  // With a tier, the replay starts when the disk serves.
  Status open_embedded() {
    SsdFile file;
    std::string tier;
    if (plan_.ssd_bytes > 0) {
      Result<SsdFile> made = SsdFile::create(plan_.ssd_folder);
      if (!made) return made.error();
      file = std::move(*made);
      tier = "tier_paths=" + file.path() + "\ntier_bytes=" + std::to_string(plan_.ssd_bytes) +
             "\ntier_stop_seconds=0\n";
    }
    Result<Client> client = open_client(plan_, 0, tier);
    file.remove();
    if (!client) return client.error();
    client_ = std::move(*client);
    if (plan_.ssd_bytes == 0) return {};
    TierState state;
    const auto ready = [&state](const Json::Value& status) {
      state = tier_of(status).value_or(TierState{});
      return state.serving || !state.problem.empty();
    };
    if (Status waited = wait_for(ready); !waited.ok()) return waited;
    return state.serving ? Status() : Status(MC_NO_SPACE, "the tier: " + state.problem);
  }

  // Asks the embedded agent until its status meets the condition, for 30 s at most.
  Status wait_for(const std::function<bool(const Json::Value&)>& condition) const {
    const std::uint64_t until_ns = now_ns() + kTierNs;
    while (interrupted == 0) {
      const Result<Json::Value> status = ask_status(client_.get());
      if (!status) return status.error();
      if (condition(*status)) return {};
      if (now_ns() > until_ns) return Status(MC_TIMEOUT, "the disk of the tier does not answer");
      poll(nullptr, 0, kTierLookMs);
    }
    return Status(MC_CANCELLED, "interrupted");
  }

  // The counters are complete when no block is on its way to the disk.
  void add_tier(CrewResult& out) const {
    const Status waited = wait_for([&out](const Json::Value& status) {
      out.tier = tier_of(status);
      std::uint64_t evictions = 0;
      for (const Json::Value& entry : array_field(status, "namespaces")) {
        evictions += number_field(entry, "evictions");
      }
      out.evictions = evictions;
      return demoting_bytes(status) == 0;
    });
    if (!waited.ok()) out.errors.push_back("the tier: " + std::string(waited.text()));
  }

  Status start_member(std::size_t index) {
    int records[2];
    int go[2];
    if (pipe2(records, O_CLOEXEC) != 0) return Status(MC_NO_MEMORY, errno_text("pipe", errno));
    Fd records_in(records[0]);
    Fd records_out(records[1]);
    if (pipe2(go, O_CLOEXEC) != 0) return Status(MC_NO_MEMORY, errno_text("pipe", errno));
    Fd go_in(go[0]);
    Fd go_out(go[1]);
    Member& member = members_[index];
    const WorkerPlan& plan = plans_[index];
    if (plan_.embedded) {
      member.thread =
          std::thread([this, &plan, out = std::move(records_out), in = std::move(go_in)] {
            work(client_.get(), trace_, plan, out.get(), in.get());
          });
    } else {
      member.pid = fork();
      if (member.pid < 0) return Status(MC_NO_MEMORY, errno_text("fork", errno));
      if (member.pid == 0) {
        // If this process kept a pipe of a sibling open, the parent would not see the sibling's
        // end.
        for (Member& sibling : members_) {
          sibling.go.reset();
          sibling.records.reset();
        }
        records_in.reset();
        go_out.reset();
        worker_process(trace_, plan_, plan, records_out.get(), go_in.get());
      }
    }
    member.records = std::move(records_in);
    member.go = std::move(go_out);
    return {};
  }

  void give_start() {
    start_ns_ = now_ns() + kStartDelayNs;
    for (Member& member : members_) {
      // If a worker died meanwhile, the parent sees the end of its records.
      [[maybe_unused]] const ssize_t written =
          member.done ? 0 : ::write(member.go.get(), &start_ns_, sizeof(start_ns_));
    }
  }

  void read_records() {
    std::vector<pollfd> fds;
    for (const Member& member : members_) {
      fds.push_back({member.done ? -1 : member.records.get(), POLLIN, 0});
    }
    if (poll(fds.data(), fds.size(), kTickMs) <= 0) return;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (fds[i].revents != 0) read_member(members_[i]);
    }
  }

  void read_member(Member& member) {
    std::array<std::byte, 65536> bytes;
    const ssize_t count = ::read(member.records.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) return end_member(member);
    member.reader.feed(std::span(bytes).first(static_cast<std::size_t>(count)));
    while (std::optional<Record> record = member.reader.next()) take(member, *record);
    if (member.reader.broken()) {
      member.error = "it sent a record that cannot be read";
      if (member.pid > 0) kill(member.pid, SIGKILL);
      end_member(member);
    }
  }

  void take(Member& member, Record& record) {
    switch (record.type) {
      case RecordType::kReady:
        member.ready = true;
        break;
      case RecordType::kProgress:
        member.progress = record.totals;
        break;
      case RecordType::kError:
        member.error = std::move(record.text);
        break;
      case RecordType::kResult:
        member.progress = record.result->totals;
        merged_.merge(*record.result);
        finished_.push_back(&member);
        break;
    }
  }

  // The records of a worker end with a result, with a reported error, or with its death.
  void end_member(Member& member) {
    member.done = true;
    const bool finished = std::find(finished_.begin(), finished_.end(), &member) != finished_.end();
    if (member.pid > 0) {
      const std::string cause = cause_of_death(member.pid);
      member.pid = 0;
      if (!finished && member.error.empty()) member.error = cause;
    } else if (!finished && member.error.empty()) {
      member.error = "it ended without a result";
    }
  }

  void tick(const std::function<void(const WorkerTotals&, double)>& on_tick) {
    const std::uint64_t now = now_ns();
    if (start_ns_ == 0 || now < tick_due_ns_ || now < start_ns_) return;
    tick_due_ns_ = now + std::uint64_t{kTickMs} * 1'000'000;
    WorkerTotals sum;
    for (const Member& member : members_) sum.add(member.progress);
    on_tick(sum, static_cast<double>(now - start_ns_) / 1e9);
  }

  std::optional<std::uint64_t> resident_blocks() const {
    std::vector<bool> referenced(trace_.block_count);
    for (const TraceRequest& request : trace_.requests) {
      for (const std::uint32_t block : request.blocks) referenced[block] = true;
    }
    std::vector<BlockKey> keys;
    std::uint64_t resident = 0;
    for (std::size_t block = 0; block < referenced.size(); ++block) {
      if (referenced[block]) keys.emplace_back(plan_.worker.key_name, block);
      if (keys.size() < MC_MAX_BATCH_ITEMS && block + 1 < referenced.size()) continue;
      const std::optional<std::uint64_t> found = count_existing(keys);
      if (!found) return std::nullopt;
      resident += *found;
      keys.clear();
    }
    return resident;
  }

  std::optional<std::uint64_t> count_existing(const std::vector<BlockKey>& keys) const {
    if (keys.empty()) return 0;
    std::vector<mc_slice> slices;
    for (const BlockKey& key : keys) slices.push_back(key.slice());
    std::vector<mc_status> statuses(keys.size());
    if (mc_exists_batch(client_.get(), slices.data(), slices.size(), statuses.data()) != MC_OK) {
      return std::nullopt;
    }
    return static_cast<std::uint64_t>(std::count(statuses.begin(), statuses.end(), MC_OK));
  }

  const Trace& trace_;
  const CrewPlan& plan_;
  std::atomic<bool> stop_{false};
  std::vector<WorkerPlan> plans_;
  Client client_;  // embedded only
  std::vector<Member> members_;
  std::vector<const Member*> finished_;
  WorkerResult merged_;
  std::uint64_t start_ns_ = 0;  // 0: not started
  std::uint64_t tick_due_ns_ = 0;
};

}  // namespace

Result<CrewResult> run_crew(const Trace& trace, const CrewPlan& plan,
                            const std::function<void(const WorkerTotals&, double)>& on_tick) {
  const InterruptGuard guard;
  Crew crew(trace, plan);
  if (Status started = crew.start(); !started.ok()) return fail(std::move(started));
  if (Status followed = crew.follow(on_tick); !followed.ok()) return fail(std::move(followed));
  return crew.result();
}

}  // namespace mc::ctl
