// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/http/http_ports.h"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/http/http_port.h"

namespace mc::metadata {

namespace {

constexpr auto kLogInterval = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<HttpPorts>> HttpPorts::open(const MasterOptions& options, Master& master) {
  const auto key = auth::ClusterKey::find(options.cluster_key_file);
  if (!key) return fail(key.error());
  std::unique_ptr<HttpPorts> ports(new HttpPorts(options, master, *key));
  HttpPorts* const self = ports.get();
  const http::PortAccess access{options.http_token_file, *key, options.insecure};
  if (!options.http_listen.empty()) {
    auto server = http::open_port(self->io_, options.http_listen, access,
                                  [self](const http::HttpRequest& request, http::HttpDone done) {
                                    self->admin_.on_request(request, std::move(done));
                                  });
    if (!server) return fail(server.error());
    self->admin_server_ = std::move(*server);
  }
  if (!options.metadata_listen.empty()) {
    auto server =
        http::open_port(self->io_, options.metadata_listen, access,
                        [self](const http::HttpRequest& request, const http::HttpDone& done) {
                          done(self->metadata_.answer(request));
                        });
    if (!server) return fail(server.error());
    self->metadata_server_ = std::move(*server);
  }
  auto metrics =
      http::open_metrics_port(self->io_, options.metrics_listen, access,
                              [self](const http::HttpRequest& request, http::HttpDone done) {
                                self->answer_scraper(request, std::move(done));
                              });
  if (!metrics) return fail(metrics.error());
  self->metrics_server_ = std::move(*metrics);
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
