// SPDX-License-Identifier: Apache-2.0
//
// What it is: one mc-master: the port, the election, and a Reign while it leads. A standby answers
//   NOT_LEADER with the leader's address.
// Threads: run() is the loop's thread; the elector has its own; stop() may come from any.
// Owns: everything, built and torn down in one order.
// Trusts: links that have proven the cluster key, as far as reign.h says.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <set>
#include <string>

#include "metadata/master/elector.h"
#include "metadata/master/master_options.h"
#include "metadata/master/reign.h"
#include "metadata/rpc/listener.h"

namespace mc::metadata {

class Master final : public rpc::ListenerHandler {
 public:
  // Listens, and begins to campaign. Errors: with the remedy, for whoever started it.
  static Result<std::unique_ptr<Master>> create(const MasterOptions& options);
  ~Master() override;

  void run();
  void stop();
  [[nodiscard]] const std::string& address() const { return address_; }

  void on_link(const std::shared_ptr<rpc::Link>& link) override;
  void on_refused(const Status& why, const std::string& address) override;
  void on_request(rpc::Link& link, const rpc::Request& request) override;
  void on_cancel(rpc::Link& link, std::uint32_t id) override;
  void on_closed(rpc::Link& link, const Status& why) override;

 private:
  explicit Master(const MasterOptions& options) : options_(options), tick_(io_) {}
  void begin(const Term& term);
  void end();
  void tick();
  // At most one line a second of each kind.
  bool may_log(std::uint64_t& last_ns);

  const MasterOptions options_;
  std::string address_;
  std::string leader_;  // another's address
  boost::asio::io_context io_;
  boost::asio::steady_timer tick_;
  std::unique_ptr<rpc::Listener> listener_;
  std::set<std::shared_ptr<rpc::Link>> links_;
  std::unique_ptr<Reign> reign_;
  std::unique_ptr<Elector> elector_;
  std::uint64_t refused_logged_ns_ = 0;
  std::uint64_t trouble_logged_ns_ = 0;  // the elector's thread
};

}  // namespace mc::metadata
