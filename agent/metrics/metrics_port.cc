// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metrics_port.h"

#include <json/reader.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "agent/admin/counters_page.h"
#include "agent/metrics/agent_metrics.h"
#include "libmc/base/host_port.h"
#include "libmc/http/http_access.h"

namespace mc::agent {

namespace {

// Connections of scrapers at a time.
constexpr std::size_t kMaxConnections = 16;

std::optional<Json::Value> last_status(const std::string& runtime_dir) {
  const auto text = read_counters_text(runtime_dir);
  if (!text) return std::nullopt;
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  Json::Value status;
  std::string errors;
  if (!reader->parse(text->data(), text->data() + text->size(), &status, &errors)) {
    return std::nullopt;
  }
  return status;
}

}  // namespace

Result<std::unique_ptr<MetricsPort>> MetricsPort::open(const Options& options) {
  if (options.metrics_listen == kNoMetrics) return nullptr;
  const auto where = split_address(options.metrics_listen);
  if (!where)
    return fail(MC_INVALID_ARGUMENT,
                "metrics_listen: " + std::string(where.error().text()) + ", or off");
  const auto key = auth::ClusterKey::find(options.cluster_key_file);
  if (!key) return fail(key.error());
  http::HttpOptions serving;
  serving.host = where->host;
  serving.port = static_cast<std::uint16_t>(std::stoul(where->port));
  serving.max_connections = kMaxConnections;
  auto token = http::find_token(options.http_token_file, serving.host, *key, options.insecure);
  if (!token) return fail(token.error());
  serving.token = std::move(*token);
  std::unique_ptr<MetricsPort> port(new MetricsPort(options.runtime_dir));
  auto server = http::HttpServer::create(
      port->io_, serving,
      [self = port.get()](const http::HttpRequest& request, const http::HttpDone& done) {
        done(self->answer(request));
      });
  if (!server && server.error().code() == MC_INVALID_ARGUMENT) return fail(server.error());
  if (!server) {
    // Another agent of this host may have the port. An agent without metrics is of more use than none.
    spdlog::warn(
        "event=no_metrics cause=\"{}\" try=\"set metrics_listen to another port, or to off\"",
        server.error().text());
    return nullptr;
  }
  port->server_ = std::move(*server);
  port->thread_ = std::thread([self = port.get()] { self->io_.run(); });
  return port;
}

MetricsPort::~MetricsPort() {
  io_.stop();
  if (thread_.joinable()) thread_.join();
}

http::HttpAnswer MetricsPort::answer(const http::HttpRequest& request) const {
  if (request.path == "/health") return {.body = "ok\n"};
  if (request.path != "/metrics") {
    return {.status = 404, .body = "no such page; /metrics and /health are here\n"};
  }
  const auto status = last_status(runtime_dir_);
  if (!status) return {.status = 503, .body = "the agent has not written its counters yet\n"};
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_text(*status)};
}

}  // namespace mc::agent
