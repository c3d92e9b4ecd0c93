// SPDX-License-Identifier: Apache-2.0
#include "libmc/http/http_port.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "libmc/base/host_port.h"
#include "libmc/http/http_access.h"

namespace mc::http {

Result<std::unique_ptr<HttpServer>> open_port(boost::asio::io_context& io,
                                              const std::string& address, const PortAccess& access,
                                              HttpHandler handler) {
  const auto where = split_address(address);
  if (!where) return fail(where.error());
  HttpOptions serving;
  serving.host = where->host;
  serving.port = static_cast<std::uint16_t>(std::stoul(where->port));
  auto token = find_token(access.token_file, serving.host, access.key, access.insecure);
  if (!token) return fail(token.error());
  serving.token = std::move(*token);
  return HttpServer::create(io, serving, std::move(handler));
}

Result<std::unique_ptr<HttpServer>> open_metrics_port(boost::asio::io_context& io,
                                                      const std::string& address,
                                                      const PortAccess& access,
                                                      HttpHandler handler) {
  if (address == kNoPort) return nullptr;
  auto server = open_port(io, address, access, std::move(handler));
  if (server || server.error().code() == MC_INVALID_ARGUMENT) return server;
  spdlog::warn("event=no_metrics cause=\"{}\" try=\"set metrics_listen to another port, or to {}\"",
               server.error().text(), kNoPort);
  return nullptr;
}

}  // namespace mc::http
