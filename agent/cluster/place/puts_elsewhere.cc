// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/place/puts_elsewhere.h"

#include <algorithm>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint64_t kMostLocatePutNs = 2'000 * kMs;
// Between two looks at the memory of ended sessions.
constexpr std::uint64_t kClosingNs = 5 * kMs;

}  // namespace

PutsElsewhere::PutsElsewhere(OperationTable& operations, const Masters& masters, Peers& peers,
                             transport::Transport& transport, VersionClock& clock, Fetcher& fetcher,
                             MemberId self, const metadata::Reader& place, const StripeRules& rules)
    : operations_(operations),
      masters_(masters),
      peers_(peers),
      clock_(clock),
      fetcher_(fetcher),
      place_(place),
      placer_(operations, masters, peers, transport, clock, self, place),
      memory_(transport, placer_),
      striper_(operations, masters, peers, clock, placer_, memory_, fetcher, self, rules) {}

void PutsElsewhere::begin(const std::shared_ptr<RemoteRequest>& remote_request,
                          ClusterTenant& tenant) {
  ++placer_.counters().asked;
  RemoteRequest::Item& item = remote_request->items.front();
  const metadata::KeyHash name = tenant.name_of(item.key);
  const RemoteRequest::Source& source = remote_request->source;
  const bool held_here = source.host != metadata::kNoNode && tenant.find(name) != kNoEntry;
  if (held_here && !source.order.upsert) {
    ++placer_.counters().existed;
    return operations_.settle(*remote_request, item, MC_OK);
  }
  const bool busy = operations_.count(OperationKind::kPut) >= kMaxPuts;
  const auto region = masters_.of(name).ready() && !busy
                          ? memory_.region_of(source)
                          : fail(MC_BUSY, "no master, or too much is being placed");
  if (!region) {
    ++placer_.counters().master_away;
    return operations_.settle(*remote_request, item, MC_NO_SPACE);
  }
  PutElsewhere& put =
      operations_.begin(std::make_unique<PutElsewhere>(*this, remote_request), &tenant);
  put.name = name;
  put.region = *region;
  puts_.insert(put.id());
}

void PutElsewhere::step() { puts.step(*this); }
void PutElsewhere::cancel() { puts.settle(*this, MC_NO_SPACE, puts.placer_.counters().lost); }

void PutsElsewhere::step(PutElsewhere& put) {
  const std::uint64_t deadline_ns = put.remote_request->deadline_ns;
  if (put.remote_request->abandoned) return end(put);
  if (put.at == Step::kPlacing) return take_placement(put);
  if (operations_.now_ns() >= deadline_ns) {
    return settle(put, MC_NO_SPACE, placer_.counters().late);
  }
  if (put.at == Step::kLocate) locate(put);
  if (put.at == Step::kLocating && put.answered) return take_found(put);
  operations_.wake_at(put, deadline_ns);
}

void PutsElsewhere::locate(PutElsewhere& put) {
  put.at = Step::kLocating;
  wire::Locate request;
  request.host = place_.host;
  request.zone = place_.zone;
  request.keys.push_back(put.name);
  const std::uint64_t until_ns =
      std::min(put.remote_request->deadline_ns, operations_.now_ns() + kMostLocatePutNs);
  masters_.of(put.name).locate(
      request, until_ns, [this, id = put.id()](const Result<metadata::LocateAnswer>& answer) {
        PutElsewhere* const asked = operations_.find<PutElsewhere>(id);
        if (asked == nullptr) return;
        asked->answered = true;
        if (answer && answer->keys.size() == 1) {
          const auto holders = answer->holders_of(answer->keys.front());
          asked->found = {true, answer->keys.front(), {holders.begin(), holders.end()}};
        }
        operations_.wake(*asked);
      });
}

