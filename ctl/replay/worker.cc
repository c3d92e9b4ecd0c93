// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/worker.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include <json/value.h>

#include "ctl/agent_question.h"
#include "ctl/replay/content.h"
#include "ctl/replay/tier_state.h"
#include "libmc/base/clock.h"

namespace mc::ctl {
namespace {

constexpr std::size_t kLookupBlocks = 512;  // below the limit of views per channel
constexpr std::size_t kMaxBufferBytes = std::size_t{32} << 20;
constexpr std::size_t kAnyBytes = SIZE_MAX;
constexpr std::size_t kPutBlocks = 64;
constexpr std::size_t kMaxSpans = MC_MAX_EXTENTS;
constexpr std::uint64_t kProgressEveryNs = 50'000'000;
constexpr int kStopCheckMs = 50;
constexpr int kTierWaitMs = 1;
// The tier writes at once if so much is on its way (half of its room), and else gathers blocks for a while.
constexpr std::uint64_t kSharesUnderWay = 2;

// The call succeeded; its items may have failed.
bool items_decide(mc_status status) {
  switch (status) {
    case MC_OK:
    case MC_NOT_FOUND:
    case MC_CORRUPT:
    case MC_HOLDER_AWAY:
    case MC_DISK_AWAY:
    case MC_NO_MASTER:
    case MC_NO_SPACE:
    case MC_BUSY:
    case MC_TIMEOUT:
    case MC_BUFFER_TOO_SMALL:
      return true;
    default:
      return false;
  }
}

Status failure(std::string_view what, mc_status status) {
  const std::string cause = mc_last_error();
  return Status(status, std::string(what) + " failed: " +
                            (cause.empty() ? std::string(mc_status_text(status)) : cause));
}

std::size_t blocks_within(std::size_t bytes, std::size_t block_bytes, std::size_t most) {
  return std::clamp<std::size_t>(bytes / block_bytes, 1, most);
}

std::size_t most_bytes(const WorkerPlan& plan, std::size_t most) {
  return plan.at_once_bytes == 0 ? most : std::min<std::size_t>(most, plan.at_once_bytes);
}

class Worker {
 public:
  Worker(mc_client* client, const Trace& trace, const WorkerPlan& plan, std::uint64_t start_ns,
         int progress_fd)
      : client_(client),
        trace_(trace),
        plan_(plan),
        start_ns_(start_ns),
        progress_fd_(progress_fd),
        lookup_blocks_(blocks_within(most_bytes(plan, plan.copy ? kMaxBufferBytes : kAnyBytes),
                                     plan.block_bytes, kLookupBlocks)),
        put_blocks_(blocks_within(most_bytes(plan, kMaxBufferBytes), plan.block_bytes, kPutBlocks)),
        put_buffer_(put_blocks_ * plan.block_bytes),
        copy_buffer_(plan.copy ? lookup_blocks_ * plan.block_bytes : 0),
        views_(plan.copy ? 0 : lookup_blocks_),
        statuses_(lookup_blocks_) {
    result_.by_request.resize(plan.hit_bins);
  }

  Status run() {
    std::uint64_t progress_due_ns = start_ns_;
    for (std::size_t i = plan_.worker; i < trace_.requests.size(); i += plan_.workers) {
      if (!wait_for_turn(trace_.requests[i])) break;
      if (Status served = serve(i); !served.ok()) return served;
      if (const std::uint64_t now = now_ns(); now >= progress_due_ns) {
        progress_due_ns = now + kProgressEveryNs;
        write_progress(progress_fd_, result_.totals);
      }
    }
    result_.totals.finished_ns = now_ns();
    return {};
  }

  WorkerResult take_result() { return std::move(result_); }

 private:
  bool stopped() const {
    return plan_.stop != nullptr && plan_.stop->load(std::memory_order_relaxed);
  }

  // False: the worker was told to stop.
  bool wait_for_turn(const TraceRequest& request) {
    if (plan_.speed_up > 0) {
      const double offset_ns = static_cast<double>(request.timestamp_ms) * 1e6 / plan_.speed_up;
      const std::uint64_t due_ns = start_ns_ + static_cast<std::uint64_t>(std::llround(offset_ns));
      for (std::uint64_t now = now_ns(); now < due_ns && !stopped(); now = now_ns()) {
        const std::uint64_t left_ms = (due_ns - now) / 1'000'000;
        if (left_ms == 0) continue;
        poll(nullptr, 0, static_cast<int>(std::min<std::uint64_t>(left_ms, kStopCheckMs)));
      }
    }
    return !stopped();
  }

  // A trace is replayed faster than it was recorded, and the disk must not lose blocks for that reason.
  // bytes: that the worker will get or put, and that may take the places of as many bytes in the pool.
  Status wait_for_tier(std::uint64_t bytes) {
    if (plan_.at_once_bytes == 0) return {};
    const std::uint64_t most = kSharesUnderWay * plan_.at_once_bytes;
    while (demoting_bytes_ > most && !stopped()) {
      const Result<Json::Value> status = ask_status(client_);
      if (!status) return status.error();
      demoting_bytes_ = demoting_bytes(*status);
      if (demoting_bytes_ > most) poll(nullptr, 0, kTierWaitMs);
    }
    demoting_bytes_ += bytes * plan_.workers;  // the others do the same
    return {};
  }

