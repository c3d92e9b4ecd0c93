// SPDX-License-Identifier: Apache-2.0
//
// The header-only C++ interface of mc.h: the same calls with owning handles, spans and
//   Result. Each member is documented at the call of mc.h with the same name.
// Threads: as in mc.h. Any thread may use a Client and release a View. One thread at a time may use
//   a Group, a Reservation or a Buffer.
// Owns: each object owns its handle. All other objects must be destroyed before their Client. A
//   Client may be moved. A moved-from handle is empty or returns MC_INVALID_ARGUMENT.
// Trusts: as mc.h.
//
// No function throws. Only the texts of errors allocate memory; a plain miss has no text. Lengths
// are bytes. A timeout_ns of 0 means the client's default.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "mc/mc.h"
#include "mc/status.h"

namespace mc {

using Slice = mc_slice;
using PutItem = mc_put_item;
using GetItem = mc_get_item;
using Stat = mc_stat_info;
using ReadItem = mc_read_item;
using WriteItem = mc_write_item;
using Stream = mc_stream;
using Completion = mc_completion;

inline Slice as_slice(std::string_view text) noexcept { return {text.data(), text.size()}; }
inline std::span<const std::byte> as_bytes(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

namespace detail {

// Without memory for the text, the status has the code alone.
inline Status worded(mc_status code, const char* text) noexcept {
  try {
    return {code, text};
  } catch (const std::bad_alloc&) {
    return code;
  }
}

}  // namespace detail

// The status of this thread's last mc.h call, with the text of mc_last_error().
inline Status last_status(mc_status code) noexcept {
  if (code == MC_OK) return {};
  const char* text = mc_last_error();
  if (std::string_view(text) == mc_status_text(code)) return code;
  return detail::worded(code, text);
}

// The strings must live until Client::open() has returned.
struct Options {
  const char* agent = nullptr;            // socket path, or "embedded"; null: see mc.h
  const char* name_space = nullptr;       // null: "default"
  const char* label = nullptr;            // null: the program's name
  std::uint64_t timeout_ns = 0;           // 0: MC_DEFAULT_TIMEOUT_NS
  std::uint64_t staging_bytes = 0;        // 0: 64 MiB, allocated at first use
  const char* embedded_config = nullptr;  // "name=value" lines
  std::uint32_t channel_count = 0;        // threads that use the client at once; 0: 16
  mc_verify verify = MC_VERIFY_DEFAULT;   // which reads compare the bytes with their checksum
};

struct PutOptions {
  std::uint64_t timeout_ns = 0;
  std::string_view parent = {};  // key of the prefix that this object extends
  mc_pin pin = MC_PIN_NONE;
  std::uint64_t pin_ttl_ms = 0;  // soft pins only; 0: one hour
  bool upsert = false;           // replace what is stored under the key
  std::uint32_t replicas = 0;    // in a cluster: number of replicas; 0: one
  mc_visibility visibility = MC_VISIBLE_CLUSTER;
  std::uint64_t host = 0;      // in a cluster: node id of the host to hold the object; 0: this host
  mc_stream stream = nullptr;  // that orders the copies of the values
};

namespace detail {

template <auto release>
struct Release {
  template <typename Handle>
  void operator()(Handle* handle) const noexcept {
    release(handle);
  }
};
template <typename Handle, auto release>
using Owned = std::unique_ptr<Handle, Release<release>>;

inline mc_put_options put_options(const PutOptions& options, mc_group* group = nullptr) noexcept {
  return {sizeof(mc_put_options),
          options.timeout_ns,
          as_slice(options.parent),
          options.pin,
          options.upsert ? 1u : 0u,
          options.pin_ttl_ms,
          group,
          options.replicas,
          options.visibility,
          options.host,
          options.stream};
}

template <typename T>
Result<T> result_of(mc_status code, const T& value) noexcept {
  if (code != MC_OK) return tl::make_unexpected(last_status(code));
  return value;
}

inline Status unequal() noexcept {
  return worded(MC_INVALID_ARGUMENT, "keys and what is returned for them must be equally many");
}
inline Status used_up() noexcept {
  return worded(MC_INVALID_ARGUMENT, "the group was committed, aborted or moved from");
}

}  // namespace detail

// Read-only access to an object's bytes in the pool. The bytes are neither evicted nor reused while
// the View lives.
class View {
 public:
  // Up to MC_MAX_EXTENTS spans, in order, by value.
  class Spans {
   public:
    const std::span<const std::byte>* begin() const noexcept { return spans_.data(); }
    const std::span<const std::byte>* end() const noexcept { return spans_.data() + count_; }
    std::size_t size() const noexcept { return count_; }

   private:
    friend class View;
    std::array<std::span<const std::byte>, MC_MAX_EXTENTS> spans_;
    std::size_t count_ = 0;
  };

  View() = default;
  View(View&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  View& operator=(View&& other) noexcept {
    if (this != &other) {
      mc_view_release(&view_);
      view_ = std::exchange(other.view_, {});
    }
    return *this;
  }
  ~View() { mc_view_release(&view_); }

  // The whole object if it lies in one span, as usual. Empty if the object was cut
  // into several spans (use spans()) or the view is empty.
  std::span<const std::byte> bytes() const noexcept {
    if (view_.span_count != 1) return {};
    return {static_cast<const std::byte*>(view_.data), view_.size};
  }
  // All spans of the object.
  Spans spans() const noexcept {
    Spans result;
    std::array<mc_slice, MC_MAX_EXTENTS> slices;
    result.count_ = std::min(mc_view_spans(&view_, slices.data(), slices.size()), slices.size());
    for (std::size_t i = 0; i < result.count_; ++i) {
      result.spans_[i] = {static_cast<const std::byte*>(slices[i].data), slices[i].size};
    }
    return result;
  }
  // Copies as much of the object as fits into buffer; returns the number of bytes copied.
  std::size_t copy_to(std::span<std::byte> buffer) const noexcept {
    std::size_t copied = 0;
    for (const std::span<const std::byte> span : spans()) {
      const std::size_t part = std::min(span.size(), buffer.size() - copied);
      std::copy_n(span.begin(), part, buffer.begin() + static_cast<std::ptrdiff_t>(copied));
      copied += part;
    }
    return copied;
  }
  // Copies the whole object, and compares the bytes with their checksum where a get would. Errors:
  // MC_BUFFER_TOO_SMALL, MC_CORRUPT, or as check().
  Status copy(std::span<std::byte> buffer) const noexcept {
    if (buffer.size() < view_.length) return MC_BUFFER_TOO_SMALL;
    return last_status(mc_view_copy(&view_, buffer.data()));
  }
  // Call after reading. MC_SESSION_LOST: the agent died, the next agent does not know the client's
  // session, and the bytes are another object's.
  Status check() const noexcept { return last_status(mc_view_check(&view_)); }
  // MC_CORRUPT: the bytes differ from the value that was put under key. Or as check().
  Status verify(std::string_view key) const noexcept {
    return last_status(mc_view_verify(&view_, as_slice(key)));
  }
  void release() noexcept { *this = View(); }
  // Pieces that get the bytes from offset on; for Client::read_views().
  ReadItem item(std::uint64_t offset, std::span<const mc_span> pieces) const noexcept {
    return {&view_, offset, pieces.data(), pieces.size()};
  }

  bool empty() const noexcept { return view_.span_count == 0; }
  std::uint64_t length() const noexcept { return view_.length; }
  std::uint64_t version() const noexcept { return view_.version; }
  std::uint64_t checksum() const noexcept { return view_.checksum; }

 private:
  friend class Client;
  explicit View(const mc_view& view) noexcept : view_(view) {}

  mc_view view_{};
};

// Pool memory (in isolated namespaces: session memory) for the bytes of a new object. The
// destructor abandons the reservation.
class Reservation {
 public:
  Reservation() = default;

  // Fills spans with the reserved memory, in order; returns the number of spans of the reservation.
  std::size_t spans(std::span<mc_span> spans) const noexcept {
    return mc_reservation_spans(handle_.get(), spans.data(), spans.size());
  }
  // The whole reservation if it is one span, else empty.
  std::span<std::byte> bytes() const noexcept {
    mc_span span{};
    if (mc_reservation_spans(handle_.get(), &span, 1) != 1) return {};
    return {static_cast<std::byte*>(span.data), span.size};
  }
  // Publishes the first length bytes under key. The reservation is used up in every case.
  Status commit(std::string_view key, std::uint64_t length,
                const PutOptions& options = {}) noexcept {
    const mc_put_options given = detail::put_options(options);
    return last_status(mc_commit(handle_.release(), as_slice(key), length, &given));
  }
  void abandon() noexcept { handle_.reset(); }
  bool empty() const noexcept { return handle_ == nullptr; }
  // Pieces that come to the bytes from offset on; for Client::write_reservations().
  WriteItem item(std::uint64_t offset, std::span<const mc_slice> pieces) const noexcept {
    return {handle_.get(), offset, pieces.data(), pieces.size()};
  }

 private:
  friend class Client;
  explicit Reservation(mc_reservation* handle) noexcept : handle_(handle) {}

  detail::Owned<mc_reservation, mc_abandon> handle_;
};

// Puts that commit() publishes together, or not at all. The destructor aborts the group.
class Group {
 public:
  Group() = default;

  // As Client::put(). The object appears at the commit. If the put fails, the commit fails.
  Status put(std::string_view key, std::span<const std::byte> value,
             const PutOptions& options = {}) noexcept {
    if (empty()) return detail::used_up();
    const mc_put_options given = detail::put_options(options, handle_.get());
    return last_status(mc_put(client_, as_slice(key), {value.data(), value.size()}, &given));
  }
  // Writes each item's status; returns the first failure.
  Status put_batch(std::span<PutItem> items, const PutOptions& options = {}) noexcept {
    if (empty()) return detail::used_up();
    const mc_put_options given = detail::put_options(options, handle_.get());
    return last_status(mc_put_batch(client_, items.data(), items.size(), &given));
  }
  // Uses up the group in every case. MC_GROUP_ABORTED: a member failed.
  Status commit(std::uint64_t timeout_ns = 0) noexcept {
    return last_status(mc_group_commit(handle_.release(), timeout_ns));
  }
  void abort() noexcept { handle_.reset(); }
  bool empty() const noexcept { return handle_ == nullptr; }

 private:
  friend class Client;
  Group(mc_client* client, mc_group* handle) noexcept : client_(client), handle_(handle) {}

  mc_client* client_ = nullptr;
  detail::Owned<mc_group, mc_group_abort> handle_;
};

// Session memory, which the agent shares. In an isolated namespace, a put from a Buffer costs one
// copy.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : client_(other.client_), bytes_(std::exchange(other.bytes_, {})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      mc_free(client_, bytes_.data());
      client_ = other.client_;
      bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
  }
  ~Buffer() { mc_free(client_, bytes_.data()); }

  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  friend class Client;
  Buffer(mc_client* client, std::span<std::byte> bytes) noexcept : client_(client), bytes_(bytes) {}

  mc_client* client_ = nullptr;
  std::span<std::byte> bytes_;
};

// Asynchronous requests. A submission returns the request's number for cancel(). Each successful
// submission produces exactly one Completion with the user_data. The destructor cancels outstanding
// requests and waits for the end of each.
class CompletionQueue {
 public:
  CompletionQueue() = default;

