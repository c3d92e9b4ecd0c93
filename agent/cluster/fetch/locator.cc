// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/locator.h"

#include <algorithm>

#include "libmc/base/clock.h"

namespace mc::agent {

using metadata::KeyHash;

namespace {

// The part of the time left that a master may wait for a recovery: one half.
constexpr std::uint64_t kRecoveryDivisor = 2;
constexpr std::size_t kLocateBatch = 512;

}  // namespace

Location* Locator::cached(const KeyHash& name) {
  Location* const known = locations_.find(name);
  if (known == nullptr || !peers_.id_of(known->node)) return nullptr;
  if (!readable(name, known->node)) return nullptr;
  ++counters_.location_hits;
  return known;
}

std::vector<MemberId> Locator::known_holders(const KeyHash& name) {
  const Holders* const known = holders_.find(name);
  if (known == nullptr) return {};
  const auto end = std::ranges::find(*known, metadata::kNoNode);
  std::vector<MemberId> holders = peers_.reading_order(name, {known->begin(), end});
  holders_.forget(name);
  std::erase_if(holders, [&](MemberId holder) { return !readable(name, holder); });
  if (holders.empty() || !peers_.id_of(holders.front())) return {};
  ++counters_.holder_hits;
  return holders;
}

metadata::wire::Locate Locator::question() const {
  metadata::wire::Locate request;
  request.host = reader_.host;
  request.zone = reader_.zone;
  return request;
}

void Locator::send() {
  if (questions_.empty()) return;
  std::vector<std::vector<Question>> due(masters_.count());
  for (const Question& question : questions_) {
    const std::uint32_t partition = masters_.partition_of(question.name);
    due[partition].push_back(question);
    if (due[partition].size() == kLocateBatch) send(partition, std::exchange(due[partition], {}));
  }
  questions_.clear();
  for (std::uint32_t partition = 0; partition < masters_.count(); ++partition) {
    if (!due[partition].empty()) send(partition, std::move(due[partition]));
  }
}

void Locator::send(std::uint32_t partition, std::vector<Question> questions) {
  metadata::wire::Locate request = question();
  std::uint64_t deadline_ns = 0;
  for (const Question& each : questions) {
    request.keys.push_back(each.name);
    deadline_ns = std::max(deadline_ns, each.deadline_ns);
  }
  counters_.located += questions.size();
  const std::uint64_t now_ns = operations_.now_ns();
  const std::uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  request.wait_ms = static_cast<std::uint32_t>(left_ns / kRecoveryDivisor / kMs);
  masters_.at(partition).locate(
      request, deadline_ns,
      [this, asked = std::move(questions)](const Result<metadata::LocateAnswer>& answer) {
        for (std::size_t i = 0; i < asked.size(); ++i) {
          tell(asked[i].fetch, answer && i < answer->keys.size() ? &*answer : nullptr, i);
        }
      });
}

// answer: null if no master answered.
void Locator::tell(OperationId id, const metadata::LocateAnswer* answer, std::size_t key) {
  Fetch* const fetch = operations_.find<Fetch>(id);
  if (fetch == nullptr || fetch->at != Fetch::Step::kLocating) return;
  FoundObject& found = fetch->found.emplace();
  if (answer != nullptr) {
    found.answered = true;
    found.object = answer->keys[key];
    const auto holders = answer->holders_of(found.object);
    found.holders.assign(holders.begin(), holders.end());
  }
  operations_.wake(*fetch);
}

void Locator::exists(const std::shared_ptr<RemoteRequest>& remote_request,
                     const ClusterTenant& tenant) {
  std::vector<KeyHash> names;
  std::vector<std::size_t> items;
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    RemoteRequest::Item& item = remote_request->items[i];
    if (!item.open) continue;
    const KeyHash name = tenant.name_of(item.key);
    if (!master_ready(name)) {
      const Location* const known = cached(name);
      counters_.master_away += known != nullptr ? 0 : 1;
      item.length = known != nullptr ? known->row.length : 0;
      operations_.settle(*remote_request, item, known != nullptr ? MC_OK : master_away(name));
      continue;
    }
    names.push_back(name);
    items.push_back(i);
  }
  counters_.located += names.size();
  const std::uint64_t until_ns =
      std::min(remote_request->deadline_ns, operations_.now_ns() + kMostLocateNs);
  for (const Masters::Part& part : masters_.split(names)) {
    metadata::wire::Locate request = question();
    std::vector<std::size_t> asked;
    for (const std::size_t place : part.places) {
      request.keys.push_back(names[place]);
      asked.push_back(items[place]);
    }
    masters_.at(part.partition)
        .locate(request, until_ns,
                [this, remote_request, asked = std::move(asked),
                 keys = request.keys](const Result<metadata::LocateAnswer>& answer) {
                  for (std::size_t i = 0; i < asked.size(); ++i) {
                    RemoteRequest::Item& item = remote_request->items[asked[i]];
                    const bool answered = answer && i < answer->keys.size();
                    const bool known =
                        answered && answer->keys[i].state != metadata::Lookup::kRecovering;
                    counters_.master_away += answered ? 0 : 1;
                    const bool found = known && answer->keys[i].whole();
                    item.length = found ? answer->keys[i].bytes : 0;
                    if (found) remember_holders(keys[i], *answer, answer->keys[i]);
                    operations_.settle(*remote_request, item,
                                       found   ? MC_OK
                                       : known ? MC_NOT_FOUND
                                               : master_away(keys[i]));
                  }
                });
  }
}

void Locator::remember_holders(const KeyHash& name, const metadata::LocateAnswer& answer,
                               const metadata::Located& located) {
  if (located.attributes.striped) return;
  Holders holders;
  holders.fill(metadata::kNoNode);
  const auto named = answer.holders_of(located);
  std::ranges::copy(named.first(std::min(named.size(), holders.size())), holders.begin());
  holders_.put(name, holders);
}

}  // namespace mc::agent
