// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/http/admin_pages.h"

#include <fmt/format.h>
#include <json/json.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <charconv>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "libmc/base/clock.h"
#include "metadata/wire/wire_limits.h"

namespace mc::metadata {

namespace {

using http::HttpAnswer;
using http::HttpDone;
using http::HttpRequest;

constexpr const char* kJson = "application/json; charset=utf-8";
constexpr const char* kMetrics = "text/plain; version=0.0.4";
// Mooncake's error codes.
constexpr int kSegmentNotFound = -101;
constexpr int kInvalidParams = -600;
constexpr int kObjectNotFound = -704;
constexpr int kRpcFail = -900;
constexpr int kUnavailableInStatus = -1010;
constexpr int kUnavailableInMode = -1011;
constexpr int kJobNotFound = -1402;

std::string parameter(const HttpRequest& request, const char* name,
                      const std::string& otherwise = "") {
  const auto found = request.query.find(name);
  return found == request.query.end() ? otherwise : found->second;
}

HttpAnswer json(const Json::Value& value, unsigned status = 200) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  return {.status = status, .type = kJson, .body = Json::writeString(builder, value)};
}

HttpAnswer refusal(unsigned status, int code, const char* name, const std::string& reason = "") {
  Json::Value value;
  value["success"] = false;
  value["error_code"] = code;
  value["error_message"] = name;
  if (!reason.empty()) value["reason"] = reason;
  return json(value, status);
}

HttpAnswer failure(const Status& why) {
  return refusal(503, kRpcFail, "RPC_FAIL", std::string(why.text()));
}

HttpAnswer invalid(const std::string& reason) {
  return refusal(400, kInvalidParams, "INVALID_PARAMS", reason);
}

Json::Value text_or_null(const std::string& text) {
  return text.empty() ? Json::Value() : Json::Value(text);
}
Json::Value leader_facts(const MasterReport& report) {
  Json::Value value;
  value["leader_address"] = text_or_null(report.leader);
  value["view_version"] = report.leads ? Json::Value(report.epoch) : Json::Value();
  return value;
}

const wire::MemberInfo* find_segment(const MasterReport& report, const std::string& name) {
  const auto found = std::ranges::find(
      report.members, name, [](const wire::MemberInfo& one) { return one.descriptor.address; });
  return found == report.members.end() ? nullptr : &*found;
}

bool is_drained(const wire::MemberInfo& member) {
  return member.draining && member.used_bytes == 0;
}
const char* status_name(const wire::MemberInfo& member) {
  return is_drained(member) ? "DRAINED" : member.draining ? "DRAINING" : "OK";
}

Json::Value segment_detail(const wire::MemberInfo& member) {
  const Descriptor& about = member.descriptor;
  const std::string id = fmt::format("{}-{}", about.node, about.incarnation);
  Json::Value value;
  value["segment_name"] = about.address;
  value["segment_id"] = id;
  value["client_id"] = id;
  value["base_address"] = "0x0";
  value["size_bytes"] = Json::UInt64{about.capacity_bytes};
  value["size_human"] =
      fmt::format("{} GiB", static_cast<double>(about.capacity_bytes) / (1 << 30));
  value["te_endpoint"] = about.address;
  value["protocol"] = "tcp";
  value["status"] = status_name(member);
  value["allocator_used_bytes"] = Json::UInt64{member.used_bytes};
  value["allocator_capacity_bytes"] = Json::UInt64{about.capacity_bytes};
  value["allocator_usage_percent"] = percent(member.used_bytes, about.capacity_bytes);
  return value;
}

Json::Value replicas(const MasterReport& report, const Leaders::KeyPlace& place) {
  Json::Value values(Json::arrayValue);
  for (const NodeId node : place.holders) {
    const auto member = std::ranges::find(
        report.members, node, [](const wire::MemberInfo& one) { return one.descriptor.node; });
    if (member == report.members.end()) continue;
    Json::Value value;
    value["size_"] = Json::UInt64{place.bytes};
    value["buffer_address_"] = 0;
    value["protocol_"] = "tcp";
    value["transport_endpoint_"] = member->descriptor.address;
    values.append(std::move(value));
  }
  return values;
}

const char* error_name(const Leaders::KeyPlace& place) {
  return place.state == Lookup::kRecovering ? "UNAVAILABLE_IN_CURRENT_STATUS" : "OBJECT_NOT_FOUND";
}

HttpAnswer one_key(const MasterReport& report, const Leaders::KeyPlace& place) {
  if (place.state == Lookup::kRecovering) {
    return refusal(503, kUnavailableInStatus, error_name(place),
                   "not all agents have reported their objects yet; try again");
  }
  if (place.state != Lookup::kFound) return refusal(404, kObjectNotFound, error_name(place));
  Json::Value value;
  value["success"] = true;
  value["data"] = replicas(report, place);
  return json(value);
}

HttpAnswer many_keys(const MasterReport& report, const std::vector<std::string>& names,
                     const std::vector<Leaders::KeyPlace>& places) {
  Json::Value data(Json::objectValue);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool found = places[i].state == Lookup::kFound;
    Json::Value& one = data[names[i]];
    one["ok"] = found;
    one["error"] = found ? Json::Value() : Json::Value(error_name(places[i]));
    one["values"] = found ? replicas(report, places[i]) : Json::Value();
    for (const char* other : {"disk_values", "local_disk_values", "nof_values"}) {
      one[other] = Json::Value();
    }
  }
  Json::Value value;
  value["success"] = true;
  value["data"] = std::move(data);
  return json(value);
}

