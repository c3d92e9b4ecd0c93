// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metrics_port.h"

#include <json/reader.h>
#include <utility>

#include "agent/admin/counters_page.h"
#include "agent/metrics/agent_metrics.h"
#include "libmc/http/http_port.h"

namespace mc::agent {

namespace {

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
  const auto key = auth::ClusterKey::find(options.cluster_key_file);
  if (!key) return fail(key.error());
  std::unique_ptr<MetricsPort> port(new MetricsPort(options.runtime_dir));
  auto server = http::open_metrics_port(
      port->io_, options.metrics_listen, {options.http_token_file, *key, options.insecure},
      [self = port.get()](const http::HttpRequest& request, const http::HttpDone& done) {
        done(self->answer(request));
      });
  if (!server) return fail(server.error());
  if (*server == nullptr) return nullptr;
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
