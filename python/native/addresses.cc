// SPDX-License-Identifier: Apache-2.0
//
// Calls for engines that pass plain addresses: one call moves many objects, and gathers or scatters
//   each object from or to several addresses. Registrations of device memory.
// Threads: any Python thread. Owns: nothing.
// Trusts: the addresses, which must be memory of this process while the call runs.
//   memory_is_mapped() checks an address approximately.
#include "addresses.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "client.h"

namespace mckv {

namespace {

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;  // Linux 5.14, newer than Debian 12's libc headers
constexpr int MADV_POPULATE_WRITE = 23;
#endif

// Conversion of an int runs no Python code, so the list cannot change during the loop.
nb::object fast(nb::handle sequence) {
  PyObject* made =
      PySequence_Fast(sequence.ptr(), "needs a sequence of addresses and one of sizes");
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}
std::size_t count(const nb::object& sequence) {
  return static_cast<std::size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()));
}
PyObject* item(const nb::object& sequence, std::size_t i) {
  return PySequence_Fast_GET_ITEM(sequence.ptr(), static_cast<Py_ssize_t>(i));
}

}  // namespace

bool memory_is_mapped(std::uint64_t address, std::uint64_t size, bool writable) {
  if (address == 0 || size == 0 || address + size < address) return false;
  const std::uint64_t page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = address & ~(page - 1);
  const std::uint64_t last = (address + size - 1) & ~(page - 1);
  // msync() of anonymous memory only searches for unmapped holes.
  if (msync(reinterpret_cast<void*>(first), last - first + page, MS_ASYNC) != 0) return false;
  const int rights = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  return madvise(reinterpret_cast<void*>(first), page, rights) == 0 &&
         madvise(reinterpret_cast<void*>(last), page, rights) == 0;
}

std::uint64_t number_of(PyObject* object) {
  if (!PyLong_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "addresses, sizes and offsets are int");
    throw nb::python_error();
  }
  const std::uint64_t value = PyLong_AsUnsignedLongLong(object);
  if (value == ~std::uint64_t{0} && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

bool AddressRanges::add(std::uint64_t address, std::uint64_t size) {
  if (!memory_is_mapped(address, size, false)) return false;
  const auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first < address + size) return false;
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second > address) return false;
  }
  ranges_.emplace(address, size);
  return true;
}

bool AddressRanges::remove(std::uint64_t address) { return ranges_.erase(address) == 1; }

bool AddressRanges::admits(const void* data, std::uint64_t size, bool writable) const {
  const auto address = reinterpret_cast<std::uint64_t>(data);
  const auto next = ranges_.upper_bound(address);
  if (next != ranges_.begin()) {
    const auto at = std::prev(next);
    if (size <= at->second && address - at->first <= at->second - size) return true;
  }
  return size == 0 || memory_is_mapped(address, size, writable);
}

template <typename Piece>
Pieces<Piece>::Pieces(std::size_t keys, nb::handle addresses, nb::handle sizes) {
  const nb::object outer_addresses = fast(addresses);
  const nb::object outer_sizes = fast(sizes);
  if (count(outer_addresses) != keys || count(outer_sizes) != keys) {
    raise(MC_INVALID_ARGUMENT, "keys, addresses and sizes must be equally many");
  }
  first_.reserve(keys + 1);
  for (std::size_t i = 0; i < keys; ++i) {
    first_.push_back(pieces_.size());
    PyObject* address = item(outer_addresses, i);
    PyObject* size = item(outer_sizes, i);
    if (PyLong_Check(address)) {
      add(address, size);
      continue;
    }
    const nb::object inner_addresses = fast(address);
    const nb::object inner_sizes = fast(size);
    if (count(inner_addresses) != count(inner_sizes)) {
      raise(MC_INVALID_ARGUMENT, "an object's addresses and sizes must be equally many");
    }
    for (std::size_t j = 0; j < count(inner_addresses); ++j) {
      add(item(inner_addresses, j), item(inner_sizes, j));
    }
  }
  first_.push_back(pieces_.size());
}

template <typename Piece>
void Pieces<Piece>::add(PyObject* address, PyObject* size) {
  const std::uint64_t bytes = number_of(size);
  if (bytes > MC_MAX_OBJECT_BYTES) raise(MC_TOO_LARGE);
  pieces_.push_back({reinterpret_cast<void*>(number_of(address)), bytes});
  bytes_ += bytes;
}

template class Pieces<mc_slice>;
template class Pieces<mc_span>;

mc_stream stream_of(nb::handle stream) {
  if (stream.is_none()) return nullptr;
  const std::uint64_t number = number_of(stream.ptr());
  // torch's default stream is number 0.
  return number == 0 ? MC_LEGACY_STREAM : reinterpret_cast<mc_stream>(number);
}

