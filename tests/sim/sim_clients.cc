// SPDX-License-Identifier: Apache-2.0
//
// The clients' operations, through ObjectStore and Cluster, as the agent's server calls both for a
// client.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "libmc/base/checksum.h"
#include "shm/pins.h"
#include "sim/sim_world.h"

namespace mc::sim {

using agent::ObjectStore;
using agent::RemoteRequest;

namespace {

std::uint64_t session_of(unsigned client) { return 1000 + client; }

}  // namespace

void SimWorld::act(Client& client) {
  for (Held& held : client.held) {
    if (!held.is_held()) continue;
    if (!still_there(client, held) || now_ns_ >= held.until_ns) let_go(held);
  }
  switch (client.doing) {
    case Client::Doing::kNothing:
      if (working_ && now_ns_ >= client.next_ns) begin_something(client);
      return;
    case Client::Doing::kReserving:
    case Client::Doing::kWriting:
    case Client::Doing::kPublishing:
      return go_on_putting(client);
    case Client::Doing::kWaiting:
      return look_at_remote_request(client);
  }
}

void SimWorld::begin_something(Client& client) {
  client.begin_ns = now_ns_;
  client.deadline_ns = now_ns_ + random_.between(50, 2'000) * kMs;
  client.server_cuts = random_.chance(0.5);
  client.keys = {static_cast<unsigned>(random_.next() % key_count_)};
  if (faults_.choices && choice_random_.chance(0.03))
    relocate(*nodes_[client.node], key_text(client.keys[0]));
  const std::uint64_t dice = random_.between(1, 100);
  if (dice <= 30) {
    begin_put(client);
  } else if (dice <= 82) {
    begin_get(client);
  } else if (dice <= 90) {
    send_remote_request(client, RemoteRequest::Kind::kExists);
  } else {
    client.remove = history_.begin_remove(client.keys[0], memory_, now_ns_);
    send_remote_request(client, RemoteRequest::Kind::kRemove);
  }
}

agent::MemberId SimWorld::any_member() {
  return nodes_[choice_random_.next() % nodes_.size()]->id();
}

// Asks for a copy or a move of the object between any hosts, as mcctl does.
void SimWorld::relocate(SimNode& node, const std::string& key) {
  const std::string source = std::to_string(any_member());
  const std::string target = std::to_string(any_member());
  const bool moves = choice_random_.chance(0.5);
  const std::string words =
      moves ? R"("source":)" + source + R"(,"target":)" + target : R"("targets":[)" + target + "]";
  const std::string request =
      R"({"namespace":")" + node.tenant()->name + R"(","key":")" + key + "\"," + words + "}";
  node.cluster().ask(moves ? "move" : "copy", request, [this](const std::string& answer) {
    history_.relocations += answer.find("\"task\"") != std::string::npos;
  });
}

void SimWorld::end(Client& client) {
  client.doing = Client::Doing::kNothing;
  client.remote_request.reset();
  client.forgets.reset();
  client.next_ns = now_ns_ + random_.between(0, 20) * kMs;
}

// ---- Put ----------------------------------------------------------------------------------------

void SimWorld::begin_put(Client& client) {
  const std::uint64_t size = random_.between(16, largest_bytes_);
  client.upsert = random_.chance(0.5);
  client.local = random_.chance(0.1);
  client.put = history_.begin_put(client.keys[0], size, client.upsert, now_ns_);
  // Act as if the pool had no room and could make none.
  if (random_.chance(faults_.stripes ? 0.4 : 0.15)) return place_elsewhere(client);
  client.doing = Client::Doing::kReserving;
  go_on_putting(client);
}

void SimWorld::place_elsewhere(Client& client) {
  SimNode& node = *nodes_[client.node];
  if (!client.staging) {
    auto file = MemoryFile::create("sim-staging", largest_bytes_);
    if (!file || !file->reserve(0, largest_bytes_).ok()) throw std::bad_alloc();
    client.staging = std::move(*file);
  }
  const std::vector<std::byte> bytes = history_.bytes_of(client.put);
  if (::pwrite(client.staging.fd(), bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    throw std::bad_alloc();
  }
  const std::string key = key_text(client.keys[0]);
  agent::PutOrder order;
  order.length = bytes.size();
  order.checksum = checksum(node.store().index().hash(key), bytes.data(), bytes.size());
  order.upsert = client.upsert;
  order.replicas = client.replicas = random_.chance(0.2) ? 2 : 1;
  client.local = false;
  client.was_ready = node.ready(partition_of(client.keys[0]));
  client.reign = reigns_[partition_of(client.keys[0])];
  client.remote_request = std::make_shared<RemoteRequest>();
  // Some clients name the host that shall hold the object.
  const std::uint64_t host = faults_.choices && choice_random_.chance(0.3) ? any_member() : 0;
  client.remote_request->source = {session_of(client.id), &client.staging, 0, order, host};
  send_remote_request(client, RemoteRequest::Kind::kPlace);
}

// A death or a cut may end a put in stripes during the sealing. The put may have removed the object
// to be replaced, or a put that yielded meanwhile. An object that no host takes as a whole is cut
// into stripes, however small the object is.
void SimWorld::may_have_replaced(const Client& client) {
  const bool in_stripes =
      client.kind == RemoteRequest::Kind::kPlace && history_.put(client.put).size > kStripeUnit;
  if (in_stripes && !history_.calm(client.begin_ns, now_ns_)) {
    history_.lost(client.keys[0], now_ns_);
  }
}

void SimWorld::end_put(Client& client, History::Ending ending) {
  if (ending == History::Ending::kRefused) may_have_replaced(client);
  const std::uint32_t partition = partition_of(client.keys[0]);
  const bool announced = !client.local && client.was_ready && nodes_[client.node]->ready(partition);
  history_.end_put(client.put, ending, announced, memory_, nodes_[client.node]->wall_offset_ns,
                   now_ns_);
  end(client);
}

void SimWorld::go_on_putting(Client& client) {
  ObjectStore& store = nodes_[client.node]->store();
  const std::uint64_t session = session_of(client.id);
  if (now_ns_ >= client.deadline_ns) {
    if (client.doing != Client::Doing::kReserving) store.abandon(session, client.entry);
    return end_put(client, History::Ending::kRefused);
  }
  if (client.doing == Client::Doing::kReserving) {
    const std::uint64_t size = history_.put(client.put).size;
    const auto result = store.reserve(session, size, true, client.entry);
    if (result == ObjectStore::Reserve::kWait || result == ObjectStore::Reserve::kAgain) return;
    if (result != ObjectStore::Reserve::kOk) return end_put(client, History::Ending::kRefused);
    client.doing = Client::Doing::kWriting;
    return;
  }
  if (client.doing == Client::Doing::kWriting) {
    const std::vector<std::byte> bytes = history_.bytes_of(client.put);
    const agent::PoolExtents extents = store.extents(client.entry);
    std::size_t done = 0;
    for (std::uint32_t i = 0; i < extents.count && done < bytes.size(); ++i) {
      const std::size_t count =
          std::min<std::size_t>(bytes.size() - done, extents.at[i].length_bytes);
      std::memcpy(store.pool().data() + extents.at[i].offset_bytes, bytes.data() + done, count);
      done += count;
    }
    client.doing = Client::Doing::kPublishing;
    if (random_.chance(0.3)) return;
  }
  publish(client);
}

void SimWorld::publish(Client& client) {
  ObjectStore& store = nodes_[client.node]->store();
  const std::string key = key_text(client.keys[0]);
  const std::vector<std::byte> bytes = history_.bytes_of(client.put);
  agent::PutOrder order;
  order.key = key;
  order.entry = client.entry;
  order.length = bytes.size();
  order.checksum = checksum(store.index().hash(key), bytes.data(), bytes.size());
  order.upsert = client.upsert;
  order.replicas = client.replicas = random_.chance(0.2) ? 2 : 1;
  SimNode& node = *nodes_[client.node];
  agent::LocalDisks* const disks = node.disks();
  const bool on_disk =
      disks != nullptr && !order.upsert && !store.has(key) && disks->has(*node.tenant(), key);
  const ObjectStore::Put result =
      on_disk ? ObjectStore::Put::kExisted : store.publish(session_of(client.id), order);
  if (result == ObjectStore::Put::kNoSpace) return;  // try again, until the deadline
  if (disks != nullptr) forget_earlier(client, *disks, order, result);
  if (result == ObjectStore::Put::kExisted) {
    store.abandon(session_of(client.id), client.entry);
    return end_put(client, History::Ending::kExisted);
  }
  if (result != ObjectStore::Put::kStored) return end_put(client, History::Ending::kRefused);
  client.was_ready = nodes_[client.node]->ready();
  if (client.local && client.forgets == nullptr) return end_put(client, History::Ending::kStored);
  send_remote_request(client, RemoteRequest::Kind::kAnnounce);
}

// As the server does it.
void SimWorld::forget_earlier(Client& client, agent::LocalDisks& disks,
                              const agent::PutOrder& order, ObjectStore::Put result) {
  const std::shared_ptr<agent::Tenant>& tenant = nodes_[client.node]->tenant();
  const bool stored = result == ObjectStore::Put::kStored;
  const bool upserted = order.upsert && (stored || result == ObjectStore::Put::kExisted);
  if (!upserted && !(stored && disks.may_bring_back(*tenant, order.key))) {
    if (stored) disks.created(*tenant, order.key);
    return;
  }
  client.forgets = std::make_shared<RemoteRequest>();
  client.forgets->kind = RemoteRequest::Kind::kForget;
  client.forgets->tenant = tenant;
  client.forgets->items.emplace_back().key = order.key;
  client.forgets->open_count = 1;
  disks.forget(client.forgets, 0);
}

// ---- RemoteRequests
// ------------------------------------------------------------------------------------

void SimWorld::send_remote_request(Client& client, RemoteRequest::Kind kind) {
  client.kind = kind;
  if (kind != RemoteRequest::Kind::kPlace)
    client.remote_request = std::make_shared<RemoteRequest>();
  client.remote_request->kind = kind;
  client.remote_request->tenant = nodes_[client.node]->tenant();
  client.remote_request->deadline_ns = client.deadline_ns;
  for (std::size_t i = 0; i < client.keys.size(); ++i) {
    RemoteRequest::Item item;
    if (kind == RemoteRequest::Kind::kAnnounce) {
      item.entry = client.entry;
    } else {
      item.key = key_text(client.keys[i]);
      item.replicas = client.replicas;
    }
    if (kind == RemoteRequest::Kind::kFetch) {
      item.pin = &client.held[i].pin;
      item.pin->store_relaxed(shm::kPinWanted);
    }
    client.remote_request->items.push_back(std::move(item));
  }
  client.doing = Client::Doing::kWaiting;
  nodes_[client.node]->cluster().begin(client.remote_request, now_ns_);
}

void SimWorld::look_at_remote_request(Client& client) {
  RemoteRequest& remote_request = *client.remote_request;
  // The server always ends an announcement at the deadline; the master may take longer.
  const bool cuts = client.server_cuts || client.kind == RemoteRequest::Kind::kAnnounce ||
                    client.kind == RemoteRequest::Kind::kReplicas;
  const bool same_leader = client.kind != RemoteRequest::Kind::kPlace ||
                           client.reign == reigns_[partition_of(client.keys[0])];
  if (!remote_request.over() && cuts && now_ns_ >= client.deadline_ns) {
    remote_request.abandoned = true;
    for (RemoteRequest::Item& item : remote_request.items) remote_request.settle(item, MC_TIMEOUT);
  }
  if (!remote_request.over()) {
    // A host that stood still gets a second after the pause.
    const std::uint64_t due_ns =
        std::max(client.deadline_ns, nodes_[client.node]->paused_until_ns) + 1'000 * kMs;
    if (now_ns_ < due_ns) return;
    history_.fail(
        "I7 a remote request of kind " + std::to_string(static_cast<int>(remote_request.kind)) +
        " by client " + std::to_string(client.id) + ", begun at " +
        std::to_string(client.begin_ns / 1000) + " us, has not ended " + "1 s after its deadline");
    remote_request.abandoned = true;
    for (RemoteRequest::Item& item : remote_request.items) remote_request.settle(item, MC_TIMEOUT);
  }
  const mc_status status = remote_request.items[0].status;
  // A put ends when no restart brings an earlier object back.
  if (status == MC_OK && client.forgets != nullptr && !client.forgets->over() &&
      client.kind == RemoteRequest::Kind::kAnnounce && now_ns_ < client.deadline_ns) {
    return;
  }
  if (client.forgets != nullptr) {
    const RemoteRequest::Item& forgotten = client.forgets->items[0];
    if (status == MC_OK && (forgotten.open || forgotten.status != MC_OK)) {
      may_have_replaced(client);
      return end(client);
    }
  }
  history_.note(static_cast<std::uint64_t>(status) + now_ns_);
  switch (client.kind) {
    case RemoteRequest::Kind::kPlace:
      // With another leader the holder may have to report the object first.
      client.was_ready &= same_leader;
      [[fallthrough]];
    case RemoteRequest::Kind::kAnnounce:
      if (status == MC_TIMEOUT) {  // the object may still be there
        may_have_replaced(client);
        end(client);
      } else if (status == MC_OK && client.replicas > 1) {
        send_remote_request(client, RemoteRequest::Kind::kReplicas);
      } else {
        end_put(client, status == MC_OK ? History::Ending::kStored : History::Ending::kRefused);
      }
      return;
    case RemoteRequest::Kind::kReplicas:  // this host holds the object, whatever the answer
      return end_put(client, History::Ending::kStored);
    case RemoteRequest::Kind::kFetch:
      return end_get(client);
    case RemoteRequest::Kind::kRemove: {
      // A removal is remembered for a holder that is away.
      const bool sure = status == MC_OK || status == MC_HOLDER_AWAY;
      history_.end_remove(client.remove, sure || status == MC_NOT_FOUND, sure, now_ns_);
      return end(client);
    }
    case RemoteRequest::Kind::kExists:
    case RemoteRequest::Kind::kForget:  // of disks, which the simulated hosts do not have
    case RemoteRequest::Kind::kBring:
    case RemoteRequest::Kind::kPin:
      return end(client);
  }
}

// ---- Get ----------------------------------------------------------------------------------------

void SimWorld::begin_get(Client& client) {
  if (client.held[0].is_held() || client.held[1].is_held()) {
    let_go(client.held[0]);
    let_go(client.held[1]);
  }
  const auto other = static_cast<unsigned>(random_.next() % key_count_);
  if (other != client.keys[0] && random_.chance(0.3)) client.keys.push_back(other);
  ObjectStore& store = nodes_[client.node]->store();
  std::vector<unsigned> missing;
  for (const unsigned key : client.keys) {
    const std::string text = key_text(key);
    const auto found = store.index().find(text, store.index().hash(text));
    if (!found || !missing.empty()) {
      missing.push_back(key);
      continue;
    }
    Held& held = client.held[client.keys.size() - 1];
    if (held.is_held()) let_go(held);
    const std::uint64_t version = store.index().entry(*found).version.load_relaxed();
    shm::set_pin(held.pin, shm::pin_value(*found, version));
    store.touch(*found);
    hold(client, held, key, *found);
  }
  if (missing.empty()) return end(client);
  let_go(client.held[0]);
  let_go(client.held[1]);
  client.keys = missing;
  send_remote_request(client, RemoteRequest::Kind::kFetch);
}

void SimWorld::end_get(Client& client) {
  for (std::size_t i = 0; i < client.remote_request->items.size(); ++i) {
    const RemoteRequest::Item& item = client.remote_request->items[i];
    Held& held = client.held[i];
    if (item.status != MC_OK || item.entry == agent::kNoEntry) {
      if (held.pin.load_relaxed() != shm::kPinWanted && !client.remote_request->abandoned) {
        history_.fail("I5 a get that failed has left a pin");
      }
      held.pin.store_relaxed(0);
      ++history_.misses;
      if (client.is_last) history_.final_read(client.keys[i], client.node + 1, std::nullopt);
      continue;
    }
    const auto put = hold(client, held, client.keys[i], item.entry);
    if (client.is_last) history_.final_read(client.keys[i], client.node + 1, put);
  }
  end(client);
}

std::vector<std::byte> SimWorld::bytes_at(ObjectStore& store, std::uint32_t entry) {
  std::vector<std::byte> bytes;
  std::uint64_t left = store.index().entry(entry).length.load_relaxed();
  const agent::PoolExtents lies = store.extents(entry);
  for (std::uint32_t i = 0; i < lies.count && left > 0; ++i) {
    const std::uint64_t count = std::min(left, lies.at[i].length_bytes);
    const std::byte* from = store.pool().data() + lies.at[i].offset_bytes;
    bytes.insert(bytes.end(), from, from + count);
    left -= count;
  }
  return bytes;
}

// Reads the bytes that the pin names, and keeps the pin for a while.
std::optional<History::Number> SimWorld::hold(Client& client, Held& held, unsigned key,
                                              std::uint32_t entry) {
  ObjectStore& store = nodes_[client.node]->store();
  const std::uint64_t version = store.index().entry(entry).version.load_relaxed();
  const auto state = shm::state_of(version);
  if (held.pin.load_relaxed() != shm::pin_value(entry, version) ||
      (state != shm::EntryState::kLive && state != shm::EntryState::kLimbo)) {
    history_.fail("I1 client " + std::to_string(client.id) +
                  " was served bytes that are not there");
    held.pin.store_relaxed(0);
    return std::nullopt;
  }
  held.entry = entry;
  held.key = key;
  held.bytes = bytes_at(store, entry);
  held.until_ns = now_ns_ + random_.between(0, 200) * kMs;
  const std::uint64_t sum =
      checksum(store.index().hash(key_text(key)), held.bytes.data(), held.bytes.size());
  if (sum != store.index().entry(entry).checksum.load_relaxed()) {
    history_.fail("I1 client " + std::to_string(client.id) + " got key " + std::to_string(key) +
                  " with a wrong checksum");
  }
  return history_.read({client.id, client.node + 1}, key, held.bytes, client.begin_ns, now_ns_);
}

bool SimWorld::still_there(Client& client, const Held& held) {
  ObjectStore& store = nodes_[client.node]->store();
  const std::uint64_t version = store.index().entry(held.entry).version.load_relaxed();
  const std::vector<std::byte> bytes = bytes_at(store, held.entry);
  // Each step compares all held objects; std::equal() would compare byte by byte.
  const bool same =
      held.pin.load_relaxed() == shm::pin_value(held.entry, version) &&
      bytes.size() == held.bytes.size() &&
      (bytes.empty() || std::memcmp(bytes.data(), held.bytes.data(), bytes.size()) == 0);
  if (!same) {
    history_.fail("I1 what client " + std::to_string(client.id) + " has pinned of key " +
                  std::to_string(held.key) + " has changed at " + std::to_string(now_ns_ / 1000) +
                  " us");
  }
  return same;
}

void SimWorld::let_go(Held& held) {
  shm::clear_pin(held.pin);
  held.bytes.clear();
}

// ---- Agents that die under their clients --------------------------------------------------------

void SimWorld::node_died(std::size_t node, bool keeps_memory) {
  for (const auto& client : clients_) {
    if (client->node != node) continue;
    if (client->doing != Client::Doing::kNothing) {
      may_have_replaced(*client);
      if (client->remote_request) {
        client->remote_request->abandoned = true;
        for (std::size_t i = 0; i < client->keys.size(); ++i) {
          if (client->kind == RemoteRequest::Kind::kFetch) client->held[i].pin.store_relaxed(0);
        }
      }
      end(*client);
    }
    if (keeps_memory) continue;
    for (Held& held : client->held) let_go(held);
  }
}

}  // namespace mc::sim
