// SPDX-License-Identifier: Apache-2.0
//
// `mcctl replay`: a recorded run of an inference cluster, replayed against the pool.
// Threads: the main thread.
// Owns: the namespace of the replay while it runs.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "agent/pool/policy/policy.h"
#include "ctl/agent_question.h"
#include "ctl/command.h"
#include "ctl/replay/crew.h"
#include "ctl/replay/report/summary.h"
#include "ctl/replay/stage.h"
#include "ctl/replay/trace.h"
#include "ctl/temporary_namespace.h"
#include "ctl/text/failure.h"
#include "ctl/text/progress.h"
#include "ctl/text/size.h"

namespace mc::ctl {
namespace {

constexpr std::uint64_t kMinSlackBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kDefaultPoolBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kMinSsdBytes = std::uint64_t{64} << 20;  // the least that a tier takes
// A worker that waits for the disk puts a 128th of the pool at once: the tier lets a 32nd be on its way.
constexpr std::uint64_t kSharesAtOnce = 128;
constexpr std::uint64_t kMinBlockBytes = 16;  // the number and the seed of a block
constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{1} << 30;
constexpr unsigned kMaxWorkers = 63;  // the channels of one client, minus one for the counters
constexpr std::size_t kHitBins = 240;
constexpr double kSampleSeconds = 0.2;

struct ReplayOptions {
  std::string trace;
  unsigned workers = 2;
  std::string block_bytes = "16KiB";
  std::string pool_bytes;
  std::uint64_t capacity_blocks = 0;
  std::string policy;
  double speed_up = 0;
  bool copy = false;
  bool embedded = false;
  unsigned cluster = 0;  // number of agents; 0: use the existing agent
  std::size_t limit = 0;
  std::string ssd_bytes;
  std::string ssd_folder;
  std::string report = "mc-replay.html";
  bool no_report = false;
};

void usage_error(Context& context, const std::string& text) {
  report_usage(context, "replay", text, "mcctl replay --help");
}

int failed(Context& context, const std::string& text) {
  report(context, "replay", kExitFailed, explain(MC_INTERNAL, text));
  return context.exit_code;
}

int failed(Context& context, const Status& status) {
  report_status(context, "replay", status.code(), status.text());
  return context.exit_code;
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void limit_requests(Trace& trace, std::size_t limit) {
  if (limit == 0 || limit >= trace.requests.size()) return;
  trace.requests.resize(limit);
  trace.reference_count = 0;
  trace.block_count = 0;
  for (const TraceRequest& request : trace.requests) {
    trace.reference_count += request.blocks.size();
    for (const std::uint32_t block : request.blocks) {
      trace.block_count = std::max<std::size_t>(trace.block_count, std::size_t{block} + 1);
    }
  }
}

std::uint64_t with_slack(std::uint64_t bytes) {
  return bytes + std::max(kMinSlackBytes, bytes / 16);
}

// The plan of the user, with the defaults that depend on the trace. Nullopt after a reported error.
std::optional<ReplaySummary> plan_replay(const ReplayOptions& options, const Trace& trace,
                                         Context& context) {
  ReplaySummary plan;
  const auto block_bytes = parse_bytes(options.block_bytes);
  if (!block_bytes || *block_bytes < kMinBlockBytes || *block_bytes > kMaxBlockBytes) {
    usage_error(context, "--block-bytes: \"" + options.block_bytes + "\" is not a size from " +
                             format_bytes(kMinBlockBytes) + " to " + format_bytes(kMaxBlockBytes));
    return std::nullopt;
  }
  if (options.capacity_blocks > MC_MAX_OBJECT_BYTES / *block_bytes) {
    usage_error(context, "--capacity-blocks: more than " + format_bytes(MC_MAX_OBJECT_BYTES));
    return std::nullopt;
  }
  const std::uint64_t capacity_bytes = options.capacity_blocks * *block_bytes;
  plan.pool_bytes = options.capacity_blocks > 0
                        ? with_slack(capacity_bytes)
                        : std::min(kDefaultPoolBytes, with_slack(trace.block_count * *block_bytes));
  if (!options.pool_bytes.empty()) {
    const auto pool_bytes = parse_bytes(options.pool_bytes);
    if (!pool_bytes || *pool_bytes < *block_bytes) {
      usage_error(context, "--pool-bytes: \"" + options.pool_bytes +
                               "\" is not a size of at least one block");
      return std::nullopt;
    }
    plan.pool_bytes = *pool_bytes;
  }
  if (!options.ssd_bytes.empty()) {
    if (!options.embedded) {
      usage_error(context,
                  "--ssd-bytes needs --embedded: a namespace of a replay does not use the tier of "
                  "the agent");
      return std::nullopt;
    }
    const auto ssd_bytes = parse_bytes(options.ssd_bytes);
    if (!ssd_bytes || *ssd_bytes < kMinSsdBytes || *ssd_bytes > MC_MAX_OBJECT_BYTES) {
      usage_error(context, "--ssd-bytes: \"" + options.ssd_bytes + "\" is not a size from " +
                               format_bytes(kMinSsdBytes) + " to " +
                               format_bytes(MC_MAX_OBJECT_BYTES));
      return std::nullopt;
    }
    plan.ssd_bytes = *ssd_bytes;
  } else if (!options.ssd_folder.empty()) {
    usage_error(context, "--ssd-folder needs --ssd-bytes");
    return std::nullopt;
  }
  const std::uint64_t pool_blocks = plan.pool_bytes / *block_bytes;
  plan.block_bytes = *block_bytes;
  plan.capacity_blocks = options.capacity_blocks;
  plan.distinct_blocks = trace.block_count;
  plan.dram_blocks =
      options.capacity_blocks == 0 ? pool_blocks : std::min(pool_blocks, options.capacity_blocks);
  plan.reference_blocks =
      std::min<std::uint64_t>(trace.block_count, plan.dram_blocks + plan.ssd_bytes / *block_bytes);
  plan.command_line = command_line();
  plan.trace = file_name(options.trace);
  plan.policy = options.policy;
  plan.workers = options.workers;
  plan.embedded = options.embedded;
  plan.hosts = options.cluster;
  plan.occupancy_is_estimate = options.embedded;
  return plan;
}

CrewPlan crew_plan(const ReplayOptions& options, const ReplaySummary& plan, const Context& context,
                   const std::string& name_space, const std::vector<std::string>& agents) {
  CrewPlan crew;
  crew.worker.workers = options.workers;
  crew.worker.block_bytes = plan.block_bytes;
  crew.worker.copy = options.copy;
  crew.worker.speed_up = options.speed_up;
  crew.worker.hit_bins = kHitBins;
  // The keys are the same in every run, so a replay by one worker always has the same result.
  crew.worker.key_name = "replay";
  crew.agents = agents;
  crew.name_space = options.embedded ? context.name_space : name_space;
  crew.timeout_ns = timeout_ns(context);
  crew.embedded = options.embedded;
  crew.embedded_config = "pool_bytes=" + std::to_string(plan.pool_bytes) + "\ncapacity_bytes=" +
                         std::to_string(plan.capacity_blocks * plan.block_bytes) +
                         "\npolicy=" + plan.policy + "\nrepeatable=true\n";
  crew.ssd_bytes = plan.ssd_bytes;
  crew.ssd_folder = options.ssd_folder;
  if (plan.ssd_bytes > 0 && options.speed_up == 0) {
    crew.worker.at_once_bytes = plan.pool_bytes / kSharesAtOnce;
  }
  return crew;
}

std::string progress_note(const WorkerTotals& sum, double seconds) {
  char text[96];
  const double ratio =
      sum.block_refs == 0 ? 0
                          : static_cast<double>(sum.hit_refs) / static_cast<double>(sum.block_refs);
  const double bytes = static_cast<double>(sum.got_bytes() + sum.put_bytes);
  std::snprintf(text, sizeof(text), "hits %.1f %%  %.2f GB/s", ratio * 100,
                seconds > 0 ? bytes / seconds / 1e9 : 0);
  return text;
}

// The sum over all agents; nullopt if an agent does not answer.
std::optional<NamespaceState> state_of(const std::vector<TemporaryNamespace>& targets) {
  NamespaceState sum;
  for (const TemporaryNamespace& target : targets) {
    const auto state = target.state();
    if (!state) return std::nullopt;
    sum.policy = state->policy;
    sum.objects += state->objects;
    sum.used_bytes += state->used_bytes;
    sum.evictions += state->evictions;
  }
  return sum;
}

// Runs the crew. Asks the agents about the namespace during the run and at the end.
Result<CrewResult> run(const Trace& trace, const CrewPlan& crew,
                       const std::vector<TemporaryNamespace>& targets, bool quiet,
                       ReplaySummary& summary) {
  std::optional<Progress> progress;
  if (!quiet) progress.emplace("replay", trace.requests.size());
  double sample_due = 0;
  const auto on_tick = [&](const WorkerTotals& sum, double seconds) {
    if (progress) progress->update(sum.requests, progress_note(sum, seconds));
    if (targets.empty() || seconds < sample_due) return;
    sample_due = seconds + kSampleSeconds;
    if (const auto state = state_of(targets)) {
      summary.occupancy.emplace_back(seconds, static_cast<double>(state->objects));
    }
  };
  Result<CrewResult> result = run_crew(trace, crew, on_tick);
  if (!result) return result;
  summary.result = std::move(result->merged);
  summary.seconds = result->seconds;
  if (!targets.empty()) {
    if (const auto state = state_of(targets)) {
      summary.evictions = state->evictions;
      if (!state->policy.empty()) summary.policy = state->policy;
      summary.occupancy.emplace_back(summary.seconds, static_cast<double>(state->objects));
    }
  } else if (result->tier) {
    summary.tier = result->tier;
    summary.evictions = result->evictions;
  } else if (result->resident_blocks) {
    // An inserted block that is no longer resident was evicted: nothing else removes blocks.
    const std::uint64_t inserted = summary.result.totals.inserted;
    // If two threads put one block at the same time, both count the block as inserted.
    summary.evictions = inserted - std::min(inserted, *result->resident_blocks);
    summary.evictions_exact = summary.workers == 1;
  }
  return result;
}

int write_report(const ReplaySummary& summary, const std::string& path, Context& context) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << report_html(summary);
  file.close();
  if (!file) return failed(context, "cannot write " + path + "; give another place with --report");
  if (!context.json) std::printf("\nreport: %s\n", path.c_str());
  return 0;
}

int replay(const ReplayOptions& options, Context& context) {
  tl::expected<Trace, std::string> trace = read_trace(options.trace);
  if (!trace) return failed(context, trace.error());
  limit_requests(*trace, options.limit);
  if (trace->reference_count == 0) return failed(context, options.trace + " names no block");
  std::optional<ReplaySummary> summary = plan_replay(options, *trace, context);
  if (!summary) return context.exit_code;

  std::unique_ptr<Stage> stage;
  if (options.cluster > 0) {
    auto opened = Stage::open(options.cluster,
                              std::max<std::uint64_t>(timeout_ms(context), 20000) * 1'000'000);
    if (!opened) return failed(context, opened.error());
    stage = std::move(*opened);
    if (!stage->has_namespaces()) {
      std::fprintf(stderr,
                   "mcctl replay: not root: the agents listen on loopback, not in separate network "
                   "namespaces\n");
    }
  }
  std::vector<std::string> agents;
  if (stage) {
    agents = stage->sockets();
  } else if (!options.embedded) {
    agents = {socket_path(context)};
  }
  std::vector<TemporaryNamespace> targets;
  const std::string name = "replay-" + std::to_string(getpid());
  for (const std::string& agent : agents) {
    // The requested sizes are totals of the cluster.
    const std::uint64_t share = agents.size();
    const NamespacePlan plan{
        .name = name,
        .pool_bytes = summary->pool_bytes / share,
        .capacity_bytes = summary->capacity_blocks * summary->block_bytes / share,
        .policy = summary->policy,
        .clustered = stage != nullptr};
    Result<TemporaryNamespace> made = TemporaryNamespace::create(agent, plan, timeout_ns(context));
    if (!made) {
      return failed(context,
                    Status(made.error().code(), std::string(made.error().text()) +
                                                    ", or replay without an agent: --embedded"));
    }
    targets.push_back(std::move(*made));
  }
  const Result<CrewResult> crew = run(*trace, crew_plan(options, *summary, context, name, agents),
                                      targets, context.json, *summary);
  for (TemporaryNamespace& target : targets) {
    if (const Status dropped = target.drop(); !dropped.ok()) {
      failed(context, "the namespace " + name + " is left behind: " + std::string(dropped.text()));
    }
  }
  if (!crew) return failed(context, crew.error());
  for (const std::string& error : crew->errors) failed(context, error);
  if (!crew->errors.empty() && summary->result.totals.requests == 0) return context.exit_code;

  add_worker_curves(*summary, trace->requests.size());
  add_reference_curves(*summary, *trace);
  if (!context.json) std::printf("%s", summary_text(*summary).c_str());
  if (!options.no_report) write_report(*summary, options.report, context);
  if (context.json) std::printf("%s", summary_json(*summary).c_str());
  if (summary->result.totals.wrong_bytes != 0) {
    return failed(context, "wrong bytes were read: this must never happen, please report it");
  }
  return context.exit_code;
}

std::vector<Option> size_options(ReplayOptions* options,
                                 const std::vector<std::string_view>& policies) {
  return {{"--workers",
           &options->workers,
           "Number of inference engines to simulate",
           "COUNT",
           {{1, kMaxWorkers}}},
          {"--block-bytes", &options->block_bytes, "Size of a block", "SIZE"},
          {"--pool-bytes", &options->pool_bytes,
           "Size of the pool (default: the capacity and slack; without a capacity, "
           "the need of the trace, at most 2 GiB)",
           "SIZE"},
          {"--capacity-blocks", &options->capacity_blocks,
           "Largest number of blocks in the pool; 0: as many as fit", "COUNT"},
          {.name = "--ssd-bytes",
           .value = &options->ssd_bytes,
           .help = "Size of a tier on local disk for the blocks that leave the pool of --embedded, "
                   "at least 64MiB; a file that exists only for the replay",
           .type = "SIZE",
           .excludes = {"--cluster", "--copy"}},
          {"--ssd-folder", &options->ssd_folder,
           "Folder for the file of --ssd-bytes (default: the directory for temporary files)",
           "DIRECTORY"},
          {.name = "--policy",
           .value = &options->policy,
           .help = "Eviction policy",
           .choices = {policies.begin(), policies.end()}},
          {"--speed-up",
           &options->speed_up,
           "Follow the timestamps of the trace, this many times faster; 0: as fast "
           "as possible",
           "FACTOR",
           {{0, 1e9}}}};
}

}  // namespace

Verb replay_verb(Context& context) {
  auto options = std::make_shared<ReplayOptions>();
  const std::vector<std::string_view> policies = agent::policy_names();
  if (!policies.empty()) options->policy = std::string(policies.front());
  Verb verb{
      .name = "replay",
      .text = R"(Replay a trace of inference requests, verify every byte, report hits and latency

For each request, a worker looks up the chain of blocks, verifies the leading hits and puts the
remaining blocks. Each worker is a process. The replay creates its own namespace in the agent and
drops it at the end.

With --embedded there is no agent: the pool lives inside mcctl, and the workers are threads that
share one client. With one worker, the hits and evictions are the same in every run.

With --ssd-bytes the pool has a tier on local disk. The report counts prefix hits in DRAM and on the
SSD, beside LRU and the optimum with room for both, and shows how much the tier has written. Workers
wait for the disk. With --speed-up they do not wait: blocks that are evicted faster than the disk
writes are lost, and counted. The hits of two runs differ a little, since the disk has a pace of its
own.)",
      .footer = R"(EXAMPLES
  mcctl replay conversation_trace.jsonl --capacity-blocks 30000
  mcctl replay conversation_trace.jsonl --cluster 4 --workers 8
  mcctl replay conversation_trace.jsonl --embedded --capacity-blocks 5000 --ssd-bytes 586MiB

EXIT STATUS
  0 replayed; 1 a worker failed, or a byte was wrong; 2 wrong usage)",
      .options = {{.name = "TRACE",
                   .value = &options->trace,
                   .help = "File of JSON lines with timestamp, input_length, hash_ids",
                   .required = true,
                   .refusal =
                       [](const std::string& file) {
                         return access(file.c_str(), F_OK) == 0 ? "" : "there is no file " + file;
                       }},
                  {"--copy", &options->copy, "Copy blocks out instead of reading them in place"},
                  {"--embedded", &options->embedded,
                   "Use no agent, but a pool inside this process"},
                  {.name = "--cluster",
                   .value = &options->cluster,
                   .help = "Start a master and this many agents, each in its own network "
                           "namespace. The workers are spread over the agents; capacity and pool "
                           "are the totals of all agents",
                   .type = "COUNT",
                   .range = {{1, kMaxStageAgents}},
                   .excludes = {"--embedded", "--copy"}},
                  {"--limit", &options->limit, "Replay only the first requests, this many; 0: all",
                   "COUNT"},
                  {"--report", &options->report, "The HTML report to write", "FILE"},
                  {"--no-report", &options->no_report, "Write no HTML report"}},
      .run = [options, &context] { replay(*options, context); },
  };
  for (Option& option : size_options(options.get(), policies)) {
    verb.options.push_back(std::move(option));
  }
  return verb;
}

}  // namespace mc::ctl
