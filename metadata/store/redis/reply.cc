// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/reply.h"

#include <hiredis.h>

#include <new>

namespace mc::metadata {
namespace {

// The number of items still allowed in this reply. hiredis passes the budget to the functions
// below.
struct Budget {
  std::size_t items_left = kMaxReplyItems;
};

// Null: over the budget; hiredis then drops the whole reply. An item belongs to the array. The
// outermost reply belongs to hiredis' reader.
Reply* place(const redisReadTask* task, Reply&& reply) {
  auto& budget = *static_cast<Budget*>(task->privdata);
  if (budget.items_left == 0) return nullptr;
  --budget.items_left;
  if (task->parent == nullptr) return new Reply(std::move(reply));
  // hiredis reads depth first, so an array's items do not move while one of the items is filled.
  auto& items = static_cast<Reply*>(task->parent->obj)->items;
  items.push_back(std::move(reply));
  return &items.back();
}

// hiredis 1.0 widened the count from int to size_t and added kinds of the RESP3 protocol, which
// this client does not request.
template <typename Functions>
Functions make_functions() {
  Functions f{};
  f.createString = [](const redisReadTask* task, char* data, std::size_t size) -> void* {
    const bool error = task->type == REDIS_REPLY_ERROR;
    return place(
        task, {error ? Reply::Kind::kError : Reply::Kind::kText, 0, std::string(data, size), {}});
  };
  f.createArray = [](const redisReadTask* task, auto) -> void* {
    return place(task, {Reply::Kind::kArray, 0, "", {}});
  };
  f.createInteger = [](const redisReadTask* task, long long value) -> void* {
    return place(task, {Reply::Kind::kInteger, value, "", {}});
  };
  f.createNil = [](const redisReadTask* task) -> void* { return place(task, {}); };
  f.freeObject = [](void* reply) { delete static_cast<Reply*>(reply); };
  if constexpr (requires { f.createDouble; }) {
    f.createDouble = [](const redisReadTask*, double, char*, std::size_t) -> void* {
      return nullptr;
    };
    f.createBool = [](const redisReadTask*, int) -> void* { return nullptr; };
  }
  return f;
}

redisReplyObjectFunctions functions = make_functions<redisReplyObjectFunctions>();

Status broken(std::string_view cause) {
  return {MC_CORRUPT, "the answer is not of Redis' protocol or too large (" + std::string(cause) +
                          "); is this a Redis server's port?"};
}

}  // namespace

struct ReplyReader::State {
  State() : reader(redisReaderCreateWithFunctions(&functions)) {
    if (reader == nullptr) throw std::bad_alloc();
    reader->privdata = &budget;
  }
  ~State() { redisReaderFree(reader); }

  Budget budget;
  redisReader* reader;
  std::size_t fed_bytes = 0;  // since the last whole reply
};

ReplyReader::ReplyReader() : state_(std::make_unique<State>()) {}
ReplyReader::~ReplyReader() = default;
ReplyReader::ReplyReader(ReplyReader&&) noexcept = default;
ReplyReader& ReplyReader::operator=(ReplyReader&&) noexcept = default;

Status ReplyReader::feed(std::string_view bytes) {
  state_->fed_bytes += bytes.size();
  if (state_->fed_bytes > kMaxReplyBytes) return broken("longer than a listing may be");
  if (redisReaderFeed(state_->reader, bytes.data(), bytes.size()) != REDIS_OK) {
    return broken(state_->reader->errstr);
  }
  return {};
}

Result<std::unique_ptr<Reply>> ReplyReader::next() {
  void* reply = nullptr;
  if (redisReaderGetReply(state_->reader, &reply) != REDIS_OK) {
    return fail(broken(state_->reader->errstr));
  }
  if (reply != nullptr) {
    state_->fed_bytes = 0;
    state_->budget = {};
  }
  return std::unique_ptr<Reply>(static_cast<Reply*>(reply));
}

}  // namespace mc::metadata
