// SPDX-License-Identifier: Apache-2.0
#include "device/fake/streams.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "device/fake/misuse.h"

namespace mc::fake {

namespace {

// Another process may record the event, and no condition variable reaches over processes.
constexpr auto kLook = std::chrono::microseconds(50);

// A real stream begins its work some time after the call. A caller who does not wait must notice that here.
void be_late() {
  static std::atomic<unsigned> seed{1};
  static thread_local std::minstd_rand chance(seed.fetch_add(1));
  std::this_thread::sleep_for(std::chrono::microseconds(chance() % 200));
}

void wait_until_complete(const SharedEvent& event, std::uint64_t number) {
  while (event.completed.load() < number) std::this_thread::sleep_for(kLook);
}

struct EventName {
  char magic[8];
  std::int32_t place;
  std::int32_t pid;
  std::uint64_t id;
};
constexpr char kEventMagic[8] = "mcevent";

}  // namespace

// ---- A stream ---------------------------------------------------------------------------------

Stream::Stream(int device, unsigned flags)
    : device_(device), flags_(flags), thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::run() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !items_.empty(); });
      if (items_.empty()) return;
      item = std::move(items_.front());
      items_.pop_front();
    }
    for (const Mark& mark : item.after) mark.stream->wait_for(mark.number);
    be_late();
    if (poison_error() == kSuccess) item.work();
    {
      const std::lock_guard lock(mutex_);
      ++ended_;
    }
    changed_.notify_all();
  }
}

void Stream::submit(Work work, std::vector<Mark> after) {
  const std::lock_guard lock(mutex_);
  items_.push_back({std::move(work), std::move(after)});
  ++submitted_;
  changed_.notify_all();
}

std::uint64_t Stream::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

bool Stream::has_ended(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return ended_ >= number;
}

void Stream::wait_for(std::uint64_t number) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ >= number; });
}

// ---- All streams ------------------------------------------------------------------------------

Streams& Streams::get() {
  static auto* const streams = new Streams();
  return *streams;
}

CUstream Streams::make(int device, unsigned flags) {
  auto stream = std::make_shared<Stream>(device, flags);
  CUstream const handle = stream.get();
  const std::lock_guard lock(mutex_);
  streams_.insert(std::move(stream));
  return handle;
}

std::shared_ptr<Stream> Streams::default_of(int device) {
  std::shared_ptr<Stream>& stream = defaults_[static_cast<std::size_t>(device)];
  if (stream == nullptr) stream = std::make_shared<Stream>(device, 0);
  return stream;
}

std::shared_ptr<Stream> Streams::find(const char* call, CUstream handle) {
  const std::lock_guard lock(mutex_);
  if (is_default_stream(handle)) {
    return default_of(Machine::get().physical_device(current_device()));
  }
  const auto at = std::find_if(streams_.begin(), streams_.end(),
                               [&](const auto& stream) { return stream.get() == handle; });
  if (at == streams_.end()) misuse(call, "no such stream");
  return *at;
}

void Streams::destroy(const char* call, CUstream handle) {
  const std::shared_ptr<Stream> stream = find(call, handle);
  if (is_default_stream(handle)) misuse(call, "the default stream");
  const std::lock_guard lock(mutex_);
  streams_.erase(stream);
  // The works that the stream still has go on.
  if (!stream->has_ended(stream->submitted())) {
    std::thread([stream] { stream->wait_for(stream->submitted()); }).detach();
  }
}

void Streams::submit(const std::shared_ptr<Stream>& stream, Stream::Work work) {
  const std::lock_guard lock(mutex_);
  std::vector<Stream::Mark> after;
  const std::shared_ptr<Stream>& own_default = default_of(stream->device());
  if (stream == own_default) {
    for (const auto& other : streams_) {
      if (other->device() == stream->device() && other->is_blocking()) {
        after.push_back({other, other->submitted()});
      }
    }
  } else if (stream->is_blocking()) {
    after.push_back({own_default, own_default->submitted()});
  }
  stream->submit(std::move(work), std::move(after));
}

void Streams::drain(int device) {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(streams_.begin(), streams_.end());
    for (const auto& stream : defaults_) {
      if (stream != nullptr) all.push_back(stream);
    }
  }
  for (const auto& stream : all) {
    if (stream->device() == device) stream->wait_for(stream->submitted());
  }
}

std::size_t Streams::count() {
  const std::lock_guard lock(mutex_);
  return streams_.size();
}

// ---- Events -----------------------------------------------------------------------------------

Events& Events::get() {
  static auto* const events = new Events();
  return *events;
}

