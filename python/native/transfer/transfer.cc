// SPDX-License-Identifier: Apache-2.0
//
// The extension module mckv._transfer: the transfer engine of transfer.h. A separate module from
//   mckv._native, so that users of the pool load neither sockets nor cluster stores.
// Threads: any Python thread; every call of the engine releases the lock.
// Owns: an engine, until its Python object and all running calls are gone; registered buffers,
//   until the caller unregisters them.
// Trusts: registered or transferred addresses and sizes are memory of this process. All other
//   arguments are checked.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../gil.h"
#include "mc/transfer.h"

namespace nb = nanobind;

namespace {

using mckv::GilReleased;
using Numbers = std::vector<std::uint64_t>;
using Text = std::optional<std::string>;
using Seconds = std::optional<double>;
using Note = std::optional<std::tuple<nb::bytes, nb::bytes>>;

// The engine's text gives the cause; mckv._errors gives the remedy for the status.
[[noreturn]] void raise(mc_status status, const char* text) {
  if (*text == '\0') text = mc_status_text(status);
  nb::object make = nb::module_::import_("mckv._errors").attr("transfer_error_for");
  nb::object error = make(static_cast<int>(status), nb::bytes(text, std::strlen(text)));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

// None becomes 0 (the engine's default); 0 becomes the shortest timeout.
std::uint64_t nanoseconds(const Seconds& seconds) {
  if (!seconds) return 0;
  if (!(*seconds >= 0.0) || *seconds > 3600.0) {
    raise(MC_INVALID_ARGUMENT, "a time is 0 to 3600 seconds");
  }
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(*seconds * 1e9));
}

// REQUIRES: text outlives the result.
const char* words(const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    raise(MC_INVALID_ARGUMENT, "a name or option has no zero byte in it");
  }
  return text.c_str();
}

// Keeps a writable or read-only buffer in place.
class Held {
 public:
  Held(nb::handle object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_,
                           PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) != 0) {
      throw nb::python_error();
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { PyBuffer_Release(&buffer_); }
  void* data() const { return buffer_.buf; }
  std::uint64_t size() const { return static_cast<std::uint64_t>(buffer_.len); }

 private:
  Py_buffer buffer_{};
};

struct EngineDeleter {
  void operator()(mc_transfer_engine* engine) const {
    if (mckv::interpreter_ends() || PyGILState_Check() == 0) {
      mc_transfer_close(engine);
      return;
    }
    const GilReleased released;
    mc_transfer_close(engine);
  }
};
using EnginePtr = std::shared_ptr<mc_transfer_engine>;

class Engine {
 public:
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { close(); }
  Engine(const Text& listen, const Text& metadata, const Text& name, const Text& cluster,
         const Text& key_file, const Seconds& timeout, std::uint32_t lanes, bool same_host,
         const Text& congestion_control, const Text& transports, const Text& devices,
         const Text& fabric_provider) {
    mc_transfer_options options = MC_TRANSFER_OPTIONS_INIT;
    const auto text = [](const Text& given) { return given ? words(*given) : nullptr; };
    options.listen = text(listen);
    options.metadata = text(metadata);
    options.name = text(name);
    options.cluster = text(cluster);
    options.key_file = text(key_file);
    options.timeout_ns = nanoseconds(timeout);
    options.lanes = lanes;
    options.same_host = same_host ? 0 : 1;
    options.congestion_control = text(congestion_control);
    options.transports = text(transports);
    options.devices = text(devices);
    options.fabric_provider = text(fabric_provider);
    mc_transfer_engine* engine = nullptr;
    const mc_status status = released([&] { return mc_transfer_open(&options, &engine); });
    check(status);
    engine_ = EnginePtr(engine, EngineDeleter());
  }

