// SPDX-License-Identifier: Apache-2.0
#include "agent/admin/admin.h"

#include <json/reader.h>
#include <json/writer.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>

#include "libmc/base/clock.h"
#include "libmc/base/key_text.h"
#include "shm/messages.h"

namespace mc::agent {

namespace {

// Verbs that the cluster answers.
constexpr std::string_view kClusterVerbs[] = {"cluster",   "nodes", "where", "drain", "ping",
                                              "replicate", "rails", "copy",  "move",  "task"};
constexpr const char* kNoSuchNamespace = "no such namespace; see mcctl namespace list";
constexpr const char* kNotYours =
    "only root and the agent's user may make changes; run mcctl as one of these users";

// The counters page has room for these; sessions_open and the sums have all sessions.
constexpr std::size_t kMostSessions = 256;
// Channels whose pins are counted for a status: 8 KiB each. The rest would delay the loop.
constexpr std::size_t kMostPinLooks = 512;
// By shm::OwnCopies, for mcctl doctor.
constexpr const char* kOwnCopiesReasons[] = {"", "no_worker", "not_registered", "not_shared",
                                             "not_pinned"};
static_assert(std::size(kOwnCopiesReasons) == shm::kOwnCopiesKinds);
// By EvictionReason.
constexpr const char* kEvictionReasons[] = {"room", "capacity", "shrink", "group", "operator"};
static_assert(std::size(kEvictionReasons) == std::size(StoreCounters{}.evictions_for));
// By shm::Op.
constexpr const char* kOpNames[] = {"noop",    "reserve", "put",     "put_staged",
                                    "abandon", "remove",  "set_pin", "cancel",
                                    "fetch",   "exists",  "check"};
static_assert(std::size(kOpNames) == RequestCounters::kOps);
constexpr std::size_t kListLimit = 256;
constexpr std::size_t kListBytes = 128 * 1024;
constexpr std::uint64_t kMaxCapacityBytes = 1ull << 60;
constexpr std::size_t kMostEvents = 64;  // of an answer

Json::Value u64(std::uint64_t value) { return Json::Value(Json::UInt64{value}); }

Json::Value failure(mc_status code, const std::string& cause) {
  Json::Value value;
  value["error"] = mc_status_name(code);
  value["code"] = static_cast<int>(code);
  value["cause"] = cause;
  return value;
}

Json::Value failure(const Status& status) {
  return failure(status.code(), std::string(status.text()));
}

Status too_large(std::uint64_t max_bytes) {
  return {MC_INVALID_ARGUMENT,
          "pool_bytes must lie between 1 MiB and the segment's max_bytes, " +
              std::to_string(max_bytes) +
              "; to go beyond, restart the agent with a larger max_pool_bytes"};
}

std::string text_of(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  return Json::writeString(builder, value);
}

Json::Value value_of(const std::string& text) {
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value value;
  std::string errors;
  reader->parse(text.data(), text.data() + text.size(), &value, &errors);
  return value;
}

std::uint64_t number(const Json::Value& request, const char* name) {
  const Json::Value& value = request[name];
  return value.isUInt64() ? value.asUInt64() : 0;
}

std::string word(const Json::Value& request, const char* name) {
  const Json::Value& value = request[name];
  return value.isString() ? value.asString() : std::string();
}

constexpr const char* kNoCursor =
    "cursor is the one of an earlier answer; leave it out at the beginning";

// Where a listing of a namespace with objects on disks goes on.
struct ListCursor {
  std::uint64_t pool = 0;     // of ObjectStore::list(); with a listing, the number of the page
  std::uint64_t since = 0;    // the pool's next sequence at the first page
  std::uint64_t listing = 0;  // of DiskListings; 0: the pool comes first
};

std::string text_of(const ListCursor& cursor) {
  return std::to_string(cursor.pool) + "." + std::to_string(cursor.since) + "." +
         std::to_string(cursor.listing);
}

// An empty text begins a listing. Nothing: the text is no cursor.
std::optional<ListCursor> list_cursor(const std::string& text) {
  ListCursor cursor;
  if (text.empty()) return cursor;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::uint64_t* const number : {&cursor.pool, &cursor.since, &cursor.listing}) {
    const auto [next, error] = std::from_chars(at, end, *number);
    const bool last = number == &cursor.listing;
    if (error != std::errc() || (last ? next != end : next == end || *next != '.')) return {};
    at = last ? end : next + 1;
  }
  return cursor;
}

}  // namespace