std::vector<std::uint64_t> offsets_of(nb::handle offsets, std::size_t wanted) {
  const nb::object all = fast(offsets);
  if (count(all) != wanted) raise(MC_INVALID_ARGUMENT, "an offset for each piece is needed");
  std::vector<std::uint64_t> made(wanted);
  for (std::size_t i = 0; i < wanted; ++i) made[i] = number_of(item(all, i));
  return made;
}

nb::list get_items(const Core& core, std::vector<mc_get_item>& items, std::uint64_t bytes,
                   nb::handle stream) {
  mc_stream const order = stream_of(stream);
  for (mc_get_item& item : items) item.status = MC_INTERNAL;
  nb::list made;
  in_batches(items.size(), [&](std::size_t first, std::size_t count) {
    const mc_status status = run(order == nullptr && keeps_lock(core, bytes), [&] {
      return mc_get_batch_on_stream(core.client(), items.data() + first, count, order);
    });
    bool told = status == MC_OK;
    for (std::size_t i = first; i < first + count; ++i) {
      mc_get_item& item = items[i];
      // If the call failed before reading the items, the items have no result yet.
      if (item.status == MC_INTERNAL) item.status = status;
      told = told || item.status != MC_OK;
      made.append(nb::int_(item.status == MC_OK ? static_cast<std::int64_t>(item.length)
                                                : -static_cast<std::int64_t>(item.status)));
    }
    if (!told) check(status);
  });
  return made;
}

namespace {

nb::list put_addresses(const Client& self, nb::handle keys, nb::handle addresses, nb::handle sizes,
                       nb::handle parents, nb::handle pin, nb::handle pin_ttl, bool upsert,
                       nb::handle timeout, std::uint32_t replicas, nb::handle visibility,
                       std::uint64_t host, const AddressRanges* ranges, nb::handle stream) {
  const CorePtr core = self.core();
  const Keys names(keys);
  PutRules rules(nb::none(), pin, pin_ttl, upsert, timeout, replicas, visibility, host);
  rules.options.stream = stream_of(stream);
  const Pieces<mc_slice> pieces(names.size(), addresses, sizes);
  nb::object all_parents;
  if (!parents.is_none()) {
    PyObject* made = PySequence_Tuple(parents.ptr());
    if (made == nullptr) throw nb::python_error();
    all_parents = nb::steal(made);
    if (nb::len(all_parents) != names.size()) {
      raise(MC_INVALID_ARGUMENT, "keys and parents must be equally many");
    }
  }
  std::vector<mc_put_item> items;
  items.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    mc_slice parent{nullptr, 0};
    if (all_parents.is_valid() && !nb::object(all_parents[i]).is_none()) {
      parent = key_of(nb::object(all_parents[i]));
    }
    // An item without pieces fails like an empty value.
    const bool good = pieces.admitted(i, ranges, false);
    items.push_back(
        {names[i], good ? pieces.of(i) : nullptr, good ? pieces.count_of(i) : 0, parent, MC_OK});
  }
  in_batches(items.size(), [&](std::size_t first, std::size_t count) {
    run(false, [&] {
      const mc_status status =
          mc_put_batch(core->client(), items.data() + first, count, &rules.options);
      if (status == MC_OK) return;
      // If the call failed before reading the items, the items have no result yet.
      const bool told = std::any_of(items.begin() + static_cast<std::ptrdiff_t>(first),
                                    items.begin() + static_cast<std::ptrdiff_t>(first + count),
                                    [](const mc_put_item& item) { return item.status != MC_OK; });
      for (std::size_t i = first; !told && i < first + count; ++i) items[i].status = status;
    });
  });
  nb::list made;
  for (const mc_put_item& item : items) made.append(nb::int_(static_cast<int>(item.status)));
  return made;
}

nb::list get_addresses(const Client& self, nb::handle keys, nb::handle addresses, nb::handle sizes,
                       nb::handle offsets, const AddressRanges* ranges, nb::handle stream) {
  const CorePtr core = self.core();
  const Keys names(keys);
  const Pieces<mc_span> pieces(names.size(), addresses, sizes);
  std::vector<mc_get_item> items;
  items.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    // Refuses a missing piece that has a size.
    const bool good = pieces.admitted(i, ranges, true);
    items.push_back(
        {names[i], good ? pieces.of(i) : nullptr, good ? pieces.count_of(i) : 1, 0, 0, MC_OK});
  }
  if (!offsets.is_none()) {
    const std::vector<std::uint64_t> all = offsets_of(offsets, names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      items[i].offset = all[i];
      items[i].length = pieces.bytes_of(i);
    }
  }
  return get_items(*core, items, pieces.bytes(), stream);
}

