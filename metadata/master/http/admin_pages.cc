// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/http/admin_pages.h"

#include <fmt/format.h>
#include <json/json.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <charconv>
#include <map>
#include <utility>

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

const char* status_name(const wire::MemberInfo& member) {
  return member.draining ? "DRAINING" : "OK";
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

Json::Value replicas(const MasterReport& report, const KeyQuestions::KeyPlace& place) {
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

const char* error_name(const KeyQuestions::KeyPlace& place) {
  return place.state == Lookup::kRecovering ? "UNAVAILABLE_IN_CURRENT_STATUS" : "OBJECT_NOT_FOUND";
}

HttpAnswer one_key(const MasterReport& report, const KeyQuestions::KeyPlace& place) {
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
                     const std::vector<KeyQuestions::KeyPlace>& places) {
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

}  // namespace

const AdminPages::Page* AdminPages::find(const std::string& path) {
  using P = AdminPages;
  static const std::map<std::string, Page> pages = {
      {"/health", {false, &P::health}},
      {"/role", {false, &P::role}},
      {"/ha_status", {false, &P::ha_status}},
      {"/leader", {false, &P::leader}},
      {"/metrics", {false, &P::metrics}},
      {"/metrics/summary", {false, &P::metrics_summary}},
      {"/get_all_segments", {true, &P::all_segments}},
      {"/get_segments_detail", {true, &P::segments_detail}},
      {"/query_segment", {true, &P::query_segment}},
      {"/api/v1/segments/status", {true, &P::segment_status}},
      {"/query_key", {true, &P::query_key}},
      {"/batch_query_keys", {true, &P::batch_query_keys}},
      {"/get_all_keys", {true, &P::all_keys}},
  };
  const auto found = pages.find(path);
  return found == pages.end() ? nullptr : &found->second;
}

void AdminPages::on_request(const HttpRequest& request, HttpDone done) {
  if (request.method != "GET" && request.method != "HEAD") {
    return done({.status = 501, .body = "mc changes nothing over HTTP; use mcctl (rm, drain)\n"});
  }
  const Page* const page = find(request.path);
  if (page == nullptr) return done({.status = 404, .body = "404 Not Found"});
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
  value["status"] = found->draining ? 2 : 1;
  value["status_name"] = status_name(*found);
  value["error_code"] = 0;
  value["error_message"] = "";
  question.done(json(value));
}

void AdminPages::query_key(const Question& question) {
  keys_.locate(tenant_of(question.request), {parameter(question.request, "key")},
               [question](const Result<std::vector<KeyQuestions::KeyPlace>>& places) {
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
  keys_.locate(tenant_of(question.request), *names,
               [question, names](const Result<std::vector<KeyQuestions::KeyPlace>>& places) {
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
      return done(refusal(400, kInvalidParams, "INVALID_PARAMS", "limit is 1 to 4096"));
    }
  }
  ListCursor from;
  const std::string cursor_text = parameter(request, "cursor");
  if (!cursor_text.empty()) {
    const auto parsed = ListCursor::parse(cursor_text);
    if (!parsed) {
      return done(refusal(400, kInvalidParams, "INVALID_PARAMS",
                          "cursor is the X-Next-Cursor of the page before"));
    }
    from = *parsed;
  }
  const std::string name_space = tenant_of(request);
  const auto take = [this, name_space, done,
                     one_page = !limit_text.empty()](Result<KeyQuestions::ListPage> page) {
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
  keys_.list(name_space, from, limit, take);
}

// Gives the keys of the next page that has keys. next: nullopt after the last page.
void AdminPages::give_keys(const std::string& name_space,
                           const std::shared_ptr<std::optional<ListCursor>>& next,
                           const http::HttpGive& give) {
  if (!*next) return give(std::string());
  keys_.list(name_space, **next, wire::kMaxListed,
             [this, name_space, next, give](Result<KeyQuestions::ListPage> page) {
               if (!page) return give(fail(page.error()));
               // KeyQuestions is asked from the HTTP thread alone.
               boost::asio::post(io_, [this, name_space, next, give, page = std::move(*page)] {
                 *next = page.next;
                 if (page.keys.empty()) return give_keys(name_space, next, give);
                 give(lines_of(page.keys));
               });
             });
}

}  // namespace mc::metadata