void Admin::answer(std::string_view text, const PeerCredentials& peer,
                   const Cluster::Answer& done) {
  Json::CharReaderBuilder builder;
  Json::CharReaderBuilder::strictMode(&builder.settings_);
  builder["stackLimit"] = 16;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value request;
  std::string errors;
  bool parsed = false;
  try {
    parsed = reader->parse(text.data(), text.data() + text.size(), &request, &errors);
  } catch (const Json::Exception& error) {  // jsoncpp reports nesting beyond stackLimit this way
    errors = error.what();
  }
  if (!parsed || !request.isObject()) {
    done(text_of(failure(MC_INVALID_ARGUMENT, "the request is not a JSON object: " + errors)));
    return;
  }
  try {
    answer_object(request, text, peer, done);
  } catch (const Json::Exception& error) {  // a value of a wrong type, found before any change
    done(text_of(failure(MC_INVALID_ARGUMENT,
                         std::string("a value of the request has a wrong type: ") + error.what())));
  }
}

void Admin::answer_object(const Json::Value& request, std::string_view text,
                          const PeerCredentials& peer, const Cluster::Answer& done) {
  const std::string verb = word(request, "verb");
  if (verb == "ls" || verb == "rm") return answer_about_keys(request, text, peer, done);
  if (std::find(std::begin(kClusterVerbs), std::end(kClusterVerbs), verb) ==
      std::end(kClusterVerbs)) {
    done(answer_now(verb, request, peer));
    return;
  }
  if ((verb == "drain" || verb == "replicate") && !may_change_pools(peer.uid)) {
    done(text_of(failure(MC_PERMISSION_DENIED, kNotYours)));
    return;
  }
  // Only the users of a namespace may see and move its objects.
  if (verb == "where" || verb == "copy" || verb == "move") {
    const auto tenant = at_.namespaces.find(request.get("namespace", "default").asString());
    if (!tenant || !at_.namespaces.admits(peer, tenant.get())) {
      return done(text_of(failure(MC_NO_SUCH_NAMESPACE, kNoSuchNamespace)));
    }
  }
  if (at_.cluster == nullptr) {
    done(text_of(
        failure(MC_UNSUPPORTED,
                "this agent has no cluster; start the agent with --masters or --cluster-store")));
    return;
  }
  at_.cluster->ask(verb, text, done);
}

std::string Admin::answer_now(std::string_view verb, const Json::Value& request,
                              const PeerCredentials& peer) {
  if (verb == "status") return text_of(status());
  if (verb == "segments") return text_of(segments());
  if (verb == "config") return text_of(config());
  if (verb == "trace") return text_of(trace(request, peer));
  if (!may_change_pools(peer.uid)) return text_of(failure(MC_PERMISSION_DENIED, kNotYours));
  if (verb == "events") return text_of(recent_events(request));
  if (verb == "resize") return text_of(resize(request));
  if (verb == "contribute") return text_of(contribute(request, peer));
  if (verb == "create_namespace") return text_of(create_namespace(request));
  if (verb == "drop_namespace") return text_of(drop_namespace(request));
  if (verb == "set_capacity") return text_of(set_capacity(request));
  if (verb == "evict") return text_of(evict(request));
  return text_of(failure(MC_UNSUPPORTED, "this agent has no verb '" + std::string(verb) +
                                             "'; mcctl and the agent may differ in version"));
}

std::string Admin::counters_text() { return text_of(status()); }

Json::Value Admin::status() {
  Json::Value value;
  value["version"] = mc_version();
  value["pid"] = ::getpid();
  value["uptime_s"] = u64((now_ns() - at_.started_ns) / 1000000000u);
  value["node_id"] = std::to_string(at_.node.node_id());
  value["incarnation"] = std::to_string(at_.node.incarnation());
  value["socket"] = at_.options.options.socket;
  value["ready"] = true;
  if (at_.cluster != nullptr) {
    value["cluster"] = value_of(at_.cluster->status_text());
    value["cluster"]["id"] = at_.options.options.cluster_id;
  }
  value["namespaces"] = Json::Value(Json::arrayValue);
  for (const auto& [name, tenant] : at_.namespaces.all()) {
    value["namespaces"].append(tenant_status(*tenant));
  }
  std::uint64_t reserved_bytes = 0, pins = 0;
  std::size_t looks_left = kMostPinLooks;
  bool all_pins = true;
  value["sessions"] = Json::Value(Json::arrayValue);
  for (const auto& [id, session] : at_.sessions.all()) {
    std::optional<std::uint64_t> held;
    if (const std::size_t looks = session->opened_channels(); looks <= looks_left) {
      looks_left -= looks;
      held = session->pinned_count();
    }
    all_pins &= held.has_value();
    pins += held.value_or(0);
    reserved_bytes += session->reserved_bytes();
    if (value["sessions"].size() < kMostSessions) {
      value["sessions"].append(session_status(*session, held));
    }
  }
  value["sessions_open"] = u64(at_.sessions.all().size());
  value["session_reserved_bytes"] = u64(reserved_bytes);
  if (all_pins) value["session_pins"] = u64(pins);
  if (at_.tier != nullptr) value["tier"] = tier();
  value["gpu_workers"] = gpu_workers();
  value["requests"] = requests();
  value["loop"] = loop();
  return value;
}

