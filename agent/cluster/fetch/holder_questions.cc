// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/holder_questions.h"

#include <algorithm>
#include <map>

namespace mc::agent {

using What = HolderAnswer::What;

namespace {

// An answer that takes longer is most likely lost: after a cut, the two directions of a connection
// do not come back at the same time.
constexpr std::uint64_t kAnswerNs = 300'000'000;
// An answer is still taken this long after the time of the last question.
constexpr std::uint64_t kLingerNs = 800'000'000;

}  // namespace

// A message with questions to a holder.
struct Ask final : Operation {
  static constexpr OperationKind kKind = OperationKind::kAsk;

  Ask(HolderQuestions& all, MemberId to) : questions(all), node(to) {}

  HolderQuestions& questions;
  const MemberId node;
  std::vector<OperationId> askers;
  std::size_t open_count = 0;
  std::uint64_t until_ns = 0;
  std::uint64_t silent_ns = kNever;  // kNever: not delivered yet, or reported already

  void tell_all(What what) {
    for (const OperationId asker : askers) questions.tell(asker, {what, node, 0, 0, {}});
  }

 private:
  void step() override {
    OperationTable& table = questions.operations_;
    if (table.now_ns() >= silent_ns) {
      silent_ns = kNever;
      tell_all(What::kSilent);
    }
    if (table.now_ns() >= until_ns + kLingerNs) return table.end(*this);
    table.wake_at(*this, std::min(silent_ns, until_ns + kLingerNs));
  }
  void on_event(const transport::Event& event) override {
    if (event.outcome == transport::Outcome::kDone) {
      silent_ns = questions.operations_.now_ns() + kAnswerNs;
      return questions.operations_.wake(*this);
    }
    tell_all(What::kUnreached);
    questions.operations_.end(*this);
  }
  void cancel() override { questions.operations_.end(*this); }
};

// False: the asker waits for no answer.
bool HolderQuestions::tell(OperationId id, HolderAnswer answer) {
  Asker* const asker = operations_.find<Asker>(id);
  if (asker == nullptr || asker->over() || asker->asked == metadata::kNoNode) return false;
  if (answer.from == asker->ignored) return false;
  const bool place = answer.what == What::kPlace;
  // The first place counts, from any holder asked. Other news count from the holder asked last.
  if (!place && answer.from != asker->asked) return false;
  // A silent holder is asked again; the first question stays open.
  if (answer.what != What::kSilent) asker->asked = metadata::kNoNode;
  asker->answer = std::move(answer);
  operations_.wake(*asker);
  return true;
}

void HolderQuestions::send() {
  if (questions_.empty()) return;
  struct To {
    MemberId node;
    std::uint64_t name_space;
    auto operator<=>(const To&) const = default;
  };
  std::map<To, std::vector<const Question*>> groups;
  for (const Question& question : questions_) {
    const Asker* const asker = operations_.find<Asker>(question.asker);
    if (asker == nullptr || asker->over()) continue;
    groups[{question.holder, question.name_space}].push_back(&question);
  }
  for (const auto& [to, group] : groups) {
    for (std::size_t first = 0; first < group.size(); first += kMaxAskKeys) {
      const std::size_t count = std::min(kMaxAskKeys, group.size() - first);
      Ask& ask = operations_.begin(std::make_unique<Ask>(*this, to.node), nullptr);
      ask.open_count = count;
      AskRequest message;
      message.request = ask.id().value();
      message.wants_keys = to.name_space == 0;
      message.wants_bytes = true;
      message.name_space = to.name_space;
      for (std::size_t i = 0; i < count; ++i) {
        const Question& question = *group[first + i];
        message.keys.push_back(question.name);
        ask.askers.push_back(question.asker);
        ask.until_ns = std::max(ask.until_ns, question.until_ns);
        operations_.find<Asker>(question.asker)->bytes_may_come = true;
      }
      counters_.asked += count;
      if (peers_.notify(to.node, message, message.request, ask.until_ns, operations_.now_ns())) {
        continue;
      }
      ask.tell_all(What::kNotSent);
      operations_.end(ask);
    }
  }
  questions_.clear();
}

void HolderQuestions::on_answer(MemberId from, AskAnswer&& message) {
  Ask* const ask = operations_.find<Ask>(OperationId::of(message.request));
  if (ask == nullptr || ask->over() || ask->node != from) return;
  const auto region = peers_.region_of(from, message.region);
  for (PlaceRow& row : message.rows) {
    if (row.number >= ask->askers.size()) continue;
    const std::size_t number = row.number;
    HolderAnswer answer;
    answer.what = row.held && region ? What::kPlace
                  : row.unreadable   ? What::kUnreached
                                     : What::kNotHeld;
    answer.from = from;
    answer.region = region.value_or(0);
    answer.name_space = message.name_space;
    answer.row = std::move(row);
    if (tell(ask->askers[number], std::move(answer)) && ask->open_count > 0) --ask->open_count;
  }
  if (ask->open_count == 0) operations_.end(*ask);
}

}  // namespace mc::agent