// One object at one address, without lists.
std::int64_t get_address(const Client& self, nb::handle key, nb::handle address, nb::handle size,
                         const AddressRanges* ranges) {
  const CorePtr core = self.core();
  const mc_slice name = key_of(key);
  auto* to = reinterpret_cast<void*>(number_of(address.ptr()));
  const std::uint64_t bytes = number_of(size.ptr());
  if (ranges != nullptr && !ranges->admits(to, bytes, true)) return -MC_INVALID_ARGUMENT;
  std::size_t copied = 0;
  const mc_status status = run(keeps_lock(*core, bytes),
                               [&] { return mc_get(core->client(), name, to, bytes, &copied); });
  return status == MC_OK ? static_cast<std::int64_t>(copied) : -static_cast<std::int64_t>(status);
}

}  // namespace

void bind_ranges(nb::module_& module) {
  nb::class_<AddressRanges>(module, "AddressRanges",
                            "Memory that an engine registered, and so need not be looked at.")
      .def(nb::init<>())
      .def("add", &AddressRanges::add, nb::arg("address"), nb::arg("size"),
           "False: it overlaps one that is there, or is no memory.")
      .def("remove", &AddressRanges::remove, nb::arg("address"), "False: none begins there.")
      .def("__len__", &AddressRanges::count);
}

namespace {

void register_memory(const Client& self, nb::handle buffer) {
  const CorePtr core = self.core();
  const HeldBytes bytes(buffer, HeldBytes::Access::kRead);
  check(run(false, [&] { return mc_register_memory(core->client(), bytes.data(), bytes.size()); }));
}

void unregister_memory(const Client& self, nb::handle buffer) {
  const CorePtr core = self.core();
  const HeldBytes bytes(buffer, HeldBytes::Access::kRead);
  check(run(false, [&] { return mc_unregister_memory(core->client(), bytes.data()); }));
}

}  // namespace

void bind_addresses(nb::class_<Client>& client) {
  client
      .def("register_memory", &register_memory, nb::arg("buffer"),
           nb::sig("def register_memory(self, buffer: object) -> None"),
           "Lets the worker of the GPU (mc-gpu) copy this tensor's memory; host memory: no effect.")
      .def("unregister_memory", &unregister_memory, nb::arg("buffer"),
           nb::sig("def unregister_memory(self, buffer: object) -> None"),
           "Call once per register_memory(), before the memory is freed.")
      .def(
          "put_addresses", &put_addresses, nb::arg("keys"), nb::arg("addresses"), nb::arg("sizes"),
          nb::kw_only(), nb::arg("parents") = nb::none(), MCKV_PUT_ARGS,
          nb::arg("ranges").none() = nb::none(), nb::arg("stream") = nb::none(),
          nb::sig("def put_addresses(self, keys: collections.abc.Iterable[str | bytes], addresses: "
                  "collections.abc.Sequence[int] | "
                  "collections.abc.Sequence[collections.abc.Sequence[int]], sizes: "
                  "collections.abc.Sequence[int] | "
                  "collections.abc.Sequence[collections.abc.Sequence[int]], *, parents: "
                  "collections.abc.Iterable[str | bytes | None] | None = None, " MCKV_PUT_KEYWORDS
                  ", ranges: AddressRanges | None = None, stream: int | None = None) -> list[int]"),
          R"(put_batch() for plain addresses; the Status of each key.

An object comes from one address, or from a list of them, one after the other (at most 1,024). The
caller answers for the memory: an address that is none ends the process. With ranges, addresses
outside of them are looked at first, and INVALID_ARGUMENT is the answer for what is no memory.)")
      .def(
          "get_addresses", &get_addresses, nb::arg("keys"), nb::arg("addresses"), nb::arg("sizes"),
          nb::arg("offsets") = nb::none(), nb::kw_only(), nb::arg("ranges").none() = nb::none(),
          nb::arg("stream") = nb::none(),
          nb::sig("def get_addresses(self, keys: collections.abc.Iterable[str | bytes], addresses: "
                  "collections.abc.Sequence[int] | "
                  "collections.abc.Sequence[collections.abc.Sequence[int]], sizes: "
                  "collections.abc.Sequence[int] | "
                  "collections.abc.Sequence[collections.abc.Sequence[int]], offsets: "
                  "collections.abc.Sequence[int] | None = None, *, ranges: AddressRanges | None = "
                  "None, stream: int | None = None) -> list[int]"),
          R"(get_into_batch() for plain addresses: the bytes copied for each key, or minus its Status.

With offsets, exactly the sum of an object's sizes is read from its offset on.)")
      .def("get_address", &get_address, nb::arg("key"), nb::arg("address"), nb::arg("size"),
           nb::arg("ranges").none() = nb::none(),
           nb::sig("def get_address(self, key: str | bytes, address: int, size: int, ranges: "
                   "AddressRanges | None = None) -> int"),
           "get_addresses() of one object at one address.")
      .def_static(
          "memory_is_mapped", &memory_is_mapped, nb::arg("address"), nb::arg("size"),
          nb::arg("writable"),
          "Whether size bytes from address are memory of this process. Looks for holes, and "
          "at the rights of the first and the last byte; a look of about a microsecond.");
}

}  // namespace mckv