Json::Value Admin::gpu_workers() const {
  Json::Value workers(Json::arrayValue);
  for (const GpuWorkers::Report& report : at_.gpu_workers.reports()) {
    Json::Value& worker = workers.append({});
    worker["gpu"] = device::text_of(report.device);
    worker["pid"] = report.pid;
    worker["clients"] = u64(report.clients);
    worker["requests"] = u64(report.counters.requests);
    worker["bytes_to_device"] = u64(report.counters.bytes_to_device);
    worker["bytes_from_device"] = u64(report.counters.bytes_from_device);
    worker["allocations"] = u64(report.counters.imports);
    worker["allocations_opened"] = u64(report.counters.opened);
    worker["pinned_bytes"] = u64(report.counters.pinned_bytes);
  }
  return workers;
}

Json::Value Admin::tier() const {
  const tier::Log& log = at_.tier->log();
  Json::Value value;
  value["objects"] = u64(log.object_count());
  value["memory_bytes"] = u64(log.memory_bytes());
  value["recovering"] = log.recovering();
  const Demoter::Counters& demotions = at_.tiered_pools->demotions();
  value["demoted"] = u64(demotions.objects);
  value["demoted_bytes"] = u64(demotions.bytes);
  value["demoting_bytes"] = u64(demotions.on_the_way_bytes);
  value["demoted_before"] = u64(demotions.same);
  value["lost_busy"] = u64(demotions.busy);
  value["lost_endurance"] = u64(demotions.saving);
  value["lost_too_large"] = u64(demotions.too_large);
  value["lost_stripes"] = u64(demotions.stripes);
  value["lost_no_disk"] = u64(demotions.no_disk);
  value["lost_failed"] = u64(demotions.failed);
  const TierReads::Counters& reads = at_.tiered_pools->reads();
  value["read"] = u64(reads.objects);
  value["read_bytes"] = u64(reads.bytes);
  value["promoted"] = u64(reads.promoted);
  value["served_on_the_way"] = u64(reads.on_the_way);
  value["misses"] = u64(reads.misses);
  value["reads_not_ready"] = u64(reads.not_ready);
  value["reads_damaged"] = u64(reads.damaged);
  value["reads_failed"] = u64(reads.failed);
  value["reads_no_room"] = u64(reads.no_room);
  value["read_durations"] = durations_json(reads.durations);
  value["disks"] = Json::Value(Json::arrayValue);
  for (const auto& [disk, engine, cache] : at_.tier->report()) {
    Json::Value row;
    row["path"] = disk.name;
    row["state"] = std::string(tier::name_of(disk.state));
    row["serving"] = disk.state == tier::DiskState::kServing;
    if (!disk.text.empty()) row["problem"] = disk.text;
    if (!disk.emptied.empty()) row["emptied"] = disk.emptied;
    if (!engine.empty()) row["io"] = engine + ", " + cache;
    row["bytes"] = u64(disk.bytes);
    row["live_bytes"] = u64(disk.live_bytes);
    row["segments"] = disk.segments;
    row["free_segments"] = disk.free_segments;
    row["puts"] = u64(disk.log.puts);
    row["put_bytes"] = u64(disk.log.new_bytes);
    row["written_bytes"] = u64(disk.log.written_bytes);
    row["copied_bytes"] = u64(disk.cleaner.copied_bytes);
    row["reads"] = u64(disk.log.reads);
    row["removals"] = u64(disk.log.removals);
    row["dropped"] = u64(disk.cleaner.dropped);
    row["damaged"] = u64(disk.log.damaged + disk.cleaner.damaged);
    row["failed"] = u64(disk.log.failed + disk.cleaner.failed);
    row["recovered"] = u64(disk.recovery.objects);
    value["disks"].append(row);
  }
  return value;
}

