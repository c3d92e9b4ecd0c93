// SPDX-License-Identifier: Apache-2.0
#include "agent/server/session.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "libmc/base/failpoint.h"
#include "shm/beacon.h"
#include "shm/doorbell.h"

namespace mc::agent {

bool may_change_pools(std::uint32_t uid) { return uid == 0 || uid == ::geteuid(); }

Result<std::unique_ptr<Session>> Session::create(std::uint64_t id, std::uint64_t secret,
                                                 std::uint32_t channel_count, std::uint64_t node_id,
                                                 std::uint64_t incarnation) {
  auto session = std::unique_ptr<Session>(new Session(id, secret));
  const std::uint64_t size = shm::session_file_bytes(channel_count);
  auto file = MemoryFile::create("mc-session", size);
  if (!file) return fail(file.error());
  session->file_ = std::move(*file);
  if (Status status = session->file_.reserve(0, sizeof(shm::SessionHeader)); !status.ok()) {
    return fail(status);
  }
  auto mapping = Mapping::map(session->file_.fd(), size, Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  session->mapping_ = std::move(*mapping);
  shm::SessionHeader& header = *session->header();
  header.file = shm::make_header(shm::FileKind::kSession, size, node_id, incarnation);
  header.session_id = id;
  header.channel_count = channel_count;
  shm::init_beacon(header);
  session->channels.resize(channel_count);
  session->restart_rings(incarnation);
  return session;
}

Result<std::unique_ptr<Session>> Session::adopt(std::uint64_t id, std::uint64_t secret,
                                                MemoryFile file) {
  auto session = std::unique_ptr<Session>(new Session(id, secret));
  session->file_ = std::move(file);
  const std::uint64_t size = session->file_.size_bytes();
  // The client can write the header of the file, so the number of channels comes from the sealed
  // size.
  const std::uint64_t channel_bytes = size - shm::session_file_bytes(0);
  if (size < shm::session_file_bytes(1) || channel_bytes % sizeof(shm::Channel) != 0 ||
      channel_bytes / sizeof(shm::Channel) > MC_MAX_CHANNELS) {
    return fail(MC_CORRUPT, "a kept session file has a size that no session has");
  }
  auto mapping = Mapping::map(session->file_.fd(), size, Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  session->mapping_ = std::move(*mapping);
  session->channels.resize(channel_bytes / sizeof(shm::Channel));
  // A client with the descriptor could have punched holes; a touched hole must not raise SIGBUS.
  if (Status status = session->file_.reserve(0, sizeof(shm::SessionHeader)); !status.ok()) {
    return fail(status);
  }
  for (std::uint32_t number = 0; number < session->channels.size(); ++number) {
    // A channel that was never opened is a hole in the file.
    const auto begin = static_cast<off_t>(shm::channel_offset(number));
    const off_t data = ::lseek(session->file_.fd(), begin, SEEK_DATA);
    session->channels[number].opened_once =
        data >= begin && data < begin + static_cast<off_t>(sizeof(shm::Channel));
  }
  return session;
}

void Session::restart_rings(std::uint64_t incarnation) {
  ++restarts_;
  epoch_ = static_cast<std::uint32_t>((incarnation * 1024 + restarts_) & 0xffffff);
  if (epoch_ == 0) epoch_ = 1;
  for (ChannelState& channel : channels) {
    const bool opened_once = channel.opened_once;
    channel = ChannelState{};
    channel.opened_once = opened_once;
  }
}

Status Session::open_channel(std::uint32_t number) {
  if (number >= channels.size()) {
    return {MC_INVALID_ARGUMENT,
            "channel " + std::to_string(number) + " of " + std::to_string(channels.size())};
  }
  ChannelState& state = channels[number];
  if (state.open) return {MC_INVALID_ARGUMENT, "the channel is open already"};
  if (Status status = file_.reserve(shm::channel_offset(number), sizeof(shm::Channel));
      !status.ok()) {
    return status;
  }
  MC_FAILPOINT("session.channel_reserved");
  if (state.shared == nullptr) {
    state.shared = reinterpret_cast<shm::Channel*>(mapping_.data() + shm::channel_offset(number));
    // An earlier agent has counted these reads.
    const shm::ChannelHeader& header = state.shared->header;
    state.counted = {header.hits.load_relaxed(), header.misses.load_relaxed(),
                     header.hit_bytes.load_relaxed()};
    state.counted_copies = {header.worker_bytes.load_relaxed(), header.own_bytes.load_relaxed()};
  }
  state.requests = shm::RingConsumer(state.shared->requests, epoch_);
  state.completions = shm::RingProducer(state.shared->completions, epoch_);
  state.touches = shm::TouchReader(state.shared);
  // The agent announces sleep, so that the first request rings the bell.
  shm::announce_agent_sleep(state.shared->header);
  state.shared->header.epoch.store_release(epoch_);
  state.open = true;
  state.opened_once = true;
  return {};
}

Status Session::open_staging(std::uint64_t bytes) {
  if (staging_file_) return {MC_BUSY, "the session has staging memory already"};
  if (bytes == 0 || bytes > MC_MAX_STAGING_BYTES || bytes > tenant->session_quota_bytes()) {
    return {MC_QUOTA_EXCEEDED, "staging of " + std::to_string(bytes) +
                                   " bytes is more than the session's quota of " +
                                   std::to_string(tenant->session_quota_bytes()) +
                                   "; lower staging_bytes or raise session_quota_bytes"};
  }
  auto file = MemoryFile::create("mc-staging", bytes);
  if (!file) return file.error();
  if (Status status = file->reserve(0, file->size_bytes()); !status.ok()) return status;
  return adopt_staging(std::move(*file));
}

Status Session::adopt_staging(MemoryFile file) {
  auto mapping = Mapping::map(file.fd(), file.size_bytes(), Mapping::Access::kRead);
  if (!mapping) return mapping.error();
  staging_file_ = std::move(file);
  staging_mapping_ = std::move(*mapping);
  return {};
}

void Session::collect_pins(std::vector<std::uint64_t>& pins) const {
  for (std::uint32_t number = 0; number < channels.size(); ++number) {
    if (!channels[number].opened_once) continue;
    const auto* channel =
        reinterpret_cast<const shm::Channel*>(mapping_.data() + shm::channel_offset(number));
    for (const shm::Word64& slot : channel->pins) {
      const std::uint64_t pin = slot.load_relaxed();
      if (pin != 0) pins.push_back(pin);
    }
  }
}

std::size_t Session::take_touches(std::uint32_t number) {
  ChannelState& channel = channels[number];
  if (!channel.open) return 0;
  std::size_t count = 0;
  const auto use = [&](std::uint32_t entry) {
    ++count;
    tenant->store->touch(entry);
  };
  if (channel.touches.drain_all(use)) {
    shm::Word32& round = channel.shared->header.touch_round;
    round.store_relaxed(round.load_relaxed() + 1);
  }
  return count;
}

void Session::take_read_counts(std::uint32_t number) {
  ChannelState& channel = channels[number];
  if (channel.shared == nullptr) return;
  // A client that writes nonsense may count this much in a tick, and no more.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  const auto take = [](const shm::Word64& word, std::uint64_t& counted, std::uint64_t& sum) {
    const std::uint64_t now = word.load_relaxed();
    const std::uint64_t more = now - std::exchange(counted, now);
    if (more < kMost) sum += more;
  };
  const shm::ChannelHeader& header = channel.shared->header;
  take(header.hits, channel.counted.hits, tenant->reads.hits);
  take(header.misses, channel.counted.misses, tenant->reads.misses);
  take(header.hit_bytes, channel.counted.hit_bytes, tenant->reads.hit_bytes);
  const DeviceCounts before = device_counts;
  take(header.worker_bytes, channel.counted_copies.worker_bytes, device_counts.worker_bytes);
  take(header.own_bytes, channel.counted_copies.own_bytes, device_counts.own_bytes);
  tenant->device_counts.worker_bytes += device_counts.worker_bytes - before.worker_bytes;
  tenant->device_counts.own_bytes += device_counts.own_bytes - before.own_bytes;
  const std::uint32_t why = header.own_copies.load_relaxed();
  channel.own_copies = static_cast<shm::OwnCopies>(why < shm::kOwnCopiesKinds ? why : 0);
}

std::size_t Session::opened_channels() const {
  return static_cast<std::size_t>(std::ranges::count_if(channels, &ChannelState::opened_once));
}

std::uint64_t Session::reserved_in_tail_bytes() const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t entry : reserved_) bytes += tenant->store->tail_bytes(entry);
  return bytes;
}

