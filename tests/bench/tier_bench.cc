// SPDX-License-Identifier: Apache-2.0
//
// Speed of the tier on a file, without an agent: puts, a start, and random reads. tests/bench/tier runs
// it beside fio. Prints a JSON object.
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/tier/tier.h"
#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"

namespace mc::tier {
namespace {

constexpr double kReadSeconds = 3;

struct Arguments {
  std::string path;
  std::uint64_t disk_bytes = 0, object_bytes = 0, objects = 0;
  std::size_t depth = 0;
};

double seconds_since(std::uint64_t begin) { return static_cast<double>(now_ns() - begin) * 1e-9; }

std::string key_of(std::uint64_t number) { return "bench/" + std::to_string(number); }

class Bench {
 public:
  explicit Bench(const Arguments& arguments)
      : arguments_(arguments), value_(arguments.object_bytes) {}

  void run() {
    std::printf("{");
    start();
    turn_until_idle();
    put_all();
    tier_.reset();
    const std::uint64_t begin = now_ns();
    start();
    while (log().find({key_of(arguments_.objects - 1), 1}) == nullptr && log().recovering()) turn();
    std::printf("\"first_s\": %.3f, ", seconds_since(begin));
    turn_until_idle();
    std::printf("\"all_s\": %.3f, \"objects\": %u, ", seconds_since(begin), log().object_count());
    read_at_random();
    std::printf("}\n");
  }

 private:
  Log& log() { return tier_->log(); }
  void start() {
    tier_ = std::make_unique<Tier>(Tier::Plan{
        .paths = {arguments_.path}, .bytes_of_each = arguments_.disk_bytes, .random = now_ns()});
  }
  void turn() {
    pollfd waits{.fd = tier_->wait_fds().at(0), .events = POLLIN, .revents = 0};
    ::poll(&waits, 1, log().next_work_ns() == 0 ? 0 : 1);
    tier_->do_work(now_ns());
    log().take_ended(ends_);
  }
  void turn_until_idle() {
    while (log().recovering() || !log().idle()) {
      turn();
      const DiskReport disk = tier_->report().at(0).disk;
      if (disk.text.empty()) continue;
      std::fprintf(stderr, "tier_bench: %s\n", disk.text.c_str());
      std::exit(1);
    }
  }

  void put_all() {
    const std::uint64_t sum = checksum(1, value_.data(), value_.size());
    const std::uint64_t begin = now_ns();
    for (std::uint64_t put = 0; put < arguments_.objects;) {
      const std::string key = key_of(put);
      const NewObject object{
          .name = {key, 1}, .version = 1, .length = value_.size(), .sum_seed = 1, .checksum = sum};
      const auto ticket = log().put(object, {{value_.data(), value_.size()}});
      if (ticket) {
        ++put;
      } else if (ticket.error() == Log::Refusal::kExists) {
        std::fprintf(stderr, "tier_bench: the file has objects; delete it\n");
        std::exit(1);
      } else {
        turn();
      }
    }
    while (ends_.size() < arguments_.objects) turn();
    const double seconds = seconds_since(begin);
    const DiskReport report = tier_->report().at(0).disk;
    const auto bytes = static_cast<double>(report.log.new_bytes);
    std::printf("\"put_mib_s\": %.1f, \"written_per_put\": %.3f, \"memory_of_an_object\": %.1f, ",
                bytes / seconds / (1 << 20), static_cast<double>(report.log.written_bytes) / bytes,
                static_cast<double>(log().memory_bytes()) / log().object_count());
    ends_.clear();
  }

  void read_at_random() {
    std::vector<std::vector<std::byte>> buffers(arguments_.depth,
                                                std::vector<std::byte>(value_.size()));
    std::unordered_map<std::uint64_t, std::size_t> under_way;
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < buffers.size(); ++i) free.push_back(i);
    std::mt19937_64 random(1);
    const std::uint64_t begin = now_ns();
    std::uint64_t done = 0, failed = 0;
    while (seconds_since(begin) < kReadSeconds || !under_way.empty()) {
      while (!free.empty() && seconds_since(begin) < kReadSeconds) {
        auto& buffer = buffers[free.back()];
        const std::string key = key_of(random() % arguments_.objects);
        const auto ticket =
            log().read({key, 1}, {{buffer.data(), buffer.size()}}, Urgency::kGet, 1);
        if (!ticket) continue;  // the object has left
        under_way[*ticket] = free.back();
        free.pop_back();
      }
      turn();
      for (const LogEnd& end : ends_) {
        free.push_back(under_way.extract(end.ticket).mapped());
        ++done;
        if (end.outcome != LogEnd::Outcome::kDone) ++failed;
      }
      ends_.clear();
    }
    const double seconds = seconds_since(begin);
    std::printf("\"reads_s\": %.0f, \"read_mib_s\": %.1f, \"failed_reads\": %llu",
                static_cast<double>(done) / seconds,
                static_cast<double>(done * value_.size()) / seconds / (1 << 20),
                static_cast<unsigned long long>(failed));
  }

  const Arguments arguments_;
  std::vector<std::byte> value_;
  std::unique_ptr<Tier> tier_;
  std::vector<LogEnd> ends_;
};

}  // namespace
}  // namespace mc::tier

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: tier_bench FILE DISK_MIB OBJECT_BYTES OBJECTS READ_DEPTH\n");
    return 2;
  }
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  mc::tier::Bench({.path = argv[1],
                   .disk_bytes = number(2) << 20,
                   .object_bytes = number(3),
                   .objects = number(4),
                   .depth = number(5)})
      .run();
  return 0;
}