// For each operation that was requested: the number of requests by status, and the durations of
// those that have waited.
Json::Value Admin::requests() {
  const RequestCounters& counters = at_.server.counters();
  Json::Value value(Json::objectValue);
  for (std::size_t op = 0; op < RequestCounters::kOps; ++op) {
    Json::Value ended(Json::objectValue);
    for (std::size_t code = 0; code < RequestCounters::kStatuses; ++code) {
      const std::uint64_t count = counters.ended[op][code];
      if (count != 0) ended[mc_status_name(static_cast<mc_status>(code))] = u64(count);
    }
    if (ended.empty()) continue;
    Json::Value& of = value[kOpNames[op]];
    of["ended"] = std::move(ended);
    of["waited"] = durations_json(counters.waited[op]);
  }
  return value;
}

// By cause, how long the loop was busy without a look at its other work.
Json::Value Admin::loop() {
  Json::Value value(Json::objectValue);
  for (std::size_t i = 0; i < LoopTimes::kNames.size(); ++i) {
    Json::Value& of = value[LoopTimes::kNames[i]];
    of["busy"] = durations_json(at_.loop_times.durations[i]);
    of["longest_ns"] = u64(at_.loop_times.longest_ns[i]);
  }
  return value;
}

Json::Value Admin::tenant_status(const Tenant& tenant) {
  ObjectStore& store = *tenant.store;
  const StoreCounters& counters = store.counters();
  Json::Value value;
  value["name"] = tenant.name;
  value["mode"] = tenant.isolated ? "isolated" : "direct";
  value["clustered"] = tenant.clustered;
  value["configured"] = !tenant.temporary;
  value["policy"] = std::string(store.policy_name());
  value["pool_bytes"] = u64(store.pool().target_bytes());
  value["reserved_bytes"] = u64(store.pool().reserved_bytes());
  value["used_bytes"] = u64(store.pool().used_bytes());
  value["live_bytes"] = u64(store.live_bytes());
  const std::uint64_t capacity = store.capacity_bytes();
  value["capacity_bytes"] = u64(capacity == ~std::uint64_t{0} ? 0 : capacity);
  value["objects"] = u64(store.live_count());
  value["limbo"] = u64(store.limbo_count());
  value["limbo_bytes"] = u64(store.limbo_bytes());
  value["reservations"] = u64(store.reserved_count());
  value["index_bytes"] = u64(store.bookkeeping_bytes());
  value["puts"] = u64(counters.puts);
  value["put_bytes"] = u64(counters.put_bytes);
  value["put_existing"] = u64(counters.put_existing);
  value["evictions"] = u64(counters.evictions);
  for (std::size_t i = 0; i < std::size(kEvictionReasons); ++i) {
    value["evictions_for"][kEvictionReasons[i]] = u64(counters.evictions_for[i]);
  }
  value["evicted_bytes"] = u64(counters.evicted_bytes);
  value["removes"] = u64(counters.removes);
  value["moves"] = u64(counters.moves);
  value["no_space"] = u64(counters.no_space);
  value["touches"] = u64(counters.touches);
  value["hits"] = u64(tenant.reads.hits);
  value["misses"] = u64(tenant.reads.misses);
  value["hit_bytes"] = u64(tenant.reads.hit_bytes);
  value["device_copies"]["worker_bytes"] = u64(tenant.device_counts.worker_bytes);
  value["device_copies"]["own_bytes"] = u64(tenant.device_counts.own_bytes);
  value["recovered"] = u64(counters.recovered);
  value["set_aside"] = u64(counters.set_aside);
  value["verified"] = u64(counters.verified);
  value["corrupt"] = u64(counters.corrupt);
  value["reported"] = u64(counters.reported);
  return value;
}

Json::Value Admin::session_status(const Session& session, std::optional<std::uint64_t> pins) {
  Json::Value value;
  value["id"] = u64(session.id);
  value["pid"] = session.pid;
  value["uid"] = session.uid;
  value["label"] = session.label;
  value["namespace"] = session.tenant->name;
  Json::UInt open = 0;
  shm::OwnCopies own_copies = shm::OwnCopies::kNone;
  for (const ChannelState& channel : session.channels) {
    open += channel.open ? 1 : 0;
    if (own_copies == shm::OwnCopies::kNone) own_copies = channel.own_copies;
  }
  value["channels"] = open;
  value["connected"] = session.connection_fd >= 0;
  value["suspected"] = session.suspected;
  value["reserved_bytes"] = u64(session.reserved_bytes());
  value["reservations"] = u64(session.reserved().size());
  value["staging_bytes"] = u64(session.staging_bytes());
  value["contributed_bytes"] = u64(session.header()->contributed_bytes.load_relaxed());
  value["device_copies"]["worker_bytes"] = u64(session.device_counts.worker_bytes);
  value["device_copies"]["own_bytes"] = u64(session.device_counts.own_bytes);
  value["device_copies"]["own_because"] = kOwnCopiesReasons[static_cast<std::size_t>(own_copies)];
  if (pins) value["pinned_objects"] = u64(*pins);
  value["requests"] = u64(session.request_count);
  value["bad_requests"] = u64(session.bad_request_count);
  value["age_s"] = u64((now_ns() - session.opened_ns) / 1000000000u);
  return value;
}

