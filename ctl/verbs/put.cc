// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/verbs/objects.h"
#include "libmc/base/fd.h"
#include "libmc/base/key_text.h"

namespace mc::ctl {
namespace {

struct PutOptions {
  std::string key;
  std::string file = "-";
  std::string parent;
  PinWords pin;
  unsigned replicas = 1;
  bool upsert = false;
  bool escaped = false;
};

// The bytes of the file. Nullopt after a reported failure.
std::optional<std::string> read_all(Context& context, const std::string& file) {
  const auto failed = [&](std::string_view what) -> std::optional<std::string> {
    report(
        context, "put", kExitFailed,
        {errno_text(fmt::format("{} {}", what, file), errno), "check the file's name and rights"});
    return std::nullopt;
  };
  Fd opened;
  if (file != "-") {
    opened.reset(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened) return failed("open");
  }
  const int fd = opened ? opened.get() : STDIN_FILENO;
  struct stat info {};
  std::string bytes;
  // One extra byte: the read that finds the end of the file needs no larger buffer.
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
      static_cast<std::uint64_t>(info.st_size) <= MC_MAX_OBJECT_BYTES) {
    bytes.resize(static_cast<std::size_t>(info.st_size) + 1);
  }
  constexpr std::size_t kFirstBytes = 64 * 1024;
  std::size_t filled = 0;
  while (true) {
    if (filled > MC_MAX_OBJECT_BYTES) {
      report_status(context, "put", MC_TOO_LARGE,
                    "the input is longer than 1 TiB; cut it into several objects");
      return std::nullopt;
    }
    if (filled == bytes.size()) bytes.resize(std::max(kFirstBytes, bytes.size() * 2));
    const ssize_t got = ::read(fd, bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

void print_outcome(const Context& context, const std::string& key, std::size_t length, bool kept) {
  if (context.json) {
    Json::Value document;
    document["key"] = escape_key(key);
    document["length"] = Json::UInt64(length);
    document["existed"] = kept;
    print_json(document);
  } else if (kept) {
    fmt::print("{} exists and was left as it is; --upsert replaces it\n", escape_key(key));
  } else {
    fmt::print("stored {}, {}\n", escape_key(key), format_bytes(length));
  }
}

void run_put(Context& context, const PutOptions& options) {
  mc_put_options put = MC_PUT_OPTIONS_INIT;
  const auto key = key_from_text(context, "put", options.key, options.escaped);
  if (!key) return;
  const auto pin = pin_from_words(context, "put", options.pin);
  if (!pin) return;
  put.pin = pin->pin;
  put.pin_ttl_ms = pin->ttl_ms;
  put.replicas = options.replicas;
  if (options.replicas > 1) put.visibility = MC_VISIBLE_REPLICATED;
  std::optional<std::string> parent;
  if (!options.parent.empty()) {
    parent = key_from_text(context, "put", options.parent, options.escaped);
    if (!parent) return;
    put.parent = slice_of(*parent);
  }
  put.upsert = options.upsert ? 1 : 0;
  put.timeout_ns = timeout_ns(context);

  const auto bytes = read_all(context, options.file);
  if (!bytes) return;
  if (bytes->empty()) {
    report_usage(context, "put", "the input is empty", "an object of one byte or more");
    return;
  }
  const ClientSession session(context, "put");
  if (session.client() == nullptr) return;
  // Only for the message; the put does not depend on the answer.
  const bool existed = !options.upsert && mc_exists(session.client(), slice_of(*key)) == MC_OK;
  const mc_status status = mc_put(session.client(), slice_of(*key), slice_of(*bytes), &put);
  if (status != MC_OK) {
    report_last_error(context, "put", status);
    return;
  }
  print_outcome(context, *key, bytes->size(), existed);
}

}  // namespace

Verb put_verb(Context& context) {
  auto options = std::make_shared<PutOptions>();
  return {
      .name = "put",
      .text = R"(Store a file, or standard input, as an object

Reads FILE to its end and stores the bytes under KEY. Without FILE, or if FILE is -, mcctl reads
standard input. The verb returns when every host of the cluster can see the object; with --replicas,
when so many hosts hold the object. If the key exists, the stored object stays as it is and the put
counts as a success; --upsert replaces the object.

A soft pin keeps the object until the pool holds only pinned objects, or until the time of the
pin ends. A hard pin keeps the object until somebody removes it. A parent is the key of the
object that this one extends: the parent is never evicted before this object.)",
      .footer = R"(EXAMPLES
  echo hello | mcctl put greeting
  mcctl put weights/0 layer0.bin --upsert
  mcctl put system-prompt prompt.kv --pin soft --ttl 10m

EXIT STATUS
  0 stored, or the key existed; 1 failure; 2 wrong usage; 4 stored here, and no master knows whether
  the replicas are there)",
      .options = {{.name = "KEY",
                   .value = &options->key,
                   .help = "The key of the new object",
                   .required = true},
                  {"FILE", &options->file, "The file to store; - is standard input"},
                  {"--upsert", &options->upsert, "Replace the object that has this key"},
                  pin_option(
                      options->pin,
                      "Keep the object longer (soft) or until it is removed (hard); default: none"),
                  ttl_option(options->pin),
                  {"--replicas",
                   &options->replicas,
                   "How many hosts shall hold the object; default: 1",
                   "COUNT",
                   {{1, MC_MAX_REPLICAS}}},
                  {"--parent", &options->parent, "The key of the object that this one extends",
                   "KEY"},
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_put(context, *options); },
  };
}

}  // namespace mc::ctl