  // As in mc.h: the caller may reuse keys, values and items at once. Get buffers, GetItems and
  // statuses belong to the request until its completion.
  Result<std::uint64_t> put(std::span<const PutItem> items, const PutOptions& options = {},
                            std::uint64_t user_data = 0) noexcept {
    const mc_put_options given = detail::put_options(options);
    std::uint64_t request = 0;
    const mc_status code = mc_put_async(client_, handle_.get(), items.data(), items.size(), &given,
                                        user_data, &request);
    return detail::result_of(code, request);
  }
  Result<std::uint64_t> get(std::span<GetItem> items, std::uint64_t user_data = 0) noexcept {
    std::uint64_t request = 0;
    const mc_status code =
        mc_get_async(client_, handle_.get(), items.data(), items.size(), user_data, &request);
    return detail::result_of(code, request);
  }
  // statuses must have the size of keys, else MC_INVALID_ARGUMENT.
  Result<std::uint64_t> exists(std::span<const Slice> keys, std::span<mc_status> statuses,
                               std::uint64_t user_data = 0) noexcept {
    if (keys.size() != statuses.size()) return tl::make_unexpected(detail::unequal());
    std::uint64_t request = 0;
    const mc_status code = mc_exists_async(client_, handle_.get(), keys.data(), keys.size(),
                                           statuses.data(), user_data, &request);
    return detail::result_of(code, request);
  }
  Result<std::uint64_t> remove(std::span<const Slice> keys, std::uint64_t timeout_ns = 0,
                               std::uint64_t user_data = 0) noexcept {
    std::uint64_t request = 0;
    const mc_status code = mc_remove_async(client_, handle_.get(), keys.data(), keys.size(),
                                           timeout_ns, user_data, &request);
    return detail::result_of(code, request);
  }
  // Requests an early end. MC_NOT_FOUND: the request is already complete.
  Status cancel(std::uint64_t request) noexcept {
    return last_status(mc_cancel(client_, handle_.get(), request));
  }

