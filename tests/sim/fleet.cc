// SPDX-License-Identifier: Apache-2.0
#include "sim/fleet.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "libmc/base/checksum.h"
#include "metadata/directory/key_hash.h"
#include "shm/pins.h"

namespace mc::sim {

using agent::ObjectStore;
using agent::RemoteRequest;

namespace {

constexpr std::uint64_t kStepNs = 500'000;
constexpr std::uint64_t kJoinNs = 4'000 * kMs;
constexpr std::uint64_t kRemoteRequestNs = 2'000 * kMs;
constexpr std::uint64_t kSession = 1000;
constexpr std::uint64_t kStagingBytes = 1 << 20;

std::string value_of(const std::string& key, std::uint64_t bytes) {
  std::string value;
  while (value.size() < bytes) value += key;
  value.resize(bytes);
  return value;
}

}  // namespace

Fleet::Fleet(const Options& options)
    : partitions_(options.partitions), links_(Random(7), [this](HostId from, HostId to) {
        return !cut_.contains({std::min(from, to), std::max(from, to)});
      }) {
  clock_.set(now_ns_);
  auto staging = MemoryFile::create("staging", kStagingBytes);
  if (!staging) throw std::runtime_error("there is no memory for staging");
  staging_ = std::move(*staging);
  for (std::uint64_t i = 0; i < options.masters; ++i) {
    SimMaster::Options master;
    master.host = kMasterHost + i;
    master.partitions = options.partitions;
    master.max_entries = 1u << 20;
    master.max_nodes = 256;
    masters_.push_back(std::make_unique<SimMaster>(links_, store_, master));
    masters_.back()->start();
  }
  for (std::uint64_t i = 1; i <= options.size; ++i) {
    NodeOptions node;
    node.node = i;
    node.pool_bytes = options.pool_bytes;
    node.partitions = options.partitions;
    node.disk_bytes = options.disk_bytes;
    for (const auto& master : masters_) node.masters.push_back(master_address(master->host()));
    const auto outside = [this, i] { return outside_of(i, links_, store_, masters_); };
    nodes_.push_back(
        std::make_unique<SimNode>(node, network_, outside, [](std::vector<std::uint64_t>&) {}));
    nodes_.back()->start();
  }
  for (const std::uint64_t until_ns = now_ns_ + kJoinNs; now_ns_ < until_ns;) turn_all();
  if (!std::ranges::all_of(nodes_, [](const auto& node) { return node->ready(); })) {
    throw std::runtime_error("an agent has not joined");
  }
}

Fleet::~Fleet() {
  for (const auto& node : nodes_) node->kill(false);
  for (const auto& master : masters_) master->stop();
}

std::uint32_t Fleet::partition_of(const std::string& key) const {
  static const metadata::KeyHasher hasher(kSecret);
  return metadata::partition_of(hasher.hash(kNameSpace, key), partitions_);
}

std::uint64_t Fleet::leader_of(std::uint32_t partition) const {
  const auto at = std::ranges::max_element(
      masters_, {}, [&](const auto& master) { return master->epoch(partition); });
  return static_cast<std::uint64_t>(at - masters_.begin());
}

// An agent's host has the lower number.
void Fleet::cut(SimNode& node, SimMaster& master, bool cut) {
  if (cut) {
    cut_.insert({node.id(), master.host()});
  } else {
    cut_.erase({node.id(), master.host()});
  }
}

Fleet::RemoteRequestPointer Fleet::begin(SimNode& node, RemoteRequest::Kind kind,
                                         RemoteRequest::Item item, RemoteRequest::Source source) {
  auto remote_request = std::make_shared<RemoteRequest>();
  remote_request->kind = kind;
  remote_request->tenant = node.tenant();
  remote_request->deadline_ns = now_ns_ + kRemoteRequestNs;
  remote_request->source = source;
  remote_request->items.push_back(std::move(item));
  node.cluster().begin(remote_request, now_ns_);
  node.advance(now_ns_);
  return remote_request;
}

agent::PutOrder Fleet::order_of(SimNode& node, const std::string& key, const std::string& value,
                                bool upsert) {
  agent::PutOrder order;
  order.key = key;
  order.length = value.size();
  order.checksum = checksum(node.store().index().hash(key), value.data(), value.size());
  order.upsert = upsert;
  return order;
}

Fleet::RemoteRequestPointer Fleet::put(SimNode& node, const std::string& key, std::uint64_t bytes,
                                       std::uint8_t replicas, bool upsert) {
  clock_.set(now_ns_, node.wall_offset_ns);
  ObjectStore& store = node.store();
  const std::string value = value_of(key, bytes);
  agent::PutOrder order = order_of(node, key, value, upsert);
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

Fleet::RemoteRequestPointer Fleet::put_at(SimNode& node, const SimNode& holder,
                                          const std::string& key, std::uint64_t bytes,
                                          bool upsert) {
  const std::string value = value_of(key, bytes);
  const std::uint64_t offset = std::exchange(staged_bytes_, staged_bytes_ + bytes);
  if (staged_bytes_ > kStagingBytes ||
      ::pwrite(staging_.fd(), value.data(), bytes, static_cast<off_t>(offset)) !=
          static_cast<ssize_t>(bytes)) {
    throw std::runtime_error("a put has no memory");
  }
  RemoteRequest::Source source{kSession, &staging_, offset, order_of(node, key, value, upsert),
                               holder.id()};
  source.order.key = {};
  RemoteRequest::Item item;
  item.key = key;
  return begin(node, RemoteRequest::Kind::kPlace, std::move(item), source);
}

Fleet::RemoteRequestPointer Fleet::get(SimNode& node, const std::string& key, shm::Word64& pin) {
  pin.store_relaxed(shm::kPinWanted);
  RemoteRequest::Item item;
  item.key = key;
  item.pin = &pin;
  return begin(node, RemoteRequest::Kind::kFetch, std::move(item));
}

Fleet::RemoteRequestPointer Fleet::exists(SimNode& node, const std::string& key) {
  RemoteRequest::Item item;
  item.key = key;
  return begin(node, RemoteRequest::Kind::kExists, std::move(item));
}

Fleet::RemoteRequestPointer Fleet::remove(SimNode& node, const std::string& key) {
  RemoteRequest::Item item;
  item.key = key;
  return begin(node, RemoteRequest::Kind::kRemove, std::move(item));
}

Fleet::RemoteRequestPointer Fleet::await_replicas(SimNode& node, const std::string& key,
                                                  std::uint8_t replicas) {
  RemoteRequest::Item item;
  item.key = key;
  item.replicas = replicas;
  return begin(node, RemoteRequest::Kind::kReplicas, std::move(item));
}

void Fleet::step() {
  now_ns_ += kStepNs;
  clock_.set(now_ns_);
  links_.deliver(now_ns_);
}

void Fleet::turn_links() {
  for (const auto& master : masters_) master->poll();
}

void Fleet::turn(SimNode& node) {
  clock_.set(now_ns_, node.wall_offset_ns);
  store_.run_threads(node.id());
  node.poll(now_ns_);
  node.advance(now_ns_);
  clock_.set(now_ns_);
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
