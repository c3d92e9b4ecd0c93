// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/put_peer.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "ctl/bench/dataset.h"
#include "ctl/bench/sampler.h"
#include "libmc/base/clock.h"

namespace mc::ctl {
namespace {

template <typename T>
bool read_value(int fd, T* value) {
  return ::read(fd, value, sizeof(T)) == static_cast<ssize_t>(sizeof(T));
}
template <typename T>
bool write_value(int fd, const T& value) {
  return ::write(fd, &value, sizeof(T)) == static_cast<ssize_t>(sizeof(T));
}

class PutLoop {
 public:
  PutLoop(mc_client* client, const SharedRegion& region, const PutOrder& order)
      : client_(client),
        region_(region),
        order_(order),
        seed_(random_seed()),
        value_(order.batch * order.object_bytes, 0x5a),
        keys_(order.batch),
        pieces_(order.batch),
        items_(order.batch) {}

  PutReport run() {
    PutReport report;
    std::vector<double> samples;
    double busy_ns = 0;
    const std::uint64_t end_ns = now_ns() + static_cast<std::uint64_t>(order_.seconds * 1e9);
    while (order_.seconds > 0 && now_ns() < end_ns) {
      prepare();
      const std::uint64_t begin_ns = now_ns();
      report.status = order_.copy_only ? copy() : put();
      const auto took_ns = static_cast<double>(now_ns() - begin_ns);
      if (report.status != MC_OK) return report;
      samples.push_back(took_ns);
      busy_ns += took_ns;
    }
    const auto bytes = static_cast<double>(samples.size()) * static_cast<double>(value_.size());
    report.bytes_per_s = busy_ns > 0 ? bytes / busy_ns * 1e9 : 0;
    report.p50_ns = quantile(samples, 0.5);
    report.p99_ns = quantile(samples, 0.99);
    return report;
  }

 private:
  void prepare() {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      keys_[i] = bench_key(seed_, number_++);
      pieces_[i] = {value_.data() + i * order_.object_bytes, order_.object_bytes};
      items_[i] = mc_put_item{};
      items_[i].key = keys_[i].slice();
      items_[i].pieces = &pieces_[i];
      items_[i].piece_count = 1;
    }
  }
  mc_status put() { return mc_put_batch(client_, items_.data(), items_.size(), nullptr); }
  mc_status copy() {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      std::memcpy(region_.block(keys_[i].words[0], order_.object_bytes), pieces_[i].data,
                  order_.object_bytes);
    }
    return MC_OK;
  }

  mc_client* client_;
  const SharedRegion& region_;
  const PutOrder& order_;
  std::uint64_t seed_;
  std::uint64_t number_ = 0;
  std::vector<unsigned char> value_;
  std::vector<BenchKey> keys_;
  std::vector<mc_slice> pieces_;
  std::vector<mc_put_item> items_;
};

mc_status open_client(const PutPeerPlan& plan, mc_client** client) {
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  options.agent = plan.agent.empty() ? nullptr : plan.agent.c_str();
  options.name_space = plan.name_space.c_str();
  options.label = "mcctl-bench-peer";
  options.timeout_ns = plan.timeout_ns;
  return mc_open(&options, client);
}

[[noreturn]] void peer_process(const PutPeerPlan& plan, const Fd& region_file, int orders,
                               int reports) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  mc_client* client = nullptr;
  std::optional<SharedRegion> region;
  PutOrder order;
  while (read_value(orders, &order)) {
    PutReport report;
    if (client == nullptr) report.status = open_client(plan, &client);
    if (report.status == MC_OK && !region) {
      Result<SharedRegion> mapped = SharedRegion::map(region_file, order.region_bytes);
      if (mapped)
        region.emplace(std::move(*mapped));
      else
        report.status = mapped.error().code();
    }
    if (report.status == MC_OK) report = put_for_a_while(client, *region, order);
    if (!write_value(reports, report)) break;
  }
  mc_close(client);
  _exit(0);
}

}  // namespace

PutReport put_for_a_while(mc_client* client, const SharedRegion& region, const PutOrder& order) {
  return PutLoop(client, region, order).run();
}

Result<PutPeer> PutPeer::start(const PutPeerPlan& plan, const Fd& region_file) {
  int orders[2];
  int reports[2];
  if (pipe2(orders, O_CLOEXEC) != 0) return fail(MC_NO_MEMORY, errno_text("pipe", errno));
  Fd orders_in(orders[0]);
  Fd orders_out(orders[1]);
  if (pipe2(reports, O_CLOEXEC) != 0) return fail(MC_NO_MEMORY, errno_text("pipe", errno));
  Fd reports_in(reports[0]);
  Fd reports_out(reports[1]);
  PutPeer peer;
  peer.pid_ = fork();
  if (peer.pid_ < 0) return fail(MC_NO_MEMORY, errno_text("fork", errno));
  if (peer.pid_ == 0) {
    orders_out.reset();  // otherwise the child would never see the end of the orders
    reports_in.reset();
    peer_process(plan, region_file, orders_in.get(), reports_out.get());
  }
  peer.orders_ = std::move(orders_out);
  peer.reports_ = std::move(reports_in);
  return peer;
}

PutPeer::PutPeer(PutPeer&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      orders_(std::move(other.orders_)),
      reports_(std::move(other.reports_)) {}

PutPeer::~PutPeer() {
  orders_.reset();  // the child ends its loop, closes its client and exits
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

bool PutPeer::begin(const PutOrder& order) { return write_value(orders_.get(), order); }

PutReport PutPeer::finish() {
  PutReport report;
  if (!read_value(reports_.get(), &report)) report.status = MC_INTERNAL;
  return report;
}

}  // namespace mc::ctl
