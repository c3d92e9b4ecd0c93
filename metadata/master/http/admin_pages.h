// SPDX-License-Identifier: Apache-2.0
//
// Mooncake's HTTP administration of a master: paths, JSON and text as Mooncake 0.3.13 serves them.
//   A segment is the pool of a host. The segment's name is the address of the host's agent.
// Threads: the HTTP thread.
// Trusts: nothing of a request.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libmc/http/http_server.h"
#include "metadata/master/http/drain_jobs.h"
#include "metadata/master/http/leaders.h"
#include "metadata/master/http/master_metrics.h"
#include "metadata/master/master.h"

namespace mc::metadata {

class AdminPages {
 public:
  // io: of the HTTP thread. All arguments outlive the pages.
  AdminPages(boost::asio::io_context& io, Master& master, Leaders& leaders)
      : io_(io), master_(master), leaders_(leaders), drain_jobs_(io, leaders) {}

  void on_request(const http::HttpRequest& request, http::HttpDone done);

 private:
  struct Question {
    std::shared_ptr<const MasterReport> report;
    http::HttpRequest request;
    http::HttpDone done;
  };
  struct Page {
    bool of_leader = false;  // a standby refuses
    void (AdminPages::*answer)(const Question&) = nullptr;
  };
  // method: "GET", also for HEAD, or "POST".
  static const Page* find(const std::string& method, const std::string& path);

  void health(const Question& question);
  void role(const Question& question);
  void ha_status(const Question& question);
  void leader(const Question& question);
  void metrics(const Question& question);
  void metrics_summary(const Question& question);
  void all_segments(const Question& question);
  void segments_detail(const Question& question);
  void query_segment(const Question& question);
  void segment_status(const Question& question);
  void query_key(const Question& question);
  void batch_query_keys(const Question& question);
  void all_keys(const Question& question);
  void remove_all(const Question& question);
  void begin_drain(const Question& question);
  void query_drain(const Question& question);
  void cancel_drain(const Question& question);
  void tenant_quotas(const Question& question);
  void give_keys(const std::string& name_space,
                 const std::shared_ptr<std::optional<ListCursor>>& next,
                 const http::HttpGive& give);

  boost::asio::io_context& io_;
  Master& master_;
  Leaders& leaders_;
  DrainJobs drain_jobs_;
  MetricsLines lines_;
};

}  // namespace mc::metadata
