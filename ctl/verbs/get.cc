// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <vector>

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

struct GetOptions {
  std::string key;
  std::string file = "-";
  bool escaped = false;
};

// Releases the view on every return.
struct HeldView {
  mc_view view{};
  ~HeldView() { mc_view_release(&view); }
};

bool write_all(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    at += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

bool write_spans(int fd, const mc_view& view) {
  std::vector<mc_slice> spans(view.span_count);
  spans.resize(std::min(spans.size(), mc_view_spans(&view, spans.data(), spans.size())));
  for (const mc_slice& span : spans) {
    if (!write_all(fd, span.data, span.size)) return false;
  }
  return true;
}

bool is_special(const std::string& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

// Writes a temporary file beside the file and renames it. False: errno has the reason.
bool write_file(const std::string& file, const mc_view& view) {
  if (file == "-") return write_spans(STDOUT_FILENO, view);
  if (is_special(file)) {
    const Fd device(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    return device && write_spans(device.get(), view);
  }
  std::string temporary = file + ".XXXXXX";
  const Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return false;
  // mkostemp creates the file as 0600; a plain file has the mode that the umask allows.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (write_spans(fd.get(), view) && ::fchmod(fd.get(), 0666 & ~mask) == 0 &&
      ::rename(temporary.c_str(), file.c_str()) == 0) {
    return true;
  }
  const int error = errno;
  ::unlink(temporary.c_str());
  errno = error;
  return false;
}

void run_get(Context& context, const GetOptions& options) {
  if (context.json && options.file == "-") {
    report_usage(context, "get", "--json and the object cannot share standard output",
                 "name a FILE, or leave out --json");
    return;
  }
  const auto key = key_from_text(context, "get", options.key, options.escaped);
  if (!key) return;
  const ClientSession session(context, "get");
  if (session.client() == nullptr) return;
  HeldView held;
  mc_status status = mc_get_view(session.client(), slice_of(*key), &held.view);
  if (status == MC_OK) status = mc_view_verify(&held.view, slice_of(*key));
  if (status != MC_OK) {
    report_last_error(context, "get", status);
    return;
  }
  if (!write_file(options.file, held.view)) {
    report(context, "get", kExitFailed,
           {errno_text("write " + (options.file == "-" ? "standard output" : options.file), errno),
            "check the folder's rights and the space left"});
    return;
  }
  if (!context.json) return;
  Json::Value document;
  document["key"] = escape_key(*key);
  document["length"] = Json::UInt64(held.view.length);
  document["version"] = std::to_string(held.view.version);
  document["file"] = options.file;
  print_json(document);
}

}  // namespace

Verb get_verb(Context& context) {
  auto options = std::make_shared<GetOptions>();
  return {
      .name = "get",
      .text = R"(Copy an object out of the pool

Writes the bytes of the object to FILE. Without FILE, or if FILE is -, mcctl writes to standard
output. Before the first byte is written, mcctl compares the bytes with the checksum from the
put. FILE appears only when it is complete. An existing file is replaced, and keeps its content
if anything fails.)",
      .footer = R"(EXAMPLES
  mcctl get greeting
  mcctl get weights/0 layer0.bin

EXIT STATUS
  0 written; 1 failure; 2 wrong usage; 3 no object has this key;
  4 no master or holder answers)",
      .options = {{.name = "KEY",
                   .value = &options->key,
                   .help = "The key of the object",
                   .required = true},
                  {"FILE", &options->file, "The file to write; - is standard output"},
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_get(context, *options); },
  };
}

}  // namespace mc::ctl
