// SPDX-License-Identifier: Apache-2.0
//
// A client whose agent answers every request with arbitrary status, counts, entries and extents.
// The client's calls may fail. The client must not write outside the pool, crash or hang.
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "agent/server/session.h"
#include "bytes.h"
#include "libmc/base/clock.h"
#include "libmc/client/client.h"
#include "mc/mc.h"
#include "shm/doorbell.h"

namespace {

using mc::fuzz::Bytes;
using mc::fuzz::require;
namespace shm = mc::shm;

constexpr std::uint64_t kPoolBytes = 1 << 20;

// Speaks the socket protocol correctly; the input controls the rings.
class FalseAgent {
 public:
  FalseAgent() {
    mc::agent::ObjectStore::Config config;
    config.pool_bytes = config.max_pool_bytes = kPoolBytes;
    store_ = std::move(*mc::agent::ObjectStore::create(config, [](std::vector<std::uint64_t>&) {}));
    while (store_->pool().growing()) store_->pool().on_chunk();
    session_ = std::move(*mc::agent::Session::create(1, 1, 2, 1, 1));
    for (mc::Fd& bell : bells_) bell = std::move(*mc::make_eventfd());
  }
  mc::Fd connect() {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    socket_.reset(ends[1]);
    std::thread([this] { serve(); }).detach();
    return mc::Fd(ends[0]);
  }
  void play(const std::uint8_t* data, std::size_t size) {
    const std::lock_guard lock(mutex_);
    script_.assign(data, data + size);
    bytes_ = Bytes(script_.data(), script_.size());
  }

 private:
  void serve() {
    for (unsigned round = 0;; ++round) {
      bool worked = false;
      for (mc::agent::ChannelState& channel : session_->channels) {
        shm::RecordWords words;
        while (channel.open && channel.requests.poll(words)) {
          answer(channel, std::bit_cast<shm::Request>(words));
          worked = true;
        }
      }
      if (worked || round % 64 != 0) continue;
      if (mc::wait_readable(socket_.get(), 0)) control();
      std::this_thread::yield();
    }
  }

  void answer(mc::agent::ChannelState& channel, const shm::Request& request) {
    const std::lock_guard lock(mutex_);
    const auto offset = request.argument_offset;
    bytes_.fill(channel.shared->arguments + offset, std::min(request.argument_bytes, 4096u));
    // Extents that nearly fit reach deeper code than random values.
    const bool reserves = request.op == static_cast<std::uint16_t>(shm::Op::kReserve);
    for (std::uint32_t i = 0; reserves && bytes_.below(4) != 0 && i < request.item_count; ++i) {
      shm::ReservedItem item{};
      item.entry = bytes_.below(64);
      item.extent_count = 1 + bytes_.below(17);
      item.generation = bytes_.below(8);
      item.length = bytes_.below(2) == 0 ? request.a : bytes_.take<std::uint32_t>();
      for (auto& extent : item.extents) {
        extent = {bytes_.below(64) * 4096ull, bytes_.below(4) * 256ull};
      }
      std::memcpy(channel.shared->arguments + offset + i * sizeof item, &item, sizeof item);
    }
    shm::Completion completion{};
    if (bytes_.below(4) == 0) {
      bytes_.fill(&completion,
                  sizeof completion);  // for an unknown request, or too early for this one
      channel.completions.publish(shm::to_words(completion));
    }
    completion.request_id = request.request_id;
    completion.status = bytes_.below(2) == 0 ? MC_OK : static_cast<int>(bytes_.below(64));
    completion.item_count = bytes_.below(2) == 0 ? request.item_count : bytes_.below(1200) % 1025;
    if (completion.status == MC_SESSION_LOST) completion.status = MC_OK;
    channel.completions.publish(shm::to_words(completion));
    shm::full_fence();
    shm::wake_client(channel.shared->header);
  }

  void control() {
    const auto message = mc::receive_message(socket_.get(), shm::kMaxControlBytes);
    if (!message || message->bytes.size() < sizeof(shm::ControlHeader)) return;
    shm::ControlHeader header;
    std::memcpy(static_cast<void*>(&header), message->bytes.data(), sizeof header);
    if (header.type == static_cast<std::uint32_t>(shm::ControlType::kHello)) return welcome();
    if (header.type == static_cast<std::uint32_t>(shm::ControlType::kOpenChannel)) {
      require(session_->open_channel(static_cast<std::uint32_t>(header.value)).ok());
      session_->channels[header.value].shared->header.agent_asleep.store_relaxed(0);
    }
    header.type = static_cast<std::uint32_t>(shm::ControlType::kAnswer);
    require(mc::send_message(socket_.get(), std::as_bytes(std::span(&header, 1))).ok());
  }