// A create of a key that exists changes nothing. An upsert is first offered to the key's holders.
void PutsElsewhere::take_found(PutElsewhere& put) {
  if (!put.found) return settle(put, MC_NO_SPACE, placer_.counters().master_away);
  const metadata::Located& object = put.found->object;
  std::vector<MemberId> nodes;
  if (object.state == metadata::Lookup::kFound) {
    nodes = peers_.reading_order(put.name, put.found->holders);
    const bool striped = object.attributes.striped;
    const bool others = striped || !nodes.empty();
    // Holders of a striped object are no better than other hosts.
    if (striped) nodes.clear();
    if (others && object.whole() && !put.remote_request->source.order.upsert) {
      return settle(put, MC_OK, placer_.counters().existed);
    }
  }
  const MemberId wanted = put.remote_request->source.host;
  if (wanted != metadata::kNoNode) return place(put, {wanted}, true);
  if (!goes_in_stripes(put, false)) place(put, std::move(nodes), false);
}

void PutsElsewhere::place(PutElsewhere& put, std::vector<MemberId> nodes, bool chosen) {
  const RemoteRequest::Source& source = put.remote_request->source;
  Placement::Put what;
  what.remote_request = put.remote_request;
  what.name = put.name;
  what.region = put.region;
  what.version = clock_.next(wall_ns());
  what.offset = source.offset;
  what.length = source.order.length;
  what.sum = source.order.checksum;
  put.placement = placer_.begin(std::move(what), *put.tenant(), std::move(nodes), chosen, put.id());
  put.at = Step::kPlacing;
  operations_.wake_at(put, Operation::kNever);
}

void PutsElsewhere::take_placement(PutElsewhere& put) {
  const std::unique_ptr<Placement> placement = operations_.take<Placement>(put.placement);
  if (placement == nullptr) return;
  PlaceCounters& counters = placer_.counters();
  switch (placement->result) {
    case Placement::End::kPlaced: {
      const metadata::KeyHash name = put.name;
      const bool upsert = put.remote_request->source.order.upsert;
      settle(put, MC_OK, counters.placed);
      return fetcher_.put_elsewhere(name, placement->put.version, upsert);
    }
    case Placement::End::kNobody:
      if (put.remote_request->source.host == metadata::kNoNode && goes_in_stripes(put, true)) {
        return;
      }
      return settle(put, MC_NO_SPACE, counters.nobody);
    case Placement::End::kRefused:
      return settle(put, MC_NO_SPACE, counters.refused);
    case Placement::End::kLate:
      return settle(put, MC_NO_SPACE, counters.late);
    case Placement::End::kMasterAway:
      return settle(put, MC_NO_SPACE, counters.master_away);
  }
}

// True: a Striping has the remote request.
bool PutsElsewhere::goes_in_stripes(PutElsewhere& put, bool must) {
  if (!striper_.begin(put.remote_request, *put.tenant(), put.name, put.region, must)) return false;
  end(put);
  return true;
}

// ---- Ends ---------------------------------------------------------------------------------------

void PutsElsewhere::settle(PutElsewhere& put, mc_status status, std::uint64_t& reason) {
  ++reason;
  operations_.settle(*put.remote_request, put.remote_request->items.front(), status);
  end(put);
}

void PutsElsewhere::end(PutElsewhere& put) {
  operations_.cancel(put.placement);
  puts_.erase(put.id());
  operations_.end(put);
}

void PutsElsewhere::forget_session(std::uint64_t session) {
  std::vector<OperationId> over;
  for (const OperationId id : puts_) {
    const PutElsewhere& put = *operations_.find<PutElsewhere>(id);
    if (put.remote_request->source.session == session) over.push_back(id);
  }
  for (const OperationId id : over) operations_.cancel(id);
  striper_.forget_session(session);
  memory_.forget(session);
}

std::uint64_t PutsElsewhere::next_ns() const {
  return memory_.closing() ? operations_.now_ns() + kClosingNs : UINT64_MAX;
}

}  // namespace mc::agent
