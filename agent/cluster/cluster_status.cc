// SPDX-License-Identifier: Apache-2.0
//
// Answers mcctl's cluster verbs, as JSON.
#include <json/reader.h>
#include <json/value.h>
#include <json/writer.h>

#include <algorithm>
#include <map>
#include <memory>

#include "agent/cluster/cluster_node.h"
#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint64_t kAnswerNs = 3'000'000'000;
constexpr unsigned kMaxWhereKeys = 256;

Json::Value u64(std::uint64_t value) { return Json::Value(Json::UInt64{value}); }

std::string text_of(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  return Json::writeString(builder, value);
}

std::string failure(const Status& status) {
  Json::Value value;
  value["error"] = mc_status_name(status.code());
  value["code"] = static_cast<int>(status.code());
  value["cause"] = status.text().empty() ? std::string(mc_status_text(status.code()))
                                         : std::string(status.text());
  return text_of(value);
}

// Decodes a key that libmc/client/admin.h encoded: %XX is a byte.
std::string key_of(const std::string& text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string key;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    key += escaped ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (escaped) i += 2;
  }
  return key;
}

std::string key_of(const Json::Value& request) {
  const Json::Value& key = request["key"];
  return key.isString() ? key_of(key.asString()) : std::string();
}

// Holders of many keys, in a compact form: an answer may list thousands.
Json::Value holders_json(const metadata::LocateAnswer& answer) {
  Json::Value value;
  value["holders"] = Json::Value(Json::arrayValue);
  for (const metadata::Located& found : answer.keys) {
    Json::Value nodes(Json::arrayValue);
    for (const MemberId node : answer.holders_of(found)) nodes.append(u64(node));
    value["holders"].append(std::move(nodes));
  }
  return value;
}

// Requests name a node by id (64 bits) or by address.
MemberId node_named(const Peers& peers, const Json::Value& name) {
  if (name.isUInt64()) return name.asUInt64();
  if (!name.isString()) return 0;
  const std::string text = name.asString();
  for (const auto& [node, member] : peers.all()) {
    if (member.descriptor.address == text || std::to_string(node) == text) return node;
  }
  return 0;
}

Json::Value member_json(const wire::MemberInfo& member, MemberId self, bool lost) {
  Json::Value value;
  value["node"] = u64(member.descriptor.node);
  value["incarnation"] = u64(member.descriptor.incarnation);
  value["address"] = member.descriptor.address;
  value["state"] = member.draining                              ? "draining"
                   : member.state == metadata::MemberState::kOk ? "ok"
                                                                : "suspected";
  value["self"] = member.descriptor.node == self;
  value["reachable"] = member.descriptor.node == self || !lost;
  value["capacity_bytes"] = u64(member.descriptor.capacity_bytes);
  value["used_bytes"] = u64(member.used_bytes);
  value["objects"] = u64(member.entries);
  return value;
}

Json::Value partition_json(const MasterPort& port, std::uint32_t partition,
                           const Result<wire::StatsAnswer>& answer) {
  Json::Value value;
  value["share"] = partition;
  value["leader"] = answer ? port.leader() : std::string();
  value["epoch"] = u64(port.epoch());
  value["keys"] = u64(answer ? answer->entries : 0);
  value["state"] = !answer ? "no leader" : answer->recovering ? "recovering" : "ok";
  return value;
}

// Statistics of each partition, and the sum.
void masters_json(const Masters& masters, const std::vector<Result<wire::StatsAnswer>>& answers,
                  Json::Value& value) {
  wire::StatsAnswer sum;
  bool any = false;
  value["shares"] = Json::Value(Json::arrayValue);
  for (std::uint32_t partition = 0; partition < answers.size(); ++partition) {
    const Result<wire::StatsAnswer>& answer = answers[partition];
    if (partition < masters.count()) {
      value["shares"].append(partition_json(masters.at(partition), partition, answer));
    }
    if (!answer) {
      value["master_error"] = answer.error().to_string();
      continue;
    }
    any = true;
    sum.entries += answer->entries;
    sum.tombstones += answer->tombstones;
    sum.members = std::max(sum.members, answer->members);
    sum.reports_missing += answer->reports_missing;
    sum.memory_bytes += answer->memory_bytes;
    sum.published += answer->published;
    sum.located += answer->located;
    sum.repairs_queued += answer->repairs_queued;
    sum.repairs_running += answer->repairs_running;
    sum.recovering |= answer->recovering;
  }
  if (!any) return;
  Json::Value& master = value["master"];
  master["entries"] = u64(sum.entries);
  master["tombstones"] = u64(sum.tombstones);
  master["members"] = u64(sum.members);
  master["reports_missing"] = u64(sum.reports_missing);
  master["memory_bytes"] = u64(sum.memory_bytes);
  master["published"] = u64(sum.published);
  master["located"] = u64(sum.located);
  master["repairs_queued"] = u64(sum.repairs_queued);
  master["repairs_running"] = u64(sum.repairs_running);
  master["recovering"] = sum.recovering;
}

}  // namespace

