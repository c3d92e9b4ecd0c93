// SPDX-License-Identifier: Apache-2.0
// Puts eight blocks in one request, then reads them in the background with a completion queue.
// Needs an agent: mc-agent --pool-bytes 1GiB
#include <poll.h>

#include <cstdio>
#include <string>
#include <vector>

#include "mc/mc.hpp"

namespace {

constexpr std::size_t kBlocks = 8;
constexpr std::size_t kBlockBytes = 64 * 1024;

int failed(const char* call, const mc::Status& status) {
  std::fprintf(stderr, "%s: %s\n", call, status.to_string().c_str());
  return 1;
}

// Waits for one completion. A real program adds the descriptor to its own event loop.
mc::Completion next_completion(mc::CompletionQueue& queue) {
  mc::Completion one{};
  while (queue.poll({&one, 1}).empty()) {
    pollfd readable{queue.fd(), POLLIN, 0};
    ::poll(&readable, 1, -1);
  }
  return one;
}

}  // namespace

int main() {
  mc::Result<mc::Client> client = mc::Client::open();
  if (!client) return failed("open", client.error());

  // A value may lie in pieces; here each value is one piece.
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    keys.push_back("example/async/" + std::to_string(i));
    values.emplace_back(kBlockBytes, static_cast<char>('a' + i));
  }
  std::vector<mc::Slice> pieces;
  for (const std::string& value : values) pieces.push_back(mc::as_slice(value));
  std::vector<mc::PutItem> puts;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    puts.push_back({mc::as_slice(keys[i]), &pieces[i], 1, {}, MC_OK});
  }
  // One request for all items; items[i].status has the result of each item.
  if (mc::Status status = client->put_batch(puts); !status.ok()) return failed("put", status);

  // The buffers and items of a get must stay until the completion.
  mc::Result<mc::CompletionQueue> queue = client->create_queue();
  if (!queue) return failed("create_queue", queue.error());
  std::vector<std::vector<char>> buffers(kBlocks, std::vector<char>(kBlockBytes));
  std::vector<mc_span> spans;
  for (auto& buffer : buffers) spans.push_back({buffer.data(), buffer.size()});
  std::vector<mc::GetItem> gets;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    gets.push_back({mc::as_slice(keys[i]), &spans[i], 1, 0, 0, MC_OK});
  }
  const mc::Result<std::uint64_t> request = queue->get(gets, 42);
  if (!request) return failed("get", request.error());
  const mc::Completion done = next_completion(*queue);
  std::printf("request %llu ended with %s for %u items\n",
              static_cast<unsigned long long>(done.user_data), mc_status_name(done.status),
              done.item_count);

  std::size_t equal = 0;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    equal += std::string_view(buffers[i].data(), kBlockBytes) == values[i] ? 1 : 0;
  }
  std::printf("%zu of %zu blocks are equal\n", equal, kBlocks);
  return equal == kBlocks ? 0 : 1;
}