  Status serve(std::size_t index) {
    const std::vector<std::uint32_t>& blocks = trace_.requests[index].blocks;
    keys_.clear();
    for (const std::uint32_t block : blocks) keys_.emplace_back(plan_.key_name, block);
    std::size_t prefix = 0;
    std::size_t resident_after = 0;
    const std::uint64_t fetched_before = result_.totals.fetched_refs;
    Status looked_up = look_up(blocks, &prefix, &resident_after);
    if (!looked_up.ok()) return looked_up;
    Status put = put_from(blocks, prefix);
    if (!put.ok()) return put;

    WorkerTotals& totals = result_.totals;
    ++totals.requests;
    totals.block_refs += blocks.size();
    totals.hit_refs += prefix;
    const std::uint64_t inserted = blocks.size() - prefix - resident_after;
    totals.inserted += inserted;
    HitBin& bin = result_.by_request[index * plan_.hit_bins / trace_.requests.size()];
    bin.refs += blocks.size();
    bin.hits += prefix;
    bin.fetched += totals.fetched_refs - fetched_before;
    count_in_time(0, 0, inserted);
    return {};
  }

  // Counts the leading hits, and the resident blocks after the first miss.
  Status look_up(const std::vector<std::uint32_t>& blocks, std::size_t* prefix,
                 std::size_t* resident_after) {
    while (*prefix < blocks.size()) {
      const std::size_t first = *prefix;
      const std::size_t count = std::min(lookup_blocks_, blocks.size() - first);
      if (Status waited = wait_for_tier(count * plan_.block_bytes); !waited.ok()) return waited;
      Status got = plan_.copy ? get_copies(blocks, first, count) : get_views(blocks, first, count);
      if (!got.ok()) return got;
      const auto begin = statuses_.begin();
      const auto end = begin + static_cast<std::ptrdiff_t>(count);
      const auto miss = std::find_if(begin, end, [](mc_status s) { return s != MC_OK; });
      *prefix += static_cast<std::size_t>(miss - begin);
      *resident_after += static_cast<std::size_t>(std::count(miss, end, MC_OK));
      result_.totals.failed_gets += static_cast<std::uint64_t>(
          std::count_if(miss, end, [](mc_status s) { return s != MC_OK && s != MC_NOT_FOUND; }));
      if (miss != end) return {};
    }
    return {};
  }

  Status get_views(const std::vector<std::uint32_t>& blocks, std::size_t first, std::size_t count) {
    slices_.clear();
    for (std::size_t i = 0; i < count; ++i) slices_.push_back(keys_[first + i].slice());
    const std::uint64_t begin_ns = now_ns();
    const mc_status status =
        mc_get_view_batch(client_, slices_.data(), count, views_.data(), statuses_.data());
    const std::uint64_t lookup_ns = now_ns() - begin_ns;
    if (!items_decide(status)) return failure("looking blocks up", status);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count && statuses_[i] == MC_OK; ++i) {
      check_view(views_[i], BlockContent(keys_[first + i], blocks[first + i]));
      result_.totals.fetched_refs += views_[i].fetched;
      bytes += views_[i].length;
    }
    const std::uint64_t release_ns = now_ns();
    for (std::size_t i = 0; i < count; ++i) {
      if (statuses_[i] == MC_OK) mc_view_release(&views_[i]);
    }
    record_get(lookup_ns + (now_ns() - release_ns), count);
    result_.totals.view_bytes += bytes;
    count_in_time(bytes, 0, 0);
    return {};
  }

  void check_view(const mc_view& view, const BlockContent& content) {
    std::array<mc_slice, kMaxSpans> spans;
    const std::size_t count = std::min(mc_view_spans(&view, spans.data(), spans.size()), kMaxSpans);
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t size = std::min<std::uint64_t>(spans[i].size, plan_.block_bytes - offset);
      result_.totals.wrong_bytes += content.wrong_bytes(spans[i].data, size, offset);
      offset += size;
    }
    count_length(view.length, offset);
  }

  // Missing and extra bytes count as wrong bytes.
  void count_length(std::uint64_t length, std::uint64_t checked) {
    const std::uint64_t wanted = plan_.block_bytes;
    result_.totals.wrong_bytes += wanted - std::min<std::uint64_t>(checked, wanted);
    result_.totals.wrong_bytes += length > wanted ? length - wanted : 0;
  }