std::string tenant_of(const HttpRequest& request) {
  return parameter(request, "tenant_id", "default");
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    if (!word.empty()) words.emplace_back(word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return words;
}

std::string lines_of(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) {
    text += key;
    text += '\n';
  }
  return text;
}

// ---- Drain jobs ----

// The names of a list in a body; nullopt: no list of texts.
std::optional<std::vector<std::string>> names_in(const Json::Value& list) {
  std::vector<std::string> names;
  if (!list.isNull() && !list.isArray()) return std::nullopt;
  for (const Json::Value& name : list) {
    if (!name.isString()) return std::nullopt;
    names.push_back(name.asString());
  }
  return names;
}

std::optional<Json::Value> object_in(const std::string& body) {
  Json::CharReaderBuilder builder;
  Json::CharReaderBuilder::strictMode(&builder.settings_);
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value value;
  try {
    if (!reader->parse(body.data(), body.data() + body.size(), &value, nullptr))
      return std::nullopt;
  } catch (const Json::Exception&) {  // nested too deeply
    return std::nullopt;
  }
  if (!value.isObject()) return std::nullopt;
  return value;
}

// The order in the body of a request, or the refusal.
std::variant<DrainOrder, HttpAnswer> drain_order(const MasterReport& report,
                                                 const std::string& body) {
  const auto value = object_in(body);
  if (!value) return invalid("the body is no JSON object");
  const auto segments = names_in((*value)["segments"]);
  const auto targets = names_in((*value)["target_segments"]);
  const Json::Value& jobs = (*value)["max_concurrency"];
  if (!segments || !targets || segments->empty() || segments->size() > wire::kMaxNamedNodes ||
      targets->size() > wire::kMaxNamedNodes) {
    return invalid("segments names 1 to 64 segments, and target_segments at most 64");
  }
  if (!jobs.isNull() && (!jobs.isUInt() || jobs.asUInt() == 0)) {
    return invalid("max_concurrency is a number above 0");
  }
  DrainOrder order;
  order.segments = *segments;
  order.max_jobs = jobs.isNull() ? 4 : jobs.asUInt();
  for (const std::string& name : *segments) {
    const auto* const found = find_segment(report, name);
    if (found == nullptr) return refusal(404, kSegmentNotFound, "SEGMENT_NOT_FOUND", name);
    if (found->draining) {
      return refusal(409, kUnavailableInStatus, "UNAVAILABLE_IN_CURRENT_STATUS",
                     name + " is draining already");
    }
    if (std::ranges::find(order.nodes, found->descriptor.node) != order.nodes.end()) {
      return invalid("segments names " + name + " twice");
    }
    order.nodes.push_back(found->descriptor.node);
  }
  for (const std::string& name : *targets) {
    const auto* const found = find_segment(report, name);
    if (found == nullptr) return refusal(404, kSegmentNotFound, "SEGMENT_NOT_FOUND", name);
    const NodeId node = found->descriptor.node;
    if (std::ranges::find(order.nodes, node) != order.nodes.end()) {
      return invalid(name + " is to be drained, and no target");
    }
    if (found->draining) {
      return refusal(409, kUnavailableInStatus, "UNAVAILABLE_IN_CURRENT_STATUS",
                     name + " is draining");
    }
    order.targets.push_back(node);
  }
  return order;
}