  void welcome() {
    shm::Welcome welcome;
    welcome.header.type = static_cast<std::uint32_t>(shm::ControlType::kWelcome);
    welcome.session_id = welcome.session_secret = welcome.node_id = welcome.incarnation = 1;
    const auto index = store_->index().file().mappable_parts();
    const auto pool = store_->pool().file().mappable_parts();
    for (const mc::MappablePart& part : index) {
      welcome.index_part_bytes[welcome.index_parts++] = part.bytes;
    }
    welcome.pool_parts = static_cast<std::uint32_t>(pool.size());
    welcome.pool_max_bytes = store_->pool().file().size_bytes();
    welcome.session_bytes = session_->file().size_bytes();
    welcome.reservation_cache_bytes = 65536;
    welcome.epoch = session_->epoch();
    welcome.channel_count = 2;
    std::vector<int> fds{session_->file().fd(), bells_[0].get(), bells_[1].get()};
    for (const auto& parts : {index, pool, pool}) {
      for (const mc::MappablePart& part : parts) fds.push_back(part.fd);
    }
    require(mc::send_message(socket_.get(), std::as_bytes(std::span(&welcome, 1)), fds).ok());
  }

  std::unique_ptr<mc::agent::ObjectStore> store_;
  std::unique_ptr<mc::agent::Session> session_;
  mc::Fd bells_[2];
  mc::Fd socket_;
  std::mutex mutex_;
  std::vector<std::uint8_t> script_;
  Bytes bytes_{nullptr, 0};
};

FalseAgent* false_agent = nullptr;

class ToFalseAgent : public mc::client::Connector {
 public:
  mc::Result<mc::Fd> connect(std::uint64_t) override { return false_agent->connect(); }
};

mc_client* open_client() {
  false_agent = new FalseAgent;
  mc::client::set_embedded_factory(
      [](const char*) -> mc::Result<std::unique_ptr<mc::client::Connector>> {
        return std::make_unique<ToFalseAgent>();
      });
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  options.agent = "embedded";
  mc_client* client = nullptr;
  require(mc_open(&options, &client) == MC_OK);
  return client;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static mc_client* const client = open_client();
  static const std::vector<char> value(8192, 'v');
  Bytes calls(data, std::min<std::size_t>(size, 16));
  false_agent->play(data, size);
  const mc_slice key{"key", 3};
  for (int i = 0; i < 8 && !calls.empty(); ++i) {
    const mc_slice bytes{value.data(), 1 + calls.below(8192)};
    mc_put_item items[3] = {{key, &bytes, 1, {nullptr, 0}, MC_OK},
                            {{"two", 3}, &bytes, 1, {nullptr, 0}, MC_OK},
                            {{"three", 5}, &bytes, 1, {nullptr, 0}, MC_OK}};
    const mc_slice keys[2] = {key, {"two", 3}};
    mc_status statuses[2];
    mc_reservation* reservation = nullptr;
    switch (calls.below(6)) {
      case 0:
        static_cast<void>(mc_put(client, key, bytes, nullptr));
        break;
      case 1:
        static_cast<void>(mc_put_batch(client, items, 3, nullptr));
        break;
      case 2:
        static_cast<void>(mc_remove_batch(client, keys, 2, statuses, 0));
        break;
      case 3:
        static_cast<void>(mc_set_pin(client, key, MC_PIN_SOFT, 1000, 0));
        break;
      default:
        if (mc_reserve(client, bytes.size, 0, &reservation) != MC_OK) break;
        mc_span spans[MC_MAX_EXTENTS];
        const std::size_t count = mc_reservation_spans(reservation, spans, MC_MAX_EXTENTS);
        require(count <= MC_MAX_EXTENTS);
        for (std::size_t s = 0; s < count; ++s) std::memset(spans[s].data, 1, spans[s].size);
        if (calls.below(2) == 0) {
          mc_abandon(reservation);
        } else {
          static_cast<void>(mc_commit(reservation, key, 1, nullptr));
        }
    }
  }
  return 0;
}
