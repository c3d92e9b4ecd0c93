// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "crash/values.h"
#include "crash/worker.h"
#include "mc/mc.h"

namespace mc::crash {

namespace {

struct Outcome {
  mc_status status = MC_OK;
  long version = 0;
};

class ScriptedClient {
 public:
  explicit ScriptedClient(std::string socket) : socket_(std::move(socket)) {}
  ~ScriptedClient() { mc_close(client_); }

  Outcome run(const std::string& line) {
    words_ = std::istringstream(line);
    std::string verb;
    words_ >> verb;
    const auto found = verbs().find(verb);
    if (found == verbs().end()) return {MC_UNSUPPORTED, 0};
    return (this->*found->second)();
  }

 private:
  using Verb = Outcome (ScriptedClient::*)();
  struct Held {
    std::string key;
    mc_view view;
    long version;
  };

  static const std::map<std::string, Verb>& verbs() {
    using C = ScriptedClient;
    static const std::map<std::string, Verb> table{{"open", &C::open},
                                                   {"close", &C::close},
                                                   {"put", &C::put},
                                                   {"upsert", &C::upsert},
                                                   {"alloc", &C::put_from_session_memory},
                                                   {"get", &C::get},
                                                   {"view", &C::view},
                                                   {"check", &C::check},
                                                   {"release", &C::release},
                                                   {"remove", &C::remove},
                                                   {"reserve", &C::reserve},
                                                   {"commit", &C::commit},
                                                   {"abandon", &C::abandon},
                                                   {"group", &C::group},
                                                   {"batch", &C::batch},
                                                   {"touch", &C::touch},
                                                   {"ping", &C::ping}};
    return table;
  }

  template <typename T>
  T next() {
    T value{};
    words_ >> value;
    return value;
  }
  static mc_slice slice(const std::string& key) { return {key.data(), key.size()}; }

  Outcome open() {
    const auto name_space = next<std::string>();
    mc_open_options options = MC_OPEN_OPTIONS_INIT;
    options.agent = socket_.c_str();
    options.name_space = name_space.c_str();
    options.timeout_ns = next<std::uint64_t>() * 1000000;
    options.staging_bytes = 2u << 20;
    return {mc_open(&options, &client_)};
  }

  Outcome close() {
    views_.clear();
    reservations_.clear();
    mc_close(std::exchange(client_, nullptr));
    return {};
  }

  Outcome store(bool upsert) {
    const auto key = next<std::string>();
    const auto version = next<std::uint64_t>();
    const std::vector<std::byte> value = make_value(key, version, next<std::size_t>());
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    options.upsert = upsert ? 1 : 0;
    return {mc_put(client_, slice(key), {value.data(), value.size()}, &options)};
  }
  Outcome put() { return store(false); }
  Outcome upsert() { return store(true); }

  Outcome put_from_session_memory() {
    const auto key = next<std::string>();
    const auto version = next<std::uint64_t>();
    const std::vector<std::byte> value = make_value(key, version, next<std::size_t>());
    void* memory = nullptr;
    if (const mc_status status = mc_alloc(client_, value.size(), &memory)) return {status};
    std::memcpy(memory, value.data(), value.size());
    const mc_status status = mc_put(client_, slice(key), {memory, value.size()}, nullptr);
    mc_free(client_, memory);
    return {status};
  }

  static long version_of(const std::string& key, std::span<const std::byte> bytes) {
    const auto version = version_in(key, bytes);
    return version ? static_cast<long>(*version) : -1;
  }

  Outcome get() {
    const auto key = next<std::string>();
    std::size_t length = 0;
    buffer_.resize(4u << 20);
    const mc_status status = mc_get(client_, slice(key), buffer_.data(), buffer_.size(), &length);
    if (status != MC_OK) return {status};
    return {status, version_of(key, std::span(buffer_).first(length))};
  }

  static long version_seen(const std::string& key, const mc_view& view) {
    return version_of(key, bytes_of(view));
  }

