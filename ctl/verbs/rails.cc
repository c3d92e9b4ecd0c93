// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/agent_view.h"

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/json.h"

namespace mc::ctl {
namespace {

void run_rails(Context& context) {
  Json::Value request;
  request["verb"] = "rails";
  const auto answer = ask_agent(context, "rails", request);
  if (!answer) return;
  if (context.json) {
    print_json(*answer);
  } else {
    fmt::print("{}", rails_text(*answer));
  }
}

}  // namespace

Verb rails_verb(Context& context) {
  return {
      .name = "rails",
      .text = R"(Show the rails to each peer: health, load, bandwidth, errors

A rail is a TCP lane, a queue pair between two RDMA devices (the local device by name, the
peer's by number), or a pair of libfabric domains; BY names the transport. HEALTH is one of
  up          the rail works
  slow        the pair of NICs is less than half as fast as the fastest pair to this peer, and
              gets less load
  recovering  the rail failed before, and gets more and more load again
  down        the rail is tried again after a pause of 10 ms to 1 s
LOAD is the number of bytes in flight and the largest number allowed. MEASURED and LATENCY are
this agent's own measurements of its reads; before the first one, MEASURED is 954 MiB/s (1 GB/s).
CARRIED and SLICES count since the peer was connected. FAILURES counts how often the rail failed.
SENT AGAIN counts the slices in flight at a failure that another rail carried.

Below the table, mcctl prints why a rail is not up, which transport carries large reads beside
TCP (rdma, fabric), and why memory or devices of this host cannot use that transport. TCP is
used meanwhile.

"mcctl cluster status" counts the bytes that peers fetch from this host: those bytes use the
peers' rails.)",
      .footer = R"(EXAMPLES
  mcctl rails
  mcctl rails --json | jq '.peers[].rails[] | select(.health != "up")'
  mcctl top                           the current load of the rails

EXIT STATUS
  0 the agent answered; 1 it did not, or is in no cluster; 2 wrong usage)",
      .run = [&context] { run_rails(context); },
  };
}

}  // namespace mc::ctl