  // Stores the waiting completions at the front of completions and returns that part; may be empty.
  std::span<Completion> poll(std::span<Completion> completions) noexcept {
    return completions.first(mc_cq_poll(handle_.get(), completions.data(), completions.size()));
  }
  // Waits for at least one completion. MC_TIMEOUT: no completion came within timeout_ns.
  Result<std::span<Completion>> wait(std::span<Completion> completions,
                                     std::uint64_t timeout_ns) noexcept {
    std::size_t count = 0;
    const mc_status code =
        mc_cq_wait(handle_.get(), completions.data(), completions.size(), &count, timeout_ns);
    return detail::result_of(code, completions.first(count));
  }
  // Readable while completions may wait; -1 if the queue is empty (moved from).
  int fd() const noexcept { return mc_cq_fd(handle_.get()); }

 private:
  friend class Client;
  CompletionQueue(mc_client* client, mc_cq* handle) noexcept : client_(client), handle_(handle) {}

  mc_client* client_ = nullptr;
  detail::Owned<mc_cq, mc_cq_destroy> handle_;
};

// A session with this host's agent. The destructor ends the session; views, reservations and
// buffers must be destroyed before.
class Client {
 public:
  // If the agent is still starting, open() waits up to timeout_ns. Errors: MC_AGENT_UNAVAILABLE,
  // MC_PERMISSION_DENIED, MC_NO_SUCH_NAMESPACE, MC_VERSION_MISMATCH, MC_INVALID_ARGUMENT.
  static Result<Client> open(const Options& options = {}) noexcept {
    const mc_open_options given{
        sizeof(mc_open_options), options.agent,         options.name_space,
        options.label,           options.timeout_ns,    options.staging_bytes,
        options.embedded_config, options.channel_count, options.verify};
    mc_client* handle = nullptr;
    const mc_status code = mc_open(&given, &handle);
    if (code != MC_OK) return tl::make_unexpected(last_status(code));
    return Client(handle);
  }

