// SPDX-License-Identifier: Apache-2.0
//
#include "agent/cluster/cluster_status.h"

#include <json/reader.h>
#include <json/writer.h>

#include <algorithm>
#include <map>
#include <memory>

#include "libmc/base/clock.h"
#include "libmc/base/key_text.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint64_t kStatusAnswerNs = 3'000'000'000;
constexpr unsigned kMaxWhereKeys = 256;
constexpr std::size_t kMaxPings = 64;
constexpr std::size_t kMaxReplicated = 64;  // of disks, under way
constexpr std::uint64_t kPingNs = 2'000'000'000;
constexpr std::size_t kMaxPages = 8;
constexpr std::uint64_t kPageNs = 5'000'000'000;
constexpr std::size_t kMaxAnswerKeys = 512;  // of one answer, if the keys are short
constexpr std::size_t kAnswerKeyBytes = 64 * 1024;
constexpr std::uint64_t kWalkMs = 60'000;
constexpr std::uint64_t kMaxWalkMs = 3'600'000;

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

// The bytes of a key, a prefix or a pattern, which libmc/client/admin.h escaped.
std::string unescaped(const Json::Value& text) {
  if (!text.isString()) return {};
  return unescape_key(text.asString()).value_or(text.asString());
}

constexpr const char* kNoSuchNode = "no member has that node id or address; see mcctl nodes";
constexpr const char* kNotHeldHere =
    "this host does not hold that key; mcctl where shows which does";

// Holders of many keys, in a compact form: an answer may list thousands.
Json::Value holders_json(const metadata::LocateAnswer& answer) {
  Json::Value value;
  value["holders"] = Json::Value(Json::arrayValue);
  value["on_disk"] = Json::Value(Json::arrayValue);
  for (const metadata::Located& found : answer.keys) {
    Json::Value nodes(Json::arrayValue), on_disk(Json::arrayValue);
    const auto holders = answer.holders_of(found);
    for (std::size_t i = 0; i < holders.size(); ++i) {
      nodes.append(std::to_string(holders[i]));
      if ((found.on_disk >> i & 1) != 0) on_disk.append(std::to_string(holders[i]));
    }
    value["holders"].append(std::move(nodes));
    value["on_disk"].append(std::move(on_disk));
  }
  return value;
}

// Requests name a node by id (64 bits) or by address.
bool is_named(const metadata::Descriptor& node, const Json::Value& name) {
  if (name.isUInt64()) return node.node == name.asUInt64();
  return name.isString() &&
         (node.address == name.asString() || std::to_string(node.node) == name.asString());
}

MemberId node_named(const Peers& peers, const Json::Value& name) {
  if (name.isUInt64()) return name.asUInt64();
  for (const auto& [node, member] : peers.all()) {
    if (is_named(member.descriptor, name)) return node;
  }
  return 0;
}

Json::Value member_json(const wire::MemberInfo& member, MemberId self, bool lost) {
  Json::Value value;
  value["node"] = std::to_string(member.descriptor.node);
  value["incarnation"] = std::to_string(member.descriptor.incarnation);
  value["address"] = member.descriptor.address;
  value["state"] = member.draining                              ? "draining"
                   : member.state == metadata::MemberState::kOk ? "ok"
                                                                : "suspected";
  value["self"] = member.descriptor.node == self;
  value["reachable"] = member.descriptor.node == self || !lost;
  value["capacity_bytes"] = u64(member.descriptor.capacity_bytes);
  value["used_bytes"] = u64(member.used_bytes);
  value["objects"] = u64(member.entries);
  value["disk_objects"] = u64(member.disk_entries);
  return value;
}

// The hosts walk over their indexes.
std::uint64_t walk_by_ns(const Json::Value& request) {
  const std::uint64_t wait_ms = request.get("timeout_ms", Json::UInt64{kWalkMs}).asUInt64();
  return mc::now_ns() + std::min(wait_ms, kMaxWalkMs) * 1'000'000;
}

std::uint64_t answer_by_ns() { return mc::now_ns() + kStatusAnswerNs; }