  // Holds the view until "release".
  Outcome view() {
    Held held;
    held.key = next<std::string>();
    const mc_status status = mc_get_view(client_, slice(held.key), &held.view);
    if (status != MC_OK) return {status};
    held.version = version_seen(held.key, held.view);
    views_.push_back(held);
    return {status, held.version};
  }

  // Every held view still shows the first content.
  Outcome check() {
    for (const Held& held : views_) {
      if (version_seen(held.key, held.view) != held.version) return {MC_CORRUPT, -1};
      if (mc_view_verify(&held.view, slice(held.key)) != MC_OK) return {MC_CORRUPT, -1};
    }
    return {};
  }

  Outcome release() {
    const Outcome outcome = check();
    for (Held& held : views_) mc_view_release(&held.view);
    views_.clear();
    return outcome;
  }

  Outcome remove() {
    const auto key = next<std::string>();
    return {mc_remove(client_, slice(key), 0)};
  }

  Outcome reserve() {
    const auto size = next<std::uint64_t>();
    mc_reservation* reservation = nullptr;
    const mc_status status = mc_reserve(client_, size, 0, &reservation);
    if (status == MC_OK) reservations_.push_back(reservation);
    return {status};
  }

  Outcome commit() {
    if (reservations_.empty()) return {MC_INVALID_ARGUMENT};
    const auto key = next<std::string>();
    const auto version = next<std::uint64_t>();
    const std::vector<std::byte> value = make_value(key, version, next<std::size_t>());
    mc_reservation* reservation = reservations_.back();
    reservations_.pop_back();
    write_into(reservation, value);
    return {mc_commit(reservation, slice(key), value.size(), nullptr)};
  }

  Outcome abandon() {
    for (mc_reservation* reservation : reservations_) mc_abandon(reservation);
    reservations_.clear();
    return {};
  }

  // VERSION SIZE KEY...: all keys get a value of that version.
  Outcome many(mc_put_options* options) {
    const auto version = next<std::uint64_t>();
    const auto size = next<std::size_t>();
    std::vector<std::string> keys;
    for (std::string key; words_ >> key;) keys.push_back(key);
    std::vector<std::vector<std::byte>> values;
    std::vector<mc_slice> pieces;
    for (const std::string& key : keys) {
      values.push_back(make_value(key, version, size));
      pieces.push_back({values.back().data(), values.back().size()});
    }
    std::vector<mc_put_item> items(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      items[i].key = slice(keys[i]);
      items[i].pieces = &pieces[i];
      items[i].piece_count = 1;
    }
    return {mc_put_batch(client_, items.data(), items.size(), options)};
  }
  Outcome batch() { return many(nullptr); }

  Outcome group() {
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    if (const mc_status status = mc_group_begin(client_, &options.group)) return {status};
    const Outcome outcome = many(&options);
    if (outcome.status != MC_OK) {
      mc_group_abort(options.group);
      return outcome;
    }
    return {mc_group_commit(options.group, 0)};
  }

  Outcome touch() {
    const auto bytes = next<std::size_t>();
    memory_ = std::make_unique<char[]>(bytes);
    std::memset(memory_.get(), 1, bytes);
    return {};
  }

  Outcome ping() { return {mc_ping(client_, 0)}; }

  const std::string socket_;
  std::istringstream words_;
  mc_client* client_ = nullptr;
  std::vector<Held> views_;
  std::vector<mc_reservation*> reservations_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<char[]> memory_;
};

}  // namespace

int run_scripted_client(const std::string& socket) {
  ScriptedClient client(socket);
  for (std::string line; std::getline(std::cin, line);) {
    const Outcome outcome = client.run(line);
    if (outcome.status != MC_OK && outcome.status != MC_NOT_FOUND) {
      std::fprintf(stderr, "%s: %s %s\n", line.c_str(), mc_status_name(outcome.status),
                   mc_last_error());
    }
    std::printf("%d %ld\n", static_cast<int>(outcome.status), outcome.version);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace mc::crash
