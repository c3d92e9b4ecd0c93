// SPDX-License-Identifier: Apache-2.0
//
// Python objects for writing in place (Reservation), session memory (SessionBuffer) and groups that
//   commit together (Group).
// Threads: with the interpreter's lock. A Group in use by a thread refuses other threads.
// Owns: each object owns its handle of mc.h and a reference to the client. Trusts: nothing that the
//   caller passes.
#pragma once

#include "addresses.h"
#include "core.h"

namespace mckv {

class Reservation {
 public:
  Reservation(CorePtr core, mc_reservation* handle, std::size_t size)
      : core_(std::move(core)), handle_(handle), size_(size) {}
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  std::size_t size() const { return size_; }
  std::vector<mc_span> pieces() const;
  bool write_ranges(nb::handle addresses, nb::handle sizes, nb::handle offsets,
                    const AddressRanges* ranges, nb::handle stream);
  void commit(nb::handle key, nb::handle length, const PutRules& rules);
  void abandon();
  bool open() const { return handle_ != nullptr; }

  int fill(PyObject* self, Py_buffer* buffer, int flags) noexcept;
  void add_export() { ++exports_; }
  void drop_export() { --exports_; }

 private:
  void refuse_while_used() const;

  CorePtr core_;
  mc_reservation* handle_;
  std::size_t size_;
  int exports_ = 0;
};

class SessionBuffer {
 public:
  SessionBuffer(CorePtr core, void* data, std::size_t size)
      : core_(std::move(core)), data_(data), size_(size) {}
  ~SessionBuffer() {
    if (!core_->inherited()) mc_free(core_->client(), data_);
  }
  SessionBuffer(const SessionBuffer&) = delete;
  SessionBuffer& operator=(const SessionBuffer&) = delete;
  std::size_t size() const { return size_; }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }
  int fill(PyObject* self, Py_buffer* buffer, int flags) const noexcept;

 private:
  CorePtr core_;
  void* data_;
  std::size_t size_;
};

class Group {
 public:
  Group(CorePtr core, mc_group* handle) : core_(std::move(core)), handle_(handle) {}
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void put(nb::handle key, nb::handle value, PutRules rules);
  void commit(nb::handle timeout);
  void abort();
  bool open() const { return handle_ != nullptr; }

 private:
  mc_group* take();  // transfers the handle to the caller

  CorePtr core_;
  mc_group* handle_;
  bool busy_ = false;
};

void bind_writing(nb::module_& module);

}  // namespace mckv
