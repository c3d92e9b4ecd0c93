// SPDX-License-Identifier: Apache-2.0
#include "writing.h"

#include <utility>

namespace mckv {

namespace {

class WritableSpan {
 public:
  WritableSpan(nb::object owner, mc_span bytes) : owner_(std::move(owner)), bytes_(bytes) {
    nb::inst_ptr<Reservation>(owner_)->add_export();
  }
  ~WritableSpan() { nb::inst_ptr<Reservation>(owner_)->drop_export(); }
  WritableSpan(const WritableSpan&) = delete;
  WritableSpan& operator=(const WritableSpan&) = delete;
  int fill(PyObject* self, Py_buffer* buffer, int flags) const noexcept {
    return PyBuffer_FillInfo(buffer, self, bytes_.data, static_cast<Py_ssize_t>(bytes_.size), 0,
                             flags);
  }

 private:
  nb::object owner_;
  mc_span bytes_;
};

template <typename T>
int getbuffer(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  return nb::inst_ptr<T>(self)->fill(self, buffer, flags);
}
void reservation_releasebuffer(PyObject* self, Py_buffer*) noexcept {
  nb::inst_ptr<Reservation>(self)->drop_export();
}

PyType_Slot reservation_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(getbuffer<Reservation>)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(reservation_releasebuffer)},
    {0, nullptr}};
PyType_Slot writable_span_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(getbuffer<WritableSpan>)}, {0, nullptr}};
PyType_Slot session_buffer_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(getbuffer<SessionBuffer>)}, {0, nullptr}};

constexpr const char* kUsedUp = "it was committed or given up before";

}  // namespace

// ---- Reservation --------------------------------------------------------------------------------

Reservation::~Reservation() {
  if (handle_ != nullptr && !core_->inherited()) mc_abandon(handle_);
}

std::vector<mc_span> Reservation::pieces() const {
  if (handle_ == nullptr) raise(MC_INVALID_ARGUMENT, kUsedUp);
  if (core_->inherited()) raise(MC_FORKED);
  std::vector<mc_span> pieces(MC_MAX_EXTENTS);
  pieces.resize(
      std::min(pieces.size(), mc_reservation_spans(handle_, pieces.data(), pieces.size())));
  return pieces;
}

bool Reservation::write_ranges(nb::handle addresses, nb::handle sizes, nb::handle offsets,
                               const AddressRanges* ranges, nb::handle stream) {
  if (handle_ == nullptr) raise(MC_INVALID_ARGUMENT, kUsedUp);
  const nb::object all_addresses = nb::make_tuple(addresses);
  const nb::object all_sizes = nb::make_tuple(sizes);
  const Pieces<mc_slice> from(1, all_addresses, all_sizes);
  const std::vector<std::uint64_t> to = offsets_of(offsets, from.count_of(0));
  if (!from.admitted(0, ranges, false)) return false;
  const auto item = [&](std::uint64_t offset, const mc_slice* piece) {
    return mc_write_item{handle_, offset, piece, 1};
  };
  ++exports_;  // prevents a commit meanwhile
  struct Guard {
    int& exports;
    ~Guard() { --exports; }
  } const guard{exports_};
  return copy_parts<mc_write_item>(*core_, from, size_, to, stream_of(stream), item,
                                   mc_write_reservations);
}

void Reservation::refuse_while_used() const {
  if (handle_ == nullptr) raise(MC_INVALID_ARGUMENT, kUsedUp);
  if (core_->inherited()) raise(MC_FORKED);
  if (exports_ > 0) {
    raise_buffer_error(
        "memoryviews or arrays can still write to this reservation; release them first");
  }
}