  // Copies value (at least 1 byte) into the pool. If the key exists, the put succeeds and leaves
  // the stored object unchanged. Errors: MC_NO_SPACE, MC_TOO_LARGE, MC_TIMEOUT.
  Status put(std::string_view key, std::span<const std::byte> value,
             const PutOptions& options = {}) noexcept {
    const mc_put_options given = detail::put_options(options);
    return last_status(mc_put(handle(), as_slice(key), {value.data(), value.size()}, &given));
  }
  // Up to MC_MAX_BATCH_ITEMS items. Writes each item's status; returns the first failure.
  Status put_batch(std::span<PutItem> items, const PutOptions& options = {}) noexcept {
    const mc_put_options given = detail::put_options(options);
    return last_status(mc_put_batch(handle(), items.data(), items.size(), &given));
  }

  // Copies the object into buffer; returns the object's length. MC_BUFFER_TOO_SMALL: *length (if
  // given) has the needed size. MC_NOT_FOUND: a miss.
  Result<std::size_t> get(std::string_view key, std::span<std::byte> buffer,
                          std::size_t* length = nullptr) noexcept {
    std::size_t bytes = 0;
    const mc_status code = mc_get(handle(), as_slice(key), buffer.data(), buffer.size(), &bytes);
    if (length != nullptr) *length = bytes;
    return detail::result_of(code, bytes);
  }
  // Reads ranges into scattered buffers. Writes each item's length and status; returns the first
  // failure.
  Status get_batch(std::span<GetItem> items) noexcept {
    return last_status(mc_get_batch(handle(), items.data(), items.size()));
  }
  // Errors: MC_NOT_FOUND; MC_BUSY (this thread holds MC_MAX_VIEWS_PER_CHANNEL views).
  Result<View> get_view(std::string_view key) noexcept {
    mc_view view{};
    const mc_status code = mc_get_view(handle(), as_slice(key), &view);
    if (code != MC_OK) return tl::make_unexpected(last_status(code));
    return View(view);
  }
  // Sets views[i] if statuses[i] is MC_OK, else empties views[i]; returns the first failure. All
  // three spans must have one size, up to MC_MAX_BATCH_ITEMS, else MC_INVALID_ARGUMENT.
  Status get_view_batch(std::span<const Slice> keys, std::span<View> views,
                        std::span<mc_status> statuses) noexcept;