// Listings and removals concern the whole cluster, unless the request or the namespace is local.
void Admin::answer_about_keys(const Json::Value& request, std::string_view text,
                              const PeerCredentials& peer, const Cluster::Answer& done) {
  const auto tenant = at_.namespaces.find(word(request, "namespace"));
  // Only the users of a namespace may see its keys. Other users get the answer for an unknown
  // namespace.
  if (!tenant || !at_.namespaces.admits(peer, tenant.get())) {
    return done(text_of(failure(MC_NO_SUCH_NAMESPACE, kNoSuchNamespace)));
  }
  const bool lists = word(request, "verb") == "ls";
  const bool shared = tenant->clustered && at_.cluster != nullptr;
  if (!shared && !lists) {
    return done(text_of(failure(
        MC_UNSUPPORTED, "no cluster shares this namespace; remove the keys that ls names")));
  }
  if (!shared || (lists && request.get("local", false).asBool())) {
    return list(*tenant, request, done);
  }
  at_.cluster->ask(word(request, "verb"), text, done);
}

// First the pages with objects of the pool, then the pages with objects on disks, which leave out objects that the
// first ones have named.
void Admin::list(const Tenant& tenant, const Json::Value& request, const Cluster::Answer& done) {
  const auto prefix = unescape_key(word(request, "prefix"));
  if (!prefix) {
    return done(
        text_of(failure(MC_INVALID_ARGUMENT, "prefix has a % without two digits; write %25")));
  }
  const bool has_disks = tenant.on_disks && at_.tiered_pools != nullptr;
  ListCursor at{.pool = number(request, "cursor")};
  const std::string text = word(request, "cursor");
  const auto given = list_cursor(text);
  if (has_disks ? !given || at.pool != 0 : !text.empty()) {
    return done(text_of(failure(MC_INVALID_ARGUMENT, kNoCursor)));
  }
  if (has_disks) at = *given;
  const std::uint64_t wanted = number(request, "limit");
  std::size_t limit = wanted == 0 || wanted > kListLimit ? kListLimit : wanted;
  // The limit shrinks so that an answer of objects with the longest keys still fits.
  limit = std::min(limit, kListBytes / (3 * MC_MAX_KEY_BYTES + 128));
  if (at.listing != 0) return list_disks(tenant, {at.listing, at.pool}, limit, done);
  if (at.since == 0) at.since = tenant.store->index().header().next_sequence.load_relaxed();
  Json::Value value;
  value["objects"] = Json::Value(Json::arrayValue);
  for (const ListedObject& object : tenant.store->list(*prefix, limit, at.pool)) {
    // A stripe of an object that lies on several hosts.
    if (object.key.starts_with(shm::kStripePrefix)) continue;
    Json::Value item;
    item["key"] = escape_key(object.key);
    item["length"] = u64(object.length);
    item["version"] = std::to_string(object.version);
    item["pin"] = object.pin == MC_PIN_HARD ? "hard" : object.pin == MC_PIN_SOFT ? "soft" : "none";
    item["extents"] = object.extent_count;
    item["group"] = object.group;
    if (has_disks) item["tier"] = "pool";
    value["objects"].append(item);
  }
  if (has_disks && at.pool == 0) {
    const auto listing = at_.tiered_pools->begin_listing(tenant, *prefix, at.since, now_ns());
    if (!listing) return done(text_of(failure(MC_BUSY, "16 listings read the disks; list again")));
    at.listing = *listing;
  }
  value["cursor"] = has_disks ? Json::Value(text_of(at)) : u64(at.pool);
  done(text_of(value));
}

