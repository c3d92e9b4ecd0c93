// SPDX-License-Identifier: Apache-2.0
#include "device/peer/pool_user.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

namespace mc::device::testing {

// The first failure of any thread.
mc_status PoolUser::put_by_threads(const std::string& key, mc_slice value) {
  std::atomic<mc_status> failure{MC_OK};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = key + std::to_string(i);
      const mc_status status = mc_put(client_, {name.data(), name.size()}, value, nullptr);
      if (status != MC_OK) failure = status;
    });
  }
  threads.clear();
  return failure;
}

// "NAME OFFSET ADDRESS BYTES", in the order of the stream.
mc_status PoolUser::copy_part(const std::string& command, std::istringstream& words) {
  std::string name;
  std::uint64_t offset = 0, number = 0;
  std::size_t bytes = 0;
  words >> name >> offset >> number >> bytes;
  auto* const address = reinterpret_cast<void*>(number);
  if (command == "read") {
    const mc_span piece{address, bytes};
    const mc_read_item item{&views_[name], offset, &piece, 1};
    return mc_read_views(client_, &item, 1, stream_);
  }
  const mc_slice piece{address, bytes};
  const mc_write_item item{reservations_[name], offset, &piece, 1};
  return mc_write_reservations(client_, &item, 1, stream_);
}

// "NAME COUNT ADDRESS BYTES": objects NAME0 and so on, into consecutive memory.
std::string PoolUser::get_batch(bool in_order, std::istringstream& words) {
  std::string name;
  std::uint64_t count = 0, number = 0;
  std::size_t bytes = 0;
  words >> name >> count >> number >> bytes;
  std::vector<std::string> keys(count);
  std::vector<mc_span> pieces(count);
  std::vector<mc_get_item> items(count);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = name + std::to_string(i);
    pieces[i] = {reinterpret_cast<void*>(number + i * bytes), bytes};
    items[i] = {{keys[i].data(), keys[i].size()}, &pieces[i], 1, 0, 0, MC_INTERNAL};
  }
  const mc_status first = in_order ? mc_get_batch_on_stream(client_, items.data(), count, stream_)
                                   : mc_get_batch(client_, items.data(), count);
  std::string answer = mc_status_name(first);
  if (first == MC_OK) return answer;
  answer = "";
  for (const mc_get_item& item : items) answer += std::string(mc_status_name(item.status)) + " ";
  return answer;
}

// "NAME COUNT ADDRESS BYTES": as get_batch().
std::string PoolUser::put_batch(const std::string& command, std::istringstream& words) {
  std::string name;
  std::uint64_t count = 0, number = 0;
  std::size_t bytes = 0;
  words >> name >> count >> number >> bytes;
  std::vector<std::string> keys(count);
  std::vector<mc_slice> pieces(count);
  std::vector<mc_put_item> items(count);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = name + std::to_string(i);
    pieces[i] = {reinterpret_cast<const void*>(number + i * bytes), bytes};
    items[i] = {{keys[i].data(), keys[i].size()}, &pieces[i], 1, {nullptr, 0}, MC_INTERNAL};
  }
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  if (command != "puts") options.stream = stream_;
  if (command == "puts_briefly") options.timeout_ns = 50'000'000;
  if (command == "puts_later") {
    if (queue_ == nullptr) mc_cq_create(client_, &queue_);
    return mc_status_name(mc_put_async(client_, queue_, items.data(), count, &options, 0, nullptr));
  }
  const mc_status first = mc_put_batch(client_, items.data(), count, &options);
  std::string answer = mc_status_name(first);
  if (first == MC_OK) return answer;
  answer = "";
  for (const mc_put_item& item : items) answer += std::string(mc_status_name(item.status)) + " ";
  return answer;
}

// The status of the next completion.
std::string PoolUser::await(std::uint64_t milliseconds) {
  mc_completion completion{};
  std::size_t count = 0;
  const mc_status waited = mc_cq_wait(queue_, &completion, 1, &count, milliseconds * 1'000'000);
  return mc_status_name(waited == MC_OK ? completion.status : waited);
}

std::optional<std::string> PoolUser::answer(const std::string& line) {
  std::istringstream words(line);
  std::string command;
  std::string text;
  std::uint64_t number = 0;
  std::size_t bytes = 0;
  words >> command;
  mc_status status = MC_OK;
  if (command == "connect") {
    std::string name_space;
    words >> text >> name_space;
    mc_open_options options = MC_OPEN_OPTIONS_INIT;
    options.agent = text.c_str();
    if (!name_space.empty()) options.name_space = name_space.c_str();
    status = mc_open(&options, &client_);
  } else if (command == "leave") {
    mc_cq_destroy(std::exchange(queue_, nullptr));
    mc_close(std::exchange(client_, nullptr));
  } else if (command == "register" || command == "unregister") {
    words >> number >> bytes;
    const auto* const address = reinterpret_cast<const void*>(number);
    status = command == "register" ? mc_register_memory(client_, address, bytes)
                                   : mc_unregister_memory(client_, address);
  } else if (command == "reserve") {
    words >> text >> bytes;
    status = mc_reserve(client_, bytes, 0, &reservations_[text]);
  } else if (command == "commit") {
    words >> text >> bytes;
    status = mc_commit(reservations_[text], {text.data(), text.size()}, bytes, nullptr);
  } else if (command == "abandon") {
    words >> text;
    mc_abandon(reservations_[text]);
  } else if (command == "view") {
    words >> text;
    status = mc_get_view(client_, {text.data(), text.size()}, &views_[text]);
  } else if (command == "release") {
    words >> text;
    mc_view_release(&views_[text]);
  } else if (command == "read" || command == "write") {
    status = copy_part(command, words);
  } else if (command == "gets" || command == "gets_in_order") {
    return get_batch(command == "gets_in_order", words);
  } else if (command.starts_with("puts")) {
    return put_batch(command, words);
  } else if (command == "await") {
    words >> number;
    return await(number);
  } else if (command == "remove") {
    words >> text;
    status = mc_remove(client_, {text.data(), text.size()}, 0);
  } else if (command == "put_by_threads") {
    words >> text >> number >> bytes;
    status = put_by_threads(text, {reinterpret_cast<const void*>(number), bytes});
  } else if (command == "put" || command == "get") {
    words >> text >> number >> bytes;
    auto* const address = reinterpret_cast<void*>(number);
    const mc_slice key{text.data(), text.size()};
    std::size_t length = 0;
    status = command == "put" ? mc_put(client_, key, {address, bytes}, nullptr)
                              : mc_get(client_, key, address, bytes, &length);
    if (command == "get" && status == MC_OK && length != bytes) status = MC_INTERNAL;
  } else {
    return std::nullopt;
  }
  return mc_status_name(status);
}

}  // namespace mc::device::testing