const char* state_name(DrainJob::State state) {
  switch (state) {
    case DrainJob::State::kCreated:
      return "CREATED";
    case DrainJob::State::kPlanning:
      return "PLANNING";
    case DrainJob::State::kRunning:
      return "RUNNING";
    case DrainJob::State::kSucceeded:
      return "SUCCEEDED";
    case DrainJob::State::kFailed:
      return "FAILED";
    case DrainJob::State::kCanceled:
      return "CANCELED";
  }
  return "CREATED";
}

// The answer to an order that begins or ends a job.
HttpAnswer job_answer(const DrainJob& job) {
  Json::Value value;
  value["success"] = true;
  value["job_id"] = job.id;
  value["status"] = state_name(job.state);
  value["error_code"] = 0;
  value["error_message"] = "";
  return json(value);
}

HttpAnswer job_facts(const DrainJob& job) {
  Json::Value value;
  value["success"] = true;
  value["job_id"] = job.id;
  value["type"] = 0;
  value["type_name"] = "DRAIN";
  value["status"] = static_cast<int>(job.state);
  value["status_name"] = state_name(job.state);
  value["created_at_ms_epoch"] = Json::UInt64{job.created_ms};
  value["last_updated_at_ms_epoch"] = Json::UInt64{job.updated_ms};
  value["segments"] = Json::Value(Json::arrayValue);
  for (const std::string& name : job.order.segments) value["segments"].append(name);
  value["succeeded_units"] = Json::UInt64{job.progress.copied};
  value["failed_units"] = Json::UInt64{job.progress.failed};
  value["blocked_units"] = Json::UInt64{job.progress.unplaced};
  value["active_units"] = Json::UInt64{job.progress.seen};
  value["migrated_bytes"] = Json::UInt64{job.progress.copied_bytes};
  value["message"] = job.message;
  value["error_code"] = 0;
  value["error_message"] = "";
  return json(value);
}

HttpAnswer job_refusal(const Status& why) {
  if (why.code() == MC_NOT_FOUND) return refusal(404, kJobNotFound, "JOB_NOT_FOUND");
  if (why.code() == MC_CANCELLED) {
    return refusal(409, kUnavailableInStatus, "UNAVAILABLE_IN_CURRENT_STATUS",
                   std::string(why.text()));
  }
  return failure(why);
}

}  // namespace

const AdminPages::Page* AdminPages::find(const std::string& method, const std::string& path) {
  using P = AdminPages;
  static const std::map<std::string, Page> pages = {
      {"GET /health", {false, &P::health}},
      {"GET /role", {false, &P::role}},
      {"GET /ha_status", {false, &P::ha_status}},
      {"GET /leader", {false, &P::leader}},
      {"GET /metrics", {false, &P::metrics}},
      {"GET /metrics/summary", {false, &P::metrics_summary}},
      {"GET /get_all_segments", {true, &P::all_segments}},
      {"GET /get_segments_detail", {true, &P::segments_detail}},
      {"GET /query_segment", {true, &P::query_segment}},
      {"GET /api/v1/segments/status", {true, &P::segment_status}},
      {"GET /query_key", {true, &P::query_key}},
      {"GET /batch_query_keys", {true, &P::batch_query_keys}},
      {"GET /get_all_keys", {true, &P::all_keys}},
      {"POST /api/v1/remove_all", {true, &P::remove_all}},
      {"POST /api/v1/drain_jobs", {true, &P::begin_drain}},
      {"GET /api/v1/drain_jobs/query", {true, &P::query_drain}},
      {"POST /api/v1/drain_jobs/cancel", {true, &P::cancel_drain}},
      {"GET /api/v1/tenant_quotas", {false, &P::tenant_quotas}},
      {"PUT /api/v1/tenant_quotas", {false, &P::tenant_quotas}},
      {"DELETE /api/v1/tenant_quotas", {false, &P::tenant_quotas}},
  };
  const auto found = pages.find(method + " " + path);
  return found == pages.end() ? nullptr : &found->second;
}

