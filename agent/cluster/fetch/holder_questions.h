// SPDX-License-Identifier: Apache-2.0
//
// Asks holders for the places of objects. Questions of a turn to a host about a namespace go out as a
//   single message. The answer may bring the bytes of small objects.
// Threads: the agent's loop.
// Owns: the questions that the turn's messages will carry.
// Trusts: an answer counts only from the host that was asked.
#pragma once

#include <optional>
#include <vector>

#include "agent/cluster/fetch/fetch_counters.h"
#include "agent/cluster/operations/operation_table.h"
#include "agent/cluster/peer/peers.h"

namespace mc::agent {

// The result of a question to a holder.
struct HolderAnswer {
  enum class What : std::uint8_t {
    kPlace,      // the row says where the object lies
    kNotHeld,    // the holder does not have the object
    kUnreached,  // the message did not reach the holder, or the holder cannot read its disk
    kNotSent,    // too many messages are in flight
    kSilent,     // the message reached the holder, and no answer has come for a while
  };
  // The next holder should be asked.
  bool failed() const { return what == What::kNotHeld || what == What::kUnreached; }
  // The same holder should be asked again.
  bool again() const { return what == What::kNotSent || what == What::kSilent; }

  What what = What::kNotHeld;
  MemberId from = metadata::kNoNode;
  transport::RemoteRegionId region = 0;
  std::uint64_t name_space = 0;
  PlaceRow row;
};

// An operation that asks holders, one after the other.
struct Asker : Operation {
  static bool includes(OperationKind kind) {
    return kind == OperationKind::kFetch || kind == OperationKind::kCopy;
  }
  MemberId asked = metadata::kNoNode;    // kNoNode: no answer is expected
  MemberId ignored = metadata::kNoNode;  // a host that was asked, and whose answer is not wanted
  bool bytes_may_come = false;           // the holder may have read the bytes by now
  std::uint64_t not_before_ns = 0;       // for the next question
  std::optional<HolderAnswer> answer;    // of `asked`, or the place from a holder asked before
};

class HolderQuestions {
 public:
  // Before a question is sent anew.
  static constexpr std::uint64_t kAskAgainNs = 1'000'000;

  struct Question {
    OperationId asker;
    MemberId holder = metadata::kNoNode;
    std::uint64_t name_space = 0;  // 0: unknown; the answer then names the namespace and the key
    metadata::KeyHash name;
    std::uint64_t until_ns = 0;
  };

  HolderQuestions(OperationTable& operations, Peers& peers, FetchCounters& counters)
      : operations_(operations), peers_(peers), counters_(counters) {}

  void ask(const Question& question) { questions_.push_back(question); }
  // After the steps of a turn: sends the questions.
  void send();
  void on_answer(MemberId from, AskAnswer&& message);

 private:
  friend struct Ask;
  bool tell(OperationId asker, HolderAnswer answer);

  OperationTable& operations_;
  Peers& peers_;
  FetchCounters& counters_;
  std::vector<Question> questions_;
};

}  // namespace mc::agent
