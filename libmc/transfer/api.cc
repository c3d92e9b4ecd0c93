// SPDX-License-Identifier: Apache-2.0
//
// The C ABI of transfer.h over Engine.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "libmc/base/exception.h"
#include "libmc/transfer/cluster_names.h"
#include "mc/transfer.h"
#include "transport/engine/engine.h"
#include "transport/engine/local/local_memory.h"

using namespace mc;
using namespace mc::transfer;

namespace {

thread_local const char* last_error = "";
thread_local std::string own_text;

mc_status told(const Status& status) {
  if (status.ok()) return MC_OK;
  own_text = status.text();
  last_error = own_text.c_str();
  return status.code();
}
// REQUIRES: the caller is in a catch block.
mc_status caught() noexcept {
  const Caught error = caught_exception();
  last_error = error.text;
  return error.code;
}
mc_status invalid(const char* text) { return told({MC_INVALID_ARGUMENT, text}); }

Engine& of(mc_transfer_engine* engine) { return *reinterpret_cast<Engine*>(engine); }

// MC_OK: the engine may be used.
mc_status check(mc_transfer_engine* engine) {
  if (engine == nullptr) return invalid("engine must not be null");
  if (!of(engine).inherited_by_fork()) return MC_OK;
  return told({MC_FORKED, "this engine was opened before fork(); open one in the child"});
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> items;
  while (!list.empty()) {
    const std::size_t end = list.find(',');
    if (end > 0) items.emplace_back(list.substr(0, end));
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
  return items;
}

mc_status check_timeout(std::uint64_t timeout_ns) {
  return timeout_ns <= MC_MAX_TIMEOUT_NS
             ? MC_OK
             : invalid("a timeout is at most an hour (MC_MAX_TIMEOUT_NS)");
}

std::uint64_t timeout_of(mc_transfer_engine* engine, std::uint64_t timeout_ns) {
  return timeout_ns != 0 ? timeout_ns : of(engine).default_timeout_ns();
}

std::string text_or(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

mc_status read_options(const mc_transfer_submit_options* given, SubmitOptions* options) {
  mc_transfer_submit_options full = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
  if (given == nullptr) return MC_OK;
  if (given->struct_size < sizeof(std::size_t)) {
    return invalid("set struct_size, or use MC_TRANSFER_SUBMIT_OPTIONS_INIT");
  }
  std::memcpy(static_cast<void*>(&full), given, std::min(given->struct_size, sizeof full));
  if ((full.notify_name.data == nullptr && full.notify_name.size != 0) ||
      (full.notify_message.data == nullptr && full.notify_message.size != 0)) {
    return invalid("a notification's name and message must not be null");
  }
  if (full.priority > MC_TRANSFER_MIGRATION || full.checksum > 1) {
    return invalid("priority is one of mc_transfer_priority, and checksum is 0 or 1");
  }
  options->priority = static_cast<transport::Priority>(full.priority);
  options->checksum = full.checksum != 0;
  options->timeout_ns = full.timeout_ns;
  options->notify = full.notify;
  options->note_name = {static_cast<const char*>(full.notify_name.data), full.notify_name.size};
  options->note_message = {static_cast<const char*>(full.notify_message.data),
                           full.notify_message.size};
  return check_timeout(full.timeout_ns);
}

// Submits for all calls with requests. waits: for mc_transfer_run().
mc_status start(mc_transfer_engine* engine, const mc_transfer_request* requests, size_t count,
                const mc_transfer_submit_options* given, bool waits, mc_transfer_batch* batch) {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (requests == nullptr || batch == nullptr)
    return invalid("requests and batch must not be null");
  SubmitOptions options;
  if (const mc_status status = read_options(given, &options); status != MC_OK) return status;
  options.waits = waits;
  auto submitted = of(engine).submit({requests, count}, options);
  if (!submitted) return told(submitted.error());
  *batch = *submitted;
  return MC_OK;
}

}  // namespace

extern "C" {

const char* mc_transfer_last_error(void) noexcept { return last_error; }

// ---- Engine -----------------------------------------------------------------------------------

mc_status mc_transfer_open(const mc_transfer_options* options, mc_transfer_engine** engine) noexcept
    try {
  if (engine == nullptr) return invalid("engine must not be null");
  *engine = nullptr;
  mc_transfer_options given = MC_TRANSFER_OPTIONS_INIT;
  if (options != nullptr) {
    if (options->struct_size < sizeof(std::size_t)) {
      return invalid("set mc_transfer_options.struct_size, or use MC_TRANSFER_OPTIONS_INIT");
    }
    std::memcpy(static_cast<void*>(&given), options, std::min(options->struct_size, sizeof given));
  }
  if (given.lanes > 16) return invalid("a peer has at most 16 lanes for large requests");
  if (given.same_host > 1) return invalid("same_host is 0 or 1");
  if (const mc_status status = check_timeout(given.timeout_ns); status != MC_OK) return status;
  EngineOptions read;
  read.listen = text_or(given.listen, "127.0.0.1:0");
  read.name = text_or(given.name, "");
  read.cluster = text_or(given.cluster, "default");
  read.key_file = text_or(given.key_file, "");
  read.congestion_control = text_or(given.congestion_control, "");
  read.transports = text_or(given.transports, "auto");
  read.devices = split(text_or(given.devices, ""));
  if (given.rdma_ack_timeout > 31) return invalid("rdma_ack_timeout is at most 31");
  if (given.rdma_ack_timeout != 0) read.rdma_ack_timeout = given.rdma_ack_timeout;
  if (given.fabric_provider != nullptr) read.fabric_provider = given.fabric_provider;
  if (given.timeout_ns != 0) read.timeout_ns = given.timeout_ns;
  if (given.lanes != 0) read.lanes = given.lanes;
  read.same_host = given.same_host == 0;
  auto names = open_names(text_or(given.metadata, ""), read.cluster);
  if (!names) return told(names.error());
  auto opened = Engine::open(read, std::move(*names));
  if (!opened) return told(opened.error());
  *engine = reinterpret_cast<mc_transfer_engine*>(opened->release());
  return MC_OK;
} catch (...) {
  return caught();
}

void mc_transfer_close(mc_transfer_engine* engine) noexcept {
  // An engine inherited by fork() is leaked on purpose: the threads are the parent's.
  if (engine == nullptr || of(engine).inherited_by_fork()) return;
  delete &of(engine);
}

mc_status mc_transfer_get_info(mc_transfer_engine* engine, mc_transfer_info* info) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (info == nullptr || info->struct_size < sizeof(std::size_t)) {
    return invalid("set mc_transfer_info.struct_size");
  }
  mc_transfer_info full{};
  of(engine).fill(&full);
  full.struct_size = info->struct_size;
  std::memcpy(static_cast<void*>(info), &full, std::min(info->struct_size, sizeof full));
  return MC_OK;
} catch (...) {
  return caught();
}

mc_status mc_transfer_describe(mc_transfer_engine* engine, char* text, size_t* size) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (size == nullptr || (text == nullptr && *size > 0)) {
    return invalid("text and size must not be null");
  }
  const std::string whole = of(engine).describe();
  whole.copy(text, *size);
  *size = whole.size();
  return MC_OK;
} catch (...) {
  return caught();
}

// ---- Memory -----------------------------------------------------------------------------------

mc_status mc_transfer_register_at(mc_transfer_engine* engine, const mc_transfer_range* ranges,
                                  size_t count, uint32_t rights, const char* location) noexcept
    try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (ranges == nullptr) return invalid("ranges must not be null");
  const std::string place = text_or(location, "*");
  return told(of(engine).register_memory({ranges, count}, rights, place == "*" ? "" : place));
} catch (...) {
  return caught();
}

