// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/resolve.h"

#include <netdb.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "libmc/base/clock.h"
#include "libmc/base/mutex.h"

namespace mc::metadata {
namespace {

Result<std::vector<Address>> look_up(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return fail(kStoreUnavailable, endpoint.host + ": " + ::gai_strerror(error));
  std::vector<Address> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Address address;
    address.size = each->ai_addrlen;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

struct Answer {
  Mutex mutex;
  Condition came;
  std::unique_ptr<Result<std::vector<Address>>> result MC_GUARDED_BY(mutex);
};

}  // namespace

struct Resolver::Count {
  std::atomic<int> threads{0};
};

Resolver::Resolver() : running_(std::make_shared<Count>()) {}

Result<std::vector<Address>> Resolver::resolve(const Endpoint& endpoint,
                                               std::uint64_t deadline_ns) {
  if (auto numeric = look_up(endpoint, AI_NUMERICHOST)) return numeric;
  if (running_->threads.fetch_add(1) >= kMaxResolverThreads) {
    running_->threads.fetch_sub(1);
    return fail(kStoreUnavailable, "the name server is slow and too many look-ups wait for it");
  }
  const auto answer = std::make_shared<Answer>();
  std::thread([answer, endpoint, running = running_] {
    auto result = std::make_unique<Result<std::vector<Address>>>(look_up(endpoint, AI_ADDRCONFIG));
    {
      const MutexLock lock(answer->mutex);
      answer->result = std::move(result);
    }
    answer->came.notify_one();
    running->threads.fetch_sub(1);
  }).detach();
  const MutexLock lock(answer->mutex);
  while (!answer->result) {
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) {
      return fail(kStoreUnavailable, endpoint.host + ": the name server did not answer in time");
    }
    answer->came.wait_for(answer->mutex, std::chrono::nanoseconds(deadline_ns - now));
  }
  return std::move(*answer->result);
}

}  // namespace mc::metadata