void Admin::list_disks(const Tenant& tenant, DiskListings::PageId id, std::size_t limit,
                       const Cluster::Answer& done) {
  const auto answer = [id, done](const std::optional<DiskListings::Page>& found) {
    if (!found) {
      return done(text_of(failure(MC_BUSY, "the agent has ended this listing; list again")));
    }
    Json::Value value;
    value["objects"] = Json::Value(Json::arrayValue);
    for (const DiskListings::Object& object : found->objects) {
      Json::Value item;
      item["key"] = escape_key(object.key);
      item["length"] = u64(object.length);
      item["version"] = "-";
      item["pin"] = "none";
      item["extents"] = 0;
      item["group"] = 0;
      item["tier"] = "disk";
      value["objects"].append(item);
    }
    value["cursor"] =
        found->more ? text_of(ListCursor{.pool = id.page + 1, .listing = id.listing}) : "";
    done(text_of(value));
  };
  at_.tiered_pools->next_page(tenant, id, limit, now_ns(), answer);
}

Json::Value Admin::segment(const Tenant& tenant) {
  ExtentPool& pool = tenant.store->pool();
  Json::Value value;
  value["namespace"] = tenant.name;
  value["mode"] = tenant.isolated ? "isolated" : "direct";
  value["pool_bytes"] = u64(pool.target_bytes());
  value["target_bytes"] = u64(pool.target_bytes());
  value["reserved_bytes"] = u64(pool.reserved_bytes());
  value["used_bytes"] = u64(pool.used_bytes());
  value["max_bytes"] = u64(pool.max_bytes());
  value["resident_bytes"] = u64(pool.file().resident_bytes());
  value["arenas"] = u64(pool.arena_count());
  value["huge_pages"] = pool.file().huge();
  value["own_bytes"] = u64(tenant.own_pool_bytes);
  value["contributed_bytes"] = u64(tenant.contributions.bytes());
  value["settled"] = !pool.shrinking() && !pool.growing();
  if (pool.shrinking()) value["waits_for"] = waits_for(tenant);
  if (!pool.growth_status().ok()) value["problem"] = std::string(pool.growth_status().text());
  return value;
}

// Lists the obstacles of a shrink: reservations of clients, and objects with readers.
Json::Value Admin::waits_for(const Tenant& tenant) {
  Json::Value value;
  value["being_read_bytes"] = u64(tenant.store->limbo_tail_bytes());
  value["sessions"] = Json::Value(Json::arrayValue);
  for (const auto& [id, session] : at_.sessions.all()) {
    if (session->tenant.get() != &tenant) continue;
    const std::uint64_t bytes = session->reserved_in_tail_bytes();
    if (bytes == 0) continue;
    Json::Value item;
    item["id"] = u64(id);
    item["pid"] = session->pid;
    item["label"] = session->label;
    item["connected"] = session->connection_fd >= 0;
    item["reserved_bytes"] = u64(bytes);
    value["sessions"].append(item);
  }
  return value;
}

Json::Value Admin::segments() {
  Json::Value value;
  value["segments"] = Json::Value(Json::arrayValue);
  for (const auto& [name, tenant] : at_.namespaces.all())
    value["segments"].append(segment(*tenant));
  return value;
}

Status Admin::may_have(const Tenant& tenant, std::uint64_t pool_bytes) {
  const ExtentPool& pool = tenant.store->pool();
  if (pool_bytes < (1u << 20) || pool_bytes > pool.max_bytes()) return too_large(pool.max_bytes());
  if (pool_bytes > pool.target_bytes() &&
      pool_bytes - pool.target_bytes() > available_memory_bytes()) {
    return {MC_NO_MEMORY, "only " + std::to_string(available_memory_bytes() >> 20) +
                              " MiB of memory are available on this host"};
  }
  return {};
}

Json::Value Admin::resize(const Json::Value& request) {
  const auto tenant = at_.namespaces.find(word(request, "namespace"));
  if (!tenant) return failure(MC_NO_SUCH_NAMESPACE, kNoSuchNamespace);
  const std::uint64_t bytes = number(request, "pool_bytes");
  if (Status status = may_have(*tenant, bytes); !status.ok()) return failure(status);
  if (const std::uint64_t contributed = tenant->contributions.bytes(); bytes < contributed) {
    return failure(MC_INVALID_ARGUMENT,
                   "processes contribute " + std::to_string(contributed >> 20) +
                       " MiB to this pool, which cannot be smaller; stop some of them first");
  }
  spdlog::info("event=pool_resized namespace={} from_bytes={} to_bytes={}", tenant->name,
               tenant->store->pool().target_bytes(), bytes);
  at_.namespaces.resize(*tenant, bytes);
  return segment(*tenant);
}