  // A miss is no error. Errors: the agent or the session is gone, or the key is invalid.
  Result<bool> exists(std::string_view key) noexcept {
    const mc_status code = mc_exists(handle(), as_slice(key));
    if (code == MC_NOT_FOUND) return false;
    return detail::result_of(code, true);
  }
  // statuses[i] is MC_OK or MC_NOT_FOUND. Errors: failures of the call itself; unequal sizes.
  Status exists_batch(std::span<const Slice> keys, std::span<mc_status> statuses) noexcept {
    if (keys.size() != statuses.size()) return detail::unequal();
    return last_status(mc_exists_batch(handle(), keys.data(), keys.size(), statuses.data()));
  }
  // Length, version, checksum, pin and more of an object, without its bytes. MC_NOT_FOUND: a miss.
  Result<Stat> stat(std::string_view key) noexcept {
    Stat info{};
    info.struct_size = sizeof info;
    return detail::result_of(mc_stat(handle(), as_slice(key), &info), info);
  }
  // Fills infos[i] if statuses[i] is MC_OK; returns the first failure. Unequal sizes:
  // MC_INVALID_ARGUMENT.
  Status stat_batch(std::span<const Slice> keys, std::span<Stat> infos,
                    std::span<mc_status> statuses) noexcept {
    if (keys.size() != infos.size() || keys.size() != statuses.size()) return detail::unequal();
    for (Stat& info : infos) info.struct_size = sizeof info;
    return last_status(
        mc_stat_batch(handle(), keys.data(), keys.size(), infos.data(), statuses.data()));
  }
  // Views of the object stay valid. MC_NOT_FOUND: no such object.
  Status remove(std::string_view key, std::uint64_t timeout_ns = 0) noexcept {
    return last_status(mc_remove(handle(), as_slice(key), timeout_ns));
  }
  // Writes one status per key; returns the first failure. A miss is a failure.
  Status remove_batch(std::span<const Slice> keys, std::span<mc_status> statuses,
                      std::uint64_t timeout_ns = 0) noexcept {
    if (keys.size() != statuses.size()) return detail::unequal();
    return last_status(
        mc_remove_batch(handle(), keys.data(), keys.size(), statuses.data(), timeout_ns));
  }
  // pin_ttl_ms: soft pins only; 0: one hour. MC_NOT_FOUND: no such object.
  Status set_pin(std::string_view key, mc_pin pin, std::uint64_t pin_ttl_ms = 0,
                 std::uint64_t timeout_ns = 0) noexcept {
    return last_status(mc_set_pin(handle(), as_slice(key), pin, pin_ttl_ms, timeout_ns));
  }