mc_status mc_transfer_register(mc_transfer_engine* engine, const mc_transfer_range* ranges,
                               size_t count, uint32_t rights) noexcept {
  return mc_transfer_register_at(engine, ranges, count, rights, nullptr);
}

mc_status mc_transfer_allocate(uint64_t size, void** memory) noexcept try {
  if (memory == nullptr) return invalid("memory must not be null");
  *memory = nullptr;
  if (size == 0 || size > MC_MAX_OBJECT_BYTES) return invalid("memory has 1 B to 1 TiB");
  auto allocated = allocate_shared(size);
  if (!allocated) return told(allocated.error());
  *memory = *allocated;
  return MC_OK;
} catch (...) {
  return caught();
}

mc_status mc_transfer_deallocate(void* memory) noexcept try {
  if (free_shared(memory)) return MC_OK;
  return invalid("the memory is not from mc_transfer_allocate(), or was freed already");
} catch (...) {
  return caught();
}

mc_status mc_transfer_unregister(mc_transfer_engine* engine, void* const* addresses,
                                 size_t count) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (addresses == nullptr) return invalid("addresses must not be null");
  return told(of(engine).unregister_memory({addresses, count}));
} catch (...) {
  return caught();
}

// ---- Segments ---------------------------------------------------------------------------------

mc_status mc_transfer_open_segment(mc_transfer_engine* engine, const char* name,
                                   uint64_t timeout_ns, mc_transfer_segment* segment) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (name == nullptr || segment == nullptr) return invalid("name and segment must not be null");
  if (const mc_status status = check_timeout(timeout_ns); status != MC_OK) return status;
  auto opened = of(engine).open_segment(name, timeout_of(engine, timeout_ns));
  if (!opened) return told(opened.error());
  *segment = *opened;
  return MC_OK;
} catch (...) {
  return caught();
}

mc_status mc_transfer_close_segment(mc_transfer_engine* engine,
                                    mc_transfer_segment segment) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  return told(of(engine).close_segment(segment));
} catch (...) {
  return caught();
}

mc_status mc_transfer_probe(mc_transfer_engine* engine, const char* name,
                            uint64_t timeout_ns) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (name == nullptr) return invalid("name must not be null");
  if (const mc_status status = check_timeout(timeout_ns); status != MC_OK) return status;
  return told(of(engine).probe(name, timeout_of(engine, timeout_ns)));
} catch (...) {
  return caught();
}