// A session adds memory for objects to the pool of the session's namespace, and tells the size of the
// largest object of another host that the session reads.
Json::Value Admin::contribute(const Json::Value& request, const PeerCredentials& peer) {
  Session* const session = at_.sessions.find(number(request, "session"));
  if (session == nullptr || session->pid != peer.pid || session->uid != peer.uid) {
    return failure(MC_SESSION_LOST, "this process has no such session; open a new client");
  }
  if (!request["bytes"].isUInt64() || !request["buffer_bytes"].isUInt64()) {
    return failure(MC_INVALID_ARGUMENT, "bytes and buffer_bytes must be whole numbers, 0 or more");
  }
  const Contributions::Part part{number(request, "bytes"), number(request, "buffer_bytes")};
  Tenant& tenant = *session->tenant;
  const std::uint64_t most = tenant.store->pool().max_bytes();
  if (part.bytes > most || part.buffer_bytes > most) return failure(too_large(most));
  Contributions with = tenant.contributions;
  with.set(session->id, part);
  const std::uint64_t wanted = tenant.pool_bytes_with(with);
  if (wanted > tenant.store->pool().target_bytes()) {
    if (Status status = may_have(tenant, wanted); !status.ok()) return failure(status);
  }
  session->unused = false;  // the memory stays if the process dies
  session->header()->contributed_bytes.store_relaxed(part.bytes);
  session->header()->contributed_buffer_bytes.store_relaxed(part.buffer_bytes);
  tenant.contributions = with;
  at_.namespaces.fit(tenant);
  return segment(tenant);
}

Json::Value Admin::create_namespace(const Json::Value& request) {
  NamespaceOptions options;
  options.name = word(request, "name");
  options.pool_bytes = number(request, "pool_bytes");
  options.capacity_bytes = number(request, "capacity_bytes");
  options.policy = word(request, "policy");
  options.isolated = word(request, "mode") == "isolated";
  options.local = !request.get("clustered", false).asBool();
  const std::uint64_t drop_unused_s = number(request, "drop_unused_s");
  const bool plain = !options.name.empty() && options.name.size() <= MC_MAX_NAMESPACE_BYTES &&
                     options.name.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTU"
                         "VWXYZ0123456789._-") == std::string::npos;
  if (!plain) {
    return failure(MC_INVALID_ARGUMENT, "a namespace's name has 1 to 64 of A-Z a-z 0-9 . _ -");
  }
  if (at_.namespaces.find(options.name)) {
    return failure(MC_INVALID_ARGUMENT,
                   "namespace '" + options.name +
                       "' exists already; choose another name, or change it with mcctl segment "
                       "resize and mcctl namespace quota");
  }
  if (options.pool_bytes != 0 && options.pool_bytes < (1u << 20)) {
    return failure(MC_INVALID_ARGUMENT, "pool_bytes must be at least 1 MiB");
  }
  auto tenant = at_.namespaces.open(options, true);
  if (!tenant) return failure(tenant.error());
  spdlog::info("event=namespace_created namespace={} pool_bytes={} capacity_bytes={}", options.name,
               options.pool_bytes, options.capacity_bytes);
  (*tenant)->store->index().header().drop_unused_s.store_relaxed(drop_unused_s);
  return segment(**tenant);
}

Json::Value Admin::drop_namespace(const Json::Value& request) {
  const auto tenant = at_.namespaces.find(word(request, "name"));
  if (!tenant) return failure(MC_NO_SUCH_NAMESPACE, kNoSuchNamespace);
  if (!tenant->temporary) {
    return failure(MC_INVALID_ARGUMENT,
                   "the configuration defines this namespace; remove the namespace there, and "
                   "restart the agent");
  }
  spdlog::info("event=namespace_dropped namespace={} objects={}", tenant->name,
               tenant->store->live_count());
  const auto sessions = std::ranges::count_if(
      at_.sessions.all(), [&](const auto& entry) { return entry.second->tenant == tenant; });
  at_.end_sessions_of(*tenant);
  if (at_.sessions.any_of(*tenant)) {
    return failure(MC_BUSY, "a GPU worker still copies for a client of this namespace; ask again");
  }
  at_.namespaces.drop(tenant->name);
  Json::Value value;
  value["sessions_ended"] = u64(static_cast<std::uint64_t>(sessions));
  return value;
}

