// SPDX-License-Identifier: Apache-2.0
#include "view.h"

#include <cstring>

namespace mckv {

namespace {

// One span of a view with several spans; keeps the view alive.
class Span {
 public:
  Span(nb::object view, mc_slice bytes) : view_(std::move(view)), bytes_(bytes) {
    nb::inst_ptr<View>(view_)->add_export();
  }
  ~Span() { nb::inst_ptr<View>(view_)->drop_export(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  int fill(PyObject* self, Py_buffer* buffer, int flags) const noexcept {
    return PyBuffer_FillInfo(buffer, self, const_cast<void*>(bytes_.data),
                             static_cast<Py_ssize_t>(bytes_.size), 1, flags);
  }

 private:
  nb::object view_;
  mc_slice bytes_;
};

int span_getbuffer(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  return nb::inst_ptr<Span>(self)->fill(self, buffer, flags);
}
int view_getbuffer(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  return nb::inst_ptr<View>(self)->fill(self, buffer, flags);
}
void view_releasebuffer(PyObject* self, Py_buffer*) noexcept {
  nb::inst_ptr<View>(self)->drop_export();
}

PyType_Slot view_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_getbuffer)},
                            {Py_bf_releasebuffer, reinterpret_cast<void*>(view_releasebuffer)},
                            {0, nullptr}};
PyType_Slot span_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(span_getbuffer)},
                            {0, nullptr}};

}  // namespace

const mc_view& View::get() const {
  if (released()) raise(MC_INVALID_ARGUMENT, "the view was released");
  if (core_->inherited()) raise(MC_FORKED);
  return view_;
}

void View::release() {
  if (released()) return;
  if (exports_ > 0) {
    raise_buffer_error(
        "memoryviews or arrays still use this view; it is released with the last of them");
  }
  mc_view_release(&view_);
  view_.pin = 0;
}

void View::check_bytes() const { check(mc_view_check(&get())); }

void View::verify(nb::handle key) const {
  const mc_view& view = get();
  const mc_slice slice = key_of(key);
  check(run(view.length <= kCopyWithLockBytes, [&] { return mc_view_verify(&view, slice); }));
}

std::vector<mc_slice> View::pieces() const {
  const mc_view& view = get();
  std::vector<mc_slice> pieces(view.span_count);
  pieces.resize(std::min(pieces.size(), mc_view_spans(&view, pieces.data(), pieces.size())));
  return pieces;
}

nb::bytes View::to_bytes() const {
  const mc_view& view = get();
  PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(view.length));
  if (made == nullptr) throw nb::python_error();
  const std::vector<mc_slice> parts = pieces();
  run(view.length <= kCopyWithLockBytes, [&] {
    char* to = PyBytes_AS_STRING(made);
    for (const mc_slice& part : parts) {
      std::memcpy(to, part.data, part.size);
      to += part.size;
    }
  });
  nb::bytes bytes = nb::steal<nb::bytes>(made);
  check_bytes();
  return bytes;
}

bool View::copy_ranges(nb::handle addresses, nb::handle sizes, nb::handle offsets,
                       const AddressRanges* ranges, nb::handle stream) const {
  const mc_view& view = get();
  const nb::object all_addresses = nb::make_tuple(addresses);
  const nb::object all_sizes = nb::make_tuple(sizes);
  const Pieces<mc_span> into(1, all_addresses, all_sizes);
  const std::vector<std::uint64_t> from = offsets_of(offsets, into.count_of(0));
  if (!into.admitted(0, ranges, true)) return false;
  const auto item = [&](std::uint64_t offset, const mc_span* piece) {
    return mc_read_item{&view, offset, piece, 1};
  };
  const bool copied = copy_parts<mc_read_item>(*core_, into, view.length, from, stream_of(stream),
                                               item, mc_read_views);
  check_bytes();
  return copied;
}

int View::fill(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  buffer->obj = nullptr;
  const char* problem = nullptr;
  if (released()) {
    problem = "the view was released";
  } else if (core_->inherited()) {
    problem = "the view was made before a fork; open a client in this process";
  } else if (view_.span_count != 1) {
    problem = "the pool holds this object in several pieces; use spans() or bytes()";
  }
  if (problem != nullptr) {
    PyErr_SetString(PyExc_BufferError, problem);
    return -1;
  }
  if (PyBuffer_FillInfo(buffer, self, const_cast<void*>(view_.data),
                        static_cast<Py_ssize_t>(view_.size), 1, flags) != 0) {
    return -1;
  }
  ++exports_;
  return 0;
}