std::string ClusterNode::status_text() {
  const FetchCounters& fetch = fetcher_->counters();
  const AnnouncerCounters& said = announcer_->counters();
  const transport::Counters& moved = transport_->counters();
  Json::Value value;
  value["node"] = u64(identity_.node);
  value["master_ready"] = masters_.all_ready();
  value["epoch"] = u64(masters_.at(0).epoch());
  value["shares"] = masters_.count();
  value["members"] = u64(peers_.all().size());
  value["locations"] = u64(fetcher_->locations().count());
  Json::Value& counters = value["counters"];
  counters["fetches"] = u64(fetch.fetches);
  counters["fetches_shared"] = u64(fetch.joined);
  counters["located"] = u64(fetch.located);
  counters["location_hits"] = u64(fetch.location_hits);
  counters["holder_hits"] = u64(fetch.holder_hits);
  counters["asked"] = u64(fetch.asked);
  counters["asks_served"] = u64(asks_served_);
  counters["read_objects"] = u64(fetch.read_objects);
  counters["read_bytes"] = u64(fetch.read_bytes);
  counters["served_bytes"] = u64(moved.served_bytes);
  counters["came_with_answer"] = u64(fetch.came_along);
  counters["lent"] = u64(fetch.served_unpublished);
  counters["copies_kept"] = u64(fetch.kept);
  counters["delivered"] = u64(fetch.delivered);
  counters["held_for_others"] = u64(fetch.held_for_others);
  counters["next_holders"] = u64(fetch.next_holders);
  counters["announced"] = u64(said.announced);
  counters["announcements_refused"] = u64(said.refused);
  counters["announcements_retried"] = u64(said.retried);
  counters["puts_unannounced"] = u64(said.unannounced_puts);
  counters["staged_bytes"] = u64(moved.staged_bytes);
  counters["lanes_failed"] = u64(moved.lanes_failed);
  counters["resent_slices"] = u64(moved.resent_slices);
  const PlaceCounters& place = placer_->counters();
  Json::Value& elsewhere = value["elsewhere"];  // puts without room here
  elsewhere["asked"] = u64(place.asked);
  elsewhere["offered"] = u64(place.offered);
  elsewhere["placed"] = u64(place.placed);
  elsewhere["placed_bytes"] = u64(place.placed_bytes);
  elsewhere["existed"] = u64(place.existed);
  elsewhere["refused"] = u64(place.refused);
  elsewhere["lost"] = u64(place.lost);
  elsewhere["late"] = u64(place.late);
  elsewhere["nobody"] = u64(place.nobody);
  elsewhere["master_away"] = u64(place.master_away);
  const StriperCounters& cut = striper_->counters();
  const GatherCounters& gathered = gatherer_->counters();
  const StripeCounters& kept = keeper_->counters();
  Json::Value& stripes = value["stripes"];  // objects in stripes on several hosts
  stripes["puts_asked"] = u64(cut.asked);
  stripes["puts"] = u64(cut.put);
  stripes["put_bytes"] = u64(cut.put_bytes);
  stripes["stripes_placed"] = u64(cut.stripes);
  stripes["puts_nobody"] = u64(cut.nobody);
  stripes["puts_failed"] = u64(cut.failed);
  stripes["puts_behind"] = u64(cut.behind);
  stripes["gathered"] = u64(gathered.gathered);
  stripes["gathered_bytes"] = u64(gathered.gathered_bytes);
  stripes["stripes_read"] = u64(gathered.stripes_read);
  stripes["stripes_failed_over"] = u64(gathered.failed_over);
  stripes["gathers_lacking"] = u64(gathered.lacking);
  stripes["gathers_late"] = u64(gathered.late);
  stripes["gathers_no_room"] = u64(gathered.no_room);
  stripes["gathers_failed"] = u64(gathered.failed);
  stripes["gathers_corrupt"] = u64(gathered.corrupt);
  stripes["sealed"] = u64(kept.sealed);
  stripes["expired"] = u64(kept.expired);
  stripes["broken"] = u64(kept.broken);
  stripes["orphaned"] = u64(kept.orphaned);
  const MoveCounters& moves = mover_->counters();
  stripes["moves_asked"] = u64(moves.asked);
  stripes["moves"] = u64(moves.moved);
  stripes["moved_bytes"] = u64(moves.moved_bytes);
  stripes["moves_no_room"] = u64(moves.no_room);
  stripes["moves_refused"] = u64(moves.refused);
  stripes["moves_late"] = u64(moves.late);
  stripes["moves_failed"] = u64(moves.failed);
  std::uint64_t here = 0, open = 0;
  for (const auto& tenant : tenants_) {
    for (const auto& [id, set] : tenant->stripes().all()) {
      here += set.stripes.size();
      open += set.sealed ? 0 : set.stripes.size();
    }
  }
  stripes["stripes_here"] = u64(here);
  stripes["stripes_open"] = u64(open);  // of these, not sealed yet
  Json::Value& misses = value["misses"];
  misses["nobody"] = u64(fetch.nobody);
  misses["recovering"] = u64(fetch.recovering);
  misses["master_away"] = u64(fetch.master_away);
  misses["holders_failed"] = u64(fetch.holders_failed);
  misses["late"] = u64(fetch.late);
  misses["no_room"] = u64(fetch.no_room);
  misses["corrupt"] = u64(fetch.corrupt);
  misses["incomplete"] = u64(fetch.incomplete);
  return text_of(value);
}

