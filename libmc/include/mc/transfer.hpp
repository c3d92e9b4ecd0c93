// SPDX-License-Identifier: Apache-2.0
//
// The header-only C++ interface of transfer.h: the same calls with owning handles, spans and
//   Result. Each member is documented at the call of transfer.h with the same name.
// Threads: as in transfer.h. One thread at a time may use a TransferBatch.
// Owns: each object owns its handle. A TransferBatch must be destroyed before its TransferEngine. A moved-from handle
//   is empty, and calls on it return MC_INVALID_ARGUMENT.
// Trusts: as transfer.h.
//
// No function throws. Lengths are bytes. A timeout_ns of 0 means the engine's default.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "mc/mc.hpp"
#include "mc/transfer.h"

namespace mc {

using TransferSegment = mc_transfer_segment;
using TransferRange = mc_transfer_range;
using TransferRegion = mc_transfer_region;
using TransferRequest = mc_transfer_request;
using TransferState = mc_transfer_status;
using TransferInfo = mc_transfer_info;

// The strings must live until TransferEngine::open() has returned. Null: the default of transfer.h.
struct TransferOptions {
  const char* listen = nullptr;
  const char* metadata = nullptr;
  const char* name = nullptr;
  const char* cluster = nullptr;
  const char* key_file = nullptr;
  std::uint64_t timeout_ns = 0;
  std::uint32_t lanes = 0;
  bool same_host = true;  // false: never copies from process to process
  const char* congestion_control = nullptr;
  const char* transports = nullptr;
  const char* devices = nullptr;
  const char* fabric_provider = nullptr;
  std::uint32_t rdma_ack_timeout = 0;
};

struct TransferSubmitOptions {
  std::uint64_t timeout_ns = 0;
  TransferSegment notify = 0;
  std::string_view notify_name = {};
  std::string_view notify_message = {};
  mc_transfer_priority priority = MC_TRANSFER_FOREGROUND;
  bool checksum = false;
};

inline TransferRequest transfer_get(void* local, TransferSegment segment, std::uint64_t remote,
                                    std::uint64_t size) noexcept {
  return {MC_TRANSFER_GET, 0, local, segment, remote, size};
}
inline TransferRequest transfer_put(const void* local, TransferSegment segment,
                                    std::uint64_t remote, std::uint64_t size) noexcept {
  return {MC_TRANSFER_PUT, 0, const_cast<void*>(local), segment, remote, size};
}

// The status of this thread's last transfer.h call, with the text of mc_transfer_last_error().
inline Status last_transfer_status(mc_status code) noexcept {
  if (code == MC_OK) return {};
  const char* text = mc_transfer_last_error();
  return *text == '\0' ? Status(code) : detail::worded(code, text);
}

namespace detail {

template <typename T>
Result<T> transfer_result(mc_status code, const T& value) noexcept {
  if (code != MC_OK) return tl::make_unexpected(last_transfer_status(code));
  return value;
}
inline mc_transfer_submit_options submit_options(const TransferSubmitOptions& options) noexcept {
  mc_transfer_submit_options given = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
  given.timeout_ns = options.timeout_ns;
  given.notify = options.notify;
  given.notify_name = as_slice(options.notify_name);
  given.notify_message = as_slice(options.notify_message);
  given.priority = options.priority;
  given.checksum = options.checksum ? 1 : 0;
  return given;
}

}  // namespace detail

// Requests that were submitted together. The destructor cancels the requests that have not ended, waits for them, and
// frees the batch.
class TransferBatch {
 public:
  TransferBatch() = default;
  TransferBatch(TransferBatch&& other) noexcept
      : engine_(other.engine_), id_(std::exchange(other.id_, 0)) {}
  TransferBatch& operator=(TransferBatch&& other) noexcept {
    if (this != &other) {
      end();
      engine_ = other.engine_;
      id_ = std::exchange(other.id_, 0);
    }
    return *this;
  }
  ~TransferBatch() { end(); }

  // Whether all requests and the notification have ended. states: empty, or room for each request.
  Result<bool> poll(std::span<TransferState> states = {}) const noexcept {
    std::uint32_t ended = 0;
    const mc_status code = mc_transfer_poll(
        engine_, id_, &ended, states.empty() ? nullptr : states.data(), states.size());
    return detail::transfer_result(code, ended != 0);
  }
  Status wait(std::uint64_t timeout_ns = 0) const noexcept {
    return last_transfer_status(mc_transfer_wait(engine_, id_, timeout_ns));
  }
  Status cancel() const noexcept { return last_transfer_status(mc_transfer_cancel(engine_, id_)); }
  bool empty() const noexcept { return id_ == 0; }

 private:
  friend class TransferEngine;
  TransferBatch(mc_transfer_engine* engine, mc_transfer_batch id) noexcept
      : engine_(engine), id_(id) {}
  void end() noexcept {
    if (id_ == 0) return;
    static_cast<void>(mc_transfer_cancel(engine_, id_));
    while (mc_transfer_free(engine_, id_) == MC_BUSY) {
      static_cast<void>(mc_transfer_wait(engine_, id_, 0));
    }
    id_ = 0;
  }

  mc_transfer_engine* engine_ = nullptr;
  mc_transfer_batch id_ = 0;
};

// A notification that arrived.
class TransferNote {
 public:
  std::string_view name() const noexcept { return {text_.data(), name_size_}; }
  std::string_view message() const noexcept { return {text_.data() + name_size_, message_size_}; }

