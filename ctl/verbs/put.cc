// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/key_text.h"
#include "ctl/text/size.h"
#include "ctl/verbs/objects.h"
#include "libmc/base/fd.h"

namespace mc::ctl {
namespace {

constexpr std::string_view kDescription =
    "Store a file, or standard input, as an object\n"
    "\n"
    "Reads FILE (or standard input, when it is - or not given) to its end, then stores the bytes\n"
    "under KEY. Returns when every client of this host can see the object. A key that exists is\n"
    "left as it is, which is a success, unless --upsert asks to replace it.\n"
    "\n"
    "A soft pin keeps the object until everything unpinned is evicted or its time is up; a hard\n"
    "pin keeps it for ever. A parent is the key of the object that this one extends: it is never\n"
    "evicted before this one.";

constexpr std::string_view kFooter =
    "EXAMPLES\n"
    "  echo hello | mcctl put greeting\n"
    "  mcctl put weights/0 layer0.bin --upsert\n"
    "  mcctl put system-prompt prompt.kv --pin soft --ttl 10m\n"
    "\n"
    "EXIT STATUS\n"
    "  0 stored, or the key existed; 1 failed; 2 wrong usage";

struct PutOptions {
  std::string key;
  std::string file = "-";
  std::string parent;
  std::string pin;
  std::string ttl;
  bool upsert = false;
  bool escaped = false;
};

// All bytes of the file. Nullopt after a reported failure.
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
  // One byte more than the file has finds its end without growing.
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

// Fills pin and time. False after a reported failure.
bool read_pin(Context& context, const PutOptions& options, mc_put_options* out) {
  out->pin = options.pin == "hard"                          ? MC_PIN_HARD
             : options.pin == "soft" || options.pin.empty() ? MC_PIN_SOFT
                                                            : MC_PIN_NONE;
  if (options.ttl.empty()) {
    if (options.pin.empty()) out->pin = MC_PIN_NONE;
    return true;
  }
  if (out->pin != MC_PIN_SOFT) {
    report_usage(context, "put", "--ttl goes with a soft pin", "--pin soft, or no --ttl");
    return false;
  }
  constexpr std::uint64_t kMillisecondNs = 1000000;
  const auto ttl_ns = parse_duration_ns(options.ttl);
  if (!ttl_ns || *ttl_ns < kMillisecondNs) {
    report_usage(context, "put", fmt::format("--ttl: '{}' is not a duration", options.ttl),
                 "a number and a unit, such as 500ms, 30s, 10m, 2h or 7d; 1ms at least");
    return false;
  }
  out->pin_ttl_ms = *ttl_ns / kMillisecondNs;
  return true;
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
  if (!key || !read_pin(context, options, &put)) return;
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
  // Only for the message: the put itself decides.
  const bool existed = !options.upsert && mc_exists(session.client(), slice_of(*key)) == MC_OK;
  const mc_status status = mc_put(session.client(), slice_of(*key), slice_of(*bytes), &put);
  if (status != MC_OK) {
    report_last_error(context, "put", status);
    return;
  }
  print_outcome(context, *key, bytes->size(), existed);
}

}  // namespace

void register_put(CLI::App& app, Context& context) {
  auto options = std::make_shared<PutOptions>();
  CLI::App* verb = app.add_subcommand("put", std::string(kDescription));
  verb->add_option("KEY", options->key, "The key to store it under")->required();
  verb->add_option("FILE", options->file, "What to store; - is standard input")
      ->capture_default_str();
  verb->add_flag("--upsert", options->upsert, "Replace what is stored under the key");
  verb->add_option("--pin", options->pin, "Keep it longer (soft) or for ever (hard); default: none")
      ->check(CLI::IsMember({"none", "soft", "hard"}))
      ->type_name("KIND");
  verb->add_option("--ttl", options->ttl,
                   "How long a soft pin holds, such as 10m; implies --pin soft; default: 1h")
      ->type_name("DURATION");
  verb->add_option("--parent", options->parent, "Key of the object that this one extends")
      ->type_name("KEY");
  verb->add_flag("--escaped", options->escaped, std::string(kEscapedHelp));
  verb->footer(std::string(kFooter));
  verb->callback([options, &context] { run_put(context, *options); });
}

}  // namespace mc::ctl