mc_status mc_transfer_list_regions(mc_transfer_engine* engine, mc_transfer_segment segment,
                                   uint64_t timeout_ns, mc_transfer_region* regions,
                                   size_t* count) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (count == nullptr || (regions == nullptr && *count > 0)) {
    return invalid("regions and count must not be null");
  }
  if (const mc_status status = check_timeout(timeout_ns); status != MC_OK) return status;
  auto directory = of(engine).list_regions(segment, timeout_of(engine, timeout_ns));
  if (!directory) return told(directory.error());
  std::ranges::sort(directory->entries, {},
                    [](const DirectoryEntry& entry) { return entry.order & ~kByOwnerOnly; });
  const std::size_t told_count = std::min(*count, directory->entries.size());
  for (std::size_t i = 0; i < told_count; ++i) {
    const DirectoryEntry& entry = directory->entries[i];
    regions[i] = {entry.address, entry.size_bytes, entry.rights, 0};
  }
  *count = directory->entries.size();
  return MC_OK;
} catch (...) {
  return caught();
}

mc_status mc_transfer_segment_is_local(mc_transfer_engine* engine, mc_transfer_segment segment,
                                       uint32_t* is_local) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (is_local == nullptr) return invalid("is_local must not be null");
  auto local = of(engine).is_local(segment);
  if (!local) return told(local.error());
  *is_local = *local ? 1 : 0;
  return MC_OK;
} catch (...) {
  return caught();
}

// ---- Batches ----------------------------------------------------------------------------------

mc_status mc_transfer_submit(mc_transfer_engine* engine, const mc_transfer_request* requests,
                             size_t count, const mc_transfer_submit_options* options,
                             mc_transfer_batch* batch) noexcept try {
  return start(engine, requests, count, options, false, batch);
} catch (...) {
  return caught();
}

mc_status mc_transfer_run(mc_transfer_engine* engine, const mc_transfer_request* requests,
                          size_t count, const mc_transfer_submit_options* options) noexcept try {
  mc_transfer_batch batch = 0;
  if (const mc_status status = start(engine, requests, count, options, true, &batch);
      status != MC_OK) {
    return status;
  }
  return told(of(engine).finish(batch));
} catch (...) {
  return caught();
}

mc_status mc_transfer_poll(mc_transfer_engine* engine, mc_transfer_batch batch, uint32_t* ended,
                           mc_transfer_status* statuses, size_t count) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (ended == nullptr) return invalid("ended must not be null");
  bool over = false;
  const mc_status status = told(of(engine).poll(batch, &over, statuses, count));
  if (status == MC_OK) *ended = over ? 1 : 0;
  return status;
} catch (...) {
  return caught();
}

mc_status mc_transfer_wait(mc_transfer_engine* engine, mc_transfer_batch batch,
                           uint64_t timeout_ns) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (const mc_status status = check_timeout(timeout_ns); status != MC_OK) return status;
  return told(of(engine).wait(batch, timeout_ns));
} catch (...) {
  return caught();
}

mc_status mc_transfer_cancel(mc_transfer_engine* engine, mc_transfer_batch batch) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  return told(of(engine).cancel(batch));
} catch (...) {
  return caught();
}

mc_status mc_transfer_free(mc_transfer_engine* engine, mc_transfer_batch batch) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  return told(of(engine).free(batch));
} catch (...) {
  return caught();
}

// ---- Notifications ----------------------------------------------------------------------------

mc_status mc_transfer_notify(mc_transfer_engine* engine, mc_transfer_segment segment, mc_slice name,
                             mc_slice message, uint64_t timeout_ns) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (segment == 0) return invalid("no such segment is open");
  mc_transfer_submit_options full = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
  full.timeout_ns = timeout_ns;
  full.notify = segment;
  full.notify_name = name;
  full.notify_message = message;
  SubmitOptions options;
  if (const mc_status status = read_options(&full, &options); status != MC_OK) return status;
  options.waits = true;
  auto submitted = of(engine).submit({}, options);
  if (!submitted) return told(submitted.error());
  return told(of(engine).finish(*submitted));
} catch (...) {
  return caught();
}

mc_status mc_transfer_take_notification(mc_transfer_engine* engine, void* buffer, size_t* name_size,
                                        size_t* message_size) noexcept try {
  if (const mc_status status = check(engine); status != MC_OK) return status;
  if (buffer == nullptr || name_size == nullptr || message_size == nullptr) {
    return invalid("buffer and sizes must not be null");
  }
  Notification notification;
  if (!of(engine).take_notification(&notification)) return told({MC_NOT_FOUND});
  char* const to = static_cast<char*>(buffer);
  std::ranges::copy(notification.name, to);
  std::ranges::copy(notification.message, to + notification.name.size());
  *name_size = notification.name.size();
  *message_size = notification.message.size();
  return MC_OK;
} catch (...) {
  return caught();
}

}  // extern "C"