  // Runs a call of the engine without the lock and keeps the engine alive meanwhile.
  template <typename Call>
  void call(Call&& body) {
    const EnginePtr engine = this->engine();
    check(released([&] { return body(engine.get()); }));
  }
  mc_transfer_info info() {
    mc_transfer_info info{};
    info.struct_size = sizeof info;
    call([&](mc_transfer_engine* engine) { return mc_transfer_get_info(engine, &info); });
    return info;
  }
  std::string describe() {
    std::string text(4096, ' ');
    for (;;) {
      std::size_t size = text.size();
      call([&](mc_transfer_engine* engine) {
        return mc_transfer_describe(engine, text.data(), &size);
      });
      const bool whole = size <= text.size();
      text.resize(size);
      if (whole) return text;
    }
  }
  void close() {
    // Releases the registered buffers after the engine.
    EnginePtr engine = std::move(engine_);
    engine_.reset();
    engine.reset();
    held_.clear();
  }

  std::uint64_t register_buffer(nb::handle buffer, bool read, bool write, bool pinned,
                                const Text& location) {
    auto held = std::make_unique<Held>(buffer, write);
    const mc_transfer_range range{held->data(), held->size()};
    const char* const place = location ? words(*location) : nullptr;
    call([&](mc_transfer_engine* engine) {
      return mc_transfer_register_at(engine, &range, 1, rights_of(read, write, pinned), place);
    });
    const auto address = reinterpret_cast<std::uint64_t>(range.address);
    held_[address] = std::move(held);
    return address;
  }
  void register_addresses(const Numbers& addresses, const Numbers& sizes, bool read, bool write,
                          bool pinned, const Text& location) {
    same_length(addresses, sizes);
    const char* const place = location ? words(*location) : nullptr;
    std::vector<mc_transfer_range> ranges;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      ranges.push_back({reinterpret_cast<void*>(addresses[i]), sizes[i]});
    }
    call([&](mc_transfer_engine* engine) {
      return mc_transfer_register_at(engine, ranges.data(), ranges.size(),
                                     rights_of(read, write, pinned), place);
    });
  }
  void unregister(const Numbers& addresses) {
    std::vector<void*> pointers;
    for (const std::uint64_t address : addresses) {
      pointers.push_back(reinterpret_cast<void*>(address));
    }
    call([&](mc_transfer_engine* engine) {
      return mc_transfer_unregister(engine, pointers.data(), pointers.size());
    });
    for (const std::uint64_t address : addresses) held_.erase(address);
  }

  std::uint64_t open(const std::string& name, const Seconds& timeout) {
    const std::uint64_t timeout_ns = nanoseconds(timeout);
    const char* const text = words(name);
    mc_transfer_segment segment = 0;
    call([&](mc_transfer_engine* engine) {
      return mc_transfer_open_segment(engine, text, timeout_ns, &segment);
    });
    return segment;
  }
  std::vector<std::tuple<std::uint64_t, std::uint64_t, bool, bool>> regions(
      std::uint64_t segment, const Seconds& timeout) {
    const std::uint64_t timeout_ns = nanoseconds(timeout);
    std::vector<mc_transfer_region> rows(MC_MAX_TRANSFER_REGIONS);
    std::size_t count = rows.size();
    call([&](mc_transfer_engine* engine) {
      return mc_transfer_list_regions(engine, segment, timeout_ns, rows.data(), &count);
    });
    std::vector<std::tuple<std::uint64_t, std::uint64_t, bool, bool>> regions;
    for (std::size_t i = 0; i < count; ++i) {
      regions.emplace_back(rows[i].address, rows[i].size, (rows[i].rights & MC_TRANSFER_READ) != 0,
                           (rows[i].rights & MC_TRANSFER_WRITE) != 0);
    }
    return regions;
  }

  // The common part of submit() and run().
  template <typename Call>
  void with_requests(bool write, std::uint64_t segment, const Numbers& local, const Numbers& remote,
                     const Numbers& sizes, const Seconds& timeout, const Note& notify,
                     std::uint32_t priority, bool checksum, Call&& body) {
    same_length(local, remote);
    same_length(local, sizes);
    std::vector<mc_transfer_request> requests(local.size());
    for (std::size_t i = 0; i < local.size(); ++i) {
      requests[i] = {write ? MC_TRANSFER_PUT : MC_TRANSFER_GET,
                     0,
                     reinterpret_cast<void*>(local[i]),
                     segment,
                     remote[i],
                     sizes[i]};
    }
    mc_transfer_submit_options options = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
    options.timeout_ns = nanoseconds(timeout);
    options.priority = static_cast<mc_transfer_priority>(priority);
    options.checksum = checksum ? 1 : 0;
    if (notify) {
      options.notify = segment;
      options.notify_name = {std::get<0>(*notify).c_str(), std::get<0>(*notify).size()};
      options.notify_message = {std::get<1>(*notify).c_str(), std::get<1>(*notify).size()};
    }
    call([&](mc_transfer_engine* engine) {
      return body(engine, requests.data(), requests.size(), options);
    });
  }
  std::tuple<bool, std::vector<int>> poll(std::uint64_t batch, std::size_t count) {
    std::vector<mc_transfer_status> statuses(count);
    std::uint32_t ended = 0;
    call([&](mc_transfer_engine* engine) {
      return mc_transfer_poll(engine, batch, &ended, count == 0 ? nullptr : statuses.data(), count);
    });
    std::vector<int> codes;
    for (const mc_transfer_status& status : statuses) {
      codes.push_back(status.ended == 0 ? -1 : static_cast<int>(status.status));
    }
    return {ended == 1, std::move(codes)};
  }
  std::vector<std::tuple<nb::bytes, nb::bytes>> notifications() {
    std::vector<std::tuple<nb::bytes, nb::bytes>> taken;
    const EnginePtr engine = this->engine();
    char note[MC_MAX_TRANSFER_NOTE_BYTES];
    std::size_t name = 0;
    std::size_t message = 0;
    for (;;) {
      const mc_status status = released(
          [&] { return mc_transfer_take_notification(engine.get(), note, &name, &message); });
      if (status == MC_NOT_FOUND) return taken;
      check(status);
      taken.emplace_back(nb::bytes(note, name), nb::bytes(note + name, message));
    }
  }

 private:
  template <typename Call>
  static mc_status released(Call&& body) {
    const GilReleased let_go;
    return body();
  }
  static void check(mc_status status) {
    if (status != MC_OK) raise(status, mc_transfer_last_error());
  }
  static std::uint32_t rights_of(bool read, bool write, bool pinned) {
    return (read ? MC_TRANSFER_READ : 0) | (write ? MC_TRANSFER_WRITE : 0) |
           (pinned ? 0 : MC_TRANSFER_UNPINNED);
  }
  static void same_length(const Numbers& one, const Numbers& other) {
    if (one.size() != other.size()) {
      raise(MC_INVALID_ARGUMENT, "addresses and sizes must be as many");
    }
  }
  EnginePtr engine() const {
    if (!engine_) raise(MC_CLOSED, "this engine was closed");
    return engine_;
  }

  EnginePtr engine_;
  std::map<std::uint64_t, std::unique_ptr<Held>> held_;  // with the interpreter's lock
};

