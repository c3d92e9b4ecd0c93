// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "crash/ledger.h"
#include "crash/values.h"
#include "crash/worker.h"
#include "libmc/base/clock.h"
#include "mc/mc.h"
#include "patience.h"

namespace mc::crash {

namespace {

constexpr unsigned kOperationsBetweenLooks = 16;
constexpr std::size_t kMaxValueBytes = 64 * 1024;
const std::uint64_t kTimeoutNs = 10 * kSecondNs;

class LoadingClient {
 public:
  LoadingClient(mc_client* client, Ledger* ledger, unsigned number, unsigned count, unsigned seed)
      : client_(client),
        part_(ledger->parts[number]),
        number_(number),
        count_(count),
        random_(seed),
        next_version_(now_ns()),
        buffer_(kMaxValueBytes) {}

  // An earlier process with this number may have left an operation open; the pool's content decides
  // the outcome.
  void settle() {
    for (unsigned key = 0; key < kLedgerKeys; ++key) {
      LedgerLine& line = part_.keys[key];
      const std::uint64_t pending = line.pending.load();
      if (pending == kNothingPending) continue;
      const std::uint64_t seen = read(ledger_key(number_, key));
      if (seen == pending) line.stored = pending;
      line.pending = kNothingPending;
    }
  }

  void step() {
    const unsigned key = pick(kLedgerKeys);
    const unsigned what = pick(100);
    part_.operations.fetch_add(1, std::memory_order_relaxed);
    if (what < 30) {
      store(key, what < 15);
    } else if (what < 36) {
      remove(key);
    } else if (what < 70) {
      check_own(key);
    } else if (what < 95) {
      read(ledger_key(pick(count_), key));
    } else {
      turn_view(key);
    }
  }

  void verify_all() {
    for (unsigned key = 0; key < kLedgerKeys; ++key) check_own(key);
    drop_view();
  }

 private:
  unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }

  void report(const char* what, const std::string& key, std::uint64_t seen) {
    part_.wrong.fetch_add(1);
    std::fprintf(stderr, "wrong: %s key=%s seen=%llu\n", what, key.c_str(),
                 static_cast<unsigned long long>(seen));
  }

  // Records the outcome: acknowledged, or open for ever.
  void note(LedgerLine& line, mc_status status, std::uint64_t made, const char* what) {
    if (status == MC_OK || (made == 0 && status == MC_NOT_FOUND)) {
      line.stored.store(made);
    } else {
      part_.failures.fetch_add(1);
      line.also.store(made);
      uncertain_.push_back(&line);
      std::fprintf(stderr, "failed: %s status=%s %s\n", what, mc_status_name(status),
                   mc_last_error());
    }
    line.pending.store(kNothingPending);
  }

  bool uncertain(const LedgerLine& line) const {
    for (const LedgerLine* one : uncertain_) {
      if (one == &line) return true;
    }
    return false;
  }

  void store(unsigned number, bool upsert) {
    LedgerLine& line = part_.keys[number];
    if (uncertain(line)) return;
    const std::string key = ledger_key(number_, number);
    const std::uint64_t version = ++next_version_;
    const bool kept = !upsert && line.stored.load() != 0;
    const std::size_t size = 256 * (1 + pick(pick(8) == 0 ? 256 : 16));
    const std::vector<std::byte> value = make_value(key, version, size);
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    options.upsert = upsert ? 1 : 0;
    const std::uint64_t result = kept ? line.stored.load() : version;
    line.pending.store(result);
    const mc_status status =
        mc_put(client_, {key.data(), key.size()}, {value.data(), value.size()}, &options);
    note(line, status, result, upsert ? "upsert" : "put");
  }

  void remove(unsigned number) {
    LedgerLine& line = part_.keys[number];
    if (uncertain(line)) return;
    const std::string key = ledger_key(number_, number);
    line.pending.store(0);
    note(line, mc_remove(client_, {key.data(), key.size()}, 0), 0, "remove");
  }

  // The version under the key, 0 for none.
  std::uint64_t read(const std::string& key) {
    std::size_t length = 0;
    const mc_status status =
        mc_get(client_, {key.data(), key.size()}, buffer_.data(), buffer_.size(), &length);
    if (status == MC_NOT_FOUND) return 0;
    if (status != MC_OK) {
      part_.failures.fetch_add(1);
      std::fprintf(stderr, "failed: get status=%s %s\n", mc_status_name(status), mc_last_error());
      return 0;
    }
    const auto version = version_in(key, std::span(buffer_).first(length));
    if (!version) report("not the bytes of a put", key, 0);
    return version.value_or(0);
  }

  void check_own(unsigned number) {
    const LedgerLine& line = part_.keys[number];
    const std::string key = ledger_key(number_, number);
    const std::uint64_t seen = read(key);
    if (seen == line.stored.load() || (uncertain(line) && seen == line.also.load())) return;
    report("own key is not what was acknowledged", key, seen);
  }

  // Holds a view across other operations and restarts, then checks that the view is unchanged.
  void turn_view(unsigned number) {
    drop_view();
    view_key_ = ledger_key(pick(count_), number);
    if (mc_get_view(client_, {view_key_.data(), view_key_.size()}, &view_) != MC_OK) return;
    viewing_ = true;
    view_version_ = version_in_view();
    if (view_version_ == 0) report("a view of no put", view_key_, 0);
  }

  std::uint64_t version_in_view() {
    mc_slice spans[MC_MAX_EXTENTS];
    const std::size_t count = mc_view_spans(&view_, spans, MC_MAX_EXTENTS);
    std::size_t at = 0;
    for (std::size_t i = 0; i < count && at + spans[i].size <= buffer_.size(); ++i) {
      std::memcpy(buffer_.data() + at, spans[i].data, spans[i].size);
      at += spans[i].size;
    }
    return version_in(view_key_, std::span(buffer_).first(at)).value_or(0);
  }

  void drop_view() {
    if (!viewing_) return;
    if (version_in_view() != view_version_) report("a view changed", view_key_, 0);
    mc_view_release(&view_);
    viewing_ = false;
  }

  mc_client* client_;
  LedgerPart& part_;
  const unsigned number_;
  const unsigned count_;
  std::mt19937 random_;
  std::uint64_t next_version_;
  std::vector<std::byte> buffer_;
  std::vector<LedgerLine*> uncertain_;
  std::string view_key_;
  mc_view view_{};
  std::uint64_t view_version_ = 0;
  bool viewing_ = false;
};

bool input_has_ended() {
  pollfd input{0, POLLIN, 0};
  return ::poll(&input, 1, 0) != 0;
}

}  // namespace

int run_loading_client(const std::string& socket, const std::string& ledger_path, unsigned number,
                       unsigned count, unsigned seed) {
  Ledger* ledger = open_ledger(ledger_path);
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  options.agent = socket.c_str();
  options.timeout_ns = kTimeoutNs;
  mc_client* client = nullptr;
  const mc_status status = mc_open(&options, &client);
  if (ledger == nullptr || status != MC_OK) {
    std::fprintf(stderr, "failed: open status=%s %s\n", mc_status_name(status), mc_last_error());
    return 1;
  }
  LoadingClient load(client, ledger, number, count, seed);
  load.settle();
  std::printf("ready\n");
  std::fflush(stdout);
  while (!input_has_ended()) {
    for (unsigned i = 0; i < kOperationsBetweenLooks; ++i) load.step();
  }
  load.verify_all();
  mc_close(client);
  std::printf("done\n");
  std::fflush(stdout);
  return 0;
}

}  // namespace mc::crash
