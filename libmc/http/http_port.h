// SPDX-License-Identifier: Apache-2.0
//
// HTTP servers at the addresses of a program's options.
// Threads: as HttpServer.
// Owns: nothing; the caller owns the server.
// Trusts: requests with the token (http_access.h).
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>

#include "libmc/auth/cluster_key.h"
#include "libmc/http/http_server.h"

namespace mc::http {

// The options from which the token follows (find_token()).
struct PortAccess {
  const std::string& token_file;
  const auth::ClusterKey& key;
  bool insecure = false;
};

// address: "IP address:port". Errors: those of split_address(), find_token() and HttpServer::create().
Result<std::unique_ptr<HttpServer>> open_port(boost::asio::io_context& io,
                                              const std::string& address, const PortAccess& access,
                                              HttpHandler handler);
// The port for Prometheus. Null: the address is kNoPort, or another program of the host has the port,
// which is a warning in the log: a program without metrics is of more use than none.
// Errors: MC_INVALID_ARGUMENT, with the remedy.
Result<std::unique_ptr<HttpServer>> open_metrics_port(boost::asio::io_context& io,
                                                      const std::string& address,
                                                      const PortAccess& access,
                                                      HttpHandler handler);

}  // namespace mc::http
