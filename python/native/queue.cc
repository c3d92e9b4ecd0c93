// SPDX-License-Identifier: Apache-2.0
//
// The asynchronous calls below mckv.AsyncClient: submissions, one descriptor, and completions.
//   Python (mckv/_async.py) adds futures and the event loop.
// Threads: with the interpreter's lock; one thread at a time submits. Owns: the completion queue,
//   and the buffers of a submission until the caller takes the completion.
#include <unordered_map>

#include "addresses.h"
#include "client.h"

namespace mckv {

namespace {

class Queue {
 public:
  explicit Queue(const Client& client) : core_(client.core()) {
    check(run(false, [&] { return mc_cq_create(core_->client(), &queue_); }));
  }
  ~Queue() { close(); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void close() {
    mc_cq* queue = std::exchange(queue_, nullptr);
    if (queue == nullptr || core_->inherited()) return;
    if (interpreter_ends()) {
      mc_cq_destroy(queue);
    } else {
      run(false, [&] { mc_cq_destroy(queue); });
    }
    pending_.clear();
  }

  int fd() { return mc_cq_fd(live()); }
  std::size_t outstanding() const { return pending_.size(); }

  std::uint64_t put(nb::handle keys, nb::handle values, nb::handle parent, nb::handle pin,
                    nb::handle pin_ttl, bool upsert, nb::handle timeout, std::uint32_t replicas,
                    nb::handle visibility, std::uint64_t host, nb::handle stream) {
    const Keys names(keys);
    const nb::object all = tuple_of(values);
    require_equal(names, all);
    PutRules rules(parent, pin, pin_ttl, upsert, timeout, replicas, visibility, host);
    rules.options.stream = stream_of(stream);
    std::vector<HeldBytes> held;
    std::vector<mc_slice> slices;
    std::vector<mc_put_item> items;
    held.reserve(names.size());
    slices.reserve(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const HeldBytes& value = held.emplace_back(nb::object(all[i]), HeldBytes::Access::kRead);
      slices.push_back({value.data(), value.size()});
      items.push_back({names[i], &slices[i], 1, {nullptr, 0}, MC_OK});
    }
    return submit([&](std::uint64_t id, Pending& pending) {
      if (rules.options.stream != nullptr) pending.buffers = std::move(held);
      return mc_put_async(core_->client(), live(), items.data(), items.size(), &rules.options, id,
                          &pending.request);
    });
  }

  std::uint64_t get(nb::handle keys, nb::handle buffers) {
    const Keys names(keys);
    const nb::object all = tuple_of(buffers);
    require_equal(names, all);
    std::vector<HeldBytes> held;
    std::vector<mc_span> spans;
    std::vector<mc_get_item> items;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const HeldBytes& into = held.emplace_back(nb::object(all[i]), HeldBytes::Access::kWrite);
      spans.push_back({into.data(), into.size()});
    }
    for (std::size_t i = 0; i < names.size(); ++i)
      items.push_back({names[i], &spans[i], 1, 0, 0, MC_OK});
    return submit([&](std::uint64_t id, Pending& pending) {
      pending.buffers = std::move(held);
      pending.spans = std::move(spans);
      pending.gets = std::move(items);
      return mc_get_async(core_->client(), live(), pending.gets.data(), pending.gets.size(), id,
                          &pending.request);
    });
  }

  std::uint64_t remove(nb::handle keys, nb::handle timeout) {
    const Keys names(keys);
    const std::uint64_t timeout_ns = nanoseconds(timeout);
    return submit([&](std::uint64_t id, Pending& pending) {
      return mc_remove_async(core_->client(), live(), names.data(), names.size(), timeout_ns, id,
                             &pending.request);
    });
  }

  // False: the request is complete already.
  bool cancel(std::uint64_t id) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return false;
    const std::uint64_t request = found->second.request;
    const mc_status status =
        run(false, [&] { return mc_cancel(core_->client(), live(), request); });
    if (status == MC_NOT_FOUND) return false;
    check(status);
    return true;
  }

