// SPDX-License-Identifier: Apache-2.0
#include "client.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <deque>

#include "view.h"
#include "writing.h"

namespace mckv {

namespace {

// A value to put: the bytes of one object, or of all objects of a list or tuple in order.
class Value {
 public:
  explicit Value(nb::handle value) {
    if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) {
      for (nb::handle piece : nb::steal<nb::tuple>(tuple_of(value))) add(piece);
    } else {
      add(value);
    }
  }
  const std::vector<mc_slice>& slices() const { return slices_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static PyObject* tuple_of(nb::handle sequence) {
    PyObject* made = PySequence_Tuple(sequence.ptr());
    if (made == nullptr) throw nb::python_error();
    return made;
  }
  void add(nb::handle piece) {
    const HeldBytes& held = held_.emplace_back(piece, HeldBytes::Access::kRead);
    slices_.push_back({held.data(), held.size()});
    bytes_ += held.size();
  }
  std::deque<HeldBytes> held_;
  std::vector<mc_slice> slices_;
  std::size_t bytes_ = 0;
};

nb::object tuple_of(nb::handle sequence) {
  PyObject* made = PySequence_Tuple(sequence.ptr());
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

void require_equal(std::size_t keys, std::size_t others, const char* text) {
  if (keys != others) raise(MC_INVALID_ARGUMENT, text);
}

[[noreturn]] void raise_too_small(std::uint64_t length) {
  const std::string text = std::string(mc_status_text(MC_BUFFER_TOO_SMALL)) + " (" +
                           std::to_string(length) + " bytes are needed)";
  raise(MC_BUFFER_TOO_SMALL, text.c_str());
}

bool is_miss(mc_status status) { return status == MC_NOT_FOUND || status == MC_CORRUPT; }

// The cluster cannot tell, or cannot read the object now.
bool is_outage(mc_status status) {
  return status == MC_HOLDER_AWAY || status == MC_DISK_AWAY || status == MC_NO_MASTER ||
         status == MC_TIMEOUT || status == MC_WRONG_KEY || status == MC_NOT_ADVERTISED;
}

// The default of a getter's argument `default`; means: raise.
PyObject* raises_instead = nullptr;
bool wants_default(mc_status status, nb::handle fallback) {
  return is_miss(status) && fallback.ptr() != raises_instead;
}

// ---- Put ----------------------------------------------------------------------------------------

void put(const Client& self, nb::handle key, nb::handle value, nb::handle parent, nb::handle pin,
         nb::handle pin_ttl, bool upsert, nb::handle timeout, std::uint32_t replicas,
         nb::handle visibility, std::uint64_t host) {
  const CorePtr core = self.core();
  const mc_slice name = key_of(key);
  const PutRules rules(parent, pin, pin_ttl, upsert, timeout, replicas, visibility, host);
  const Value bytes(value);
  if (bytes.slices().size() == 1) {
    const mc_slice whole = bytes.slices().front();
    check(run(false, [&] { return mc_put(core->client(), name, whole, &rules.options); }));
    return;
  }
  mc_put_item item{name, bytes.slices().data(), bytes.slices().size(), {nullptr, 0}, MC_OK};
  check(run(false, [&] { return mc_put_batch(core->client(), &item, 1, &rules.options); }));
}

nb::list put_batch(const Client& self, nb::handle keys, nb::handle values, nb::handle parents,
                   nb::handle pin, nb::handle pin_ttl, bool upsert, nb::handle timeout,
                   std::uint32_t replicas, nb::handle visibility, std::uint64_t host,
                   nb::handle stream) {
  const CorePtr core = self.core();
  const Keys names(keys);
  const nb::object all_values = tuple_of(values);
  require_equal(names.size(), nb::len(all_values), "keys and values must be equally many");
  PutRules rules(nb::none(), pin, pin_ttl, upsert, timeout, replicas, visibility, host);
  rules.options.stream = stream_of(stream);
  nb::object all_parents;
  if (!parents.is_none()) {
    all_parents = tuple_of(parents);
    require_equal(names.size(), nb::len(all_parents), "keys and parents must be equally many");
  }
  std::deque<Value> held;
  std::vector<mc_put_item> items;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Value& value = held.emplace_back(all_values[i]);
    mc_slice parent{nullptr, 0};
    if (all_parents.is_valid() && !nb::object(all_parents[i]).is_none()) {
      parent = key_of(nb::object(all_parents[i]));
    }
    items.push_back({names[i], value.slices().data(), value.slices().size(), parent, MC_OK});
  }
  in_batches(items.size(), [&](std::size_t first, std::size_t count) {
    const mc_status status = run(false, [&] {
      return mc_put_batch(core->client(), items.data() + first, count, &rules.options);
    });
    // If the whole call failed, the items may have no result.
    bool told = status == MC_OK;
    for (std::size_t i = first; i < first + count; ++i) told |= items[i].status != MC_OK;
    if (!told) raise(status, mc_last_error());
  });
  std::vector<mc_status> statuses;
  for (const mc_put_item& item : items) statuses.push_back(item.status);
  return list_of(statuses);
}

// ---- Get ----------------------------------------------------------------------------------------

// Returns the object's bytes, or an invalid object and *status on failure.
nb::object bytes_of(const CorePtr& core, mc_slice key, mc_status* status) {
  mc_view view{};
  *status = run(keeps_lock(*core, 0), [&] { return mc_get_view(core->client(), key, &view); });
  if (*status != MC_OK) return {};
  PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(view.length));
  if (made == nullptr) {
    mc_view_release(&view);
    throw nb::python_error();
  }
  const nb::object bytes = nb::steal(made);
  run(view.length <= kCopyWithLockBytes, [&] {
    *status = mc_view_copy(&view, PyBytes_AS_STRING(made));
    mc_view_release(&view);
  });
  return *status == MC_OK ? bytes : nb::object();
}

nb::object get(const Client& self, nb::handle key, nb::handle fallback) {
  const CorePtr core = self.core();
  mc_status status = MC_OK;
  nb::object bytes = bytes_of(core, key_of(key), &status);
  if (wants_default(status, fallback)) return nb::borrow(fallback);
  check(status);
  return bytes;
}

// Calls read(core, key, &status) for each key and returns the results. A miss, a mismatch or an outage gives None.
template <typename Read>
nb::list read_each(const Client& self, nb::handle keys, Read read) {
  const CorePtr core = self.core();
  const Keys names(keys);
  nb::list made;
  for (std::size_t i = 0; i < names.size(); ++i) {
    mc_status status = MC_OK;
    const nb::object one = read(core, names[i], &status);
    if (is_miss(status) || is_outage(status)) {
      made.append(nb::none());
    } else {
      check(status);
      made.append(one);
    }
  }
  return made;
}

nb::list get_batch(const Client& self, nb::handle keys) { return read_each(self, keys, bytes_of); }

std::size_t get_into(const Client& self, nb::handle key, nb::handle buffer, std::uint64_t offset,
                     nb::handle length) {
  const CorePtr core = self.core();
  const mc_slice name = key_of(key);
  const HeldBytes into(buffer, HeldBytes::Access::kWrite);
  if (offset == 0 && length.is_none()) {
    std::size_t copied = 0;
    const mc_status status = run(keeps_lock(*core, into.size()), [&] {
      return mc_get(core->client(), name, into.data(), into.size(), &copied);
    });
    if (status == MC_BUFFER_TOO_SMALL) raise_too_small(copied);
    check(status);
    return copied;
  }
  std::uint64_t wanted = 0;
  if (!length.is_none()) {
    wanted = PyLong_AsUnsignedLongLong(length.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    if (wanted == 0) raise(MC_INVALID_ARGUMENT, "length is at least 1; leave it out for the rest");
  }
  const mc_span piece{into.data(), into.size()};
  mc_get_item item{name, &piece, 1, offset, wanted, MC_OK};
  const mc_status status =
      run(keeps_lock(*core, into.size()), [&] { return mc_get_batch(core->client(), &item, 1); });
  if (status == MC_BUFFER_TOO_SMALL) raise_too_small(item.length);
  check(status);
  return item.length;
}

nb::list get_into_batch(const Client& self, nb::handle keys, nb::handle buffers,
                        nb::handle stream) {
  const CorePtr core = self.core();
  const Keys names(keys);
  const nb::object all = tuple_of(buffers);
  require_equal(names.size(), nb::len(all), "keys and buffers must be equally many");
  std::deque<HeldBytes> held;
  std::vector<mc_span> pieces;
  std::vector<mc_get_item> items;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const HeldBytes& into = held.emplace_back(nb::object(all[i]), HeldBytes::Access::kWrite);
    pieces.push_back({into.data(), into.size()});
    bytes += into.size();
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    items.push_back({names[i], &pieces[i], 1, 0, 0, MC_OK});
  }
  return get_items(*core, items, bytes, stream);
}

// Returns an invalid object and *status on failure.
nb::object view_of(const CorePtr& core, mc_slice key, mc_status* status) {
  mc_view made{};
  *status = run(keeps_lock(*core, 0), [&] { return mc_get_view(core->client(), key, &made); });
  if (*status != MC_OK) return {};
  return nb::cast(new View(core, made), nb::rv_policy::take_ownership);
}

nb::object view(const Client& self, nb::handle key, nb::handle fallback) {
  mc_status status = MC_OK;
  nb::object made = view_of(self.core(), key_of(key), &status);
  if (wants_default(status, fallback)) return nb::borrow(fallback);
  check(status);
  return made;
}

nb::list view_batch(const Client& self, nb::handle keys) { return read_each(self, keys, view_of); }

// ---- Ask and remove -----------------------------------------------------------------------------

bool exists(const Client& self, nb::handle key) {
  const CorePtr core = self.core();
  const mc_slice name = key_of(key);
  const mc_status status =
      run(keeps_lock(*core, 0), [&] { return mc_exists(core->client(), name); });
  if (status == MC_NOT_FOUND) return false;
  check(status);
  return true;
}

nb::list exists_batch(const Client& self, nb::handle keys) {
  const CorePtr core = self.core();
  const Keys names(keys);
  std::vector<mc_status> statuses(names.size());
  in_batches(names.size(), [&](std::size_t first, std::size_t count) {
    check(run(keeps_lock(*core, 0), [&] {
      return mc_exists_batch(core->client(), names.data() + first, count, statuses.data() + first);
    }));
  });
  nb::list made;
  for (const mc_status status : statuses) {
    if (is_outage(status)) {
      made.append(nb::none());
    } else {
      made.append(nb::bool_(status == MC_OK));
    }
  }
  return made;
}

nb::object stat_object(const mc_stat_info& info) {
  static_assert(sizeof info.length == 8);
  return nb::make_tuple(info.length, info.version, info.checksum, info.extent_count,
                        static_cast<int>(info.pin), static_cast<double>(info.pin_left_ms) / 1e3,
                        info.group, info.parent_hash);
}

nb::list stat_batch(const Client& self, nb::handle keys) {
  const CorePtr core = self.core();
  const Keys names(keys);
  nb::list made;
  in_batches(names.size(), [&](std::size_t first, std::size_t count) {
    std::vector<mc_status> statuses(count, MC_INTERNAL);
    mc_stat_info empty{};
    empty.struct_size = sizeof empty;
    std::vector<mc_stat_info> infos(count, empty);
    const mc_status status = run(keeps_lock(*core, 0), [&] {
      return mc_stat_batch(core->client(), names.data() + first, count, infos.data(),
                           statuses.data());
    });
    for (std::size_t i = 0; i < count; ++i) {
      if (statuses[i] == MC_OK) {
        made.append(stat_object(infos[i]));
      } else if (statuses[i] == MC_NOT_FOUND) {
        made.append(nb::none());
      } else if (statuses[i] == MC_INTERNAL) {
        raise(status, mc_last_error());
      } else {
        raise(statuses[i], mc_status_text(statuses[i]));
      }
    }
  });
  return made;
}

nb::list remove_batch(const Client& self, nb::handle keys, nb::handle timeout) {
  const CorePtr core = self.core();
  const Keys names(keys);
  const std::uint64_t timeout_ns = nanoseconds(timeout);
  std::vector<mc_status> statuses(names.size(), MC_INTERNAL);
  in_batches(names.size(), [&](std::size_t first, std::size_t count) {
    const mc_status status = run(false, [&] {
      return mc_remove_batch(core->client(), names.data() + first, count, statuses.data() + first,
                             timeout_ns);
    });
    // If the whole call failed, no item has a result.
    const auto* const first_item = statuses.data() + first;
    const bool told = std::any_of(first_item, first_item + count,
                                  [](mc_status one) { return one != MC_INTERNAL; });
    if (!told) raise(status, mc_last_error());
  });
  return list_of(statuses);
}

bool remove(const Client& self, nb::handle key, nb::handle timeout) {
  const CorePtr core = self.core();
  const mc_slice name = key_of(key);
  const std::uint64_t timeout_ns = nanoseconds(timeout);
  const mc_status status = run(false, [&] { return mc_remove(core->client(), name, timeout_ns); });
  if (status == MC_NOT_FOUND) return false;
  check(status);
  return true;
}

void set_pin(const Client& self, nb::handle key, nb::handle pin, nb::handle pin_ttl,
             nb::handle timeout) {
  const CorePtr core = self.core();
  const mc_slice name = key_of(key);
  const PutRules rules(nb::none(), pin, pin_ttl, false, timeout);
  check(run(false, [&] {
    return mc_set_pin(core->client(), name, rules.options.pin, rules.options.pin_ttl_ms,
                      rules.options.timeout_ns);
  }));
}

// ---- Memory and groups --------------------------------------------------------------------------

nb::object reserve(const Client& self, std::uint64_t size, nb::handle timeout) {
  const CorePtr core = self.core();
  const std::uint64_t timeout_ns = nanoseconds(timeout);
  mc_reservation* handle = nullptr;
  check(run(false, [&] { return mc_reserve(core->client(), size, timeout_ns, &handle); }));
  return nb::cast(new Reservation(core, handle, size), nb::rv_policy::take_ownership);
}

nb::object alloc(const Client& self, std::uint64_t size) {
  const CorePtr core = self.core();
  void* memory = nullptr;
  check(run(false, [&] { return mc_alloc(core->client(), size, &memory); }));
  return nb::cast(new SessionBuffer(core, memory, size), nb::rv_policy::take_ownership);
}

nb::object group(const Client& self) {
  const CorePtr core = self.core();
  mc_group* handle = nullptr;
  check(mc_group_begin(core->client(), &handle));
  return nb::cast(new Group(core, handle), nb::rv_policy::take_ownership);
}

nb::dict info(const Client& self) {
  const CorePtr core = self.core();
  mc_client_info info{};
  info.struct_size = sizeof info;
  check(mc_get_client_info(core->client(), &info));
  nb::dict made;
  made["session_id"] = info.session_id;
  made["node_id"] = info.node_id;
  made["agent_incarnation"] = info.agent_incarnation;
  made["pool_bytes"] = info.pool_bytes;
  made["isolated"] = nb::bool_(info.isolated != 0);
  return made;
}

nb::str ask(const Client& self, const std::string& question, nb::handle timeout) {
  const CorePtr core = self.core();
  const std::uint64_t timeout_ns = nanoseconds(timeout);
  std::string answer;
  const auto keep = [](void* context, const char* text, std::size_t size) {
    static_cast<std::string*>(context)->assign(text, size);
  };
  check(run(false, [&] {
    return mc_ask(core->client(), {question.data(), question.size()}, keep, &answer, timeout_ns);
  }));
  return nb::str(answer.c_str(), answer.size());
}

const char* text_or_null(nb::handle text, std::string& storage) {
  if (text.is_none()) return nullptr;
  storage = nb::cast<std::string>(text);
  if (storage.find('\0') != std::string::npos) {
    raise(MC_INVALID_ARGUMENT, "a name must not contain a zero byte");
  }
  return storage.c_str();
}

void ping(const Client& self, nb::handle timeout) {
  const CorePtr core = self.core();
  const std::uint64_t timeout_ns = nanoseconds(timeout);
  check(run(false, [&] { return mc_ping(core->client(), timeout_ns); }));
}

}  // namespace