  // Reserves memory for an object of up to size bytes, to be written in place. Errors: MC_NO_SPACE,
  // MC_TOO_LARGE, MC_QUOTA_EXCEEDED.
  Result<Reservation> reserve(std::uint64_t size, std::uint64_t timeout_ns = 0) noexcept {
    mc_reservation* made = nullptr;
    const mc_status code = mc_reserve(handle(), size, timeout_ns, &made);
    if (code != MC_OK) return tl::make_unexpected(last_status(code));
    return Reservation(made);
  }
  // Allocates size bytes of session memory. MC_NO_SPACE: all of staging_bytes is in use.
  Result<Buffer> alloc(std::size_t size) noexcept {
    void* memory = nullptr;
    const mc_status code = mc_alloc(handle(), size, &memory);
    if (code != MC_OK) return tl::make_unexpected(last_status(code));
    return Buffer(handle(), {static_cast<std::byte*>(memory), size});
  }
  Status register_memory(std::span<const std::byte> memory) noexcept {
    return last_status(mc_register_memory(handle_.get(), memory.data(), memory.size()));
  }
  Status get_batch(std::span<GetItem> items, Stream stream) noexcept {
    return last_status(mc_get_batch_on_stream(handle_.get(), items.data(), items.size(), stream));
  }
  Status read_views(std::span<const ReadItem> items, Stream stream = nullptr) noexcept {
    return last_status(mc_read_views(handle_.get(), items.data(), items.size(), stream));
  }
  Status write_reservations(std::span<const WriteItem> items, Stream stream = nullptr) noexcept {
    return last_status(mc_write_reservations(handle_.get(), items.data(), items.size(), stream));
  }
  Status unregister_memory(const void* address) noexcept {
    return last_status(mc_unregister_memory(handle_.get(), address));
  }

  Result<Group> begin_group() noexcept {
    mc_group* made = nullptr;
    const mc_status code = mc_group_begin(handle(), &made);
    if (code != MC_OK) return tl::make_unexpected(last_status(code));
    return Group(handle(), made);
  }
  // Errors: MC_NO_MEMORY, and the errors of a thread's first call.
  Result<CompletionQueue> create_queue() noexcept {
    mc_cq* made = nullptr;
    const mc_status code = mc_cq_create(handle(), &made);
    if (code != MC_OK) return tl::make_unexpected(last_status(code));
    return CompletionQueue(handle(), made);
  }

  Result<mc_client_info> info() noexcept {
    mc_client_info info{};
    info.struct_size = sizeof info;
    return detail::result_of(mc_get_client_info(handle(), &info), info);
  }
  // A round trip to the agent without any work.
  Status ping(std::uint64_t timeout_ns = 0) noexcept {
    return last_status(mc_ping(handle(), timeout_ns));
  }
  // The handle for calls of mc.h; null if moved from. The Client keeps the ownership.
  mc_client* handle() const noexcept { return handle_.get(); }

 private:
  explicit Client(mc_client* handle) noexcept : handle_(handle) {}

  detail::Owned<mc_client, mc_close> handle_;
};

inline Status Client::get_view_batch(std::span<const Slice> keys, std::span<View> views,
                                     std::span<mc_status> statuses) noexcept {
  if (keys.size() != views.size() || keys.size() != statuses.size()) return detail::unequal();
  if (keys.size() - 1 >= MC_MAX_BATCH_ITEMS) {  // refused before a view is examined
    mc_view none{};
    return last_status(
        mc_get_view_batch(handle(), keys.data(), keys.size(), &none, statuses.data()));
  }
  constexpr std::size_t kAtOnce = 32;
  Status first;
  for (std::size_t done = 0; done < keys.size(); done += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, keys.size() - done);
    std::array<mc_view, kAtOnce> made{};
    for (std::size_t i = 0; i < count; ++i) statuses[done + i] = MC_INTERNAL;
    const Status status = last_status(mc_get_view_batch(handle(), keys.data() + done, count,
                                                        made.data(), statuses.data() + done));
    if (first.ok()) first = status;
    for (std::size_t i = 0; i < count; ++i) {
      if (statuses[done + i] == MC_INTERNAL) statuses[done + i] = status.code();
      views[done + i] = statuses[done + i] == MC_OK ? View(made[i]) : View();
    }
  }
  return first;
}

}  // namespace mc