  // [(id, status, lengths or None)] of the completed requests.
  nb::list poll() {
    nb::list made;
    mc_completion completions[64];
    for (;;) {
      const std::size_t count =
          run(false, [&] { return mc_cq_poll(live(), completions, std::size(completions)); });
      for (std::size_t i = 0; i < count; ++i) {
        nb::object lengths = nb::none();
        const auto found = pending_.find(completions[i].user_data);
        if (found != pending_.end() && !found->second.gets.empty()) {
          nb::list all;
          for (const mc_get_item& item : found->second.gets) {
            all.append(nb::int_(item.status == MC_OK ? static_cast<std::int64_t>(item.length)
                                                     : -static_cast<std::int64_t>(item.status)));
          }
          lengths = all;
        }
        if (found != pending_.end()) pending_.erase(found);
        made.append(nb::make_tuple(completions[i].user_data,
                                   static_cast<int>(completions[i].status), lengths));
      }
      if (count < std::size(completions)) return made;
    }
  }

 private:
  struct Pending {
    std::uint64_t request = 0;
    std::vector<HeldBytes> buffers;
    std::vector<mc_span> spans;
    std::vector<mc_get_item> gets;
  };

  static nb::object tuple_of(nb::handle sequence) {
    PyObject* made = PySequence_Tuple(sequence.ptr());
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
  }
  static void require_equal(const Keys& keys, const nb::object& others) {
    if (keys.size() != nb::len(others)) {
      raise(MC_INVALID_ARGUMENT, "keys and values or buffers must be equally many");
    }
  }
  mc_cq* live() const {
    if (queue_ == nullptr) raise(MC_CLOSED, "this AsyncClient was closed");
    return queue_;
  }
  template <typename Call>
  std::uint64_t submit(Call&& call) {
    live();
    const std::uint64_t id = next_id_++;
    Pending& pending = pending_[id];  // insertions keep references to map elements valid
    const mc_status status = run(false, [&] { return call(id, pending); });
    if (status != MC_OK) {
      pending_.erase(id);
      raise(status, mc_last_error());
    }
    return id;
  }

  CorePtr core_;
  mc_cq* queue_ = nullptr;
  std::unordered_map<std::uint64_t, Pending> pending_;
  std::uint64_t next_id_ = 1;
};

}  // namespace

void bind_queue(nb::module_& module) {
  nb::class_<Queue>(module, "Queue", "A completion queue; used by mckv.AsyncClient.")
      .def(nb::init<const Client&>(), nb::arg("client"))
      .def("close", &Queue::close, "Cancels what is outstanding and waits for it.")
      .def("fd", &Queue::fd, "Readable while completions may be waiting.")
      .def_prop_ro("outstanding", &Queue::outstanding)
      .def("put", &Queue::put, nb::arg("keys"), nb::arg("values"), nb::arg("parent").none(),
           nb::arg("pin").none(), nb::arg("pin_ttl").none(), nb::arg("upsert"),
           nb::arg("timeout").none(), nb::arg("replicas"), nb::arg("visibility").none(),
           nb::arg("host"), nb::arg("stream").none(),
           nb::sig("def put(self, keys: collections.abc.Sequence[str | bytes], values: "
                   "collections.abc.Sequence[typing.Any], parent: str | bytes | None, pin: int | "
                   "None, pin_ttl: "
                   "float | None, upsert: bool, timeout: float | None, replicas: int, visibility: "
                   "int | None, host: int, stream: int | None) -> int"))
      .def("get", &Queue::get, nb::arg("keys"), nb::arg("buffers"),
           nb::sig("def get(self, keys: collections.abc.Sequence[str | bytes], buffers: "
                   "collections.abc.Sequence[typing.Any]) -> int"))
      .def("remove", &Queue::remove, nb::arg("keys"), nb::arg("timeout").none(),
           nb::sig("def remove(self, keys: collections.abc.Sequence[str | bytes], timeout: float | "
                   "None) -> int"))
      .def("cancel", &Queue::cancel, nb::arg("id"))
      .def("poll", &Queue::poll,
           nb::sig("def poll(self) -> list[tuple[int, int, list[int] | None]]"));
}

}  // namespace mckv