void AdminPages::on_request(const HttpRequest& request, HttpDone done) {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const Page* const page = find(method, request.path);
  if (page == nullptr) {
    const bool known =
        find("GET", request.path) != nullptr || find("POST", request.path) != nullptr;
    if (known) return done({.status = 405, .body = "405 Method Not Allowed"});
    return done({.status = 404, .body = "404 Not Found"});
  }
  master_.report([this, page, request,
                  done = std::move(done)](std::shared_ptr<const MasterReport> report) {
    boost::asio::post(io_, [this, page, question = Question{std::move(report), request, done}] {
      const MasterReport& about = *question.report;
      if (about.leads || !page->of_leader) return (this->*page->answer)(question);
      question.done(refusal(503, kUnavailableInMode, "UNAVAILABLE_IN_CURRENT_MODE",
                            about.leader.empty() ? "no master leads; try again"
                                                 : "this master stands by; ask " + about.leader));
    });
  });
}

void AdminPages::health(const Question& question) {
  const MasterReport& report = *question.report;
  Json::Value value = leader_facts(report);
  value["status"] = "ok";
  value["role"] = role_of(report);
  value["ha_state"] = state_of(report);
  value["service_ready"] = is_ready(report);
  question.done(json(value));
}

void AdminPages::role(const Question& question) {
  question.done({.body = role_of(*question.report)});
}

void AdminPages::ha_status(const Question& question) {
  question.done({.body = state_of(*question.report)});
}

void AdminPages::leader(const Question& question) {
  Json::Value value = leader_facts(*question.report);
  value["present"] = !question.report->leader.empty();
  question.done(json(value));
}

void AdminPages::metrics(const Question& question) {
  question.done({.type = kMetrics, .body = metrics_text(*question.report)});
}

void AdminPages::metrics_summary(const Question& question) {
  question.done({.type = kMetrics, .body = lines_.summary(*question.report, now_ns())});
}

void AdminPages::all_segments(const Question& question) {
  std::string text;
  for (const auto& one : question.report->members) text += one.descriptor.address + "\n";
  question.done({.type = kMetrics, .body = std::move(text)});
}

void AdminPages::segments_detail(const Question& question) {
  Json::Value value;
  value["total_segments"] = Json::UInt64{question.report->members.size()};
  value["segments"] = Json::Value(Json::arrayValue);
  for (const auto& one : question.report->members) value["segments"].append(segment_detail(one));
  question.done(json(value));
}

void AdminPages::query_segment(const Question& question) {
  const auto* found = find_segment(*question.report, parameter(question.request, "segment"));
  if (found == nullptr) {
    return question.done({.status = 500, .type = kMetrics, .body = "Failed to query segment"});
  }
  question.done(
      {.type = kMetrics,
       .body = fmt::format("{}\nUsed(bytes): {}\nCapacity(bytes) : {}\n", found->descriptor.address,
                           found->used_bytes, found->descriptor.capacity_bytes)});
}

void AdminPages::segment_status(const Question& question) {
  const auto* found = find_segment(*question.report, parameter(question.request, "segment"));
  if (found == nullptr) {
    return question.done(refusal(404, kSegmentNotFound, "SEGMENT_NOT_FOUND"));
  }
  Json::Value value;
  value["success"] = true;
  value["segment"] = found->descriptor.address;
  value["status"] = is_drained(*found) ? 3 : found->draining ? 2 : 1;
  value["status_name"] = status_name(*found);
  value["error_code"] = 0;
  value["error_message"] = "";
  question.done(json(value));
}

void AdminPages::query_key(const Question& question) {
  leaders_.locate(tenant_of(question.request), {parameter(question.request, "key")},
                  [question](const Result<std::vector<Leaders::KeyPlace>>& places) {
                    question.done(places ? one_key(*question.report, places->front())
                                         : failure(places.error()));
                  });
}

void AdminPages::batch_query_keys(const Question& question) {
  const auto names = std::make_shared<const std::vector<std::string>>(
      split_at_commas(parameter(question.request, "keys")));
  if (names->empty()) {
    Json::Value value;
    value["success"] = false;
    value["error"] = "No keys provided. Use ?keys=key1,key2,...";
    return question.done(json(value, 400));
  }
  leaders_.locate(tenant_of(question.request), *names,
                  [question, names](const Result<std::vector<Leaders::KeyPlace>>& places) {
                    question.done(places ? many_keys(*question.report, *names, *places)
                                         : failure(places.error()));
                  });
}

