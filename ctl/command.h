// SPDX-License-Identifier: Apache-2.0
//
// The declaration of mcctl's verbs as data. A verb is one file with one function that
//   returns a Verb. command_line.cc parses the words of the user with these declarations; help.cc
//   makes the manual pages and the completion scripts from the same declarations.
// Threads: the main thread.
// Owns: a Verb owns its texts. The value pointers of its options point into an object that the
//   verb's run function keeps alive.
// Trusts: nothing of the words; the parser checks each value before a verb runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mc/mc.h"

namespace mc::ctl {

struct Context {
  std::string agent;                   // --agent: socket path; empty: the default socket
  std::string name_space = "default";  // --namespace
  std::uint64_t timeout_ms = 0;        // --timeout-ms; 0: not given
  bool json = false;                   // --json
  bool wait_announced = false;         // the user was told about the wait for the agent
  int exit_code = 0;                   // 0 ok, 1 failed, 2 usage, 3 not found
};

// An option "--like-this", or a positional argument "KEY" without dashes.
struct Option {
  // The place that receives the value. The value before the parse is the default. monostate: --help
  // and --version, which the parser handles itself. A bool is a flag. A vector takes values that
  // are separated by commas; as a positional argument, a vector takes one word per value.
  using Value = std::variant<std::monostate, bool*, std::string*, std::vector<std::string>*,
                             unsigned*, std::uint64_t*, double*>;

  std::string name;  // "--yes,-y", "KEY"
  Value value = {};
  std::string help;
  std::string type = {};                                // name of the value in the help: "DURATION"
  std::optional<std::pair<double, double>> range = {};  // least and largest number
  bool required = false;
  std::vector<std::string> choices = {};   // the allowed values; empty: any
  std::vector<std::string> excludes = {};  // options of the same verb that must not stand beside it
  // Returns the reason why a text is not allowed; empty: the text is allowed.
  std::function<std::string(const std::string&)> refusal = {};
  std::string earlier_name = {};  // "--provider": still accepted, and not in the help
  // Words of mcctl, "segment list", that print a table whose first column has the present values.
  // Completion offers these values.
  std::string live_values = {};
  std::string default_text = {};  // set by the parser before the value changes

  bool is_positional() const { return !name.starts_with('-'); }
  bool takes_value() const {
    return !std::holds_alternative<std::monostate>(value) && !std::holds_alternative<bool*>(value);
  }
  bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(value); }
};

struct Verb {
  std::string name;
  std::string text;                  // summary line, empty line, paragraphs
  std::string footer = {};           // sections of the manual page, such as EXAMPLES
  std::vector<Option> options = {};  // positional arguments in the order of the command line
  std::vector<Verb> verbs = {};      // if there are any, run is not called
  std::function<void()> run = {};
};

// Each takes the context by reference: the context must outlive the Verb.
Verb status_verb(Context& context);
Verb ls_verb(Context& context);
Verb stat_verb(Context& context);
Verb put_verb(Context& context);
Verb get_verb(Context& context);
Verb rm_verb(Context& context);
Verb exists_verb(Context& context);
Verb pin_verb(Context& context);
Verb evict_verb(Context& context);
Verb segment_verb(Context& context);
Verb namespace_verb(Context& context);
std::vector<Verb> cluster_verbs(Context& context);  // the verbs of verbs/cluster.cc
Verb trace_verb(Context& context);
Verb events_verb(Context& context);
Verb support_bundle_verb(Context& context);
Verb rails_verb(Context& context);
Verb top_verb(Context& context);
Verb topo_verb(Context& context);
Verb config_verb(Context& context);
Verb doctor_verb(Context& context);
Verb bench_verb(Context& context);
Verb replay_verb(Context& context);
Verb join_verb(Context& context);
// program: the verb that holds all others; program must outlive the returned Verb.
Verb completion_verb(const Verb& program);
Verb manual_verb(Context& context, const Verb& program);

// Parses the words, without the program's name, and runs the named verb. Prints the manual
// page for --help and for "help VERB". Returns the exit code.
int run_command_line(Verb& program, Context& context, std::vector<std::string> words);

}  // namespace mc::ctl