// write() and read().
auto mover(bool write) {
  return [write](Engine& self, std::uint64_t segment, const Numbers& local, const Numbers& remote,
                 const Numbers& sizes, const Seconds& timeout, const Note& notify,
                 std::uint32_t priority, bool checksum) {
    self.with_requests(write, segment, local, remote, sizes, timeout, notify, priority, checksum,
                       [](auto* engine, auto* requests, auto count, auto& options) {
                         return mc_transfer_run(engine, requests, count, &options);
                       });
  };
}

// The calls that move bytes, and those on their batches.
void define_transfers(nb::class_<Engine>& engine) {
  using nb::arg;
  const auto none = nb::none();
  engine
      .def(
          "write", mover(true), arg("segment"), arg("local"), arg("remote"), arg("sizes"),
          nb::kw_only(), arg("timeout") = none, arg("notify") = none, arg("priority") = 0,
          arg("checksum") = false,
          "Copies local memory there; returns when all of it has landed. notify: (name, message) "
          "for the peer, after that. priority: 0 somebody waits, 1 prefetch, 2 migration. checksum: "
          "the peer compares the sums of the bytes that landed.")
      .def("read", mover(false), arg("segment"), arg("local"), arg("remote"), arg("sizes"),
           nb::kw_only(), arg("timeout") = none, arg("notify") = none, arg("priority") = 0,
           arg("checksum") = false, "Copies from there to local memory.")
      .def(
          "submit",
          [](Engine& self, bool write, std::uint64_t segment, const Numbers& local,
             const Numbers& remote, const Numbers& sizes, const Seconds& timeout,
             const Note& notify, std::uint32_t priority, bool checksum) {
            mc_transfer_batch batch = 0;
            self.with_requests(
                write, segment, local, remote, sizes, timeout, notify, priority, checksum,
                [&](auto* engine, auto* requests, auto count, auto& options) {
                  return mc_transfer_submit(engine, requests, count, &options, &batch);
                });
            return batch;
          },
          arg("write"), arg("segment"), arg("local"), arg("remote"), arg("sizes"), nb::kw_only(),
          arg("timeout") = none, arg("notify") = none, arg("priority") = 0, arg("checksum") = false,
          "The same without waiting: the number of a batch. The memory must live until it ended.")
      .def("poll", &Engine::poll, arg("batch"), arg("count") = 0,
           "Whether the batch has ended, and the status of each of count requests (-1: not yet).")
      .def(
          "wait",
          [](Engine& self, std::uint64_t batch, const Seconds& timeout) {
            const std::uint64_t timeout_ns = nanoseconds(timeout);
            self.call([&](mc_transfer_engine* engine) {
              return mc_transfer_wait(engine, batch, timeout_ns);
            });
          },
          arg("batch"), arg("timeout") = none,
          "Returns when all requests succeeded, raises what the first failed with.")
      .def(
          "cancel",
          [](Engine& self, std::uint64_t batch) {
            self.call(
                [&](mc_transfer_engine* engine) { return mc_transfer_cancel(engine, batch); });
          },
          arg("batch"))
      .def(
          "free",
          [](Engine& self, std::uint64_t batch) {
            self.call([&](mc_transfer_engine* engine) { return mc_transfer_free(engine, batch); });
          },
          arg("batch"), "Forgets a batch that has ended.");
}

}  // namespace