Client::Client(nb::handle agent, nb::handle name_space, nb::handle label, nb::handle timeout,
               std::uint64_t staging_bytes, std::uint32_t channel_count, nb::handle config,
               int verify) {
  std::string texts[4];
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  options.agent = text_or_null(agent, texts[0]);
  options.name_space = text_or_null(name_space, texts[1]);
  options.label = text_or_null(label, texts[2]);
  options.embedded_config = text_or_null(config, texts[3]);
  options.timeout_ns = nanoseconds(timeout);
  options.staging_bytes = staging_bytes;
  options.channel_count = channel_count;
  options.verify = static_cast<mc_verify>(verify);
  mc_client* client = nullptr;
  check(run(false, [&] { return mc_open(&options, &client); }));
  core_ = std::make_shared<Core>(client);
}

CorePtr Client::core() const {
  if (core_ == nullptr) [[unlikely]] {
    raise(MC_CLOSED);
  }
  return core_;
}

#define KEY "key: str | bytes"
#define KEYS "keys: collections.abc.Iterable[str | bytes]"

namespace {

void bind_gets(nb::class_<Client>& client) {
  client
      .def("get_into", &get_into, nb::arg("key"), nb::arg("buffer"), nb::arg("offset") = 0,
           nb::arg("length") = nb::none(),
           nb::sig("def get_into(self, " KEY ", buffer: typing.Any, offset: int = 0, length: int | "
                   "None = None) -> int"),
           R"(Copies the object, or length bytes of it from offset on, into buffer; bytes copied.

buffer: writable, in one piece: bytearray, memoryview, numpy array, tensor of the host or
a GPU. Raises NotFoundError, CorruptError, BufferTooSmallError (nothing is copied), InvalidArgumentError
(bad range).)")
      .def("get_into_batch", &get_into_batch, nb::arg("keys"), nb::arg("buffers"), nb::kw_only(),
           nb::arg("stream") = nb::none(),
           nb::sig("def get_into_batch(self, " KEYS
                   ", buffers: collections.abc.Iterable[typing.Any], *, stream: int | None = None) "
                   "-> list[int]"),
           R"(get_into() of many: for each the bytes copied, or minus its Status.

stream: torch.cuda.Stream.cuda_stream; the buffers are then GPU memory, the copies are work of the
stream, and the call waits for the look-ups only. Keep the buffers until the stream has done the
copies. Raises DeviceFailedError if an earlier copy in the order of a stream failed.)");
}

}  // namespace

