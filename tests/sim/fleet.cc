// SPDX-License-Identifier: Apache-2.0
#include "sim/fleet.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "libmc/base/checksum.h"
#include "shm/pins.h"

namespace mc::sim {

using agent::ObjectStore;
using agent::RemoteRequest;

namespace {

constexpr std::uint64_t kStepNs = 500'000;
constexpr std::uint64_t kJoinNs = 4'000 * kMs;
constexpr std::uint64_t kRemoteRequestNs = 2'000 * kMs;
constexpr std::uint64_t kSession = 1000;

}  // namespace

Fleet::Fleet(std::uint64_t size, std::uint64_t pool_bytes)
    : links_(io_, Random(7), [](HostId, HostId) { return true; }),
      master_(io_, links_, kMasterHost, 1u << 20, 256) {
  clock_.set(now_ns_);
  master_.start(false, now_ns_);
  for (std::uint64_t i = 1; i <= size; ++i) {
    NodeOptions options;
    options.node = i;
    options.pool_bytes = pool_bytes;
    const auto dial = [this, i](std::uint32_t, metadata::rpc::LinkHandler& handler) {
      return master_.dial(i, handler);
    };
    nodes_.push_back(
        std::make_unique<SimNode>(options, network_, dial, [](std::vector<std::uint64_t>&) {}));
    nodes_.back()->start();
  }
  for (const std::uint64_t until_ns = now_ns_ + kJoinNs; now_ns_ < until_ns;) turn_all();
  if (!std::ranges::all_of(nodes_, [](const auto& node) { return node->ready(); })) {
    throw std::runtime_error("an agent has not joined");
  }
}

Fleet::~Fleet() {
  for (const auto& node : nodes_) node->kill(false);
  master_.stop();
  io_.restart();
  io_.poll();
}

Fleet::RemoteRequestPointer Fleet::begin(SimNode& node, RemoteRequest::Kind kind,
                                         RemoteRequest::Item item) {
  auto remote_request = std::make_shared<RemoteRequest>();
  remote_request->kind = kind;
  remote_request->tenant = node.tenant();
  remote_request->deadline_ns = now_ns_ + kRemoteRequestNs;
  remote_request->items.push_back(std::move(item));
  node.cluster().begin(remote_request, now_ns_);
  node.flush(now_ns_);
  return remote_request;
}

Fleet::RemoteRequestPointer Fleet::put(SimNode& node, const std::string& key, std::uint64_t bytes,
                                       std::uint8_t replicas) {
  ObjectStore& store = node.store();
  std::string value;
  while (value.size() < bytes) value += key;
  agent::PutOrder order;
  order.key = key;
  order.length = bytes;
  order.checksum = checksum(store.index().hash(key), value.data(), bytes);
  order.replicas = replicas;
  if (store.reserve(kSession, bytes, true, order.entry) != ObjectStore::Reserve::kOk) {
    throw std::runtime_error("a pool has no room");
  }
  std::memcpy(store.pool().data() + store.extents(order.entry).at[0].offset_bytes, value.data(),
              bytes);
  if (store.publish(kSession, order) != ObjectStore::Put::kStored) {
    throw std::runtime_error("a put was refused");
  }
  RemoteRequest::Item item;
  item.entry = order.entry;
  return begin(node, RemoteRequest::Kind::kAnnounce, std::move(item));
}

Fleet::RemoteRequestPointer Fleet::get(SimNode& node, const std::string& key, shm::Word64& pin) {
  pin.store_relaxed(shm::kPinWanted);
  RemoteRequest::Item item;
  item.key = key;
  item.pin = &pin;
  return begin(node, RemoteRequest::Kind::kFetch, std::move(item));
}

Fleet::RemoteRequestPointer Fleet::remove(SimNode& node, const std::string& key) {
  RemoteRequest::Item item;
  item.key = key;
  return begin(node, RemoteRequest::Kind::kRemove, std::move(item));
}

void Fleet::step() {
  now_ns_ += kStepNs;
  clock_.set(now_ns_);
  links_.deliver(now_ns_);
}

void Fleet::turn_links() {
  io_.restart();
  io_.poll();
  master_.tick(now_ns_);
}

void Fleet::turn(SimNode& node) {
  node.poll(now_ns_);
  node.flush(now_ns_);
}

void Fleet::turn_all() {
  step();
  turn_links();
  for (const auto& node : nodes_) {
    if (node->up() && now_ns_ >= node->paused_until_ns) turn(*node);
  }
}

bool Fleet::turn_until(const std::function<bool()>& done, std::uint64_t most_ns) {
  for (const std::uint64_t until_ns = now_ns_ + most_ns; now_ns_ < until_ns;) {
    if (done()) return true;
    turn_all();
  }
  return done();
}

}  // namespace mc::sim
