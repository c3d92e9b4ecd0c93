// SPDX-License-Identifier: Apache-2.0
#include "honest_client.h"

#include <cstring>
#include <vector>

#include "libmc/base/clock.h"
#include "patience.h"

namespace mc::hostile {

namespace {

std::vector<std::uint64_t> value_of(std::uint64_t number) {
  std::vector<std::uint64_t> words(128 + number % 7 * 512);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = (number + 1) * 0x9e3779b97f4a7c15 + i;
  return words;
}

mc_slice slice_of(const std::string& key) { return {key.data(), key.size()}; }

}  // namespace

HonestClient::HonestClient(const std::string& socket, const std::string& name_space) {
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  options.agent = socket.c_str();
  options.name_space = name_space.c_str();
  options.label = "honest";
  options.timeout_ns = kWatchdogNs;
  options.staging_bytes = 1 << 20;
  options.channel_count = 2;
  if (mc_open(&options, &client_) != MC_OK) {
    note(std::string("open: ") + mc_last_error());
    return;
  }
  thread_ = std::thread([this] { run(); });
}

void HonestClient::run() {
  while (!stop_ && !failed_ && round(rounds_)) {
    ++rounds_;
    rounds_.notify_all();
  }
  rounds_.notify_all();
}

// Puts an object and reads it back. Reads an older object, which may be evicted but never changed.
bool HonestClient::round(std::uint64_t number) {
  const std::string key = "honest/" + std::to_string(number);
  const auto value = value_of(number);
  const std::size_t size = value.size() * sizeof value[0];
  if (mc_put(client_, slice_of(key), {value.data(), size}, nullptr) != MC_OK) {
    note("put " + key + ": " + mc_last_error());
    return false;
  }
  const std::uint64_t earlier = number - number % 16 / 2;
  for (const std::uint64_t wanted : {number, earlier}) {
    const std::string name = "honest/" + std::to_string(wanted);
    const auto expected = value_of(wanted);
    std::vector<std::uint64_t> got(expected.size());
    std::size_t length = 0;
    const mc_status status =
        mc_get(client_, slice_of(name), got.data(), got.size() * sizeof got[0], &length);
    if (status == MC_NOT_FOUND) continue;
    if (status != MC_OK || length != got.size() * sizeof got[0] || got != expected) {
      note("get " + name + ": " + mc_status_name(status) + " " + mc_last_error());
      return false;
    }
  }
  return true;
}

void HonestClient::note(const std::string& text) {
  trouble_ = text;
  failed_ = true;
}

bool HonestClient::works_on(std::uint64_t rounds) {
  const std::uint64_t end = rounds_ + rounds;
  for (std::uint64_t seen = rounds_; seen < end && !failed_; seen = rounds_) rounds_.wait(seen);
  return !failed_;
}

void HonestClient::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  mc_close(client_);
  client_ = nullptr;
}

std::string HonestClient::trouble() const { return failed_ ? trouble_ : std::string(); }

}  // namespace mc::hostile
