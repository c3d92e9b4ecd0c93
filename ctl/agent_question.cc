// SPDX-License-Identifier: Apache-2.0
#include "ctl/agent_question.h"

#include <cstdio>

#include <fmt/core.h>
#include <json/reader.h>
#include <unistd.h>

#include "agent/admin/counters_page.h"
#include "ctl/text/failure.h"
#include "ctl/text/size.h"
#include "libmc/base/fd.h"
#include "libmc/client/admin.h"

namespace mc::ctl {

std::string socket_path(const Context& context) {
  return context.agent.empty() ? client::default_agent_socket() : context.agent;
}

void announce_wait(Context& context) {
  if (context.wait_announced || isatty(STDERR_FILENO) != 1) return;
  context.wait_announced = true;
  const std::string path = socket_path(context);
  const auto probe = connect_unix(path, 0);
  if (probe || probe.error().code() != MC_AGENT_UNAVAILABLE) return;
  fmt::print(stderr, "mcctl: nobody answers at {} yet; waiting up to {}\n", path,
             format_duration_ns(static_cast<double>(timeout_ns(context))));
}

std::optional<Json::Value> ask_agent(Context& context, const std::string& verb,
                                     const Json::Value& request) {
  announce_wait(context);
  auto answer =
      client::admin_call(socket_path(context), request, timeout_ns(context), client::Absent::kWait);
  if (answer) return std::move(*answer);
  report_status(context, verb, answer.error().code(), answer.error().text());
  return std::nullopt;
}

Result<Client> open_session(const mc_open_options& options) {
  mc_client* client = nullptr;
  const mc_status status = mc_open(&options, &client);
  if (status != MC_OK) return fail(status, mc_last_error());
  return Client(client);
}

namespace {

std::optional<Json::Value> parsed(const std::string& text) {
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value value;
  std::string errors;
  if (!reader->parse(text.data(), text.data() + text.size(), &value, &errors)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

Result<Json::Value> ask_status(mc_client* client) {
  constexpr std::string_view kQuestion = R"({"verb":"status"})";
  std::string text;
  const auto take = [](void* context, const char* answer, std::size_t size) {
    static_cast<std::string*>(context)->assign(answer, size);
  };
  const mc_status status = mc_ask(client, {kQuestion.data(), kQuestion.size()}, take, &text, 0);
  if (status != MC_OK) return fail(status, mc_last_error());
  std::optional<Json::Value> value = parsed(text);
  if (!value) return fail(MC_INTERNAL, "the agent's answer is not JSON");
  return std::move(*value);
}

std::optional<Json::Value> read_counters_page(const std::string& path) {
  auto text = agent::read_counters_text(path);
  if (!text) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return std::nullopt;
    text = agent::read_counters_text(path.substr(0, slash));
  }
  return text ? parsed(*text) : std::nullopt;
}

ClientSession::ClientSession(Context& context, const std::string& verb) {
  announce_wait(context);
  const std::string path = socket_path(context);
  const std::string label = "mcctl " + verb;
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  options.agent = path.c_str();
  options.name_space = context.name_space.c_str();
  options.label = label.c_str();
  options.timeout_ns = timeout_ns(context);
  options.channel_count = 2;  // the fewest allowed
  const mc_status status = mc_open(&options, &client_);
  if (status == MC_OK) return;
  client_ = nullptr;
  report_last_error(context, verb, status);
}

}  // namespace mc::ctl