int Events::make(CUevent* event, unsigned flags) {
  const bool shared = (flags & kEventInterprocess) != 0;
  if (shared && (flags & kEventDisableTiming) == 0) return kInvalidValue;
  Machine& machine = Machine::get();
  const Machine::Locked tables(machine);
  for (std::size_t place = 0; place < kMaxEvents; ++place) {
    SharedEvent& made = tables->events[place];
    if (made.used) continue;
    made.used = true;
    made.owner = machine.self();
    made.flags = flags;
    made.id = tables->next_id++;
    made.recorded = 0;
    made.completed = 0;
    made.imports.fill(0);
    auto* const handle = new Handle{static_cast<int>(place), false};
    *event = handle;
    const std::lock_guard lock(mutex_);
    handles_.insert(handle);
    return kSuccess;
  }
  return kOutOfMemory;
}

SharedEvent& Events::find(const char* call, CUevent event, Handle* found) {
  auto* const handle = static_cast<Handle*>(event);
  const std::lock_guard lock(mutex_);
  if (!handles_.contains(handle)) misuse(call, "no such event");
  if (found != nullptr) *found = *handle;
  return Machine::get().tables().events[static_cast<std::size_t>(handle->place)];
}

void Events::destroy(const char* call, CUevent event) {
  Handle handle;
  SharedEvent& shared = find(call, event, &handle);
  {
    Machine& machine = Machine::get();
    const Machine::Locked tables(machine);
    if (handle.imported) {
      --shared.imports[static_cast<std::size_t>(machine.self())];
      const bool imported = std::any_of(shared.imports.begin(), shared.imports.end(),
                                        [](std::uint32_t count) { return count != 0; });
      if (shared.owner == kNobody && !imported) shared.used = false;
    } else {
      for (int process = 0; process < kMaxProcesses; ++process) {
        if (shared.imports[static_cast<std::size_t>(process)] != 0 && machine.is_alive(process)) {
          misuse(call, "another process still has the event open");
        }
      }
      shared.used = false;
    }
  }
  const std::lock_guard lock(mutex_);
  handles_.erase(static_cast<Handle*>(event));
  delete static_cast<Handle*>(event);
}

void Events::record(const char* call, CUevent event, const std::shared_ptr<Stream>& stream) {
  SharedEvent& shared = find(call, event);
  const std::uint64_t number = ++shared.recorded;
  Streams::get().submit(stream, [&shared, number] {
    std::uint64_t known = shared.completed.load();
    while (known < number && !shared.completed.compare_exchange_weak(known, number)) {
    }
  });
}

bool Events::is_complete(const char* call, CUevent event) {
  const SharedEvent& shared = find(call, event);
  return shared.completed.load() >= shared.recorded.load();
}

void Events::wait(const char* call, CUevent event) {
  const SharedEvent& shared = find(call, event);
  wait_until_complete(shared, shared.recorded.load());
}

void Events::make_wait(const char* call, CUevent event, const std::shared_ptr<Stream>& stream) {
  const SharedEvent& shared = find(call, event);
  // The state at the call counts: an event that was never recorded is complete.
  const std::uint64_t number = shared.recorded.load();
  Streams::get().submit(stream, [&shared, number] { wait_until_complete(shared, number); });
}

int Events::share(const char* call, CUevent event, CUipcHandle* handle) {
  Handle own;
  const SharedEvent& shared = find(call, event, &own);
  if ((shared.flags & kEventInterprocess) == 0 || own.imported) return kInvalidHandle;
  if (!Machine::get().is_shared()) return kNotSupported;
  EventName name{};
  std::memcpy(name.magic, kEventMagic, sizeof name.magic);
  name.place = own.place;
  name.pid = static_cast<std::int32_t>(
      Machine::get().tables().pids[static_cast<std::size_t>(Machine::get().self())]);
  name.id = shared.id;
  *handle = {};
  std::memcpy(handle->bytes, &name, sizeof name);
  return kSuccess;
}

int Events::open(CUevent* event, const CUipcHandle& handle) {
  EventName name{};
  std::memcpy(&name, handle.bytes, sizeof name);
  if (std::memcmp(name.magic, kEventMagic, sizeof name.magic) != 0 || name.place < 0 ||
      name.place >= kMaxEvents) {
    return kInvalidHandle;
  }
  Machine& machine = Machine::get();
  const Machine::Locked tables(machine);
  SharedEvent& shared = tables->events[static_cast<std::size_t>(name.place)];
  const auto self = static_cast<std::size_t>(machine.self());
  if (!shared.used || shared.id != name.id || shared.owner == kNobody) return kInvalidHandle;
  if (shared.owner == machine.self() || name.pid == tables->pids[self]) return kInvalidContext;
  ++shared.imports[self];
  auto* const made = new Handle{name.place, true};
  *event = made;
  const std::lock_guard lock(mutex_);
  handles_.insert(made);
  return kSuccess;
}

std::size_t Events::count() {
  const std::lock_guard lock(mutex_);
  return handles_.size();
}

}  // namespace mc::fake