void bind_client(nb::module_& module) {
  nb::object missing = nb::module_::import_("mckv._errors").attr("RAISE");
  raises_instead = missing.ptr();
  module.attr("RAISE") = missing;  // keeps the object alive

  nb::class_<Client> client(module, "Client", nb::is_weak_referenceable());
  client
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, std::uint64_t, std::uint32_t,
                    nb::handle, int>(),
           nb::arg("agent").none(), nb::arg("namespace").none(), nb::arg("label").none(),
           nb::arg("timeout").none(), nb::arg("staging_bytes"), nb::arg("channel_count"),
           nb::arg("config").none(), nb::arg("verify"),
           nb::sig("def __init__(self, agent: str | None, namespace: str | None, label: str | "
                   "None, timeout: float | None, staging_bytes: int, channel_count: int, config: "
                   "str | None, verify: int) -> None"))
      .def("close", &Client::close,
           "Ends the session once no view, reservation, group or buffer of it is left; every later "
           "call raises ClosedError. Twice is fine.")
      .def_prop_ro("closed", &Client::closed)
      .def("put", &put, nb::arg("key"), nb::arg("value"), nb::kw_only(),
           nb::arg("parent") = nb::none(), MCKV_PUT_ARGS,
           nb::sig("def put(self, " KEY
                   ", value: typing.Any, *, parent: str | bytes | None = None, " MCKV_PUT_KEYWORDS
                   ") -> None"),
           R"(Stores a copy of value under key, visible to every host of the cluster on return.

key: 1 to 1,024 bytes (str counts in UTF-8). value: bytes, any object with the buffer protocol, a
tensor in host memory, or a list or tuple of those, stored one after the other; 1 byte to 1 TiB.
A key that exists is left as it is, unless upsert. parent: key of the prefix this object extends;
it is never evicted before this one. pin: mckv.Pin; pin_ttl: seconds a soft pin lasts (an hour).
timeout: seconds (default: the client's). In a cluster, replicas: 1 to 8 hosts hold the object; the
others copy the object after the put. visibility: mckv.Visibility. host: node id of the host to hold
the object (mcctl nodes); if that host is full or away, and for 0, this host holds it.
Raises: NoSpaceError (nothing could be evicted in time), TooLargeError, InvalidArgumentError,
DeadlineError, DiskAwayError (stored, but a failed disk may bring a replaced object back),
AgentUnavailableError; TypeError and BufferError for a value that has no bytes.)")
      .def(
          "put_batch", &put_batch, nb::arg("keys"), nb::arg("values"), nb::kw_only(),
          nb::arg("parents") = nb::none(), MCKV_PUT_ARGS, nb::arg("stream") = nb::none(),
          nb::sig(
              "def put_batch(self, " KEYS ", values: collections.abc.Iterable[typing.Any], *, "
              "parents: collections.abc.Iterable[str | bytes | None] | None = None, " MCKV_PUT_KEYWORDS
              ", stream: int | None = None) -> list[int]"),
          "Puts many; the Status of each, in order. Raises only if the call as a whole failed. stream: "
          "as of get_into_batch(); the call waits for the stream, asyncio's put_batch() does not.")
      .def(
          "get", &get, nb::arg("key"), nb::arg("default").none() = missing,
          nb::sig("def get(self, " KEY ", default: typing.Any = ...) -> typing.Any"),
          "The object's bytes, copied once. Without default: NotFoundError, CorruptError. Also with default: "
          "NoMasterError, HolderAwayError, DiskAwayError, DeadlineError.")
      .def(
          "get_batch", &get_batch, nb::arg("keys"),
          nb::sig("def get_batch(self, " KEYS ") -> list[bytes | None]"),
          "The bytes of each key; None for a miss, a mismatch or an outage, which get() tells apart.")
      .def("view", &view, nb::arg("key"), nb::arg("default").none() = missing,
           nb::sig("def view(self, " KEY ", default: typing.Any = ...) -> typing.Any"),
           "A View: the bytes in place, pinned while referenced. Without default a miss raises "
           "NotFoundError. BusyError: this thread holds 1,023 views.")
      .def(
          "view_batch", &view_batch, nb::arg("keys"),
          nb::sig("def view_batch(self, " KEYS ") -> list[View | None]"),
          "A View of each key; None for a miss, a mismatch or an outage, which view() tells apart.")
      .def("exists", &exists, nb::arg("key"), nb::sig("def exists(self, " KEY ") -> bool"),
           "NoMasterError, DeadlineError: no master tells, and the object is not on this host.")
      .def("exists_batch", &exists_batch, nb::arg("keys"),
           nb::sig("def exists_batch(self, " KEYS ") -> list[bool | None]"),
           "None: unknown, because no master answers. exists() of the key raises the reason.")
      .def("stat_tuples", &stat_batch, nb::arg("keys"),
           nb::sig("def stat_tuples(self, " KEYS ") -> list[tuple[int, int, int, int, int, float, "
                   "int, int] | None]"))
      .def("remove", &remove, nb::arg("key"), nb::arg("timeout") = nb::none(),
           nb::sig("def remove(self, " KEY ", timeout: float | None = None) -> bool"),
           "True if the object was there. Views of it stay valid.")
      .def("remove_batch", &remove_batch, nb::arg("keys"), nb::arg("timeout") = nb::none(),
           nb::sig("def remove_batch(self, " KEYS ", timeout: float | None = None) -> list[int]"),
           "Removes many; the Status of each. Raises only if the call as a whole failed.")
      .def("set_pin", &set_pin, nb::arg("key"), nb::arg("pin"), nb::arg("pin_ttl") = nb::none(),
           nb::arg("timeout") = nb::none(),
           nb::sig("def set_pin(self, " KEY ", pin: int, pin_ttl: float | None = None, timeout: "
                   "float | None = None) -> None"),
           "Changes an object's pin (mckv.Pin). pin_ttl: seconds, soft pins only.")
      .def("reserve", &reserve, nb::arg("size"), nb::arg("timeout") = nb::none(),
           nb::sig("def reserve(self, size: int, timeout: float | None = None) -> Reservation"),
           "size bytes of the pool to be written in place and then committed.")
      .def("alloc", &alloc, nb::arg("size"), nb::sig("def alloc(self, size: int) -> SessionBuffer"),
           "Writable memory shared with the agent, of the client's staging_bytes.")
      .def("group", &group, nb::sig("def group(self) -> Group"),
           "A Group: puts that become visible together.")
      .def("ping", &ping, nb::arg("timeout") = nb::none(),
           nb::sig("def ping(self, timeout: float | None = None) -> None"),
           "A round trip to the agent that does nothing.")
      .def("ask_text", &ask, nb::arg("question"), nb::arg("timeout") = nb::none(),
           nb::sig("def ask_text(self, question: str, timeout: float | None = None) -> str"),
           "ask() as JSON text.")
      .def("info", &info, nb::sig("def info(self) -> dict[str, int]"),
           "session_id, node_id, agent_incarnation, pool_bytes, isolated.");
  bind_gets(client);
  bind_addresses(client);
}

}  // namespace mckv