Json::Value partition_json(const MasterPort& port, std::uint32_t partition,
                           const Result<wire::StatsAnswer>& answer) {
  Json::Value value;
  value["partition"] = partition;
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
  value["partitions"] = Json::Value(Json::arrayValue);
  for (std::uint32_t partition = 0; partition < answers.size(); ++partition) {
    const Result<wire::StatsAnswer>& answer = answers[partition];
    if (partition < masters.count()) {
      value["partitions"].append(partition_json(masters.at(partition), partition, answer));
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

// ---- Counters -----------------------------------------------------------------------------------

template <typename Counters>
struct CounterRow {
  const char* name;
  std::uint64_t Counters::*value;
};

constexpr CounterRow<FetchCounters> kFetches[] = {
    {"fetches", &FetchCounters::fetches},
    {"fetches_shared", &FetchCounters::joined},
    {"located", &FetchCounters::located},
    {"location_hits", &FetchCounters::location_hits},
    {"holder_hits", &FetchCounters::holder_hits},
    {"guesses", &FetchCounters::guesses},
    {"right_guesses", &FetchCounters::right_guesses},
    {"asked", &FetchCounters::asked},
    {"read_objects", &FetchCounters::read_objects},
    {"read_bytes", &FetchCounters::read_bytes},
    {"came_with_answer", &FetchCounters::came_along},
    {"lent", &FetchCounters::served_unpublished},
    {"copies_kept", &FetchCounters::kept},
    {"delivered", &FetchCounters::delivered},
    {"held_for_others", &FetchCounters::held_for_others},
    {"next_holders", &FetchCounters::next_holders},
};
constexpr CounterRow<transport::Counters> kTransport[] = {
    {"served_bytes", &transport::Counters::served_bytes},
    {"staged_bytes", &transport::Counters::staged_bytes},
    {"lanes_failed", &transport::Counters::lanes_failed},
    {"resent_slices", &transport::Counters::resent_slices},
};
constexpr CounterRow<AnnouncerCounters> kAnnouncements[] = {
    {"announced", &AnnouncerCounters::announced},
    {"announcements_refused", &AnnouncerCounters::refused},
    {"announcements_retried", &AnnouncerCounters::retried},
    {"puts_unannounced", &AnnouncerCounters::unannounced_puts},
};
constexpr CounterRow<PlaceCounters> kPlacements[] = {
    {"asked", &PlaceCounters::asked},     {"offered", &PlaceCounters::offered},
    {"placed", &PlaceCounters::placed},   {"placed_bytes", &PlaceCounters::placed_bytes},
    {"existed", &PlaceCounters::existed}, {"refused", &PlaceCounters::refused},
    {"lost", &PlaceCounters::lost},       {"late", &PlaceCounters::late},
    {"nobody", &PlaceCounters::nobody},   {"master_away", &PlaceCounters::master_away},
};
constexpr CounterRow<StriperCounters> kStripedPuts[] = {
    {"puts_asked", &StriperCounters::asked},    {"puts", &StriperCounters::put},
    {"put_bytes", &StriperCounters::put_bytes}, {"stripes_placed", &StriperCounters::stripes},
    {"puts_nobody", &StriperCounters::nobody},  {"puts_failed", &StriperCounters::failed},
    {"puts_behind", &StriperCounters::behind},
};
constexpr CounterRow<GatherCounters> kGathers[] = {
    {"gathered", &GatherCounters::gathered},
    {"gathered_bytes", &GatherCounters::gathered_bytes},
    {"stripes_read", &GatherCounters::stripes_read},
    {"stripes_failed_over", &GatherCounters::failed_over},
    {"gathers_lacking", &GatherCounters::lacking},
    {"gathers_late", &GatherCounters::late},
    {"gathers_no_room", &GatherCounters::no_room},
    {"gathers_failed", &GatherCounters::failed},
    {"gathers_corrupt", &GatherCounters::corrupt},
};
constexpr CounterRow<StripeCounters> kStripes[] = {
    {"sealed", &StripeCounters::sealed},
    {"expired", &StripeCounters::expired},
    {"broken", &StripeCounters::broken},
    {"orphaned", &StripeCounters::orphaned},
};
constexpr CounterRow<MoveCounters> kMoves[] = {
    {"moves_asked", &MoveCounters::asked},       {"moves", &MoveCounters::moved},
    {"moved_bytes", &MoveCounters::moved_bytes}, {"moves_no_room", &MoveCounters::no_room},
    {"moves_refused", &MoveCounters::refused},   {"moves_late", &MoveCounters::late},
    {"moves_failed", &MoveCounters::failed},
};
constexpr CounterRow<FetchCounters> kMisses[] = {
    {"nobody", &FetchCounters::nobody},
    {"recovering", &FetchCounters::recovering},
    {"master_away", &FetchCounters::master_away},
    {"holders_failed", &FetchCounters::holders_failed},
    {"late", &FetchCounters::late},
    {"no_room", &FetchCounters::no_room},
    {"corrupt", &FetchCounters::corrupt},
    {"incomplete", &FetchCounters::incomplete},
};

struct StageRow {
  const char* name;
  DurationCounts FetchCounters::*durations;
};
constexpr StageRow kStages[] = {{"locate", &FetchCounters::locate},
                                {"ask", &FetchCounters::ask},
                                {"read", &FetchCounters::read},
                                {"whole", &FetchCounters::whole}};

template <typename Counters, std::size_t kRows>
void put(Json::Value& group, const CounterRow<Counters> (&rows)[kRows], const Counters& counters) {
  for (const auto& row : rows) group[row.name] = u64(counters.*row.value);
}

}  // namespace

// ---- The agent itself ---------------------------------------------------------------------------

// Why some partition's master does not know this host. Empty: all masters do, or no reason is known yet.
std::string ClusterNode::master_trouble() const {
  for (std::uint32_t partition = 0; partition < masters_.count(); ++partition) {
    const MasterPort& port = masters_.at(partition);
    if (!port.ready() && !port.trouble().ok()) return std::string(port.trouble().text());
  }
  return {};
}

std::string ClusterNode::Verbs::status_text() const {
  Json::Value value = counters();
  value["node"] = std::to_string(node_.identity_.node);
  value["master_ready"] = node_.masters_.all_ready();
  value["master_trouble"] = node_.master_trouble();
  value["epoch"] = u64(node_.masters_.at(0).epoch());
  value["partitions"] = node_.masters_.count();
  value["members"] = u64(node_.peers_.all().size());
  value["peers_lost"] = u64(node_.peers_.lost_count());
  value["locations"] = u64(node_.fetcher_->locations().count());
  return text_of(value);
}

Json::Value ClusterNode::Verbs::counters() const {
  Json::Value value;
  Json::Value& counters = value["counters"];
  put(counters, kFetches, node_.fetcher_->counters());
  put(counters, kTransport, node_.transport_->counters());
  put(counters, kAnnouncements, node_.announcer_->counters());
  counters["asks_served"] = u64(node_.peer_server_->asks_served());
  put(value["misses"], kMisses, node_.fetcher_->counters());
  for (const auto& stage : kStages) {
    value["stages"][stage.name] = durations_json(node_.fetcher_->counters().*stage.durations);
  }
  std::vector<transport::RailCounts> rails;
  node_.transport_->count_rails(rails);
  for (const transport::RailCounts& of : rails) {
    Json::Value& states = value["rails"][std::string(of.transport)];
    states["up"] = u64(of.up);
    states["down"] = u64(of.down);
    states["idle"] = u64(of.idle);
  }
  put(value["elsewhere"], kPlacements, node_.puts_->placer().counters());
  Json::Value& stripes = value["stripes"];
  put(stripes, kStripedPuts, node_.puts_->striper().counters());
  put(stripes, kGathers, node_.fetcher_->gatherer().counters());
  put(stripes, kStripes, node_.stripe_holder_->counters());
  put(stripes, kMoves, node_.mover_->counters());
  std::uint64_t here = 0, open = 0;
  for (const auto& tenant : node_.tenants_) {
    StripeTable& table = tenant->stripes();
    here += table.stripe_count();
    for (const SetId& id : table.unsealed()) open += table.find(id)->stripes.size();
  }
  stripes["stripes_here"] = u64(here);
  stripes["stripes_open"] = u64(open);  // of these, not sealed yet
  return value;
}

// ---- Verbs --------------------------------------------------------------------------------------

const ClusterNode::Verbs::Verb ClusterNode::Verbs::kVerbs[] = {
    {"cluster", &Verbs::cluster}, {"rails", &Verbs::rails}, {"nodes", &Verbs::nodes},
    {"where", &Verbs::where},     {"drain", &Verbs::drain}, {"replicate", &Verbs::replicate},
    {"ping", &Verbs::ping},       {"ls", &Verbs::list},     {"rm", &Verbs::remove},
    {"copy", &Verbs::copy},       {"move", &Verbs::move},   {"task", &Verbs::task},
};

bool ClusterNode::Verbs::ask(std::string_view verb, std::string_view request_text, Answer done) {
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value request;
  std::string errors;
  if (!reader->parse(request_text.data(), request_text.data() + request_text.size(), &request,
                     &errors) ||
      !request.isObject()) {
    return false;
  }
  const auto known = std::ranges::find(kVerbs, verb, &Verb::name);
  if (known == std::end(kVerbs)) return false;
  (this->*known->answer)(request, done);
  return true;
}

void ClusterNode::Verbs::cluster(const Json::Value&, const Answer& done) {
  node_.masters_.stats(
      answer_by_ns(), [this, done](const std::vector<Result<wire::StatsAnswer>>& answers) {
        Json::Value value;
        Json::CharReaderBuilder builder;
        const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
        const std::string text = status_text();
        reader->parse(text.data(), text.data() + text.size(), &value["agent"], nullptr);
        masters_json(node_.masters_, answers, value);
        done(text_of(value));
      });
}

void ClusterNode::Verbs::rails(const Json::Value&, const Answer& done) {
  const transport::Counters& moved = node_.transport_->counters();
  std::vector<transport::RailReport> reports;
  node_.transport_->report_rails(reports);
  Json::Value value;
  value["read_bytes"] = u64(moved.read_bytes);
  value["written_bytes"] = u64(moved.written_bytes);
  value["served_bytes"] = u64(moved.served_bytes);
  const OneSidedReport beside = node_.one_sided();
  value["one_sided"]["transport"] = std::string(beside.transport);
  value["one_sided"]["devices"] = beside.devices;
  value["one_sided"]["obstacles"] = beside.obstacles;
  std::map<MemberId, Json::Value> peers;
  for (const transport::RailReport& report : reports) {
    const MemberId node = node_.peers_.node_of(report.peer);
    Json::Value& peer = peers[node];
    peer["node"] = std::to_string(node);
    peer["address"] = node_.peers_.address_of(node);
    peer["reachable"] = !node_.peers_.is_lost(node);
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
  done(text_of(value));
}

void ClusterNode::Verbs::nodes(const Json::Value&, const Answer& done) {
  node_.masters_.members(answer_by_ns(), [this, done](const Result<wire::MembersAnswer>& answer) {
    if (!answer) return done(failure(answer.error()));
    Json::Value value;
    value["nodes"] = Json::Value(Json::arrayValue);
    const MemberId self = node_.identity_.node;
    std::uint64_t own_wall_ns = 0;
    for (const wire::MemberInfo& member : answer->members) {
      if (member.descriptor.node == self) own_wall_ns = member.wall_ns;
    }
    for (const wire::MemberInfo& member : answer->members) {
      Json::Value node = member_json(member, self, node_.peers_.is_lost(member.descriptor.node));
      if (own_wall_ns != 0 && member.wall_ns != 0) {
        const auto ahead_ns = static_cast<std::int64_t>(member.wall_ns - own_wall_ns);
        node["clock_ahead_ms"] = Json::Int64{ahead_ns / static_cast<std::int64_t>(kMs)};
      }
      value["nodes"].append(std::move(node));
    }
    value["down"] = Json::Value(Json::arrayValue);
    for (const metadata::DownMember& member : answer->down) {
      Json::Value down;
      down["node"] = std::to_string(member.descriptor.node);
      down["incarnation"] = std::to_string(member.descriptor.incarnation);
      down["address"] = member.descriptor.address;
      down["down_ms"] = u64(member.down_ms);
      value["down"].append(std::move(down));
    }
    done(text_of(value));
  });
}

void ClusterNode::Verbs::where(const Json::Value& request, const Answer& done) {
  const std::string name = request.get("namespace", "default").asString();
  const ClusterTenant* const tenant = find_tenant(node_.tenants_, name);
  if (tenant == nullptr) {
    return done(
        failure({MC_NO_SUCH_NAMESPACE, "no namespace '" + name + "' of this agent's is shared"}));
  }
  if (!request["keys"].isNull()) return where_many(*tenant, request["keys"], done);
  wire::Locate locate;
  locate.keys.push_back(tenant->name_of(unescaped(request["key"])));
  node_.masters_.of(locate.keys.front())
      .locate(locate, answer_by_ns(), [this, done](const Result<metadata::LocateAnswer>& answer) {
        if (!answer) return done(failure(answer.error()));
        if (answer->keys.empty()) return done(failure(Status(MC_INTERNAL)));
        done(text_of(located_json(*answer)));
      });
}

void ClusterNode::Verbs::where_many(const ClusterTenant& tenant, const Json::Value& keys,
                                    const Answer& done) {
  const bool are_texts = keys.isArray() && std::ranges::all_of(keys, [](const Json::Value& key) {
                           return key.isString();
                         });
  if (!are_texts || keys.empty() || keys.size() > kMaxWhereKeys) {
    return done(failure({MC_INVALID_ARGUMENT, "keys is a list of 1 to 256 keys"}));
  }
  wire::Locate locate;
  for (const Json::Value& key : keys) locate.keys.push_back(tenant.name_of(unescaped(key)));
  node_.masters_.locate(locate, answer_by_ns(),
                        [done](const Result<metadata::LocateAnswer>& answer) {
                          done(answer ? text_of(holders_json(*answer)) : failure(answer.error()));
                        });
}

Json::Value ClusterNode::Verbs::located_json(const metadata::LocateAnswer& answer) const {
  const metadata::Located& found = answer.keys.front();
  Json::Value value;
  value["found"] = found.state == metadata::Lookup::kFound;
  value["recovering"] = found.state == metadata::Lookup::kRecovering;
  value["version"] = std::to_string(found.version);
  value["bytes"] = u64(found.bytes);
  value["replicas_wanted"] = found.attributes.replicas;
  value["parts"] = found.attributes.parts;  // 0: not in stripes
  value["missing_parts"] = found.missing_parts;
  value["holders"] = Json::Value(Json::arrayValue);
  const auto holders = answer.holders_of(found);
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const MemberId node = holders[i];
    Json::Value holder;
    holder["node"] = std::to_string(node);
    holder["tier"] = (found.on_disk >> i & 1) != 0 ? "disk" : "pool";
    holder["address"] = node_.peers_.address_of(node);
    holder["self"] = node == node_.identity_.node;
    value["holders"].append(holder);
  }
  return value;
}

void ClusterNode::Verbs::drain(const Json::Value& request, const Answer& done) {
  if (request.get("dead", false).asBool()) return give_up(request["node"], done);
  wire::Drain drain;
  drain.node = node_named(node_.peers_, request["node"]);
  drain.stop = request.get("stop", false).asBool();
  if (drain.node == 0) {
    return done(failure({MC_INVALID_ARGUMENT, kNoSuchNode}));
  }
  drain_as(drain, done);
}

// A node that is down is no peer. The masters know its address.
void ClusterNode::Verbs::give_up(const Json::Value& name, const Answer& done) {
  node_.masters_.members(
      answer_by_ns(), [this, name, done](const Result<wire::MembersAnswer>& known) {
        if (!known) return done(failure(known.error()));
        const auto& down = known->down;
        const auto found = std::ranges::find_if(
            down, [&](const auto& member) { return is_named(member.descriptor, name); });
        if (found == down.end()) {
          return done(
              failure({MC_NOT_FOUND, "no node with this id or address is down; see mcctl nodes"}));
        }
        wire::Drain drain;
        drain.node = found->descriptor.node;
        drain.dead = true;
        drain_as(drain, done);
      });
}

void ClusterNode::Verbs::drain_as(const wire::Drain& drain, const Answer& done) {
  node_.masters_.drain(drain, answer_by_ns(), [done](const Result<wire::DrainAnswer>& answer) {
    if (!answer) return done(failure(answer.error()));
    Json::Value value;
    value["copied"] = u64(answer->copied);
    value["failed"] = u64(answer->failed);
    value["unplaced"] = u64(answer->unplaced);
    value["seen"] = u64(answer->seen);
    value["done"] = answer->done;
    value["copied_bytes"] = u64(answer->copied_bytes);
    done(text_of(value));
  });
}

void ClusterNode::Verbs::replicate(const Json::Value& request, const Answer& done) {
  ClusterTenant* const tenant =
      find_tenant(node_.tenants_, request.get("namespace", "default").asString());
  const unsigned replicas = request.get("replicas", 0).asUInt();
  if (replicas < 1 || replicas > MC_MAX_REPLICAS) {
    return done(failure({MC_INVALID_ARGUMENT, "an object has 1 to 8 replicas"}));
  }
  const auto wanted = static_cast<std::uint8_t>(replicas);
  if (tenant != nullptr) {
    const metadata::KeyHash name = tenant->name_of(unescaped(request["key"]));
    const std::uint32_t entry = tenant->find(name);
    if (entry != kNoEntry) return set_replicas(*tenant, entry, wanted, done);
    const LocalDisks* const disks = tenant->disks();
    if (disks != nullptr && disks->version_of(shared_name_of(name)) != 0) {
      return replicate_from_disk(*tenant, shared_name_of(name), wanted, done);
    }
  }
  done(failure({MC_NOT_FOUND, kNotHeldHere}));
}

void ClusterNode::Verbs::set_replicas(ClusterTenant& tenant, std::uint32_t entry,
                                      std::uint8_t replicas, const Answer& done) {
  if (tenant.set_replicas(entry, replicas)) return done("{}");
  done(failure({MC_NO_MEMORY, "there is no memory for the change"}));
}

void ClusterNode::Verbs::replicate_from_disk(const ClusterTenant& tenant, const SharedName& name,
                                             std::uint8_t replicas, const Answer& done) {
  if (replicated_.size() >= kMaxReplicated) {
    return done(failure({MC_BUSY, "64 objects are being read from disks; try again"}));
  }
  const auto request = std::make_shared<RemoteRequest>();
  request->kind = RemoteRequest::Kind::kBring;
  request->tenant = tenant.tenant();
  request->deadline_ns = answer_by_ns();
  request->items.emplace_back().name = name;
  request->open_count = 1;
  replicated_.push_back({request, replicas, done});
  tenant.disks()->begin_item(request, 0, mc::now_ns());
}

void ClusterNode::Verbs::end_replicated(const Replicated& object) {
  RemoteRequest& request = *object.brought;
  const RemoteRequest::Item& item = request.items.front();
  request.abandoned = true;
  ClusterTenant* const tenant = find_tenant(node_.tenants_, *request.tenant);
  const std::uint32_t entry = tenant == nullptr ? kNoEntry : tenant->find(item.name);
  if (entry != kNoEntry) return set_replicas(*tenant, entry, object.replicas, object.done);
  if (!request.over()) {
    object.done(failure({MC_TIMEOUT, "the disk has not read the object in time; try again"}));
  } else if (item.status == MC_OK || item.status == MC_NOT_FOUND) {
    object.done(failure({MC_NOT_FOUND, kNotHeldHere}));
  } else {
    object.done(failure({item.status, "the object did not come from the disk into the pool"}));
  }
}

bool ClusterNode::Verbs::has_answers() const {
  return std::ranges::any_of(replicated_, [](const auto& each) { return each.brought->over(); });
}

// ---- Copies and moves ---------------------------------------------------------------------------

void ClusterNode::Verbs::copy(const Json::Value& request, const Answer& done) {
  std::vector<MemberId> targets;
  for (const Json::Value& name : request["targets"]) {
    targets.push_back(node_named(node_.peers_, name));
  }
  relocate(request, metadata::kNoNode, std::move(targets), done);
}

void ClusterNode::Verbs::move(const Json::Value& request, const Answer& done) {
  const MemberId source = node_named(node_.peers_, request["source"]);
  if (source == metadata::kNoNode) return done(failure({MC_INVALID_ARGUMENT, kNoSuchNode}));
  relocate(request, source, {node_named(node_.peers_, request["target"])}, done);
}

void ClusterNode::Verbs::relocate(const Json::Value& request, MemberId source,
                                  std::vector<MemberId> targets, const Answer& done) {
  const ClusterTenant* const tenant =
      find_tenant(node_.tenants_, request.get("namespace", "default").asString());
  if (tenant == nullptr) return done(failure(Status(MC_NO_SUCH_NAMESPACE)));
  if (std::ranges::find(targets, metadata::kNoNode) != targets.end()) {
    return done(failure({MC_INVALID_ARGUMENT, kNoSuchNode}));
  }
  if (targets.empty() || targets.size() > MC_MAX_REPLICAS) {
    return done(failure({MC_INVALID_ARGUMENT, "targets is a list of 1 to 8 hosts"}));
  }
  const metadata::KeyHash name = tenant->name_of(unescaped(request["key"]));
  const std::uint32_t partition = node_.masters_.partition_of(name);
  node_.masters_.at(partition).relocate(
      {name, source, std::move(targets)}, answer_by_ns(),
      [done, partition](const Result<wire::RelocationId>& answer) {
        if (!answer) return done(failure(answer.error()));
        Json::Value value;
        value["task"].append(u64(answer->epoch));
        value["task"].append(u64(answer->number * metadata::kMaxPartitions + partition));
        done(text_of(value));
      });
}

void ClusterNode::Verbs::task(const Json::Value& request, const Answer& done) {
  const Json::Value& id = request["task"];
  if (!id.isArray() || id.size() != 2 || !id[0].isUInt64() || !id[1].isUInt64()) {
    return done(failure({MC_INVALID_ARGUMENT, "task is the answer of a copy or a move"}));
  }
  const std::uint64_t number = id[1].asUInt64();
  const auto partition = static_cast<std::uint32_t>(number % metadata::kMaxPartitions);
  if (partition >= node_.masters_.count()) {
    return done(failure({MC_NOT_FOUND, "no master has such a task"}));
  }
  node_.masters_.at(partition).relocation(
      {id[0].asUInt64(), number / metadata::kMaxPartitions}, answer_by_ns(),
      [this, id, done](const Result<wire::RelocationAnswer>& answer) {
        if (!answer) return done(failure(answer.error()));
        static constexpr const char* kStates[] = {"pending", "running", "failed", "done"};
        const std::uint64_t now_ms = wall_ns() / kMs;
        Json::Value value;
        value["task"] = id;
        value["type"] = answer->moves ? "move" : "copy";
        value["state"] = kStates[static_cast<std::size_t>(answer->state)];
        value["begun_ms"] = u64(now_ms - answer->age_ms);
        value["changed_ms"] = u64(now_ms - answer->changed_ms);
        value["node"] = std::to_string(answer->node);
        value["address"] =
            answer->node == metadata::kNoNode ? "" : node_.peers_.address_of(answer->node);
        value["message"] = answer->message;
        done(text_of(value));
      });
}

// ---- Listings and removals by pattern --------------------------------------------------------

// A page costs each host a walk over its index. So the masters give a large page, and the client
// gets the page in parts.
void ClusterNode::Verbs::list(const Json::Value& request, const Answer& done) {
  wire::Match match;
  match.name_space = request.get("namespace", "default").asString();
  match.pattern = unescaped(request["prefix"]);
  match.after = unescaped(request["cursor"]);
  match.limit = wire::kMaxListed;
  if (match.pattern.size() > MC_MAX_KEY_BYTES || match.after.size() > MC_MAX_KEY_BYTES) {
    return done(failure({MC_INVALID_ARGUMENT, "a prefix or a cursor longer than any key"}));
  }
  const std::uint64_t now = mc::now_ns();
  std::erase_if(pages_, [&](const ListedPage& page) { return now >= page.until_ns; });
  // A listing that begins has the latest keys.
  for (const ListedPage& page : pages_) {
    const bool same = page.match.name_space == match.name_space &&
                      page.match.pattern == match.pattern && match.after > page.match.after;
    if (same && !page.answer.keys.empty() && match.after < page.answer.keys.back().key) {
      return answer_list(page, match.after, done);
    }
  }
  node_.masters_.list(match, walk_by_ns(request),
                      [this, match, done](Result<wire::ListAnswer> answer) {
                        if (!answer) return done(failure(answer.error()));
                        if (pages_.size() == kMaxPages) pages_.pop_back();
                        pages_.push_front({match, std::move(*answer), mc::now_ns() + kPageNs});
                        answer_list(pages_.front(), match.after, done);
                      });
}

void ClusterNode::Verbs::answer_list(const ListedPage& page, const std::string& after,
                                     const Answer& done) const {
  const std::vector<wire::ListedKey>& keys = page.answer.keys;
  auto at = std::ranges::upper_bound(keys, after, {}, &wire::ListedKey::key);
  Json::Value value;
  value["objects"] = Json::Value(Json::arrayValue);
  value["cursor"] = "";
  for (std::size_t bytes = 0; at != keys.end() && bytes < kAnswerKeyBytes; ++at) {
    Json::Value object;
    object["key"] = escape_key(at->key);
    object["length"] = u64(at->bytes);
    value["objects"].append(std::move(object));
    bytes += at->key.size() + kAnswerKeyBytes / kMaxAnswerKeys;
  }
  if ((at != keys.end() || page.answer.more) && !keys.empty()) {
    value["cursor"] = escape_key(std::prev(at)->key);
  }
  value["unconfirmed"] = page.answer.unconfirmed;
  done(text_of(value));
}

void ClusterNode::Verbs::remove(const Json::Value& request, const Answer& done) {
  wire::Match match;
  match.name_space = request.get("namespace", "default").asString();
  const bool regex = request.isMember("regex");
  match.kind = regex ? wire::Match::Kind::kRegex : wire::Match::Kind::kPrefix;
  match.pattern = unescaped(request[regex ? "regex" : "prefix"]);
  if (match.pattern.size() > wire::kMaxPatternBytes) {
    return done(failure({MC_INVALID_ARGUMENT, "a pattern has at most 4,096 bytes"}));
  }
  const auto answer = [done](const Result<wire::RemoveMatchingAnswer>& removed) {
    if (!removed) return done(failure(removed.error()));
    Json::Value value;
    value["removed"] = u64(removed->removed);
    value["unconfirmed"] = removed->unconfirmed;
    value["away"] = removed->away;
    done(text_of(value));
  };
  if (request.get("local", false).asBool()) {
    ClusterTenant* const tenant = find_tenant(node_.tenants_, match.name_space);
    if (tenant == nullptr) return done(failure(Status(MC_NO_SUCH_NAMESPACE)));
    return node_.drop_matching(*tenant, match, {}, answer);
  }
  node_.masters_.remove_matching(match, walk_by_ns(request), answer);
}

// ---- Pings --------------------------------------------------------------------------------------

void ClusterNode::Verbs::ping(const Json::Value& request, const Answer& done) {
  const MemberId node = node_named(node_.peers_, request["node"]);
  if (node == 0 || !node_.peers_.id_of(node)) {
    return done(failure(
        {MC_INVALID_ARGUMENT, "no other member has that node id or address; see mcctl nodes"}));
  }
  if (pings_.size() >= kMaxPings) return done(failure({MC_BUSY, "64 pings are under way"}));
  const Ping ping{next_ping_++};
  const std::uint64_t now = mc::now_ns();
  pings_[ping.request] = {now, node, done};
  node_.peers_.tell(node, ping, now);
}

void ClusterNode::Verbs::on_pong(MemberId from, const Pong& pong) {
  const auto at = pings_.find(pong.request);
  if (at == pings_.end() || at->second.node != from) return;
  const std::uint64_t took_ns = mc::now_ns() - at->second.started_ns;
  const Answer done = std::move(at->second.done);
  pings_.erase(at);
  done("{\"round_trip_ns\":" + std::to_string(took_ns) + "}");
}

void ClusterNode::Verbs::poll(std::uint64_t now_ns) {
  for (auto at = pings_.begin(); at != pings_.end();) {
    if (now_ns < at->second.started_ns + kPingNs) {
      ++at;
      continue;
    }
    const Answer done = std::move(at->second.done);
    at = pings_.erase(at);
    done(R"({"error":"MC_TIMEOUT","code":4,"cause":"the peer did not answer within 2 s"})");
  }
  for (auto at = replicated_.begin(); at != replicated_.end();) {
    if (!at->brought->over() && now_ns < at->brought->deadline_ns) {
      ++at;
      continue;
    }
    const Replicated object = std::move(*at);
    at = replicated_.erase(at);
    end_replicated(object);
  }
}

}  // namespace mc::agent
