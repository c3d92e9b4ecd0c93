// SPDX-License-Identifier: Apache-2.0
#include "core.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace mckv {

Core::~Core() {
  // In a forked child mc_close() does not touch the parent's client. While the interpreter ends,
  // the lock must stay held; closing then waits for no Python thread.
  if (interpreter_ends() || PyGILState_Check() == 0) {
    mc_close(client_);
    return;
  }
  const GilReleased released;
  mc_close(client_);
}

void raise(mc_status status, const char* text) {
  if (text == nullptr || *text == '\0') text = mc_status_text(status);
  nb::object make = nb::module_::import_("mckv._errors").attr("error_for");
  nb::object error = make(static_cast<int>(status), nb::bytes(text, std::strlen(text)));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void raise_buffer_error(const char* text) {
  PyErr_SetString(PyExc_BufferError, text);
  throw nb::python_error();
}

mc_slice key_of(nb::handle key) {
  if (PyUnicode_Check(key.ptr())) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(key.ptr(), &size);
    if (text == nullptr) throw nb::python_error();
    return {text, static_cast<std::size_t>(size)};
  }
  if (PyBytes_Check(key.ptr())) {
    return {PyBytes_AS_STRING(key.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(key.ptr()))};
  }
  PyErr_Format(PyExc_TypeError, "a key is str or bytes, not %.100s", Py_TYPE(key.ptr())->tp_name);
  throw nb::python_error();
}

Keys::Keys(nb::handle keys) {
  if (PyUnicode_Check(keys.ptr()) || PyBytes_Check(keys.ptr())) {
    PyErr_SetString(PyExc_TypeError, "keys is a sequence of keys; put one key in a list");
    throw nb::python_error();
  }
  // A private tuple, because the caller's list may shrink while the lock is released.
  PyObject* tuple = PySequence_Tuple(keys.ptr());
  if (tuple == nullptr) throw nb::python_error();
  sequence_ = nb::steal(tuple);
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(tuple));
  slices_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    slices_.push_back(key_of(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i))));
  }
}

namespace {

double seconds_of(nb::handle seconds) {
  const double value = PyFloat_AsDouble(seconds.ptr());
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!(value >= 0.0)) raise(MC_INVALID_ARGUMENT, "a time in seconds must not be negative or NaN");
  return value;
}

}  // namespace

std::uint64_t nanoseconds(nb::handle seconds) {
  if (seconds.is_none()) return 0;
  const double value = seconds_of(seconds) * 1e9;
  if (value > static_cast<double>(MC_MAX_TIMEOUT_NS)) {
    raise(MC_INVALID_ARGUMENT, "a timeout is at most 3600 s (MC_MAX_TIMEOUT_NS)");
  }
  return value < 1.0 ? 1 : static_cast<std::uint64_t>(value);
}

std::uint64_t milliseconds(nb::handle seconds) {
  if (seconds.is_none()) return 0;
  const double value = std::ceil(seconds_of(seconds) * 1e3);
  if (value > 1e15) raise(MC_INVALID_ARGUMENT, "pin_ttl is too long");
  return value < 1.0 ? 1 : static_cast<std::uint64_t>(value);
}

namespace {

bool in_one_piece(const nb::ndarray<nb::ro>& array) {
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) == 1) continue;
    if (array.stride(i) != expected) return false;
    expected *= static_cast<std::int64_t>(array.shape(i));
  }
  return true;
}

}  // namespace

HeldBytes::HeldBytes(nb::handle object, Access access) {
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    const int flags = access == Access::kWrite ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nb::python_error();
    held_ = true;
    data_ = buffer_.buf;
    size_ = static_cast<std::size_t>(buffer_.len);
    return;
  }
  nb::ndarray<nb::ro>& array = tensor_;
  if (!nb::hasattr(object, "__dlpack__") || !nb::try_cast(object, array, false)) {
    PyErr_Format(PyExc_TypeError,
                 "needs bytes, an object with the buffer protocol or a tensor, not %.100s",
                 Py_TYPE(object.ptr())->tp_name);
    throw nb::python_error();
  }
  // libmc itself copies to and from CUDA device memory.
  const int kind = array.device_type();
  on_device_ = kind == nb::device::cuda::value;
  if (!on_device_ && kind != nb::device::cpu::value && kind != nb::device::cuda_host::value &&
      kind != nb::device::cuda_managed::value) {
    raise(MC_UNSUPPORTED,
          "this tensor is in memory of a device that is not CUDA's; copy it to the "
          "host first");
  }
  if (!in_one_piece(array)) {
    raise_buffer_error("the tensor's elements do not lie one after the other; use .contiguous()");
  }
  data_ = const_cast<void*>(array.data());
  size_ = array.nbytes();
}

HeldBytes::HeldBytes(HeldBytes&& other) noexcept
    : buffer_(other.buffer_),
      held_(std::exchange(other.held_, false)),
      tensor_(std::move(other.tensor_)),
      data_(other.data_),
      size_(other.size_),
      on_device_(other.on_device_) {}

HeldBytes::~HeldBytes() {
  if (held_) PyBuffer_Release(&buffer_);
}

namespace {

// A value of an enumeration from 0 to highest, or 0 for None.
long choice_of(nb::handle value, long highest, const char* error) {
  if (value.is_none()) return 0;
  const long number = PyLong_AsLong(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (number < 0 || number > highest) raise(MC_INVALID_ARGUMENT, error);
  return number;
}

}  // namespace

PutRules::PutRules(nb::handle parent, nb::handle pin, nb::handle pin_ttl, bool upsert,
                   nb::handle timeout, std::uint32_t replicas, nb::handle visibility,
                   std::uint64_t host) {
  if (!parent.is_none()) options.parent = key_of(parent);
  options.pin = static_cast<mc_pin>(choice_of(pin, MC_PIN_HARD, "pin is one of mckv.Pin"));
  options.visibility = static_cast<mc_visibility>(
      choice_of(visibility, MC_VISIBLE_REPLICATED, "visibility is one of mckv.Visibility"));
  options.replicas = replicas;
  options.host = host;
  options.pin_ttl_ms = milliseconds(pin_ttl);
  options.upsert = upsert ? 1 : 0;
  options.timeout_ns = nanoseconds(timeout);
}

nb::list list_of(const std::vector<mc_status>& statuses) {
  nb::list made;
  for (const mc_status status : statuses) made.append(nb::int_(static_cast<int>(status)));
  return made;
}

}  // namespace mckv
