// SPDX-License-Identifier: Apache-2.0
//
// The Python objects of a zero-copy view and of one of its spans.
// Threads: with the interpreter's lock. Owns: the pin, until the object and every memoryview or
//   array of the object are gone. Trusts: the results of mc.h.
#pragma once

#include "addresses.h"
#include "core.h"

namespace mckv {

class View {
 public:
  View(CorePtr core, const mc_view& view) : core_(std::move(core)), view_(view) {}
  ~View() { mc_view_release(&view_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  const mc_view& get() const;  // raises after release and after a fork
  bool released() const { return view_.pin == 0; }
  std::size_t length() const { return view_.length; }
  void release();
  void check_bytes() const;  // raises SessionLostError
  void verify(nb::handle key) const;
  nb::bytes to_bytes() const;
  std::vector<mc_slice> pieces() const;
  bool copy_ranges(nb::handle addresses, nb::handle sizes, nb::handle offsets,
                   const AddressRanges* ranges, nb::handle stream) const;

  int fill(PyObject* self, Py_buffer* buffer, int flags) noexcept;
  void add_export() { ++exports_; }
  void drop_export() { --exports_; }

 private:
  CorePtr core_;
  mc_view view_;
  int exports_ = 0;
};

void bind_view(nb::module_& module);

}  // namespace mckv
