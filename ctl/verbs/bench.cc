// SPDX-License-Identifier: Apache-2.0
//
// `mcctl bench`: the data path of this host beside the limits of the machine, measured
//   in the same run.
// Threads: the main thread.
// Owns: the client, the helper processes and the memory of a run.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ctl/agent_question.h"
#include "ctl/bench/cases.h"
#include "ctl/bench/transport_options.h"
#include "ctl/bench/transport_target.h"
#include "ctl/command.h"
#include "ctl/temporary_namespace.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

constexpr std::uint64_t kMaxKeys = 100'000'000;
constexpr std::uint64_t kQuickPoolBytes = std::uint64_t{512} << 20;
constexpr std::uint64_t kPoolBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kMinObjectBytes = 64;
constexpr std::uint64_t kMaxObjectBytes = std::uint64_t{1} << 30;
constexpr double kQuickSeconds = 0.3;
constexpr unsigned kQuickRounds = 3;
constexpr std::uint64_t kWarmUpBatch = 32;
constexpr std::size_t kWarmUpBytes = std::size_t{256} << 10;
constexpr std::uint64_t kGrowNs = 60'000'000'000;

struct BenchOptions {
  std::vector<std::string> cases;
  std::vector<std::string> sizes;
  std::string keys = "1000";
  double seconds = 2;
  unsigned rounds = 5;
  bool quick = false;
  bool embedded = false;
  bool remote = false;
  bool existing = false;
  std::string pool_bytes;
  TransportOptions transport;
};

// A case at a size.
struct Step {
  std::size_t size;
  std::function<CaseResult(BenchRig&)> run;
};

int stop(Context& context, const std::string& text) {
  report(context, "bench", kExitFailed, explain(MC_INTERNAL, text));
  return context.exit_code;
}

int stop(Context& context, const Status& status) {
  report_status(context, "bench", status.code(), status.text());
  return context.exit_code;
}

int stop_usage(Context& context, const std::string& text) {
  report_usage(context, "bench", text, "mcctl bench --help");
  return context.exit_code;
}

// "1000", "64k", "1M", "10M": powers of 1000.
std::optional<std::uint64_t> parse_key_count(const std::string& text) {
  std::size_t digits = 0;
  std::uint64_t value = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && digits < 10) {
    value = value * 10 + static_cast<std::uint64_t>(text[digits++] - '0');
  }
  const std::string unit = text.substr(digits);
  if (unit == "k" || unit == "K")
    value *= 1000;
  else if (unit == "m" || unit == "M")
    value *= 1'000'000;
  else if (!unit.empty())
    return std::nullopt;
  if (digits == 0 || value == 0 || value > kMaxKeys) return std::nullopt;
  return value;
}

std::optional<std::vector<std::size_t>> parse_sizes(const BenchOptions& options) {
  std::vector<std::size_t> sizes;
  for (const std::string& text : options.sizes) {
    const auto size = parse_bytes(text);
    if (!size || *size < kMinObjectBytes || *size > kMaxObjectBytes) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

std::vector<Step> steps_of(const std::vector<BenchCase>& cases, const BenchOptions& options,
                           const std::vector<std::size_t>& sizes) {
  std::vector<Step> steps;
  for (const BenchCase& one : cases) {
    const bool wanted =
        options.cases.empty() ||
        std::find(options.cases.begin(), options.cases.end(), one.name) != options.cases.end();
    if (!wanted) continue;
    const bool sized = one.sizes.front() != 0;
    for (const std::size_t size : sized && !sizes.empty() ? sizes : one.sizes) {
      steps.push_back({size, [run = one.run, size](BenchRig& rig) { return run(rig, size); }});
      if (std::string_view(one.name) != "put_batch") continue;
      steps.push_back({size, [size](BenchRig& rig) { return run_put_batch(rig, size, 2); }});
    }
  }
  return steps;
}

std::vector<Step> plan_steps(const BenchOptions& options, const std::vector<std::size_t>& sizes) {
  std::vector<Step> steps = steps_of(get_cases(), options, sizes);
  // Cases of one size share their objects: storing takes longer than reading.
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.size < b.size; });
  // Large values first: a pool full of small values has no contiguous room for a large value. The
  // case would then measure the eviction of half of the small values.
  std::vector<Step> puts = steps_of(put_cases(), options, sizes);
  std::stable_sort(puts.begin(), puts.end(),
                   [](const Step& a, const Step& b) { return a.size > b.size; });
  for (Step& step : puts) steps.push_back(std::move(step));
  return steps;
}

