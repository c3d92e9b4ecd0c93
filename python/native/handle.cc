// SPDX-License-Identifier: Apache-2.0
//
// BufferHandle: the result of Mooncake's getters, a buffer with ptr() and size().
// Threads: with the interpreter's lock. Owns: the buffer of the source object (a View or a copy).
//   The bytes therefore stay in place.
#include "client.h"

namespace mckv {

namespace {

class BufferHandle {
 public:
  explicit BufferHandle(nb::handle object) : bytes_(object, HeldBytes::Access::kRead) {
    if (bytes_.on_device()) {
      raise(MC_UNSUPPORTED, "this tensor is in device memory; copy it to the host first");
    }
  }
  std::uintptr_t ptr() const { return reinterpret_cast<std::uintptr_t>(bytes_.data()); }
  std::size_t size() const { return bytes_.size(); }
  int fill(PyObject* self, Py_buffer* buffer, int flags) const noexcept {
    return PyBuffer_FillInfo(buffer, self, bytes_.data(), static_cast<Py_ssize_t>(bytes_.size()), 1,
                             flags);
  }

 private:
  HeldBytes bytes_;
};

int getbuffer(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  return nb::inst_ptr<BufferHandle>(self)->fill(self, buffer, flags);
}
PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(getbuffer)}, {0, nullptr}};

}  // namespace

void bind_handle(nb::module_& module) {
  nb::class_<BufferHandle>(module, "BufferHandle", nb::type_slots(slots), nb::is_final(),
                           "Bytes to read, with their address; they stay as long as this does.")
      .def(nb::init<nb::handle>(), nb::arg("object"),
           nb::sig("def __init__(self, object: typing.Any) -> None"))
      .def("ptr", &BufferHandle::ptr, "Where the bytes are; read only.")
      .def("size", &BufferHandle::size, "How many.")
      .def("__len__", &BufferHandle::size);
}

}  // namespace mckv
