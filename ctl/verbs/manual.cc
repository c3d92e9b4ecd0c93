// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "ctl/command.h"
#include "ctl/text/failure.h"
#include "ctl/text/help.h"
#include "ctl/text/json.h"
#include "libmc/base/fd.h"

namespace mc::ctl {
namespace {

// Returns the number of pages of the last verb in the path and of its inner verbs; 0: a page could
// not be written, and the failure is reported.
std::size_t write_pages(Context& context, const std::filesystem::path& directory,
                        const std::vector<const Verb*>& path) {
  const std::filesystem::path file = directory / (manual_name(path) + ".1");
  std::ofstream out(file);
  out << manual_source(path);
  out.close();
  if (!out) {
    report(context, "manual", kExitFailed,
           {errno_text("write " + file.string(), errno),
            "name a directory with space that this user may write"});
    return 0;
  }
  std::size_t written = 1;
  for (const Verb& inner : path.back()->verbs) {
    std::vector<const Verb*> below = path;
    below.push_back(&inner);
    const std::size_t more = write_pages(context, directory, below);
    if (more == 0) return 0;
    written += more;
  }
  return written;
}

void run_manual(Context& context, const Verb& program, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    report(context, "manual", kExitFailed,
           {"create " + directory + ": " + error.message(),
            "name a directory that this user may make"});
    return;
  }
  const std::size_t written = write_pages(context, directory, {&program});
  if (written == 0 || !context.json) return;
  Json::Value document;
  document["directory"] = directory;
  document["pages"] = static_cast<Json::UInt64>(written);
  print_json(document);
}

}  // namespace

Verb manual_verb(Context& context, const Verb& program) {
  const auto directory = std::make_shared<std::string>();
  return {
      .name = "manual",
      .text = R"(Write the manual pages of mcctl and its verbs into a directory

Writes mcctl.1 and a page for each verb, such as mcctl-segment-resize.1, in the language man(7).
The packages of mc contain these pages. The pages describe this version of mcctl: write new ones
after an upgrade.)",
      .footer = R"(EXAMPLES
  mcctl manual ~/.local/share/man/man1 && man mcctl-segment-resize
  mcctl manual pages && man -l pages/mcctl.1

EXIT STATUS
  0 written; 1 failure; 2 wrong usage)",
      .options = {{.name = "DIRECTORY",
                   .value = directory.get(),
                   .help =
                       "The directory of the pages; the verb makes the directory if there is none",
                   .required = true}},
      .run = [directory, &context, &program] { run_manual(context, program, *directory); },
  };
}

}  // namespace mc::ctl
