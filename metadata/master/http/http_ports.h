// SPDX-License-Identifier: Apache-2.0
//
// The HTTP ports of mc-master, and the line with metrics in its log.
//
//     http_listen ──► HttpServer ──► AdminPages ──► Master::report(), Leaders
//     metrics_listen ──► HttpServer ──► AdminPages (/metrics and /health alone)
//     metadata_listen ──► HttpServer ──► MetadataPages
//
// Threads: one, beside the master's loop.
// Owns: the servers, their pages and the thread. The master outlives the ports, and its loop has
//   ended when they are destroyed.
// Trusts: requests with the token (libmc/http/http_access.h), as far as the pages do.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <thread>

#include "libmc/http/http_server.h"
#include "metadata/master/http/admin_pages.h"
#include "metadata/master/http/metadata_pages.h"
#include "metadata/master/master.h"

namespace mc::metadata {

class HttpPorts {
 public:
  // Serves the ports that the options name. Errors: with the remedy, for the operator.
  static Result<std::unique_ptr<HttpPorts>> open(const MasterOptions& options, Master& master);
  ~HttpPorts();

 private:
  HttpPorts(const MasterOptions& options, Master& master, auth::ClusterKey key)
      : options_(options),
        master_(master),
        timer_(io_),
        leaders_(options, master.address(), std::move(key)),
        admin_(io_, master, leaders_) {}
  void answer_scraper(const http::HttpRequest& request, http::HttpDone done);
  void log_metrics();

  const MasterOptions options_;
  Master& master_;
  boost::asio::io_context io_;
  boost::asio::steady_timer timer_;
  Leaders leaders_;
  AdminPages admin_;
  MetadataPages metadata_;
  MetricsLines lines_;
  std::unique_ptr<http::HttpServer> admin_server_;     // null: no such port
  std::unique_ptr<http::HttpServer> metadata_server_;  // null: no such port
  std::unique_ptr<http::HttpServer> metrics_server_;   // null: no such port
  std::thread thread_;
};

}  // namespace mc::metadata
