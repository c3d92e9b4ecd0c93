// SPDX-License-Identifier: Apache-2.0
//
// The HTTP port of mc-agent for Prometheus. The port shows what the agent's loop writes into the
//   counters page once a second, so a scrape costs the loop nothing.
//
//     loop ── once a second ──► counters page ──► /metrics ──► Prometheus
//
// Threads: one, beside the agent's loop.
// Owns: the server and the thread.
// Trusts: requests with the token (libmc/http/http_access.h).
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <thread>

#include "agent/options/options.h"
#include "libmc/http/http_server.h"

namespace mc::agent {

class MetricsPort {
 public:
  // Serves options.metrics_listen. Null: there is no port (http::open_metrics_port()). Errors: with
  // the remedy, for the operator.
  static Result<std::unique_ptr<MetricsPort>> open(const Options& options);
  ~MetricsPort();

 private:
  explicit MetricsPort(std::string runtime_dir) : runtime_dir_(std::move(runtime_dir)) {}
  [[nodiscard]] http::HttpAnswer answer(const http::HttpRequest& request) const;

  const std::string runtime_dir_;
  boost::asio::io_context io_;
  std::unique_ptr<http::HttpServer> server_;
  std::thread thread_;
};

}  // namespace mc::agent
