// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "ctl/command.h"
#include "ctl/text/help.h"

namespace mc::ctl {

Verb completion_verb(const Verb& program) {
  auto shell = std::make_shared<std::string>();
  return {
      .name = "completion",
      .text = R"(Print a completion script for a shell

The script completes verbs, options and their fixed values. Behind --namespace, the script asks the
usual agent for the names of namespaces. Elsewhere the script completes file names.
The Debian package mcctl has the scripts of all three shells. The script describes this version of
mcctl: generate a new one after an upgrade.)",
      .footer = R"(EXAMPLES
  source <(mcctl completion bash)
  mcctl completion bash > /etc/bash_completion.d/mcctl
  mcctl completion zsh > "${fpath[1]}/_mcctl"
  mcctl completion fish > ~/.config/fish/completions/mcctl.fish

EXIT STATUS
  0 printed; 2 wrong usage)",
      .options = {{.name = "SHELL",
                   .value = shell.get(),
                   .help = "The shell: bash, zsh or fish",
                   .required = true,
                   .choices = {"bash", "zsh", "fish"}}},
      .run =
          [shell, &program] {
            fmt::print("{}", *shell == "bash"  ? bash_completion(program)
                             : *shell == "zsh" ? zsh_completion(program)
                                               : fish_completion(program));
          },
  };
}

}  // namespace mc::ctl