std::uint64_t Session::pinned_count() const {
  std::vector<std::uint64_t> pins;
  collect_pins(pins);
  return pins.size();
}

// ---- The ledger ---------------------------------------------------------------------------------

[[gnu::hot]] void Session::enter(std::uint32_t entry, std::uint64_t bytes) {
  reserved_.insert(entry);
  reserved_bytes_ += round_to_granules(bytes);
}

[[gnu::hot]] void Session::drop_from_ledger(std::uint32_t entry, std::uint64_t bytes) {
  if (reserved_.erase(entry) > 0) reserved_bytes_ -= round_to_granules(bytes);
}

[[gnu::hot]] bool Session::over_quota(std::uint64_t bytes) const {
  return reserved_bytes_ + round_to_granules(bytes) > tenant->session_quota_bytes();
}

[[gnu::hot]] std::uint32_t Session::named_entry(const shm::PutItem& fields) const {
  const bool other = tenant->store->is_reserved_by(id, fields.entry) &&
                     tenant->store->generation_of(fields.entry) != fields.generation;
  return other ? kNoEntry : fields.entry;
}

bool Session::give_back(std::uint32_t entry) {
  if (!tenant->store->is_reserved_by(id, entry)) return false;
  const std::uint64_t bytes = tenant->store->reserved_length(entry);
  tenant->store->abandon(id, entry);
  drop_from_ledger(entry, bytes);
  return true;
}

void Session::give_back_all() {
  unheard_.clear();
  for (const std::uint32_t entry : reserved_) {
    tenant->store->abandon(id, entry);
    MC_FAILPOINT("session.release_one");
  }
  reserved_.clear();
  reserved_bytes_ = 0;
}

void Session::expect_repeats() {
  unheard_.clear();
  for (const std::uint32_t entry : reserved_) {
    const GrantedTo to = tenant->store->granted_to(entry);
    unheard_[{to.channel, to.request_id}].push_back(entry);
  }
}

[[gnu::hot]] void Session::take_back_unheard(std::uint32_t channel, std::uint64_t request_id) {
  if (unheard_.empty()) return;
  const auto found = unheard_.find({channel, request_id});
  if (found == unheard_.end()) return;
  for (const std::uint32_t entry : found->second) {
    // The client may have used or returned the entry since then, and the entry may be granted again.
    const bool same = tenant->store->is_reserved_by(id, entry) &&
                      tenant->store->granted_to(entry) == GrantedTo{channel, request_id};
    if (same) give_back(entry);
  }
  unheard_.erase(found);
}

}  // namespace mc::agent
