// SPDX-License-Identifier: Apache-2.0
//
// Asks holders for the places of objects. Questions to a host about a namespace go out
//   as a single message. If a message asks about a single object, the answer may bring the bytes.
// Threads: the agent's loop.
// Owns: the questions without a complete answer.
// Trusts: an answer counts only from the host that was asked.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/cluster/fetch/fetch_counters.h"
#include "agent/cluster/peer/peers.h"
#include "transport/transport.h"

namespace mc::agent {

class HolderQuestions {
 public:
  // The cookie bit of this class' notifications.
  static constexpr std::uint64_t kAskCookie = 1ull << 63;

  struct Question {
    std::uint64_t id = 0;
    MemberId holder = metadata::kNoNode;
    std::uint64_t name_space = 0;  // 0: unknown; the answer then names the namespace and the key
    metadata::KeyHash name;
    std::uint64_t until_ns = 0;
    bool for_bytes = false;  // out: the question is alone in the message
  };
  // Returns true if the asker still waited for this answer. region is none if unknown.
  using TakeRow = std::function<bool(
      std::uint64_t id, std::optional<transport::RemoteRegionId> region, const PlaceRow& row)>;
  struct Overdue {
    std::uint64_t id = 0;
    MemberId holder = metadata::kNoNode;
  };

  HolderQuestions(Peers& peers, FetchCounters& counters) : peers_(peers), counters_(counters) {}

  // Returns the ids that were not asked, because too many messages are in flight.
  std::vector<std::uint64_t> ask(std::vector<Question>& questions, std::uint64_t now_ns);
  void on_answer(MemberId from, const AskAnswer& message, const TakeRow& take);
  // Returns the ids of a question that did not reach the holder.
  std::vector<std::uint64_t> on_event(const transport::Event& event, std::uint64_t now_ns);
  // Questions that reached the holder and have had no answer for kAnswerNs. Each is named once.
  // The first answer to any of the questions counts.
  std::vector<Overdue> take_overdue(std::uint64_t now_ns);

 private:
  // A message with questions.
  struct Batch {
    MemberId node = metadata::kNoNode;
    std::vector<std::uint64_t> ids;
    std::size_t open_count = 0;
    std::uint64_t until_ns = 0;
    std::uint64_t again_ns = UINT64_MAX;  // UINT64_MAX: not delivered yet, or repeated already
  };

  Peers& peers_;
  FetchCounters& counters_;
  std::unordered_map<std::uint32_t, Batch> batches_;
  std::uint32_t next_request_ = 1;
};

}  // namespace mc::agent
