// SPDX-License-Identifier: Apache-2.0
//
// An agent's connection to a master. SimPort does the work of metadata/master/client
//   and of agent/cluster's MasterLink, without threads and sockets, on a simulated link. SimPort
//   joins, reports, sends heartbeats and retries like the originals. Arrived messages wait for
//   poll(), as in MasterLink.
// Threads: The simulator's.
// Owns: The link, and the calls under way.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/cluster/master/master_port.h"
#include "metadata/membership/epoch_fence.h"
#include "metadata/rpc/link.h"
#include "metadata/wire/method.h"

namespace mc::sim {

class SimPort final : public agent::MasterPort, private metadata::rpc::LinkHandler {
 public:
  // Connects; null if the master is away or out of reach.
  using Dial =
      std::function<std::shared_ptr<metadata::rpc::Link>(metadata::rpc::LinkHandler& handler)>;
  struct Faults {
    // A deliberate bug: confirms drops without dropping.
    bool lies_about_drops = false;
    // A deliberate bug: announces a few stripes as the whole object.
    bool takes_a_part_for_the_whole = false;
  };

  SimPort(const metadata::Descriptor& descriptor, agent::MasterOrders& orders, Dial dial,
          const Faults& faults)
      : descriptor_(descriptor), orders_(orders), dial_(std::move(dial)), faults_(faults) {}
  ~SimPort() override;

  void poll(std::uint64_t now_ns);

  void publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
               std::uint64_t deadline_ns, Done<std::vector<metadata::Verdict>> done) override;
  void locate(const metadata::wire::Locate& request, std::uint64_t deadline_ns,
              Done<metadata::LocateAnswer> done) override;
  void place(const metadata::wire::Place& request, std::uint64_t deadline_ns,
             Done<metadata::wire::PlaceAnswer> done) override;
  void remove(const metadata::wire::Remove& request, std::uint64_t deadline_ns,
              Done<metadata::wire::RemoveReply> done) override;
  void remove_matching(const metadata::wire::Match& match, std::uint64_t deadline_ns,
                       Done<metadata::wire::RemoveMatchingAnswer> done) override;
  void list(const metadata::wire::Match& match, std::uint64_t deadline_ns,
            Done<metadata::wire::ListAnswer> done) override;
  void members(std::uint64_t deadline_ns, Done<metadata::wire::MembersAnswer> done) override;
  void stats(std::uint64_t deadline_ns, Done<metadata::wire::StatsAnswer> done) override;
  void drain(const metadata::wire::Drain& request, std::uint64_t deadline_ns,
             Done<metadata::wire::DrainAnswer> done) override;
  void report_unreachable(metadata::wire::Unreachable peer) override;

  std::uint64_t removals_seen() const override { return removals_seen_; }
  std::uint64_t refused_up_to() const override { return refused_up_to_; }
  // The latest version that this port has told a master.
  std::uint64_t latest_version() const { return latest_version_; }
  std::uint64_t epoch() const override { return fence_.highest(); }
  const std::string& leader() const override { return leader_; }
  bool ready() const override { return ready_; }

 private:
  // An answer that owns its bytes.
  struct Heard {
    Status error;  // not ok: no answer
    std::uint16_t status = 0;
    std::uint64_t epoch = 0;
    std::string body;
  };
  struct Call {
    metadata::wire::Method method{};
    std::string body;
    std::optional<metadata::wire::Publish> publish;  // encoded when sent, with the sequence number
    std::uint64_t deadline_ns = 0;
    std::function<void(Result<std::string_view>)> done;
  };
  using CallPointer = std::shared_ptr<Call>;

  template <typename Answer>
  void ask(metadata::wire::Method method, std::string body, std::uint64_t deadline_ns,
           Done<Answer> done);
  void submit(Call call);
  void call(metadata::wire::Method method, std::string body, std::uint64_t deadline_ns,
            std::function<void(const Heard&)> take);
  void step(metadata::wire::Method method, std::string body,
            std::function<void(const Heard&)> take);
  void pump();
  void send(const CallPointer& call);
  void note_versions(const metadata::wire::Publish& batch);
  void answered(const CallPointer& call, const Heard& heard);
  void expire(std::uint64_t now_ns);
  bool believe(const Heard& heard);
  void seek();
  void join();
  void begin_report();
  void stream_report();
  void end_report();
  void heartbeat();
  void lose(const Status& why);
  void on_stream(metadata::StreamAnswer answer);
  void carry_out(std::uint8_t method, const std::string& body, std::uint32_t id,
                 std::uint64_t generation);
  void reply(std::uint32_t id, Result<std::string> body);

  void on_request(metadata::rpc::Link& link, const metadata::rpc::Request& request) override;
  void on_cancel(metadata::rpc::Link&, std::uint32_t) override {}
  void on_closed(metadata::rpc::Link& link, const Status& why) override;

  const metadata::Descriptor descriptor_;
  agent::MasterOrders& orders_;
  const Dial dial_;
  const Faults faults_;
  const std::string leader_ = "10.0.1.1:7400";
  std::uint64_t now_ns_ = 0;
  std::shared_ptr<metadata::rpc::Link> link_;
  std::uint64_t generation_ = 0;
  bool usable_ = false;
  bool ready_ = false;
  bool left_ = false;
  std::uint64_t seek_at_ns_ = 0;
  std::uint64_t pause_ms_ = 0;
  std::uint64_t heartbeat_at_ns_ = UINT64_MAX;
  std::uint64_t heartbeat_ms_ = 100;
  metadata::EpochFence fence_;
  std::uint64_t removals_seen_ = 0;
  std::uint64_t report_removals_seen_ = 0;
  std::uint64_t refused_up_to_ = 0;
  std::uint64_t latest_version_ = 0;
  std::uint64_t sequence_ = 0;
  std::size_t report_in_flight_ = 0;
  bool report_named_all_ = false;
  std::vector<metadata::PublishItem> report_items_;
  std::deque<CallPointer> queue_, sent_;
  std::vector<metadata::wire::Unreachable> unreachable_;
  std::vector<std::function<void()>> inbox_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::sim