NB_MODULE(_transfer, module) {
  using nb::arg;
  nb::set_leak_warnings(false);
  module.doc() = "libmc-transfer for Python; use it through mckv.TransferEngine.";
  module.def("on_interpreter_exit", &mckv::on_interpreter_exit);
  const auto none = nb::none();
  nb::class_<Engine> engine(module, "TransferEngine",
                            R"(One-sided reads and writes between processes.

    listen: "host:port", port 0 for any free one; only loopback without key_file.
    metadata: None: a segment's name is its address; else a cluster store where names are kept
    (redis:// etcd:// http:// memory://), and name is this engine's. key_file: the cluster's key.
    timeout: seconds, default of calls (5). lanes: TCP connections to a peer for large requests (4).
    same_host=False: never from process to process. transports: what goes beside TCP: "auto" (RDMA,
    else libfabric, if there are devices), "rdma", "fabric", or "tcp" for nothing. devices: RDMA
    devices, "mlx5_0,mlx5_1". fabric_provider: "efa", "tcp;ofi_rxm". Addresses and sizes are int,
    bytes; every wait lets other threads run. Errors are mckv.McError.)");
  define_transfers(engine);
  engine
      .def(nb::init<const Text&, const Text&, const Text&, const Text&, const Text&, const Seconds&,
                    std::uint32_t, bool, const Text&, const Text&, const Text&, const Text&>(),
           arg("listen") = none, arg("metadata") = none, arg("name") = none, arg("cluster") = none,
           arg("key_file") = none, arg("timeout") = none, arg("lanes") = 0, arg("same_host") = true,
           arg("congestion_control") = none, arg("transports") = none, arg("devices") = none,
           arg("fabric_provider") = none)
      .def_prop_ro(
          "name", [](Engine& self) { return std::string(self.info().name); },
          "By which peers open this engine's segment.")
      .def_prop_ro("port", [](Engine& self) { return self.info().port; })
      .def_prop_ro(
          "transport", [](Engine& self) { return std::string(self.info().transport); },
          "\"rdma\" or \"fabric\" beside TCP, or \"\".")
      .def("describe", &Engine::describe,
           "For people: the devices, the rails to each peer, and what is left out, with the cause.")
      .def(
          "counters",
          [](Engine& self) {
            const mc_transfer_info info = self.info();
            std::map<std::string, std::uint64_t> counters;
            counters["regions"] = info.regions;
            counters["written_bytes"] = info.written_bytes;
            counters["read_bytes"] = info.read_bytes;
            counters["same_host_bytes"] = info.same_host_bytes;
            counters["refused_requests"] = info.refused_requests;
            counters["notifications_dropped"] = info.notifications_dropped;
            counters["device_bytes"] = info.device_bytes;
            counters["direct_bytes"] = info.direct_bytes;
            return counters;
          },
          "What was moved, by name.")
      .def("close", &Engine::close, "Ends what is in flight. A second call does nothing.")
      .def(
          "register", &Engine::register_buffer, arg("buffer"), nb::kw_only(), arg("read") = true,
          arg("write") = true, arg("pinned") = true, arg("location") = none,
          "Peers may read or write the buffer, which is held until unregister(). Its address. "
          "location: \"cpu:0\", \"cuda:3\"; None: by each page. pinned=False: no device reaches it.")
      .def("register_addresses", &Engine::register_addresses, arg("addresses"), arg("sizes"),
           nb::kw_only(), arg("read") = true, arg("write") = true, arg("pinned") = true,
           arg("location") = none,
           "The same for plain memory, of the host or of a CUDA device (data_ptr()), all or none; "
           "it "
           "must live until it is unregistered.")
      .def("unregister", &Engine::unregister, arg("addresses"),
           "Returns when no transfer of this engine and none over TCP touches the memory.")
      .def("open", &Engine::open, arg("name"), arg("timeout") = none,
           "The segment of the engine of that name.")
      .def(
          "close_segment",
          [](Engine& self, std::uint64_t segment) {
            self.call([&](mc_transfer_engine* engine) {
              return mc_transfer_close_segment(engine, segment);
            });
          },
          arg("segment"), "Cancels what has not ended.")
      .def(
          "probe",
          [](Engine& self, const std::string& name, const Seconds& timeout) {
            const std::uint64_t timeout_ns = nanoseconds(timeout);
            const char* const text = words(name);
            self.call([&](mc_transfer_engine* engine) {
              return mc_transfer_probe(engine, text, timeout_ns);
            });
          },
          arg("name"), arg("timeout") = none, "Raises unless an engine answers there.")
      .def("regions", &Engine::regions, arg("segment"), arg("timeout") = none,
           "(address, size, readable, writable) of what is registered there, in that order.")
      .def(
          "is_local",
          [](Engine& self, std::uint64_t segment) {
            std::uint32_t local = 0;
            self.call([&](mc_transfer_engine* engine) {
              return mc_transfer_segment_is_local(engine, segment, &local);
            });
            return local == 1;
          },
          arg("segment"), "Whether bytes go from process to process.")
      .def(
          "notify",
          [](Engine& self, std::uint64_t segment, const nb::bytes& name, const nb::bytes& message,
             const Seconds& timeout) {
            const std::uint64_t timeout_ns = nanoseconds(timeout);
            const mc_slice parts[2] = {{name.c_str(), name.size()},
                                       {message.c_str(), message.size()}};
            self.call([&](mc_transfer_engine* engine) {
              return mc_transfer_notify(engine, segment, parts[0], parts[1], timeout_ns);
            });
          },
          arg("segment"), arg("name"), arg("message"), arg("timeout") = none,
          "Returns when the peer's engine has it.")
      .def("notifications", &Engine::notifications, "(name, message) of all that arrived.");
}
