// SPDX-License-Identifier: Apache-2.0
//
// The whole agent side of a ring: ObjectStore, Session and Server with requests, arguments, pins
// and touches from the input. After each input every request has exactly one answer, the ledger is
// right, and the session's end returns every byte.
#include <unordered_set>

#include "agent/server/server.h"
#include "bytes.h"
#include "ledger.h"
#include "libmc/base/clock.h"
#include "shm/pins.h"

namespace {

using mc::fuzz::Bytes;
using mc::fuzz::require;
namespace shm = mc::shm;
namespace agent = mc::agent;

constexpr std::uint64_t kPoolBytes = 128 * 1024;
constexpr std::uint64_t kStagingBytes = 32 * 1024;

class Rig {
 public:
  Rig() {
    agent::ObjectStore::Config config;
    config.pool_bytes = kPoolBytes;
    config.max_pool_bytes = 2 * kPoolBytes;
    config.arenas = 2;
    tenant_->name = "default";
    tenant_->quota_option_bytes = kPoolBytes * 3 / 4;
    tenant_->store =
        std::move(*agent::ObjectStore::create(config, [this](std::vector<std::uint64_t>& pins) {
          if (session_) session_->collect_pins(pins);
        }));
    while (store().pool().growing()) store().pool().on_chunk();
    tenant_->scrubber = std::make_unique<agent::Scrubber>(store(), findings_.get());
    session_ = std::move(*agent::Session::create(1, 1, 1, 1, 1));
    session_->tenant = tenant_;
    require(session_->open_channel(0).ok() && session_->open_staging(kStagingBytes).ok());
    channel_ = session_->channels[0].shared;
    requests_ = shm::RingProducer(channel_->requests, session_->epoch());
    completions_ = shm::RingConsumer(channel_->completions, session_->epoch());
  }

  void run(Bytes bytes) {
    for (int step = 0; step < 256 && !bytes.empty(); ++step) {
      switch (bytes.below(8)) {
        case 0:
          pin(bytes);
          break;
        case 1:
          touch(bytes);
          break;
        case 2:
          server_.retry_waiting(bytes.below(2) == 0 ? 0 : mc::now_ns());
          store().tick(mc::now_ns());
          take_completions();
          break;
        case 3:
          ask(raw(bytes));
          break;
        default:
          ask(sensible(bytes));
      }
    }
    finish();
  }

 private:
  agent::ObjectStore& store() { return *tenant_->store; }

  void pin(Bytes& bytes) {
    shm::Word64& slot = channel_->pins[bytes.below(64)];
    const std::uint64_t count = store().index().entry_count();
    if (count == 0 || bytes.below(4) == 0) return slot.store_relaxed(bytes.take<std::uint64_t>());
    const std::uint32_t entry = bytes.below(static_cast<std::uint32_t>(count));
    slot.store_relaxed(shm::pin_value(entry, store().index().entry(entry).version.load_relaxed()));
  }

  void touch(Bytes& bytes) {
    // An arbitrary head makes the agent read every slot.
    touch_head_ += bytes.below(32) == 0 ? bytes.take<std::uint32_t>() : bytes.below(64);
    channel_->touches[bytes.below(shm::kTouchSlots)].store_relaxed(bytes.take<std::uint32_t>());
    channel_->header.touch_head.store_relaxed(touch_head_);
  }

  // Arbitrary words and arguments.
  shm::Request raw(Bytes& bytes) {
    shm::Request request{};
    bytes.fill(&request, sizeof request);
    if (bytes.below(8) != 0) request.touch_head = touch_head_;
    const auto offset = request.argument_offset % shm::kArgumentBytes;
    const std::size_t room = std::min<std::size_t>(4096, shm::kArgumentBytes - offset);
    bytes.fill(channel_->arguments + offset, std::min(room, std::size_t{bytes.below(512)}));
    return request;
  }

  // A request of an honest client, sometimes with one or two errors.
  shm::Request sensible(Bytes& bytes) {
    shm::Request request{};
    request.op = static_cast<std::uint16_t>(bytes.below(shm::kLastOp + 1));
    request.flags = static_cast<std::uint16_t>(bytes.below(16) % 5);
    request.item_count = 1 + bytes.below(8) * bytes.below(2);
    request.touch_head = touch_head_;
    request.deadline_ns = bytes.below(3) == 0 ? 0 : mc::now_ns() + bytes.below(1000) * 100000ull;
    request.a = bytes.below(4) == 0 ? bytes.take<std::uint64_t>() : bytes.below(16384);
    if (request.op == static_cast<std::uint16_t>(shm::Op::kCancel)) {
      request.a = next_request_ - 1 - bytes.below(8);
    }
    std::uint32_t at = 0;
    if (request.op == static_cast<std::uint16_t>(shm::Op::kReserve)) {
      at = request.item_count * static_cast<std::uint32_t>(sizeof(shm::ReservedItem));
    } else {
      at = shm::result_bytes(request.item_count);
      for (std::uint32_t i = 0; i < request.item_count; ++i) at += add_item(bytes, at, request.op);
    }
    request.argument_bytes = at;
    return request;
  }

