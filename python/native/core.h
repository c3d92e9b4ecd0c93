// SPDX-License-Identifier: Apache-2.0
//
// The base of every binding: the lifetime of a client, statuses as exceptions, and Python arguments
//   as the types of mc.h.
// Threads: with the interpreter's lock, unless a member says otherwise.
// Owns: a Core owns an mc_client. The last of the Client object, views, reservations, groups,
//   buffers, queues and running calls closes the mc_client.
// Trusts: nothing that Python passes.
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
  // The parent process opened the client before a fork: this process does not map the client's
  // memory.
  bool inherited() const { return forks_ != fork_generation(); }
  // True if a read by this thread may wait for the agent.
  bool may_wait() const { return mc_ready(client_) == 0; }

 private:
  mc_client* client_;
  unsigned forks_;
};
using CorePtr = std::shared_ptr<Core>;

// Releases the lock for a large copy, and for every call that may wait.
inline bool keeps_lock(const Core& core, std::size_t bytes) {
  return bytes <= kCopyWithLockBytes && !core.may_wait();
}
template <typename Call>
auto run(bool with_lock, Call&& call) {
  if (with_lock) return call();
  const GilReleased released;
  return call();
}

// Raises mckv's exception for a status. text: from mc_last_error(), or null for the status' own
// text. Never returns.
[[noreturn]] void raise(mc_status status, const char* text = nullptr);
// Raises for every status except MC_OK, with the error text of this thread's last call.
inline void check(mc_status status) {
  if (status != MC_OK) [[unlikely]] {
    raise(status, mc_last_error());
  }
}
[[noreturn]] void raise_buffer_error(const char* text);

// The bytes of a key, str (as UTF-8) or bytes. The Python object must outlive the result.
mc_slice key_of(nb::handle key);
// A list, tuple or other iterable of keys; holds the Python objects.
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

// Seconds to nanoseconds. None becomes 0 (the client's default); 0 becomes the shortest wait.
std::uint64_t nanoseconds(nb::handle seconds);
std::uint64_t milliseconds(nb::handle seconds);

// The contiguous bytes of an object with the buffer protocol, or of a tensor in host or CUDA device
// memory (DLPack). Keeps the bytes in place for its own lifetime.
class HeldBytes {
 public:
  enum class Access { kRead, kWrite };
  HeldBytes(nb::handle object, Access access);
  HeldBytes(HeldBytes&& other) noexcept;
  HeldBytes& operator=(HeldBytes&&) = delete;
  ~HeldBytes();
  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool on_device() const { return on_device_; }  // only libmc may read and write the bytes

 private:
  Py_buffer buffer_{};
  bool held_ = false;
  nb::ndarray<nb::ro> tensor_;  // keeps the tensor's memory alive
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool on_device_ = false;
};

// The keyword arguments of all puts behind the parent, and their part of the signature.
#define MCKV_PUT_ARGS                                                                           \
  nb::arg("pin") = nb::none(), nb::arg("pin_ttl") = nb::none(), nb::arg("upsert") = false,      \
  nb::arg("timeout") = nb::none(), nb::arg("replicas") = 1, nb::arg("visibility") = nb::none(), \
  nb::arg("host") = 0
#define MCKV_PUT_KEYWORDS                                                        \
  "pin: int | None = None, pin_ttl: float | None = None, upsert: bool = False, " \
  "timeout: float | None = None, replicas: int = 1, visibility: int | None = None, host: int = 0"
struct PutRules {
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  PutRules(nb::handle parent, nb::handle pin, nb::handle pin_ttl, bool upsert, nb::handle timeout,
           std::uint32_t replicas = 1, nb::handle visibility = nb::none(), std::uint64_t host = 0);
};

// Calls body(first, count) for chunks of at most MC_MAX_BATCH_ITEMS items.
template <typename Body>
void in_batches(std::size_t total, Body&& body) {
  for (std::size_t first = 0; first < total; first += MC_MAX_BATCH_ITEMS) {
    body(first, std::min<std::size_t>(total - first, MC_MAX_BATCH_ITEMS));
  }
}

nb::list list_of(const std::vector<mc_status>& statuses);

}  // namespace mckv
