// SPDX-License-Identifier: Apache-2.0
//
// The leaders of all partitions, as the pages of the HTTP port ask them. A page so sees and changes
//   the whole cluster, also if other masters lead some partitions.
// Threads: one thread asks. Answers come in the threads of the clients.
// Owns: a MasterClient for each partition, from its first question on.
// Trusts: the leaders, as far as MasterClient does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metadata/directory/key_hash.h"
#include "metadata/master/client/master_client.h"
#include "metadata/master/master_options.h"

namespace mc::metadata {

// The place in a listing of all keys.
struct ListCursor {
  std::uint32_t partition = 0;
  std::string after;  // the last key; empty: begin

  [[nodiscard]] std::string text() const;
  // Nullopt: the text is not from text().
  static std::optional<ListCursor> parse(std::string_view text);
};

class Leaders {
 public:
  struct KeyPlace {
    Lookup state = Lookup::kMiss;  // kFound: readable
    std::uint64_t bytes = 0;
    std::vector<NodeId> holders;
  };
  struct ListPage {
    std::vector<std::string> keys;
    std::optional<ListCursor> next;
  };
  template <typename Answer>
  using Done = std::function<void(Result<Answer>)>;

  // address: of this master, as other processes dial it.
  Leaders(const MasterOptions& options, std::string address, auth::ClusterKey key);

  // One place a key, in order. Errors: those of MasterClient.
  void locate(const std::string& name_space, const std::vector<std::string>& keys,
              Done<std::vector<KeyPlace>> done);
  // At most `limit` keys (1 to kMaxListed), maybe none before the last page. Errors: those of
  // MasterClient; MC_TIMEOUT if a host has not answered, so that the list would lack keys.
  void list(const std::string& name_space, const ListCursor& cursor, std::uint32_t limit,
            Done<ListPage> done);
  // Removes the objects of a namespace, or of all namespaces that agents share (empty).
  void remove_all(const std::string& name_space, Done<wire::RemoveMatchingAnswer> done);
  // Begins the drain of a host, goes on, or stops. The sum of all partitions.
  void drain(const wire::Drain& request, Done<wire::DrainAnswer> done);

 private:
  // Calls ask(client, done) for each partition, and adds the answers.
  template <typename Answer, typename Ask>
  void ask_all(Done<Answer> done, Ask ask);
  Result<MasterClient*> client(std::uint32_t partition);

  const MasterOptions options_;
  const std::string address_;
  const auth::ClusterKey key_;
  const KeyHasher hasher_;
  std::vector<std::unique_ptr<MasterClient>> clients_;  // by partition; null: not asked yet
};

}  // namespace mc::metadata