// Without ?limit the answer streams all pages. With ?limit the answer is one page, and a header field
// names the cursor of the next page.
void AdminPages::all_keys(const Question& question) {
  const HttpRequest& request = question.request;
  const HttpDone& done = question.done;
  std::uint32_t limit = wire::kMaxListed;
  const std::string limit_text = parameter(request, "limit");
  if (!limit_text.empty()) {
    const char* const end = limit_text.data() + limit_text.size();
    const auto [stop, error] = std::from_chars(limit_text.data(), end, limit);
    if (error != std::errc() || stop != end || limit == 0 || limit > wire::kMaxListed) {
      return done(invalid("limit is 1 to 4096"));
    }
  }
  ListCursor from;
  const std::string cursor_text = parameter(request, "cursor");
  if (!cursor_text.empty()) {
    const auto parsed = ListCursor::parse(cursor_text);
    if (!parsed) {
      return done(invalid("cursor is the X-Next-Cursor of the page before"));
    }
    from = *parsed;
  }
  const std::string name_space = tenant_of(request);
  const auto take = [this, name_space, done,
                     one_page = !limit_text.empty()](Result<Leaders::ListPage> page) {
    if (!page) return done(failure(page.error()));
    HttpAnswer answer{.type = kMetrics, .body = lines_of(page->keys)};
    if (one_page && page->next) answer.fields.emplace_back("X-Next-Cursor", page->next->text());
    if (!one_page && page->next) {
      const auto next = std::make_shared<std::optional<ListCursor>>(page->next);
      answer.more = [this, name_space, next](const http::HttpGive& give) {
        give_keys(name_space, next, give);
      };
    }
    done(std::move(answer));
  };
  leaders_.list(name_space, from, limit, take);
}

// Gives the keys of the next page that has keys. next: nullopt after the last page.
void AdminPages::give_keys(const std::string& name_space,
                           const std::shared_ptr<std::optional<ListCursor>>& next,
                           const http::HttpGive& give) {
  if (!*next) return give(std::string());
  leaders_.list(name_space, **next, wire::kMaxListed,
                [this, name_space, next, give](Result<Leaders::ListPage> page) {
                  if (!page) return give(fail(page.error()));
                  // Leaders is asked from the HTTP thread alone.
                  boost::asio::post(io_, [this, name_space, next, give, page = std::move(*page)] {
                    *next = page.next;
                    if (page.keys.empty()) return give_keys(name_space, next, give);
                    give(lines_of(page.keys));
                  });
                });
}

void AdminPages::remove_all(const Question& question) {
  leaders_.remove_all(parameter(question.request, "tenant_id"),
                      [question](const Result<wire::RemoveMatchingAnswer>& removed) {
                        if (!removed) return question.done(failure(removed.error()));
                        Json::Value value;
                        value["success"] = true;
                        value["removed_count"] = Json::UInt64{removed->removed};
                        // These hosts remove their objects before they serve again.
                        value["unconfirmed_hosts"] = removed->unconfirmed;
                        question.done(json(value));
                      });
}

void AdminPages::begin_drain(const Question& question) {
  auto order = drain_order(*question.report, question.request.body);
  if (auto* const refused = std::get_if<HttpAnswer>(&order)) {
    return question.done(std::move(*refused));
  }
  drain_jobs_.begin(std::get<DrainOrder>(std::move(order)),
                    [question](const Result<DrainJob>& job) {
                      question.done(job ? job_answer(*job) : failure(job.error()));
                    });
}

void AdminPages::query_drain(const Question& question) {
  const std::string id = parameter(question.request, "job_id");
  if (id.empty()) return question.done(invalid("job_id is missing"));
  drain_jobs_.query(id, [question](const Result<DrainJob>& job) {
    question.done(job ? job_facts(*job) : job_refusal(job.error()));
  });
}

void AdminPages::cancel_drain(const Question& question) {
  const std::string id = parameter(question.request, "job_id");
  if (id.empty()) return question.done(invalid("job_id is missing"));
  drain_jobs_.cancel(id, [question](const Result<DrainJob>& job) {
    question.done(job ? job_answer(*job) : job_refusal(job.error()));
  });
}

void AdminPages::tenant_quotas(const Question& question) {
  question.done({.status = 501,
                 .body = "a tenant's quota is the capacity of its namespace; set "
                         "capacity_bytes of the namespace in the agents' options\n"});
}

}  // namespace mc::metadata
