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

std::optional<std::string> PoolUser::answer(const std::string& line) {
  std::istringstream words(line);
  std::string command;
  std::string text;
  std::uint64_t number = 0;
  std::size_t bytes = 0;
  words >> command;
  mc_status status = MC_OK;
  if (command == "connect") {
    words >> text;
    mc_open_options options = MC_OPEN_OPTIONS_INIT;
    options.agent = text.c_str();
    status = mc_open(&options, &client_);
  } else if (command == "leave") {
    mc_close(std::exchange(client_, nullptr));
  } else if (command == "register" || command == "unregister") {
    words >> number >> bytes;
    const auto* const address = reinterpret_cast<const void*>(number);
    status = command == "register" ? mc_register_memory(client_, address, bytes)
                                   : mc_unregister_memory(client_, address);
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
