// SPDX-License-Identifier: Apache-2.0
//
// A process that gets no more memory, or no more threads: calls fail with MC_NO_MEMORY, and none ends the
// process. Once there is memory again, the same client works.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "conformance/client/agent_fixture.h"
#include "sanitizer.h"

namespace mc::conformance {
namespace {

// Takes all memory that this process can still get, down to pieces of 16 bytes.
class NoMemoryLeft {
 public:
  NoMemoryLeft() {
    touch_stack();
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &none);
    for (std::size_t size = 64u << 20; size >= sizeof(Piece); size /= 2) {
      while (void* const memory = std::malloc(size)) pieces_ = new (memory) Piece{pieces_};
    }
  }
  ~NoMemoryLeft() {
    ::setrlimit(RLIMIT_AS, &before_);
    while (pieces_ != nullptr) std::free(std::exchange(pieces_, pieces_->next));
  }
  NoMemoryLeft(const NoMemoryLeft&) = delete;
  NoMemoryLeft& operator=(const NoMemoryLeft&) = delete;

 private:
  struct Piece {
    Piece* next;
  };
  // The limit stops the growth of the stack too.
  static void touch_stack() {
    volatile char room[512 << 10];
    for (std::size_t at = 0; at < sizeof room; at += 4096) room[at] = 0;
  }

  rlimit before_{};
  Piece* pieces_ = nullptr;
};

// From now on the kernel refuses new threads, as it does at the limit of threads (EAGAIN).
bool refuse_threads() {
  constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EAGAIN;
  sock_filter lines[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kRefuse),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(lines)), lines};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool names(const char* word) { return std::strstr(mc_last_error(), word) != nullptr; }

using Exhaustion = ClientTest;
MC_WITH_AGENT(Exhaustion);

TEST_P(Exhaustion, WithoutMemoryCallsFailAndTheClientWorksAfterwards) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the process itself when an allocation fails";
  serve();
  const mc_slice key = slice("key"), other = slice("other"), value = slice("value");
  mc_client* client = nullptr;
  mc_client* second = nullptr;
  mc_cq* cq = nullptr;
  mc_cq* second_cq = nullptr;
  mc_group* group = nullptr;
  mc_group* half = nullptr;
  mc_put_options in_half = put_options();
  // Their puts need more memory in one piece than a thread that ends can give back.
  std::vector<std::string> names_of_members(512);
  std::vector<mc_put_item> members(512, {key, &value, 1, {nullptr, 0}, MC_OK});
  for (std::size_t i = 0; i < members.size(); ++i) {
    names_of_members[i] = "member." + std::to_string(i);
    members[i].key = slice(names_of_members[i]);
  }
  mc_reservation* reservation = nullptr;
  mc_view view{};
  mc_stat_info info{};
  info.struct_size = sizeof info;
  mc_put_item item{key, &value, 1, {nullptr, 0}, MC_OK};
  char bytes[64];
  const mc_span piece{bytes, sizeof bytes};
  mc_get_item wanted{key, &piece, 1, 0, 0, MC_OK};
  mc_status status = MC_OK;
  mc_completion completion{};
  std::size_t count = 0;
  void* memory = nullptr;
  const auto ignore = [](void*, const char*, std::size_t) {};
  std::optional<NoMemoryLeft> none;
  const auto no_memory = [](auto call) {
    return [call] { return call() == MC_NO_MEMORY && names("memory"); };
  };
  // Some calls need no memory, or find memory that another thread has freed. None may end in an exception
  // without a cause.
  const auto no_surprise = [](auto call) { return [call] { return call() != MC_INTERNAL; }; };
  const auto is_ok = [](auto call) { return [call] { return call() == MC_OK; }; };
  const int failed = in_child({
      is_ok([&] { return try_open(&client); }),
      is_ok([&] { return mc_put(client, key, value, nullptr); }),
      is_ok([&] { return mc_cq_create(client, &cq); }),
      is_ok([&] { return mc_group_begin(client, &half); }),
      [&] { return in_half.group = half, true; },
      is_ok([&] { return put(client, "member", "value", &in_half); }),
      [&] { return none.emplace(), true; },
      no_memory([&] {
        const mc_open_options options = MC_OPEN_OPTIONS_INIT;
        return mc_open(&options, &second);
      }),
      no_surprise([&] { return mc_cq_create(client, &second_cq); }),
      no_surprise([&] { return mc_group_begin(client, &group); }),
      no_memory([&] { return mc_put_batch(client, members.data(), members.size(), &in_half); }),
      no_surprise([&] { return mc_reserve(client, 1000, 0, &reservation); }),
      no_surprise([&] { return mc_put(client, other, value, nullptr); }),
      no_surprise([&] { return mc_put_batch(client, &item, 1, nullptr); }),
      no_surprise([&] { return mc_put_async(client, cq, &item, 1, nullptr, 1, nullptr); }),
      no_surprise([&] { return mc_get_async(client, cq, &wanted, 1, 2, nullptr); }),
      no_surprise([&] { return mc_exists_async(client, cq, &key, 1, &status, 3, nullptr); }),
      no_surprise([&] { return mc_remove_async(client, cq, &other, 1, 0, 4, nullptr); }),
      [&] { return mc_cq_poll(cq, &completion, 1) <= 1; },
      is_ok([&] { return mc_get(client, key, bytes, sizeof bytes, &count); }),
      is_ok([&] { return mc_get_batch(client, &wanted, 1); }),
      no_surprise([&] { return mc_get_view(client, key, &view); }),
      [&] { return mc_view_release(&view), true; },
      is_ok([&] { return mc_exists(client, key); }),
      no_surprise([&] { return mc_stat(client, key, &info); }),
      no_surprise([&] { return mc_remove(client, other, 0); }),
      no_surprise([&] { return mc_set_pin(client, key, MC_PIN_HARD, 0, 0); }),
      no_surprise([&] { return mc_alloc(client, 1000, &memory); }),
      no_surprise(
          [&] { return mc_ask(client, slice("{\"verb\":\"status\"}"), ignore, nullptr, 0); }),
      no_surprise([&] { return mc_ping(client, 0); }),
      [&] { return none.reset(), true; },
      [&] {
        return mc_cq_destroy(second_cq), mc_group_abort(group), mc_abandon(reservation), true;
      },
      [&] { return mc_group_commit(half, 0) == MC_GROUP_ABORTED; },
      [&] { return exists(client, "member") == MC_NOT_FOUND; },
      is_ok([&] { return put(client, "again", content("again", 100'000)); }),
      [&] { return get(client, "again") == content("again", 100'000); },
      is_ok([&] { return mc_reserve(client, 1000, 0, &reservation); }),
      is_ok([&] { return mc_commit(reservation, slice("reserved"), 1000, nullptr); }),
      is_ok([&] { return mc_group_begin(client, &group); }),
      is_ok([&] { return mc_group_commit(group, 0); }),
      is_ok([&] { return try_open(&second); }),
      [&] { return mc_cq_destroy(cq), mc_close(second), mc_close(client), true; },
  });
  EXPECT_EQ(failed, 0) << "this step of the child failed, or a signal ended the child";
}

TEST_P(Exhaustion, WithoutThreadsAnOpenFailsAndSaysWhy) {
  serve();
  mc_client* client = nullptr;
  const int failed = in_child({
      [] { return refuse_threads(); },
      [&] { return try_open(&client) == MC_NO_MEMORY; },
      [&] { return client == nullptr && names("threads"); },
  });
  EXPECT_EQ(failed, 0) << "this step of the child failed, or a signal ended the child";
}

}  // namespace
}  // namespace mc::conformance
