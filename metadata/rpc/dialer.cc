// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/dialer.h"

#include <boost/asio/connect.hpp>

#include "libmc/base/clock.h"
#include "libmc/base/host_port.h"
#include "libmc/base/way.h"

namespace mc::metadata::rpc {

namespace {

using boost::asio::ip::tcp;

class Dial : public std::enable_shared_from_this<Dial> {
 public:
  Dial(boost::asio::any_io_executor executor, const DialOptions& options, std::uint64_t deadline_ns,
       RpcLinkHandler& handler, Dialled done)
      : executor_(executor),
        options_(options),
        deadline_ns_(deadline_ns),
        handler_(handler),
        done_(std::move(done)),
        resolver_(executor),
        socket_(executor),
        timer_(executor) {}

  void start() {
    const auto target = split_address(options_.address);
    if (!target) {
      // done must not be called from within dial().
      timer_.expires_after(std::chrono::seconds(0));
      timer_.async_wait([self = shared_from_this(), why = target.error()](
                            const boost::system::error_code&) { self->finish(fail(why)); });
      return;
    }
    if (options_.server_name.empty()) options_.server_name = target->host;
    timer_.expires_after(std::chrono::nanoseconds(left_ns()));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->give_up("no connection by the deadline", MC_TIMEOUT);
    });
    resolver_.async_resolve(target->host, target->port,
                            [self = shared_from_this()](const boost::system::error_code& error,
                                                        const tcp::resolver::results_type& found) {
                              if (error) {
                                self->give_up("its name cannot be resolved: " + error.message());
                              } else if (self->done_ != nullptr) {
                                self->connect(found);
                              }
                            });
  }

 private:
  [[nodiscard]] std::uint64_t left_ns() const {
    const std::uint64_t now = now_ns();
    return deadline_ns_ > now ? deadline_ns_ - now : 0;
  }

  void connect(const tcp::resolver::results_type& found) {
    boost::asio::async_connect(
        socket_, found,
        [self = shared_from_this()](const boost::system::error_code& error, const tcp::endpoint&) {
          if (error) {
            self->give_up(error.message());
          } else if (self->done_ != nullptr) {
            self->shake_hands();
          }
        });
  }

  void shake_hands() {
    timer_.cancel();
    const auto transport =
        make_transport(std::move(socket_), options_.tls, true, options_.server_name);
    std::make_shared<RpcHandshake>(
        executor_, transport, options_.own, options_.key, true, false,
        [self = shared_from_this(), transport](Result<auth::ClusterHello> peer) {
          if (!peer) {
            self->finish(fail(peer.error().code(),
                              self->options_.address + ": " + std::string(peer.error().text())));
            return;
          }
          const auto link = std::make_shared<RpcLink>(self->executor_, transport, *peer, true,
                                                      self->options_.link, self->handler_);
          link->start();
          self->finish(link);
        })
        ->start(left_ns());
  }

  void give_up(const std::string& why, mc_status code = MC_AGENT_UNAVAILABLE) {
    finish(fail(code, "cannot reach " + options_.address + ": " + why));
  }

  void finish(Result<std::shared_ptr<RpcLink>> result) {
    if (done_ == nullptr) return;
    const Dialled done = std::move(done_);
    done_ = nullptr;
    timer_.cancel();
    resolver_.cancel();
    boost::system::error_code ignored;
    socket_.close(ignored);
    done(std::move(result));
  }

  boost::asio::any_io_executor executor_;
  DialOptions options_;
  const std::uint64_t deadline_ns_;
  RpcLinkHandler& handler_;
  Dialled done_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  boost::asio::steady_timer timer_;
};

}  // namespace

void dial(boost::asio::any_io_executor executor, const DialOptions& options,
          std::uint64_t deadline_ns, RpcLinkHandler& handler, Dialled done) {
  std::make_shared<Dial>(executor, options, deadline_ns, handler, std::move(done))->start();
}

Status check_advertised(const std::string& own, const std::string& peer) {
  const auto here = split_address(own);
  const auto there = split_address(peer);
  if (!here || !there) return {};
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(here->host, error);
  if (error || !address.is_loopback()) return {};
  const auto way = way_to(there->host, there->port);
  if (!way || way->ends_here()) return {};
  return {MC_NOT_ADVERTISED, "the master at " + peer +
                                 " is on another host, and peers of other hosts cannot dial " +
                                 own +
                                 "; set listen to an address of this host that they reach, as in "
                                 "listen = \"" +
                                 way->own + ":0\""};
}

}  // namespace mc::metadata::rpc