  std::uint32_t add_item(Bytes& bytes, std::uint32_t at, std::uint16_t op) {
    shm::PutItem item{};
    const bool known = !granted_.empty() && bytes.below(8) != 0;
    const Granted granted = known
                                ? granted_[bytes.below(static_cast<std::uint32_t>(granted_.size()))]
                                : Granted{bytes.below(600), bytes.below(600)};
    item.entry = granted.entry;
    const std::string_view key = bytes.text(bytes.below(24));
    item.key_bytes = static_cast<std::uint16_t>(key.size());
    item.pin = static_cast<std::uint8_t>(bytes.below(32) % 5);
    item.want_refill = static_cast<std::uint8_t>(bytes.below(2));
    item.length = bytes.below(16384);
    item.parent_hash = bytes.below(2) == 0 ? 0 : store().index().hash(key.substr(0, 1));
    const bool staged = op == static_cast<std::uint16_t>(shm::Op::kPutStaged);
    const std::uint64_t offset = bytes.below(kStagingBytes + 64);
    item.generation = staged ? offset : granted.generation;
    item.pin_ttl_s = bytes.take<std::uint32_t>();
    std::memcpy(channel_->arguments + at, &item, sizeof item);
    if (!key.empty()) std::memcpy(channel_->arguments + at + sizeof item, key.data(), key.size());
    return static_cast<std::uint32_t>(sizeof item) + shm::padded_key_bytes(item.key_bytes);
  }

  void ask(shm::Request request) {
    if (next_request_ - answered_ > 200) return;
    request.request_id = next_request_++;
    last_op_ = request.op;
    last_offset_ = request.argument_offset;
    requests_.publish(shm::to_words(request));
    while (server_.serve(*session_, 0)) {
    }
    take_completions();
  }

  void take_completions() {
    shm::RecordWords words;
    while (completions_.poll(words)) {
      const auto completion = shm::decode_completion(words);
      require(completion.has_value());
      const std::uint64_t id = completion->request_id;
      require(id >= first_request_ && id < next_request_);
      const bool once = answers_seen_.insert(id).second;
      require(once);
      ++answered_;
      if (completion->first.refill_entry != shm::kNoRefill) {
        note({completion->first.refill_entry, completion->first.refill_generation});
      }
      const bool reserved = id + 1 == next_request_ && completion->status == MC_OK &&
                            last_op_ == static_cast<std::uint16_t>(shm::Op::kReserve);
      for (std::uint32_t i = 0; reserved && i < completion->item_count; ++i) {
        shm::ReservedItem item;
        std::memcpy(&item, channel_->arguments + last_offset_ + i * sizeof item, sizeof item);
        require(store().is_reserved_by(1, item.entry) && item.extent_count >= 1);
        require(store().generation_of(item.entry) == item.generation);
        note({item.entry, item.generation});
      }
    }
  }

  struct Granted {
    std::uint32_t entry;
    std::uint64_t generation;
  };
  void note(const Granted& granted) {
    if (granted_.size() < 64) return granted_.push_back(granted);
    granted_[granted.entry % 64] = granted;
  }

  void finish() {
    for (int i = 0; server_.anything_waits(); ++i) {
      require(i < 1000);
      server_.retry_waiting(~std::uint64_t{0});
      take_completions();
    }
    require(answered_ == next_request_);
    mc::fuzz::check_ledger(store());
    std::uint64_t held = 0;
    for (const std::uint32_t entry : session_->reserved()) {
      require(store().is_reserved_by(1, entry));
      held += (store().reserved_length(entry) + 255) / 256 * 256;
    }
    require(held == session_->reserved_bytes() &&
            session_->reserved().size() == store().reserved_count());
    server_.release(*session_);
    for (shm::Word64& slot : channel_->pins) slot.store_relaxed(0);
    std::uint64_t cursor = 0;
    do {
      for (const auto& object : store().list("", 4096, cursor)) require(store().remove(object.key));
    } while (cursor != 0);
    store().reclaim();
    // A clearing without a waiting request ends within two ticks.
    for (int i = 0; i < 2; ++i) store().tick(mc::now_ns());
    require(store().pool().used_bytes() == 0 && store().limbo_count() == 0);
    granted_.clear();
    answers_seen_.clear();
    first_request_ = next_request_;
  }

  mc::Fd findings_ = std::move(*mc::make_eventfd());
  std::shared_ptr<agent::Tenant> tenant_ = std::make_shared<agent::Tenant>();
  std::unique_ptr<agent::Session> session_;
  agent::Server server_;
  shm::Channel* channel_ = nullptr;
  shm::RingProducer requests_;
  shm::RingConsumer completions_;
  std::uint64_t next_request_ = 1, answered_ = 1, first_request_ = 1;
  std::unordered_set<std::uint64_t> answers_seen_;
  std::vector<Granted> granted_;
  std::uint32_t touch_head_ = 0;
  std::uint16_t last_op_ = 0;
  std::uint32_t last_offset_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Rig* const rig = new Rig;
  rig->run(Bytes(data, size));
  return 0;
}