void Reservation::commit(nb::handle key, nb::handle length, const PutRules& rules) {
  const mc_slice name = key_of(key);
  std::uint64_t bytes = size_;
  if (!length.is_none()) {
    bytes = PyLong_AsUnsignedLongLong(length.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  refuse_while_used();
  // mc_commit() frees the handle, also on failure; no other thread may use the handle.
  mc_reservation* handle = std::exchange(handle_, nullptr);
  check(run(false, [&] { return mc_commit(handle, name, bytes, &rules.options); }));
}

void Reservation::abandon() {
  if (handle_ == nullptr) return;
  refuse_while_used();
  mc_reservation* handle = std::exchange(handle_, nullptr);
  run(false, [&] { mc_abandon(handle); });
}

int Reservation::fill(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  buffer->obj = nullptr;
  const char* problem = nullptr;
  mc_span piece{};
  if (handle_ == nullptr) {
    problem = kUsedUp;
  } else if (core_->inherited()) {
    problem = "the reservation was made before a fork; open a client in this process";
  } else if (mc_reservation_spans(handle_, &piece, 1) != 1) {
    problem = "the pool reserved several pieces; use spans()";
  }
  if (problem != nullptr) {
    PyErr_SetString(PyExc_BufferError, problem);
    return -1;
  }
  if (PyBuffer_FillInfo(buffer, self, piece.data, static_cast<Py_ssize_t>(piece.size), 0, flags) !=
      0) {
    return -1;
  }
  ++exports_;
  return 0;
}

// ---- Session memory -----------------------------------------------------------------------------

int SessionBuffer::fill(PyObject* self, Py_buffer* buffer, int flags) const noexcept {
  if (core_->inherited()) {
    buffer->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, "the memory belongs to the process that forked");
    return -1;
  }
  return PyBuffer_FillInfo(buffer, self, data_, static_cast<Py_ssize_t>(size_), 0, flags);
}

// ---- Group --------------------------------------------------------------------------------------

Group::~Group() {
  if (handle_ != nullptr && !core_->inherited()) mc_group_abort(handle_);
}

mc_group* Group::take() {
  if (handle_ == nullptr) raise(MC_INVALID_ARGUMENT, kUsedUp);
  if (core_->inherited()) raise(MC_FORKED);
  if (busy_) raise(MC_INVALID_ARGUMENT, "another thread uses this group; one thread at a time");
  return std::exchange(handle_, nullptr);
}

void Group::put(nb::handle key, nb::handle value, PutRules rules) {
  const mc_slice name = key_of(key);
  const HeldBytes bytes(value, HeldBytes::Access::kRead);
  mc_group* handle = take();
  busy_ = true;
  rules.options.group = handle;
  const mc_status status = run(false, [&] {
    return mc_put(core_->client(), name, {bytes.data(), bytes.size()}, &rules.options);
  });
  handle_ = handle;
  busy_ = false;
  check(status);
}

void Group::commit(nb::handle timeout) {
  const std::uint64_t timeout_ns = nanoseconds(timeout);
  mc_group* handle = take();
  check(run(false, [&] { return mc_group_commit(handle, timeout_ns); }));
}

void Group::abort() {
  if (handle_ == nullptr && !busy_) return;
  mc_group* handle = take();
  run(false, [&] { mc_group_abort(handle); });
}

namespace {

void bind_reservation(nb::module_& module) {
  const nb::class_<WritableSpan> span(module, "WritableSpan", nb::type_slots(writable_span_slots),
                                      nb::is_final(),
                                      "A piece of a reservation; write it with memoryview().");

  nb::class_<Reservation>(module, "Reservation", nb::type_slots(reservation_slots),
                          R"(Room in the pool that the caller fills and then publishes.

Write to memoryview(reservation) or numpy.frombuffer(reservation, ...), release those, commit().
Without commit() the room goes back when the object is gone.)")
      .def("__len__", &Reservation::size, "Reserved bytes.")
      .def_prop_ro("size", &Reservation::size, "Reserved bytes.")
      .def_prop_ro("open", &Reservation::open, "False once committed or abandoned.")
      .def(
          "spans",
          [](nb::handle self) {
            nb::list made;
            for (const mc_span& piece : nb::inst_ptr<Reservation>(self)->pieces()) {
              nb::object span = nb::cast(new WritableSpan(nb::borrow(self), piece),
                                         nb::rv_policy::take_ownership);
              PyObject* view = PyMemoryView_FromObject(span.ptr());
              if (view == nullptr) throw nb::python_error();
              made.append(nb::steal(view));
            }
            return made;
          },
          nb::sig("def spans(self) -> list[memoryview]"),
          "The pieces to fill, in order; nearly always one.")
      .def(
          "commit",
          [](Reservation& self, nb::handle key, nb::handle length, nb::handle parent,
             nb::handle pin, nb::handle pin_ttl, bool upsert, nb::handle timeout,
             std::uint32_t replicas, nb::handle visibility, std::uint64_t host) {
            self.commit(
                key, length,
                PutRules(parent, pin, pin_ttl, upsert, timeout, replicas, visibility, host));
          },
          nb::arg("key"), nb::arg("length") = nb::none(), nb::kw_only(),
          nb::arg("parent") = nb::none(), MCKV_PUT_ARGS,
          nb::sig("def commit(self, key: str | bytes, length: int | None = None, *, parent: str | "
                  "bytes | None = None, " MCKV_PUT_KEYWORDS ") -> None"),
          R"(Publishes the first length bytes (default: all) under key.

BufferError while memoryviews or arrays of it are left: published bytes must not change. Any other
error frees the room.)")
      .def(
          "write_ranges", &Reservation::write_ranges, nb::arg("addresses"), nb::arg("sizes"),
          nb::arg("offsets"), nb::arg("ranges").none() = nb::none(), nb::arg("stream") = nb::none(),
          nb::sig("def write_ranges(self, addresses: collections.abc.Sequence[int], sizes: "
                  "collections.abc.Sequence[int], offsets: collections.abc.Sequence[int], ranges: "
                  "AddressRanges | None = None, stream: int | None = None) -> bool"),
          R"(Copies sizes[i] bytes from addresses[i] to offsets[i]. False, and nothing is copied: a part
lies beyond the end, or an address is no memory. stream: as of Client.get_into_batch(); commit()
waits for the copies.)")
      .def("abandon", &Reservation::abandon, "Gives the room back. Twice is fine.")
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Reservation"))
      .def(
          "__exit__", [](Reservation& self, nb::handle, nb::handle, nb::handle) { self.abandon(); },
          nb::arg().none(), nb::arg().none(), nb::arg().none(),
          nb::sig("def __exit__(self, *args: object) -> None"));
}

void bind_session_buffer(nb::module_& module) {
  nb::class_<SessionBuffer>(module, "SessionBuffer", nb::type_slots(session_buffer_slots),
                            R"(Writable memory shared with the agent (mc_alloc).

A put from it in an isolated namespace is copied once. Freed when the object and all memoryviews
and arrays of it are gone.)")
      .def("__len__", &SessionBuffer::size, "Bytes.")
      .def_prop_ro("size", &SessionBuffer::size, "Bytes.")
      .def_prop_ro("address", &SessionBuffer::address,
                   "Where it starts, for the *_addresses forms.");
}

void bind_group(nb::module_& module) {
  nb::class_<Group>(module, "Group", R"(Puts that become visible together, or not at all.

    with client.group() as group:
        group.put("k", keys)
        group.put("v", values)

commits at the end of the block, and aborts if it raises. The objects are evicted together as well.
At most 1,024 objects; one thread at a time.)")
      .def(
          "put",
          [](Group& self, nb::handle key, nb::handle value, nb::handle parent, nb::handle pin,
             nb::handle pin_ttl, bool upsert, nb::handle timeout, std::uint32_t replicas,
             nb::handle visibility, std::uint64_t host) {
            self.put(key, value,
                     PutRules(parent, pin, pin_ttl, upsert, timeout, replicas, visibility, host));
          },
          nb::arg("key"), nb::arg("value"), nb::kw_only(), nb::arg("parent") = nb::none(),
          MCKV_PUT_ARGS,
          nb::sig(
              "def put(self, key: str | bytes, value: typing.Any, *, parent: str | bytes | None "
              "= None, " MCKV_PUT_KEYWORDS ") -> None"),
          "Writes the value now; it is visible after commit(). Arguments as Client.put().")
      .def("commit", &Group::commit, nb::arg("timeout") = nb::none(),
           nb::sig("def commit(self, timeout: float | None = None) -> None"),
           "Publishes all. GroupAbortedError: a put of the group had failed, so none was stored.")
      .def("abort", &Group::abort, "Stores none. Twice is fine.")
      .def_prop_ro("open", &Group::open, "False once committed or aborted.")
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Group"))
      .def(
          "__exit__",
          [](Group& self, nb::handle type, nb::handle, nb::handle) {
            if (!type.is_none()) {
              self.abort();
            } else if (self.open()) {
              self.commit(nb::none());
            }
          },
          nb::arg().none(), nb::arg().none(), nb::arg().none(),
          nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace

void bind_writing(nb::module_& module) {
  bind_reservation(module);
  bind_session_buffer(module);
  bind_group(module);
}

}  // namespace mckv