 private:
  friend class TransferEngine;
  std::array<char, MC_MAX_TRANSFER_NOTE_BYTES> text_;
  std::size_t name_size_ = 0, message_size_ = 0;
};

class TransferEngine {
 public:
  static Result<TransferEngine> open(const TransferOptions& options = {}) noexcept {
    mc_transfer_options given = MC_TRANSFER_OPTIONS_INIT;
    given.listen = options.listen;
    given.metadata = options.metadata;
    given.name = options.name;
    given.cluster = options.cluster;
    given.key_file = options.key_file;
    given.timeout_ns = options.timeout_ns;
    given.lanes = options.lanes;
    given.same_host = options.same_host ? 0 : 1;
    given.congestion_control = options.congestion_control;
    given.transports = options.transports;
    given.devices = options.devices;
    given.fabric_provider = options.fabric_provider;
    given.rdma_ack_timeout = options.rdma_ack_timeout;
    mc_transfer_engine* engine = nullptr;
    const mc_status code = mc_transfer_open(&given, &engine);
    if (code != MC_OK) return tl::make_unexpected(last_transfer_status(code));
    return TransferEngine(engine);
  }
  TransferEngine() = default;

  Result<TransferInfo> info() const noexcept {
    TransferInfo info{};
    info.struct_size = sizeof info;
    return detail::transfer_result(mc_transfer_get_info(handle_.get(), &info), info);
  }
  // Writes the description into text. Returns the length of the whole description.
  Result<std::size_t> describe(std::span<char> text) const noexcept {
    std::size_t size = text.size();
    const mc_status code = mc_transfer_describe(handle_.get(), text.data(), &size);
    return detail::transfer_result(code, size);
  }

  // location: "cpu:0", "cuda:3"; null: by each page.
  Status register_memory(std::span<const TransferRange> ranges, std::uint32_t rights,
                         const char* location = nullptr) noexcept {
    return last_transfer_status(
        mc_transfer_register_at(handle_.get(), ranges.data(), ranges.size(), rights, location));
  }
  Status unregister_memory(std::span<void* const> addresses) noexcept {
    return last_transfer_status(
        mc_transfer_unregister(handle_.get(), addresses.data(), addresses.size()));
  }

  Result<TransferSegment> open_segment(const char* name, std::uint64_t timeout_ns = 0) noexcept {
    TransferSegment segment = 0;
    const mc_status code = mc_transfer_open_segment(handle_.get(), name, timeout_ns, &segment);
    return detail::transfer_result(code, segment);
  }
  Status close_segment(TransferSegment segment) noexcept {
    return last_transfer_status(mc_transfer_close_segment(handle_.get(), segment));
  }
  Status probe(const char* name, std::uint64_t timeout_ns = 0) noexcept {
    return last_transfer_status(mc_transfer_probe(handle_.get(), name, timeout_ns));
  }
  // Fills regions with the peer's first registered ranges. Returns the number of registered ranges.
  Result<std::size_t> list_regions(TransferSegment segment, std::span<TransferRegion> regions,
                                   std::uint64_t timeout_ns = 0) noexcept {
    std::size_t count = regions.size();
    const mc_status code =
        mc_transfer_list_regions(handle_.get(), segment, timeout_ns, regions.data(), &count);
    return detail::transfer_result(code, count);
  }
  Result<bool> segment_is_local(TransferSegment segment) noexcept {
    std::uint32_t is_local = 0;
    const mc_status code = mc_transfer_segment_is_local(handle_.get(), segment, &is_local);
    return detail::transfer_result(code, is_local != 0);
  }

  Result<TransferBatch> submit(std::span<const TransferRequest> requests,
                               const TransferSubmitOptions& options = {}) noexcept {
    const mc_transfer_submit_options given = detail::submit_options(options);
    mc_transfer_batch batch = 0;
    const mc_status code =
        mc_transfer_submit(handle_.get(), requests.data(), requests.size(), &given, &batch);
    if (code != MC_OK) return tl::make_unexpected(last_transfer_status(code));
    return TransferBatch(handle_.get(), batch);
  }
  // Submits and waits; the fastest way to wait.
  Status run(std::span<const TransferRequest> requests,
             const TransferSubmitOptions& options = {}) noexcept {
    const mc_transfer_submit_options given = detail::submit_options(options);
    return last_transfer_status(
        mc_transfer_run(handle_.get(), requests.data(), requests.size(), &given));
  }
  Status notify(TransferSegment segment, std::string_view name, std::string_view message,
                std::uint64_t timeout_ns = 0) noexcept {
    return last_transfer_status(
        mc_transfer_notify(handle_.get(), segment, as_slice(name), as_slice(message), timeout_ns));
  }
  // The oldest notification that arrived; MC_NOT_FOUND: none waits.
  Result<TransferNote> take_notification() noexcept {
    TransferNote note;
    const mc_status code = mc_transfer_take_notification(handle_.get(), note.text_.data(),
                                                         &note.name_size_, &note.message_size_);
    return detail::transfer_result(code, note);
  }

 private:
  explicit TransferEngine(mc_transfer_engine* handle) noexcept : handle_(handle) {}

  detail::Owned<mc_transfer_engine, mc_transfer_close> handle_;
};

}  // namespace mc