void bind_span(nb::module_& module) {
  nb::class_<Span>(module, "Span", nb::type_slots(span_slots), nb::is_final(),
                   "A piece of a view; read it with memoryview().");
}

void bind_view(nb::module_& module) {
  bind_span(module);
  nb::class_<View>(module, "View", nb::type_slots(view_slots), nb::is_weak_referenceable(),
                   R"(An object's bytes in the pool itself: read-only, not copied.

The bytes neither change nor move, whatever becomes of the object, while the view or a memoryview
or array made of it lives. A thread holds at most 1,023 views at once (BusyError). A view taken
before fork() must not be read in the child: the memory is not mapped there.)")
      .def("__len__", &View::length, "Length of the object in bytes.")
      .def_prop_ro("length", &View::length, "Length of the object in bytes.")
      .def_prop_ro(
          "version", [](const View& self) { return self.get().version; },
          "Changes when the object is replaced (upsert).")
      .def_prop_ro(
          "checksum", [](const View& self) { return self.get().checksum; },
          "CRC-64/XZ of the bytes, seeded with the key's hash.")
      .def_prop_ro(
          "span_count", [](const View& self) { return self.get().span_count; },
          "In how many pieces the pool holds the object; 1 for nearly all.")
      .def_prop_ro("released", &View::released)
      .def("release", &View::release,
           "Ends the pin now. BufferError while memoryviews or arrays of it are left.")
      .def("check", &View::check_bytes,
           "Call after reading in place. SessionLostError: the bytes are another object's.")
      .def("verify", &View::verify, nb::arg("key"),
           nb::sig("def verify(self, key: str | bytes) -> None"),
           "Raises CorruptError if the bytes do not match the checksum made when they were put.")
      .def(
          "copy_ranges", &View::copy_ranges, nb::arg("addresses"), nb::arg("sizes"),
          nb::arg("offsets"), nb::arg("ranges").none() = nb::none(), nb::arg("stream") = nb::none(),
          nb::sig("def copy_ranges(self, addresses: collections.abc.Sequence[int], sizes: "
                  "collections.abc.Sequence[int], offsets: collections.abc.Sequence[int], ranges: "
                  "AddressRanges | None = None, stream: int | None = None) -> bool"),
          R"(Copies sizes[i] bytes from offsets[i] on to addresses[i]. False, and nothing is copied: a part
lies beyond the end, or an address is no memory. stream: as of get_into_batch(); release the view
after the stream has done the copies.)")
      .def("tobytes", &View::to_bytes, "A copy of the whole object.")
      .def("__bytes__", &View::to_bytes)
      .def(
          "spans",
          [](nb::handle self) {
            nb::list made;
            for (const mc_slice& piece : nb::inst_ptr<View>(self)->pieces()) {
              nb::object span =
                  nb::cast(new Span(nb::borrow(self), piece), nb::rv_policy::take_ownership);
              PyObject* view = PyMemoryView_FromObject(span.ptr());
              if (view == nullptr) throw nb::python_error();
              made.append(nb::steal(view));
            }
            return made;
          },
          nb::sig("def spans(self) -> list[memoryview]"), "The pieces of the object, in order.")
      .def(
          "numpy",
          [](nb::handle self, nb::handle dtype, nb::handle shape) {
            return nb::module_::import_("mckv._arrays").attr("as_numpy")(self, dtype, shape);
          },
          nb::arg("dtype") = nb::none(), nb::arg("shape") = nb::none(),
          nb::sig("def numpy(self, dtype: object = None, shape: collections.abc.Sequence[int] | "
                  "None = None) -> typing.Any"),
          "The bytes as a read-only numpy array (default: uint8, one dimension).")
      .def(
          "torch",
          [](nb::handle self, nb::handle dtype, nb::handle shape) {
            return nb::module_::import_("mckv._arrays").attr("as_torch")(self, dtype, shape);
          },
          nb::arg("dtype") = nb::none(), nb::arg("shape") = nb::none(),
          nb::sig("def torch(self, dtype: object = None, shape: collections.abc.Sequence[int] | "
                  "None = None) -> typing.Any"),
          R"(The bytes as a torch tensor (default: uint8, one dimension).

Operations that would write to it raise; what reaches the memory behind torch's back (data_ptr())
must not write: the mapping is read-only and the process would end with SIGSEGV.)")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> View"))
      .def(
          "__exit__", [](View& self, nb::handle, nb::handle, nb::handle) { self.release(); },
          nb::arg().none(), nb::arg().none(), nb::arg().none(),
          nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace mckv
