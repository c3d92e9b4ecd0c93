// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/rails_view.h"

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/json.h"

namespace mc::ctl {
namespace {

constexpr std::string_view kDescription =
    "Show the ways to each peer: health, load, bandwidth, errors\n"
    "\n"
    "A rail is a TCP lane, a queue pair between two RDMA devices (ours by its name, the peer's by\n"
    "its number), or a pair of libfabric's domains; BY says which. HEALTH is up, slow (a pair of\n"
    "NICs less than half as fast as the fastest to that peer; it gets less to carry), recovering\n"
    "(it had failed, and gets more and more again) or down (it is tried again after a pause of\n"
    "10 ms to 1 s). LOAD is what is under way of what may be. MEASURED and LATENCY are this "
    "agent's own measurements of what\n"
    "it fetched; 954 MiB/s, which is 1 GB/s, until then. CARRIED and SLICES count since the\n"
    "peer was connected, FAILURES the times the rail was left, SENT AGAIN the slices that were\n"
    "under way then and came over another one. Below stands why a rail is not up, what carries\n"
    "large reads beside TCP (rdma, fabric), and what keeps memory or devices of this host from "
    "it.\n"
    "Meanwhile TCP is used.\n"
    "\n"
    "Bytes that peers fetch from here are in \"mcctl cluster status\": their rails are theirs.";

constexpr std::string_view kFooter =
    "EXAMPLES\n"
    "  mcctl rails\n"
    "  mcctl rails --json | jq '.peers[].rails[] | select(.health != \"up\")'\n"
    "  mcctl top                           what they carry right now\n"
    "\n"
    "EXIT STATUS\n"
    "  0 the agent answered; 1 it did not, or is in no cluster; 2 wrong usage";

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

void register_rails(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("rails", std::string(kDescription));
  verb->footer(std::string(kFooter));
  verb->callback([&context] { run_rails(context); });
}

}  // namespace mc::ctl