Json::Value ClusterNode::rails_json() const {
  const transport::Counters& moved = transport_->counters();
  std::vector<transport::RailReport> reports;
  transport_->report_rails(reports);
  Json::Value value;
  value["read_bytes"] = u64(moved.read_bytes);
  value["written_bytes"] = u64(moved.written_bytes);
  value["served_bytes"] = u64(moved.served_bytes);
  const OneSidedReport beside = one_sided();
  value["one_sided"]["transport"] = std::string(beside.transport);
  value["one_sided"]["devices"] = beside.devices;
  value["one_sided"]["obstacles"] = beside.obstacles;
  std::map<MemberId, Json::Value> peers;
  for (const transport::RailReport& report : reports) {
    const MemberId node = peers_.node_of(report.peer);
    Json::Value& peer = peers[node];
    peer["node"] = u64(node);
    peer["address"] = peers_.address_of(node);
    peer["reachable"] = !peers_.is_lost(node);
    const transport::RailStatus& status = report.status;
    Json::Value rail;
    rail["transport"] = std::string(report.transport);
    rail["name"] = report.name;
    rail["health"] = transport::rail_health_name(status.health);
    rail["bandwidth_bytes_per_s"] = u64(static_cast<std::uint64_t>(status.bytes_per_ns * 1e9));
    rail["latency_ns"] = u64(status.latency_ns);
    rail["outstanding_bytes"] = u64(status.outstanding_bytes);
    rail["window_bytes"] = u64(status.window_bytes);
    rail["done_bytes"] = u64(status.done_bytes);
    rail["done_slices"] = u64(status.done_slices);
    rail["failures"] = u64(status.failures);
    rail["taken_back_slices"] = u64(status.taken_back_slices);
    if (!report.note.empty()) rail["note"] = report.note;
    peer["rails"].append(rail);
  }
  value["peers"] = Json::Value(Json::arrayValue);
  for (auto& [node, peer] : peers) value["peers"].append(std::move(peer));
  return value;
}

