// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/http/http_ports.h"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/base/host_port.h"
#include "libmc/http/http_access.h"
#include "metadata/rpc/dialer.h"

namespace mc::metadata {

namespace {

constexpr auto kLogInterval = std::chrono::seconds(10);

Result<std::unique_ptr<http::HttpServer>> serve(boost::asio::io_context& io,
                                                const std::string& address,
                                                const MasterOptions& options,
                                                const auth::ClusterKey& key,
                                                http::HttpHandler handler) {
  const auto where = split_address(address);
  if (!where) return fail(where.error());
  http::HttpOptions serving;
  serving.host = where->host;
  serving.port = static_cast<std::uint16_t>(std::stoul(where->port));
  auto token = http::find_token(options.http_token_file, serving.host, key, options.insecure);
  if (!token) return fail(token.error());
  serving.token = std::move(*token);
  return http::HttpServer::create(io, serving, std::move(handler));
}

}  // namespace

Result<std::unique_ptr<HttpPorts>> HttpPorts::open(const MasterOptions& options, Master& master) {
  const auto key = auth::ClusterKey::find(options.key_file);
  if (!key) return fail(key.error());
  std::unique_ptr<HttpPorts> ports(new HttpPorts(options, master, *key));
  HttpPorts* const self = ports.get();
  if (!options.http_listen.empty()) {
    auto server = serve(self->io_, options.http_listen, options, *key,
                        [self](const http::HttpRequest& request, http::HttpDone done) {
                          self->admin_.on_request(request, std::move(done));
                        });
    if (!server) return fail(server.error());
    self->admin_server_ = std::move(*server);
  }
  if (!options.metadata_listen.empty()) {
    auto server = serve(self->io_, options.metadata_listen, options, *key,
                        [self](const http::HttpRequest& request, const http::HttpDone& done) {
                          done(self->metadata_.answer(request));
                        });
    if (!server) return fail(server.error());
    self->metadata_server_ = std::move(*server);
  }
  if (options.metrics_listen != kNoMetrics) {
    auto server = serve(self->io_, options.metrics_listen, options, *key,
                        [self](const http::HttpRequest& request, http::HttpDone done) {
                          self->answer_scraper(request, std::move(done));
                        });
    if (!server && server.error().code() == MC_INVALID_ARGUMENT) return fail(server.error());
    if (server) {
      self->metrics_server_ = std::move(*server);
    } else {
      // Another master of this host may have the port.
      spdlog::warn(
          "event=no_metrics cause=\"{}\" try=\"set metrics_listen to another port, or to off\"",
          server.error().text());
    }
  }
  if (options.metrics_log != "none") self->log_metrics();
  self->thread_ = std::thread([self] { self->io_.run(); });
  return ports;
}

HttpPorts::~HttpPorts() {
  io_.stop();
  if (thread_.joinable()) thread_.join();
}

// The port for Prometheus has no page about keys.
void HttpPorts::answer_scraper(const http::HttpRequest& request, http::HttpDone done) {
  if (request.path == "/metrics" || request.path == "/health") {
    return admin_.on_request(request, std::move(done));
  }
  done({.status = 404, .body = "no such page; /metrics and /health are here\n"});
}

void HttpPorts::log_metrics() {
  master_.report([this](std::shared_ptr<const MasterReport> report) {
    boost::asio::post(io_, [this, report = std::move(report)] {
      if (options_.metrics_log == "0.3.6") {
        spdlog::info("Master Metrics: {}", MetricsLines::storage(*report));
      } else {
        spdlog::info("Master Admin Metrics: {}", lines_.summary(*report, now_ns()));
      }
    });
  });
  timer_.expires_after(kLogInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) log_metrics();
  });
}

}  // namespace mc::metadata
