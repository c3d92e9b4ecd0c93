// SPDX-License-Identifier: Apache-2.0
//
// The peer process of a transfer: opens an engine over patterned memory, prints the address, and
// executes commands.
#include <sys/mman.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "mc/transfer.h"

namespace {

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "mc_transfer_peer: %s: %s\n", what, mc_transfer_last_error());
  std::exit(1);
}

void answer(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// Other processes write this memory in turns that the requester orders. ThreadSanitizer sees only
// one process and cannot know that order.
__attribute__((noinline, no_sanitize("thread"))) std::size_t count(const void* memory,
                                                                   std::size_t size,
                                                                   unsigned char wanted) {
  const auto* at = static_cast<const unsigned char*>(memory);
  std::size_t found = 0;
  for (std::size_t i = 0; i < size; ++i) found += at[i] == wanted ? 1 : 0;
  return found;
}

__attribute__((noinline, no_sanitize("thread"))) unsigned char first_of(const void* memory) {
  return *static_cast<const unsigned char*>(memory);
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc < 4) return 2;
  const std::size_t size = std::strtoull(argv[2], nullptr, 0);
  const auto rights = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 0));
  mc_transfer_options options = MC_TRANSFER_OPTIONS_INIT;
  options.listen = argv[1];
  if (argc > 4) options.key_file = argv[4];
  options.fabric_provider = std::getenv("MC_TEST_FABRIC");
  options.transports = options.fabric_provider != nullptr ? "fabric" : "tcp";
  mc_transfer_engine* engine = nullptr;
  if (mc_transfer_open(&options, &engine) != MC_OK) die("open");
  void* memory = nullptr;
  if (std::getenv("MC_TEST_SHARED") != nullptr) {
    if (mc_transfer_allocate(size, &memory) != MC_OK) die("allocate");
  } else {
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
  }
  std::memset(memory, 0x5a, size);
  const mc_transfer_range range{memory, size};
  if (mc_transfer_register(engine, &range, 1, rights) != MC_OK) die("register");
  mc_transfer_info info{};
  info.struct_size = sizeof info;
  if (mc_transfer_get_info(engine, &info) != MC_OK) die("info");
  answer(std::string(info.name) + " " + std::to_string(reinterpret_cast<std::uintptr_t>(memory)));
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const std::string word(line, std::strcspn(line, " \n"));
    if (word == "unregister") {
      answer(mc_status_name(mc_transfer_unregister(engine, &memory, 1)));
    } else if (word == "register") {
      answer(mc_status_name(mc_transfer_register(engine, &range, 1, rights)));
    } else if (word == "check") {
      const auto wanted = static_cast<unsigned char>(std::strtoul(line + 6, nullptr, 0));
      answer(std::to_string(count(memory, size, wanted)));
    } else if (word == "wait-note") {
      char note[MC_MAX_TRANSFER_NOTE_BYTES];
      std::size_t name = 0;
      std::size_t message = 0;
      while (mc_transfer_take_notification(engine, note, &name, &message) != MC_OK) continue;
      // The bytes that had landed when the notification arrived.
      answer(std::string(note, name) + "/" + std::string(note + name, message) + "/" +
             std::to_string(count(memory, size, first_of(memory))));
    } else {
      break;
    }
  }
  mc_transfer_close(engine);
  return 0;
}