bool ClusterNode::ask(std::string_view verb, std::string_view request_text, Answer done) {
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value request;
  std::string errors;
  if (!reader->parse(request_text.data(), request_text.data() + request_text.size(), &request,
                     &errors) ||
      !request.isObject()) {
    return false;
  }
  const std::uint64_t deadline_ns = mc::now_ns() + kAnswerNs;
  if (verb == "cluster") {
    masters_.stats(deadline_ns,
                   [this, done](const std::vector<Result<wire::StatsAnswer>>& answers) {
                     Json::Value value;
                     Json::CharReaderBuilder builder_here;
                     const std::unique_ptr<Json::CharReader> own(builder_here.newCharReader());
                     const std::string text = status_text();
                     own->parse(text.data(), text.data() + text.size(), &value["agent"], nullptr);
                     masters_json(masters_, answers, value);
                     done(text_of(value));
                   });
    return true;
  }
  if (verb == "rails") {
    done(text_of(rails_json()));
    return true;
  }
  if (verb == "nodes") {
    masters_.members(deadline_ns, [this, done](const Result<wire::MembersAnswer>& answer) {
      if (!answer) {
        done(failure(answer.error()));
        return;
      }
      Json::Value value;
      value["nodes"] = Json::Value(Json::arrayValue);
      for (const wire::MemberInfo& member : answer->members) {
        value["nodes"].append(
            member_json(member, identity_.node, peers_.is_lost(member.descriptor.node)));
      }
      done(text_of(value));
    });
    return true;
  }
  if (verb == "where") {
    const std::string name = request.get("namespace", "default").asString();
    const ClusterTenant* const tenant = find(name);
    if (tenant == nullptr) {
      done(
          failure({MC_NO_SUCH_NAMESPACE, "no namespace '" + name + "' of this agent's is shared"}));
      return true;
    }
    wire::Locate locate;
    const Json::Value& many = request["keys"];
    if (!many.isNull()) {
      const bool words = many.isArray() && std::ranges::all_of(many, [](const Json::Value& one) {
                           return one.isString();
                         });
      if (!words || many.empty() || many.size() > kMaxWhereKeys) {
        done(failure({MC_INVALID_ARGUMENT, "keys is a list of 1 to 256 keys"}));
        return true;
      }
      for (const Json::Value& one : many) {
        locate.keys.push_back(tenant->name_of(key_of(one.asString())));
      }
      masters_.locate(locate, deadline_ns, [done](const Result<metadata::LocateAnswer>& answer) {
        done(answer ? text_of(holders_json(*answer)) : failure(answer.error()));
      });
      return true;
    }
    locate.keys.push_back(tenant->name_of(key_of(request)));
    masters_.of(locate.keys.front())
        .locate(locate, deadline_ns, [this, done](const Result<metadata::LocateAnswer>& answer) {
          if (!answer || answer->keys.empty()) {
            done(failure(answer ? Status(MC_INTERNAL) : answer.error()));
            return;
          }
          const metadata::Located& found = answer->keys.front();
          Json::Value value;
          value["found"] = found.state == metadata::Lookup::kFound;
          value["recovering"] = found.state == metadata::Lookup::kRecovering;
          value["version"] = u64(found.version);
          value["bytes"] = u64(found.bytes);
          value["replicas_wanted"] = found.attributes.replicas;
          value["parts"] = found.attributes.parts;  // in stripes; else 0
          value["missing_parts"] = found.missing_parts;
          value["holders"] = Json::Value(Json::arrayValue);
          for (const MemberId node : answer->holders_of(found)) {
            const wire::MemberInfo* const member = peers_.find(node);
            Json::Value holder;
            holder["node"] = u64(node);
            holder["address"] = member != nullptr ? member->descriptor.address : std::string();
            holder["self"] = node == identity_.node;
            value["holders"].append(holder);
          }
          done(text_of(value));
        });
    return true;
  }
  if (verb == "drain") {
    wire::Drain drain;
    drain.node = node_named(peers_, request["node"]);
    drain.stop = request.get("stop", false).asBool();
    if (drain.node == 0) {
      done(
          failure({MC_INVALID_ARGUMENT, "no member has that node id or address; see mcctl nodes"}));
      return true;
    }
    masters_.drain(drain, deadline_ns, [done](const Result<wire::DrainAnswer>& answer) {
      if (!answer) {
        done(failure(answer.error()));
        return;
      }
      Json::Value value;
      value["copied"] = u64(answer->copied);
      value["failed"] = u64(answer->failed);
      value["unplaced"] = u64(answer->unplaced);
      value["seen"] = u64(answer->seen);
      value["done"] = answer->done;
      done(text_of(value));
    });
    return true;
  }
  if (verb == "replicate") {
    const ClusterTenant* const tenant = find(request.get("namespace", "default").asString());
    const unsigned replicas = request.get("replicas", 0).asUInt();
    const std::uint32_t entry =
        tenant == nullptr ? kNoEntry : tenant->find(tenant->name_of(key_of(request)));
    if (replicas < 1 || replicas > MC_MAX_REPLICAS) {
      done(failure({MC_INVALID_ARGUMENT, "an object has 1 to 8 replicas"}));
    } else if (entry == kNoEntry) {
      done(failure(
          {MC_NOT_FOUND, "this host does not hold that key; mcctl where shows which does"}));
    } else if (!find(*tenant->tenant())->set_replicas(entry, static_cast<std::uint8_t>(replicas))) {
      done(failure({MC_NO_MEMORY, "there is no memory for the change"}));
    } else {
      done("{}");
    }
    return true;
  }
  if (verb == "ping") {
    const MemberId node = node_named(peers_, request["node"]);
    if (node == 0 || !peers_.id_of(node)) {
      done(failure(
          {MC_INVALID_ARGUMENT, "no other member has that node id or address; see mcctl nodes"}));
      return true;
    }
    if (pings_.size() >= 64) {
      done(failure({MC_BUSY, "64 pings are under way"}));
      return true;
    }
    PeerMessage ping;
    ping.kind = PeerMessageKind::kPing;
    ping.request = next_ping_++;
    const std::uint64_t now = mc::now_ns();
    pings_[ping.request] = {now, node, done};
    notify(node, ping, now);
    return true;
  }
  return false;
}

}  // namespace mc::agent
