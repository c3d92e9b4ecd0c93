// SPDX-License-Identifier: Apache-2.0
//
// Answers mcctl's cluster verbs, as JSON. Each verb has a handler.
// Threads: The agent's loop.
// Owns: The pings under way, and pages of listings. The node outlives this object.
#pragma once

#include <json/value.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/cluster/cluster_node.h"

namespace mc::agent {

class ClusterNode::Verbs {
 public:
  explicit Verbs(ClusterNode& node) : node_(node) {}

  std::string status_text() const;
  // As Cluster::ask().
  bool ask(std::string_view verb, std::string_view request, Answer done);
  void on_pong(MemberId from, const Pong& pong);
  // Ends pings without an answer, and goes on with objects that have come from a disk.
  void poll(std::uint64_t now_ns);
  // An object has come from a disk, or will not come.
  bool has_answers() const;

 private:
  struct Verb {
    std::string_view name;
    void (Verbs::*answer)(const Json::Value& request, const Answer& done);
  };
  struct SentPing {
    std::uint64_t started_ns = 0;
    MemberId node = 0;
    Answer done;
  };
  // An object of a disk that shall have more holders: others read only objects of the pool.
  struct Replicated {
    std::shared_ptr<RemoteRequest> brought;
    std::uint8_t replicas = 1;
    Answer done;
  };
  // Keys of the cluster, after a key. An answer to a client has a part of a page.
  struct ListedPage {
    metadata::wire::Match match;
    metadata::wire::ListAnswer answer;
    std::uint64_t until_ns = 0;
  };
  static const Verb kVerbs[];

  void cluster(const Json::Value& request, const Answer& done);
  void rails(const Json::Value& request, const Answer& done);
  void nodes(const Json::Value& request, const Answer& done);
  void where(const Json::Value& request, const Answer& done);
  void where_many(const ClusterTenant& tenant, const Json::Value& keys, const Answer& done);
  void drain(const Json::Value& request, const Answer& done);
  void give_up(const Json::Value& name, const Answer& done);
  void drain_as(const metadata::wire::Drain& drain, const Answer& done);
  void replicate(const Json::Value& request, const Answer& done);
  void replicate_from_disk(const ClusterTenant& tenant, const SharedName& name,
                           std::uint8_t replicas, const Answer& done);
  void end_replicated(const Replicated& object);
  static void set_replicas(ClusterTenant& tenant, std::uint32_t entry, std::uint8_t replicas,
                           const Answer& done);
  void copy(const Json::Value& request, const Answer& done);
  void move(const Json::Value& request, const Answer& done);
  void task(const Json::Value& request, const Answer& done);
  void ping(const Json::Value& request, const Answer& done);
  void list(const Json::Value& request, const Answer& done);
  void remove(const Json::Value& request, const Answer& done);

  // Begins a task that the master of the key carries out. source: a move's; kNoNode: a copy.
  void relocate(const Json::Value& request, MemberId source, std::vector<MemberId> targets,
                const Answer& done);
  void answer_list(const ListedPage& page, const std::string& after, const Answer& done) const;

  Json::Value counters() const;
  Json::Value located_json(const metadata::LocateAnswer& answer) const;

  ClusterNode& node_;
  std::unordered_map<std::uint32_t, SentPing> pings_;
  std::uint32_t next_ping_ = 1;
  std::deque<Replicated> replicated_;
  std::deque<ListedPage> pages_;
};

}  // namespace mc::agent
