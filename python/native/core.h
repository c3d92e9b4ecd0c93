// SPDX-License-Identifier: Apache-2.0
//
// What it is: what every binding needs: the client with its life, statuses as exceptions, and
//   Python's arguments as bytes of mc.h.
// Threads: with the interpreter's lock, where a member does not say otherwise.
// Owns: a Core owns its mc_client and closes it when the last of the Client object, its views,
//   reservations, groups, buffers and queues, and the calls that run, is gone.
// Trusts: nothing of what Python passes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gil.h"
#include "mc/mc.h"

namespace nb = nanobind;

namespace mckv {

class Core {
 public:
  explicit Core(mc_client* client) : client_(client), forks_(fork_generation()) {}
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  mc_client* client() const { return client_; }
  // The client was opened before a fork that led here: its memory is not mapped in this process.
  bool inherited() const { return forks_ != fork_generation(); }
  // Whether a read of this thread may have to wait for the agent.
  bool may_wait() const { return mc_ready(client_) == 0; }

 private:
  mc_client* client_;
  unsigned forks_;
};
using CorePtr = std::shared_ptr<Core>;

// The lock is let go for a large copy, and whenever the call may wait.
inline bool keeps_lock(const Core& core, std::size_t bytes) {
  return bytes <= kCopyWithLockBytes && !core.may_wait();
}
template <typename Call>
auto run(bool with_lock, Call&& call) {
  if (with_lock) return call();
  const GilReleased released;
  return call();
}

// The exception of mckv for a status. text: what mc_last_error() said, or null for the sentence of
// the status. Never returns.
[[noreturn]] void raise(mc_status status, const char* text = nullptr);
// Raises for anything but MC_OK, with the words of this thread's last call.
inline void check(mc_status status) {
  if (status != MC_OK) [[unlikely]] {
    raise(status, mc_last_error());
  }
}
[[noreturn]] void raise_buffer_error(const char* text);

// A key as bytes of the object that holds them: str (as UTF-8) or bytes. The object must live.
mc_slice key_of(nb::handle key);
// A list, tuple or other iterable of keys; holds what it must.
class Keys {
 public:
  explicit Keys(nb::handle keys);
  std::size_t size() const { return slices_.size(); }
  const mc_slice& operator[](std::size_t i) const { return slices_[i]; }
  const mc_slice* data() const { return slices_.data(); }

 private:
  nb::object sequence_;
  std::vector<mc_slice> slices_;
};

// Seconds to nanoseconds: None is 0 (the client's default), 0 is the shortest wait there is.
std::uint64_t nanoseconds(nb::handle seconds);
std::uint64_t milliseconds(nb::handle seconds);

// The bytes of an object with the buffer protocol, or of a tensor in memory of the host or of a
// CUDA device (DLPack), held in place while this lives. They must lie in one piece.
class HeldBytes {
 public:
  enum class Access { kRead, kWrite };
  HeldBytes(nb::handle object, Access access);
  HeldBytes(HeldBytes&& other) noexcept;
  HeldBytes& operator=(HeldBytes&&) = delete;
  ~HeldBytes();
  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool on_device() const { return on_device_; }  // libmc may read and write it, nobody else here

 private:
  Py_buffer buffer_{};
  bool held_ = false;
  nb::ndarray<nb::ro> tensor_;  // holds the tensor's memory
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool on_device_ = false;
};

// The keywords that all puts share.
struct PutRules {
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  PutRules(nb::handle parent, nb::handle pin, nb::handle pin_ttl, bool upsert, nb::handle timeout);
};

// Calls body(first, count) for parts of at most MC_MAX_BATCH_ITEMS items.
template <typename Body>
void in_batches(std::size_t total, Body&& body) {
  for (std::size_t first = 0; first < total; first += MC_MAX_BATCH_ITEMS) {
    body(first, std::min<std::size_t>(total - first, MC_MAX_BATCH_ITEMS));
  }
}

nb::list list_of(const std::vector<mc_status>& statuses);

}  // namespace mckv