double ratio_of(const CaseResult& result) {
  return result.of_limit.p50_ns > 0 ? result.ours.p50_ns / result.of_limit.p50_ns : 0;
}

std::string two_decimals(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

std::string result_line(const CaseResult& result) {
  Json::Value json;
  json["case"] = result.name;
  json["size"] = Json::UInt64{result.size};
  json["keys"] = Json::UInt64{result.keys};
  json["measured_keys"] = Json::UInt64{result.measured_keys};
  json["batch"] = Json::UInt64{result.batch};
  json["clients"] = result.clients;
  if (!result.error.empty()) {
    json["error"] = result.error;
  } else {
    const auto or_null = [](double value) {
      return value > 0 ? Json::Value(value) : Json::Value();
    };
    json["p50_ns"] = result.ours.p50_ns;
    json["p99_ns"] = result.ours.p99_ns;
    json["bytes_per_s"] = or_null(result.bytes_per_s);
    json["limit"] = result.limit;
    json["limit_p50_ns"] = or_null(result.of_limit.p50_ns);
    json["limit_p99_ns"] = or_null(result.of_limit.p99_ns);
    json["limit_bytes_per_s"] = or_null(result.limit_bytes_per_s);
    json["ratio"] = or_null(ratio_of(result));
    if (result.bytes_per_s > 0 && result.limit_bytes_per_s > 0) {
      json["share_of_limit"] = result.bytes_per_s / result.limit_bytes_per_s;
    }
    if (result.copy_p50_ns > 0) {
      json["memcpy_p50_ns"] = result.copy_p50_ns;
      json["share_of_memcpy"] = result.copy_p50_ns / result.ours.p50_ns;
    }
    if (result.target_ns > 0) json["target_ns"] = result.target_ns;
  }
  return json_line(json, 6) + "\n";
}

std::vector<std::string> table_row(const CaseResult& result) {
  std::string name = result.name;
  if (result.batch > 1) name += " x" + std::to_string(result.batch);
  if (result.clients > 1) name += ", " + std::to_string(result.clients) + " clients";
  const std::string size = result.size == 0 ? "-" : format_bytes(result.size);
  if (!result.error.empty()) return {name, size, "failed"};
  const auto rate = [](double value) {
    return value > 0 ? format_bytes(static_cast<std::uint64_t>(value)) + "/s" : "-";
  };
  std::string limit = result.limit;
  if (result.target_ns > 0) limit = "target " + format_duration_ns(result.target_ns);
  const bool limited = result.of_limit.p50_ns > 0;
  return {name,
          size,
          format_duration_ns(result.ours.p50_ns),
          format_duration_ns(result.ours.p99_ns),
          rate(result.bytes_per_s),
          limited ? format_duration_ns(result.of_limit.p50_ns) : "-",
          rate(result.limit_bytes_per_s),
          limited ? two_decimals(ratio_of(result)) : "-",
          limit};
}

// The processes and files that must exist before a client is opened.
struct Helpers {
  Fd region_file;
  std::optional<PingPeer> ping;
  std::optional<PutPeer> second;
};

// name_space: where the second client puts objects.
Status start_helpers(Helpers& helpers, const BenchOptions& options, const Context& context,
                     const std::string& name_space) {
  Result<Fd> file = make_region_file();
  if (!file) return file.error();
  helpers.region_file = std::move(*file);
  Result<PingPeer> ping = PingPeer::start();
  if (!ping) return ping.error();
  helpers.ping.emplace(std::move(*ping));
  if (options.embedded) return {};
  std::signal(SIGPIPE, SIG_IGN);  // an order to a dead helper fails only that case
  const PutPeerPlan plan{
      .agent = context.agent, .name_space = name_space, .timeout_ns = timeout_ns(context)};
  Result<PutPeer> second = PutPeer::start(plan, helpers.region_file);
  if (!second) return second.error();
  helpers.second.emplace(std::move(*second));
  return {};
}

std::optional<std::uint64_t> pool_bytes_of(const BenchOptions& options) {
  if (!options.pool_bytes.empty()) return parse_bytes(options.pool_bytes);
  return options.quick ? kQuickPoolBytes : kPoolBytes;
}

// Makes the namespace of the run, or makes sure that the existing one is empty: puts evict.
Status make_room(const BenchOptions& options, const Context& context, const std::string& name_space,
                 std::uint64_t pool_bytes, std::optional<TemporaryNamespace>& made) {
  const std::string agent = socket_path(context);
  const std::uint64_t wait_ns = timeout_ns(context);
  if (options.existing) {
    const auto state = state_of_namespace(agent, name_space, wait_ns);
    if (state && state->objects > 0) {
      return {MC_BUSY, "the namespace " + name_space + " holds " + std::to_string(state->objects) +
                           " objects, which bench would evict; leave out --existing"};
    }
    return {};
  }
  NamespacePlan plan;
  plan.name = name_space;
  plan.pool_bytes = pool_bytes;
  auto own = TemporaryNamespace::create(agent, plan, wait_ns);
  if (!own) {
    const bool short_of_memory = own.error().code() == MC_NO_MEMORY;
    return {own.error().code(), std::string(own.error().text()) +
                                    (short_of_memory ? " (mcctl bench --pool-bytes 256MiB)" : "")};
  }
  own->wait_until_grown(kGrowNs);
  made.emplace(std::move(*own));
  return {};
}

Result<Client> open_client(const BenchOptions& options, const Context& context,
                           const std::string& name_space, std::uint64_t pool_bytes) {
  const std::string config = "pool_bytes=" + std::to_string(pool_bytes) + "\n";
  mc_open_options open = MC_OPEN_OPTIONS_INIT;
  open.agent = options.embedded        ? "embedded"
               : context.agent.empty() ? nullptr
                                       : context.agent.c_str();
  open.name_space = name_space.c_str();
  open.label = "mcctl-bench";
  open.timeout_ns = timeout_ns(context);
  if (options.embedded) open.embedded_config = config.c_str();
  return open_session(open);
}

// Puts as many bytes as the pool holds, so that no measured put meets an untouched page.
Status touch_pool(mc_client* client, std::uint64_t pool_bytes) {
  const std::vector<unsigned char> value(kWarmUpBytes, 1);
  const mc_slice piece{value.data(), value.size()};
  const std::uint64_t seed = random_seed();
  std::vector<BenchKey> keys(kWarmUpBatch);
  std::vector<mc_put_item> items(kWarmUpBatch);
  for (std::uint64_t number = 0; number * kWarmUpBytes < pool_bytes; number += kWarmUpBatch) {
    for (std::uint64_t i = 0; i < kWarmUpBatch; ++i) {
      keys[i] = bench_key(seed, number + i);
      items[i] = mc_put_item{};
      items[i].key = keys[i].slice();
      items[i].pieces = &piece;
      items[i].piece_count = 1;
    }
    const mc_status status = mc_put_batch(client, items.data(), items.size(), nullptr);
    if (status != MC_OK) return Status(status, mc_last_error());
  }
  // Remove the objects again, so that the pool has room for the objects of the get cases.
  std::vector<mc_slice> slices(kWarmUpBatch);
  std::vector<mc_status> statuses(kWarmUpBatch);
  for (std::uint64_t number = 0; number * kWarmUpBytes < pool_bytes; number += kWarmUpBatch) {
    for (std::uint64_t i = 0; i < kWarmUpBatch; ++i) {
      keys[i] = bench_key(seed, number + i);
      slices[i] = keys[i].slice();
    }
    mc_remove_batch(client, slices.data(), slices.size(), statuses.data(), 0);
  }
  return {};
}

// Prints a line for each result, or a table of all results at the end.
class Results {
 public:
  explicit Results(Context& context) : context_(context) {}
  void take(const CaseResult& result) {
    if (!result.error.empty()) {
      stop(context_, result.name + " " + format_bytes(result.size) + ": " + result.error);
    }
    if (context_.json) {
      std::printf("%s", result_line(result).c_str());
      std::fflush(stdout);
    }
    table_.add_row(table_row(result));
  }
  int finish() const {
    if (!context_.json) std::printf("%s", table_.to_string().c_str());
    return context_.exit_code;
  }

 private:
  Context& context_;
  Table table_{{"case", "size", "p50", "p99", "rate", "limit p50", "limit rate", "ratio", "limit"}};
};

int run_steps(const std::vector<Step>& steps, BenchRig& rig, Context& context) {
  Results results(context);
  for (const Step& step : steps) results.take(step.run(rig));
  return results.finish();
}

int bench_remote(const SamplePlan& plan, Context& context) {
  Results results(context);
  const Status status = run_remote_cases(
      plan, timeout_ns(context), [&results](const CaseResult& result) { results.take(result); });
  if (!status.ok()) return stop(context, status);
  return results.finish();
}

int bench_transport(const TransportOptions& options, const SamplePlan& sample, Context& context) {
  const auto plan = plan_transport(options, sample);
  if (!plan) return stop(context, plan.error());
  if (!options.listen.empty()) {
    std::fprintf(stderr, "mcctl bench: %s serves %s of memory at %s\n", options.transport.c_str(),
                 options.target_bytes.c_str(), options.listen.c_str());
    return stop(context, listen_as_target(*plan, options.listen));
  }
  Results results(context);
  const Status status = run_transport_cases(
      *plan, timeout_ns(context), [&results](const CaseResult& result) { results.take(result); });
  if (!status.ok()) return stop(context, status);
  return results.finish();
}

int bench(const BenchOptions& options, Context& context) {
  const auto keys = parse_key_count(options.keys);
  if (!keys)
    return stop_usage(context, "--keys: \"" + options.keys + "\" is not a count up to 100M");
  const auto sizes = parse_sizes(options);
  if (!sizes) return stop_usage(context, "--sizes: sizes from 64 B to 1 GiB, such as 4KiB,1MiB");
  BenchRig rig;
  rig.plan.keys = *keys;
  rig.plan.sample.seconds = options.quick ? kQuickSeconds : options.seconds;
  rig.plan.sample.rounds = options.quick ? kQuickRounds : options.rounds;

  if (!options.transport.transport.empty()) {
    return bench_transport(options.transport, rig.plan.sample, context);
  }
  if (options.remote) return bench_remote(rig.plan.sample, context);
  const auto pool_bytes = pool_bytes_of(options);
  if (!pool_bytes) return stop_usage(context, "--pool-bytes is not a size, such as 1GiB");
  const std::string name_space = options.embedded   ? "default"
                                 : options.existing ? context.name_space
                                                    : "bench-" + std::to_string(::getpid());
  Helpers helpers;
  if (const Status started = start_helpers(helpers, options, context, name_space); !started.ok()) {
    return stop(context, started);
  }
  std::optional<TemporaryNamespace> own;  // outlives the client
  if (!options.embedded) {
    if (const Status made = make_room(options, context, name_space, *pool_bytes, own); !made.ok()) {
      return stop(context, made);
    }
  }
  const Result<Client> client = open_client(options, context, name_space, *pool_bytes);
  if (!client) return stop(context, client.error());
  mc_client_info info{};
  info.struct_size = sizeof(info);
  if (const mc_status status = mc_get_client_info(client->get(), &info); status != MC_OK) {
    return stop(context, std::string(mc_last_error()));
  }
  const std::uint64_t quick_bytes = options.quick ? kQuickPoolBytes : info.pool_bytes;
  const std::uint64_t used_bytes = std::min<std::uint64_t>(info.pool_bytes, quick_bytes);
  const Result<SharedRegion> region =
      SharedRegion::map(helpers.region_file, region_bytes_for(used_bytes));
  if (!region) return stop(context, region.error());
  if (const Status touched = touch_pool(client->get(), used_bytes); !touched.ok()) {
    return stop(context, touched);
  }
  rig.client = client->get();
  rig.pool_bytes = used_bytes;
  rig.ping = &*helpers.ping;
  rig.region = &*region;
  rig.second = helpers.second ? &*helpers.second : nullptr;
  const int exit_code = run_steps(plan_steps(options, *sizes), rig, context);
  rig.dataset.reset();  // while the client is open
  return exit_code;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& cases : {get_cases(), put_cases()}) {
    for (const BenchCase& one : cases) names.emplace_back(one.name);
  }
  return names;
}