  Status get_copies(const std::vector<std::uint32_t>& blocks, std::size_t first,
                    std::size_t count) {
    get_pieces_.resize(count);
    get_items_.assign(count, mc_get_item{});
    for (std::size_t i = 0; i < count; ++i) {
      get_pieces_[i] = {copy_buffer_.data() + i * plan_.block_bytes, plan_.block_bytes};
      get_items_[i].key = keys_[first + i].slice();
      get_items_[i].pieces = &get_pieces_[i];
      get_items_[i].piece_count = 1;
    }
    const std::uint64_t begin_ns = now_ns();
    const mc_status status = mc_get_batch(client_, get_items_.data(), count);
    record_get(now_ns() - begin_ns, count);
    if (!items_decide(status)) return failure("getting blocks", status);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) statuses_[i] = get_items_[i].status;
    for (std::size_t i = 0; i < count && statuses_[i] == MC_OK; ++i) {
      const std::uint64_t length = std::min<std::uint64_t>(get_items_[i].length, plan_.block_bytes);
      const BlockContent content(keys_[first + i], blocks[first + i]);
      result_.totals.wrong_bytes += content.wrong_bytes(get_pieces_[i].data, length);
      count_length(get_items_[i].length, length);
      bytes += length;
    }
    result_.totals.copy_bytes += bytes;
    count_in_time(bytes, 0, 0);
    return {};
  }

  void record_get(std::uint64_t ns, std::size_t count) {
    result_.get_batch.add(ns);
    result_.get_block.add(ns / count, count);
  }

  // Puts all blocks from the first miss on, in the order of the chain; existing blocks stay.
  Status put_from(const std::vector<std::uint32_t>& blocks, std::size_t first) {
    for (std::size_t at = first; at < blocks.size(); at += put_blocks_) {
      const std::size_t count = std::min(put_blocks_, blocks.size() - at);
      if (Status waited = wait_for_tier(count * plan_.block_bytes); !waited.ok()) return waited;
      Status put = put_batch(blocks, at, count);
      if (!put.ok()) return put;
    }
    return {};
  }

  Status put_batch(const std::vector<std::uint32_t>& blocks, std::size_t first, std::size_t count) {
    put_pieces_.resize(count);
    put_items_.assign(count, mc_put_item{});
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t block = first + i;
      unsigned char* bytes = put_buffer_.data() + i * plan_.block_bytes;
      BlockContent(keys_[block], blocks[block]).fill(bytes, plan_.block_bytes);
      put_pieces_[i] = {bytes, plan_.block_bytes};
      put_items_[i].key = keys_[block].slice();
      put_items_[i].pieces = &put_pieces_[i];
      put_items_[i].piece_count = 1;
      if (block > 0) put_items_[i].parent = keys_[block - 1].slice();
    }
    const std::uint64_t begin_ns = now_ns();
    const mc_status status = mc_put_batch(client_, put_items_.data(), count, nullptr);
    const std::uint64_t took_ns = now_ns() - begin_ns;
    if (!items_decide(status)) return failure("putting blocks", status);
    result_.put_batch.add(took_ns);
    result_.put_block.add(took_ns / count, count);
    const auto stored = static_cast<std::uint64_t>(
        std::count_if(put_items_.begin(), put_items_.end(),
                      [](const mc_put_item& item) { return item.status == MC_OK; }));
    result_.totals.failed_puts += count - stored;
    result_.totals.put_bytes += stored * plan_.block_bytes;
    count_in_time(0, stored * plan_.block_bytes, 0);
    return {};
  }

  void count_in_time(std::uint64_t got_bytes, std::uint64_t put_bytes, std::uint64_t inserted) {
    const std::uint64_t now = now_ns();
    const std::uint64_t elapsed_ns = now > start_ns_ ? now - start_ns_ : 0;
    const std::size_t bin = std::min<std::uint64_t>(elapsed_ns / kTimeBinNs, kMaxTimeBins - 1);
    if (bin >= result_.by_time.size()) result_.by_time.resize(bin + 1);
    result_.by_time[bin].got_bytes += got_bytes;
    result_.by_time[bin].put_bytes += put_bytes;
    result_.by_time[bin].inserted += inserted;
  }

  mc_client* client_;
  const Trace& trace_;
  const WorkerPlan& plan_;
  std::uint64_t start_ns_;
  int progress_fd_;
  std::size_t lookup_blocks_;
  std::size_t put_blocks_;
  std::vector<unsigned char> put_buffer_;
  std::vector<unsigned char> copy_buffer_;
  std::vector<mc_view> views_;
  std::vector<mc_status> statuses_;
  std::vector<BlockKey> keys_;  // of the request being served
  std::vector<mc_slice> slices_;
  std::vector<mc_span> get_pieces_;
  std::vector<mc_get_item> get_items_;
  std::vector<mc_slice> put_pieces_;
  std::vector<mc_put_item> put_items_;
  std::uint64_t demoting_bytes_ = 0;  // at most so many are on their way to the disk
  WorkerResult result_;
};

}  // namespace

Result<WorkerResult> replay_share(mc_client* client, const Trace& trace, const WorkerPlan& plan,
                                  std::uint64_t start_ns, int progress_fd) {
  Worker worker(client, trace, plan, start_ns, progress_fd);
  if (Status ran = worker.run(); !ran.ok()) return fail(std::move(ran));
  return worker.take_result();
}

}  // namespace mc::ctl
