// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/holder_questions.h"

#include <algorithm>
#include <map>

namespace mc::agent {

namespace {

// An answer that takes longer is most likely lost: after a cut, the two directions of a connection
// do not come back at the same time.
constexpr std::uint64_t kAnswerNs = 300'000'000;
// A batch outlives the last question by this time, for late answers.
constexpr std::uint64_t kLingerNs = 800'000'000;

}  // namespace

std::vector<std::uint64_t> HolderQuestions::ask(std::vector<Question>& questions,
                                                std::uint64_t now_ns) {
  struct To {
    MemberId node;
    std::uint64_t name_space;
    auto operator<=>(const To&) const = default;
  };
  std::map<To, std::vector<Question*>> groups;
  for (Question& question : questions) {
    groups[{question.holder, question.name_space}].push_back(&question);
  }
  std::vector<std::uint64_t> unsent;
  for (const auto& [to, group] : groups) {
    for (std::size_t first = 0; first < group.size(); first += kMaxAskKeys) {
      const std::size_t count = std::min(kMaxAskKeys, group.size() - first);
      AskRequest ask;
      ask.wants_keys = to.name_space == 0;
      ask.wants_bytes = count == 1;
      ask.request = next_request_++;
      ask.name_space = to.name_space;
      Batch batch;
      batch.node = to.node;
      batch.open_count = count;
      batch.until_ns = now_ns;
      for (std::size_t i = 0; i < count; ++i) {
        Question& question = *group[first + i];
        question.for_bytes = count == 1;
        ask.keys.push_back(question.name);
        batch.ids.push_back(question.id);
        batch.until_ns = std::max(batch.until_ns, question.until_ns);
      }
      counters_.asked += count;
      const std::uint64_t until_ns = batch.until_ns;
      if (peers_.notify(to.node, ask, kAskCookie | ask.request, until_ns, now_ns)) {
        batches_.emplace(ask.request, std::move(batch));
      } else {
        unsent.insert(unsent.end(), batch.ids.begin(), batch.ids.end());
      }
    }
  }
  return unsent;
}

void HolderQuestions::on_answer(MemberId from, const AskAnswer& message, const TakeRow& take) {
  const auto at = batches_.find(message.request);
  if (at == batches_.end() || at->second.node != from) return;
  Batch& batch = at->second;
  const auto region = peers_.region_of(from, message.region);
  for (const PlaceRow& row : message.rows) {
    if (row.number >= batch.ids.size()) continue;
    if (take(batch.ids[row.number], region, row) && batch.open_count > 0) --batch.open_count;
  }
  if (batch.open_count == 0) batches_.erase(at);
}

std::vector<std::uint64_t> HolderQuestions::on_event(const transport::Event& event,
                                                     std::uint64_t now_ns) {
  const auto at = batches_.find(static_cast<std::uint32_t>(event.cookie));
  if (at == batches_.end()) return {};
  if (event.outcome == transport::Outcome::kDone) {
    at->second.again_ns = now_ns + kAnswerNs;
    return {};
  }
  std::vector<std::uint64_t> ids = std::move(at->second.ids);
  batches_.erase(at);
  return ids;
}

std::vector<HolderQuestions::Overdue> HolderQuestions::take_overdue(std::uint64_t now_ns) {
  std::vector<Overdue> overdue;
  for (auto at = batches_.begin(); at != batches_.end();) {
    Batch& batch = at->second;
    if (now_ns >= batch.again_ns) {
      batch.again_ns = UINT64_MAX;
      for (const std::uint64_t id : batch.ids) overdue.push_back({id, batch.node});
    }
    at = now_ns >= batch.until_ns + kLingerNs ? batches_.erase(at) : std::next(at);
  }
  return overdue;
}

}  // namespace mc::agent
