// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/client/ask_master.h"

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <optional>
#include <thread>

#include "libmc/base/clock.h"
#include "metadata/store/checks.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

namespace {

// Between two tries: no event tells that a master listens, or leads.
constexpr std::uint64_t kNoMasterYetNs = 50 * kMs;

class NoRequests final : public rpc::RpcLinkHandler {
 public:
  void on_request(rpc::RpcLink& link, const rpc::Request& request) override {
    link.answer(request.id, MC_UNSUPPORTED, {}, 0);
  }
  void on_cancel(rpc::RpcLink&, std::uint32_t) override {}
  void on_closed(rpc::RpcLink&, const Status&) override {}
};

struct Heard {
  std::uint16_t status = 0;
  std::string body;
};

// One call of Attend. No step outlasts the deadline, so the loop ends.
Result<Heard> ask_one(const rpc::DialOptions& dialing, std::uint64_t deadline_ns) {
  boost::asio::io_context io;
  NoRequests handler;
  std::shared_ptr<rpc::RpcLink> open;
  std::optional<Result<Heard>> heard;
  rpc::dial(io.get_executor(), dialing, deadline_ns, handler,
            [&](Result<std::shared_ptr<rpc::RpcLink>> link) {
              if (!link) {
                heard = fail(link.error());
                return;
              }
              open = std::move(*link);
              open->call(static_cast<std::uint8_t>(wire::Method::kAttend),
                         wire::encoded(wire::Attend{}), deadline_ns, 0,
                         [&](const Result<rpc::Answer>& answer) {
                           if (answer) {
                             heard = Heard{answer->status, std::string(answer->body)};
                           } else {
                             heard = fail(answer.error());
                           }
                         });
            });
  while (!heard && io.run_one() > 0) {
  }
  if (open) open->close({MC_CLOSED, "the question is answered"});
  io.restart();
  io.poll();
  if (!heard) return fail(MC_INTERNAL, "the question about the cluster has ended unanswered");
  return *std::move(heard);
}

}  // namespace

Result<MasterFacts> ask_master(rpc::DialOptions dialing, std::uint64_t deadline_ns) {
  dialing.own.role = auth::Role::kTool;
  dialing.own.cluster = 0;
  const std::string first = dialing.address;
  const auto sleep = [] { std::this_thread::sleep_for(std::chrono::nanoseconds(kNoMasterYetNs)); };
  for (;;) {
    auto heard = ask_one(dialing, deadline_ns);
    const bool again = now_ns() + 2 * kNoMasterYetNs < deadline_ns;
    if (!heard && heard.error().code() == MC_AGENT_UNAVAILABLE && again) {
      sleep();
      dialing.address = first;
      continue;
    }
    if (!heard) {
      return fail(heard.error().code(),
                  std::string(heard.error().text()) +
                      "; start a master there, or correct the address and key");
    }
    if (heard->status == 0) {
      wire::AttendAnswer answer;
      if (Status status = wire::decode(heard->body, answer); !status.ok()) return fail(status);
      if (answer.cluster.empty()) {
        return fail(MC_VERSION_MISMATCH,
                    "the master at " + dialing.address + " does not tell its cluster; upgrade it");
      }
      // The id becomes part of paths.
      if (Status status = check_cluster_id(answer.cluster); !status.ok()) return fail(status);
      return MasterFacts{std::move(answer.cluster), std::move(answer.address)};
    }
    wire::Refusal refusal;
    if (!wire::decode(heard->body, refusal).ok()) refusal = {};
    if (heard->status != rpc::kNotLeader) {
      return fail(static_cast<mc_status>(heard->status), std::move(refusal.text));
    }
    if (!refusal.leader.empty() && refusal.leader != dialing.address) {
      dialing.address = refusal.leader;
      continue;
    }
    if (!again) {
      return fail(MC_TIMEOUT, "no master of the cluster of " + first + " leads; see its log");
    }
    sleep();
    dialing.address = first;
  }
}

}  // namespace mc::metadata