Json::Value Admin::set_capacity(const Json::Value& request) {
  const auto tenant = at_.namespaces.find(word(request, "namespace"));
  if (!tenant) return failure(MC_NO_SUCH_NAMESPACE, kNoSuchNamespace);
  if (!request["capacity_bytes"].isUInt64()) {
    return failure(MC_INVALID_ARGUMENT, "capacity_bytes must be a whole number; 0: no limit");
  }
  const std::uint64_t bytes = number(request, "capacity_bytes");
  if (bytes > kMaxCapacityBytes) {
    return failure(MC_INVALID_ARGUMENT, "a capacity has at most 1 EiB; 0: no limit");
  }
  spdlog::info("event=capacity_set namespace={} capacity_bytes={}", tenant->name, bytes);
  at_.namespaces.set_capacity(*tenant, bytes);
  return tenant_status(*tenant);
}

// A bounded step: mcctl asks again until the pool has the free bytes or no object can be evicted.
Json::Value Admin::evict(const Json::Value& request) {
  const auto tenant = at_.namespaces.find(word(request, "namespace"));
  if (!tenant) return failure(MC_NO_SUCH_NAMESPACE, kNoSuchNamespace);
  ObjectStore& store = *tenant->store;
  const std::uint64_t wanted = number(request, "free_bytes");
  if (wanted == 0 || wanted > store.pool().reserved_bytes()) {
    return failure(MC_INVALID_ARGUMENT, "free_bytes lies between 1 and the size of the pool, " +
                                            std::to_string(store.pool().reserved_bytes()) +
                                            "; see mcctl segment list");
  }
  const StoreCounters before = store.counters();
  const ObjectStore::Evicting state = store.evict_towards(wanted);
  Json::Value value;
  value["evicted"] = u64(store.counters().evictions - before.evictions);
  value["evicted_bytes"] = u64(store.counters().evicted_bytes - before.evicted_bytes);
  value["free_bytes"] = u64(store.free_bytes());
  value["waiting_for_readers_bytes"] = u64(store.limbo_bytes());
  value["done"] = state == ObjectStore::Evicting::kDone;
  value["exhausted"] = state == ObjectStore::Evicting::kExhausted;
  return value;
}

// Why a key has no object here: the key's latest departure.
Json::Value Admin::trace(const Json::Value& request, const PeerCredentials& peer) {
  const auto tenant = at_.namespaces.find(word(request, "namespace"));
  if (!tenant || !at_.namespaces.admits(peer, tenant.get())) {
    return failure(MC_NO_SUCH_NAMESPACE, kNoSuchNamespace);
  }
  const auto key = unescape_key(word(request, "key"));
  if (!key || key->empty()) return failure(MC_INVALID_ARGUMENT, "a trace needs a key");
  ObjectStore& store = *tenant->store;
  const std::uint64_t hash = store.index().hash(*key);
  const Departures& departures = store.departures();
  const std::uint64_t now = now_ns();
  Json::Value value;
  value["here"] = store.index().find(*key, hash).has_value();
  if (const auto departure = departures.find(hash)) {
    value["departure"]["reason"] = std::string(departure->reason);
    value["departure"]["ago_ms"] = u64((now - departure->at_ns) / 1000000u);
  }
  value["departures_known_for_ms"] = u64((now - departures.complete_since_ns()) / 1000000u);
  return value;
}

Json::Value Admin::recent_events(const Json::Value& request) {
  if (at_.recent_events == nullptr) {
    return failure(MC_UNSUPPORTED, "this agent runs inside another process, which has the log");
  }
  const std::uint64_t after = number(request, "after");
  const std::uint64_t wanted = number(request, "limit");
  const std::size_t most = wanted == 0 || wanted > kMostEvents ? kMostEvents : wanted;
  Json::Value value;
  value["incarnation"] = std::to_string(at_.node.incarnation());
  value["latest"] = u64(at_.recent_events->latest());
  value["events"] = Json::Value(Json::arrayValue);
  for (const log::RecentEvents::Event& event : at_.recent_events->after(after, most)) {
    Json::Value item;
    item["number"] = u64(event.number);
    item["time_ms"] = u64(event.wall_ms);
    item["level"] = event.level;
    item["line"] = event.line;
    value["events"].append(std::move(item));
  }
  return value;
}

Json::Value Admin::config() {
  Json::Value value;
  value["options"] = Json::Value(Json::arrayValue);
  for (const OptionText& option : at_.options.text) {
    Json::Value item;
    item["name"] = option.name;
    item["value"] = option.value;
    item["default"] = option.default_value;
    item["source"] = option.source;
    item["help"] = option.help;
    value["options"].append(item);
  }
  return value;
}

}  // namespace mc::agent