std::string case_list() {
  std::string text = "CASES\n";
  for (const auto& cases : {get_cases(), put_cases()}) {
    for (const BenchCase& one : cases) {
      std::string name = one.name;
      name.resize(12, ' ');
      text += "  " + name + one.what + "\n";
    }
  }
  return text;
}

}  // namespace

Verb bench_verb(Context& context) {
  auto options = std::make_shared<BenchOptions>();
  Verb verb{
      .name = "bench",
      .text = R"(Measure put and get on this host beside the machine's own limits

Each case is measured in rounds that alternate with the limit of the machine: memcpy of the same
blocks, or a bare round trip between two processes. The column ratio is the p50 of the case,
divided by the p50 of the limit. bench creates a namespace with a pool of its own in the agent, and
drops the namespace at the end: no object of others is evicted.)",
      .footer = case_list() + R"(
EXAMPLES
  mcctl bench --quick
  mcctl bench --cases get_copy,put --sizes 4KiB,1MiB
  mcctl bench --remote
  mcctl bench --transport tcp --op write

EXIT STATUS
  0 measured; 1 a case failed; 2 wrong usage)",
      .options = {{.name = "--cases",
                   .value = &options->cases,
                   .help = "Measure only these cases, separated by commas",
                   .choices = case_names()},
                  {"--sizes", &options->sizes,
                   "Sizes of objects, instead of the sizes of each case", "SIZE,..."},
                  {"--keys", &options->keys,
                   "Number of objects stored for the get cases, such as 1M", "COUNT"},
                  {"--seconds",
                   &options->seconds,
                   "Time for each case, including the measurement of its limit",
                   "SECONDS",
                   {{0.01, 3600}}},
                  {"--rounds",
                   &options->rounds,
                   "Number of rounds of a case; the result is their median",
                   "COUNT",
                   {{1, 1000}}},
                  {"--quick", &options->quick,
                   "Measure all cases in less than ten seconds, with less precision"},
                  {"--embedded", &options->embedded,
                   "Use no agent, but a pool inside this process"},
                  {"--remote", &options->remote,
                   "Start a master and two agents, each in its own network namespace, and "
                   "measure gets of the other host's objects beside a bare TCP connection"},
                  {"--existing", &options->existing,
                   "Use the namespace of --namespace, which must be empty, not a new one"},
                  {"--pool-bytes", &options->pool_bytes,
                   "Size of the pool that bench makes (2GiB; 512MiB with --quick)", "SIZE"}},
      .run = [options, &context] { bench(*options, context); },
  };
  for (Option& option : transport_options(options->transport)) {
    verb.options.push_back(std::move(option));
  }
  return verb;
}

}  // namespace mc::ctl
