// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>
#include <thread>

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/progress.h"
#include "ctl/text/size.h"

namespace mc::ctl {
namespace {

constexpr auto kPause = std::chrono::milliseconds(5);

struct EvictOptions {
  std::string size;
};

struct Evicted {
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t waiting_bytes = 0;
  bool done = false;
  bool exhausted = false;
};

// Asks for step after step until the pool has so many free bytes. Evicts no more than so many bytes,
// however fast clients put. Nullopt after a reported failure.
std::optional<Evicted> evict_until_free(Context& context, std::uint64_t wanted_bytes) {
  Json::Value request;
  request["verb"] = "evict";
  request["namespace"] = context.name_space;
  request["free_bytes"] = u64(wanted_bytes);
  Evicted sum;
  Progress progress("evicting", wanted_bytes);
  for (;;) {
    const auto answer = ask_agent(context, "evict", request);
    if (!answer) return std::nullopt;
    sum.objects += number_field(*answer, "evicted");
    sum.bytes += number_field(*answer, "evicted_bytes");
    sum.free_bytes = number_field(*answer, "free_bytes");
    sum.waiting_bytes = number_field(*answer, "waiting_for_readers_bytes");
    sum.done = flag_field(*answer, "done");
    sum.exhausted = flag_field(*answer, "exhausted");
    progress.update(sum.free_bytes, format_bytes(sum.free_bytes) + " free");
    if (sum.done || sum.exhausted || sum.bytes >= wanted_bytes) return sum;
    // The disks of the tier are behind, and the agent's socket has no event that tells when they go on.
    if (number_field(*answer, "evicted") == 0) std::this_thread::sleep_for(kPause);
  }
}

Failure too_little(const Evicted& evicted) {
  const std::string so_far =
      fmt::format("{} bytes are free after {} evictions, {} wait for readers or disks",
                  format_count(evicted.free_bytes), format_count(evicted.objects),
                  format_bytes(evicted.waiting_bytes));
  if (!evicted.exhausted)
    return {so_far + ", and clients fill the pool meanwhile", "the verb again"};
  return {so_far + ", and no other object can be evicted",
          "remove the hard pins of objects (mcctl pin KEY --pin none), or end clients that hold "
          "reservations (mcctl status)"};
}

void run_evict(Context& context, const EvictOptions& options) {
  const auto wanted_bytes = parse_bytes(options.size);
  if (!wanted_bytes || *wanted_bytes == 0) {
    report_usage(context, "evict", fmt::format("'{}' is not a size", options.size),
                 "a number and a unit, such as 512MiB, 4GiB or 1.5G");
    return;
  }
  const auto evicted = evict_until_free(context, *wanted_bytes);
  if (!evicted) return;
  if (!evicted->done) {
    report(context, "evict", kExitFailed, too_little(*evicted));
    return;
  }
  if (context.json) {
    Json::Value document;
    document["evicted"] = u64(evicted->objects);
    document["evicted_bytes"] = u64(evicted->bytes);
    document["free_bytes"] = u64(evicted->free_bytes);
    document["waiting_for_readers_bytes"] = u64(evicted->waiting_bytes);
    print_json(document);
    return;
  }
  fmt::print("evicted {} objects, {}; {} free\n", format_count(evicted->objects),
             format_bytes(evicted->bytes), format_bytes(evicted->free_bytes));
  if (evicted->waiting_bytes != 0) {
    fmt::print("{} more when readers, or the disks of the tier, release them\n",
               format_bytes(evicted->waiting_bytes));
  }
}

}  // namespace

Verb evict_verb(Context& context) {
  auto options = std::make_shared<EvictOptions>();
  return {
      .name = "evict",
      .text = R"(Evict objects of this host until its pool has free room

Evicts the objects that the eviction policy values least, until SIZE of the pool is free. If the
pool has so much free room already, nothing is evicted. The verb evicts no more than SIZE, also if
clients fill the pool meanwhile. Objects with a hard pin stay. An object that a client is reading
leaves the index at once; its memory is free when the client releases the object. Other hosts keep
their replicas. The verb helps before a burst of puts: a full pool evicts while it serves.

To remove objects by key or by prefix, use "mcctl rm".)",
      .footer = R"(EXAMPLES
  mcctl evict 2GiB
  mcctl --namespace chat evict 512MiB --json

EXIT STATUS
  0 so much is free, or is free once readers release it; 1 less is free, since no other object can be
  evicted or clients fill the pool; 2 wrong usage)",
      .options = {{.name = "SIZE",
                   .value = &options->size,
                   .help = "The free room wanted: bytes, or a number with KiB, MiB, GiB, TiB",
                   .required = true}},
      .run = [options, &context] { run_evict(context, *options); },
  };
}

}  // namespace mc::ctl
