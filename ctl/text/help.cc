// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/help.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "libmc/options/manual_page.h"

namespace mc::ctl {
namespace {

constexpr std::size_t kColumns = 96;

// The words of the text, broken into lines with this indent.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  std::string out;
  std::size_t column = 0;
  for (std::string word; words >> word;) {
    if (column > 0 && indent + column + 1 + word.size() > kColumns) {
      out += '\n';
      column = 0;
    }
    out += column == 0 ? std::string(indent, ' ') : " ";
    out += word;
    column += word.size() + (column == 0 ? 0 : 1);
  }
  return out + '\n';
}

std::string indented(const std::string& text) {
  std::string out;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    out += line.empty() ? "\n" : "  " + line + '\n';
  }
  return out;
}

// The text behind the summary.
std::string body_of(const Verb& verb) {
  const std::size_t start = verb.text.find_first_not_of('\n', summary_of(verb).size());
  return start == std::string::npos ? "" : verb.text.substr(start);
}

// The summary as a part of a sentence.
std::string lower_summary(const Verb& verb) {
  std::string summary = summary_of(verb);
  if (summary.size() > 1 && summary[1] >= 'a' && summary[1] <= 'z') {
    summary[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(summary[0])));
  }
  return summary;
}

std::string positional_name(const Option& option) {
  const std::string name = option.name + (option.is_list() ? "..." : "");
  return option.required ? name : '[' + name + ']';
}

// The words behind the verb.
std::string arguments_of(const std::vector<const Verb*>& path) {
  const Verb& verb = *path.back();
  if (!verb.verbs.empty()) return path.size() == 1 ? "[OPTION]... VERB ..." : "VERB [OPTION]...";
  std::string out = "[OPTION]...";
  for (const Option& option : verb.options) {
    if (option.is_positional()) out += ' ' + positional_name(option);
  }
  return out;
}

std::string names_text(const Option& option) {
  std::string text;
  for (const std::string& name : names_of(option)) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// "SOCKET", "{soft,hard}"; empty: the option takes no value.
std::string value_text(const Option& option) {
  if (option.is_positional() || !option.takes_value()) return {};
  if (option.choices.empty()) return option.type.empty() ? "TEXT" : option.type;
  return fmt::format("{{{}}}", fmt::join(option.choices, ","));
}

// The help with the range and the default.
std::string help_text(const Option& option) {
  std::string help = option.help;
  std::string limits;
  if (option.range) limits = fmt::format("{} to {}", option.range->first, option.range->second);
  if (!option.default_text.empty() && help.find("default") == std::string::npos) {
    limits += (limits.empty() ? "" : "; ") + ("default: " + option.default_text);
  }
  if (!limits.empty()) help += " (" + limits + ')';
  return help;
}

std::string option_text(const Option& option) {
  const std::string value = value_text(option);
  return "  " + names_text(option) + (value.empty() ? "" : ' ' + value) + '\n' +
         wrapped(help_text(option), 8);
}

std::string options_of(const Verb& verb) {
  std::string out;
  for (const bool positional : {true, false}) {
    for (const Option& option : verb.options) {
      if (option.is_positional() == positional) out += option_text(option);
    }
  }
  return out;
}

std::string verbs_of(const Verb& verb) {
  std::string out;
  std::size_t width = 0;
  for (const Verb& inner : verb.verbs) width = std::max(width, inner.name.size());
  for (const Verb& inner : verb.verbs) {
    out += fmt::format("  {:<{}}  {}\n", inner.name, width, summary_of(inner));
  }
  return out;
}

void add_options(options::ManualPage& page, std::string_view title, const Verb& verb) {
  if (verb.options.empty()) return;
  page.heading(title);
  for (const bool positional : {true, false}) {
    for (const Option& option : verb.options) {
      if (option.is_positional() != positional) continue;
      page.item(names_text(option), value_text(option), help_text(option));
    }
  }
}

void add_section(std::string& out, std::string_view title, const std::string& text) {
  if (text.empty()) return;
  out += fmt::format("{}{}\n{}", out.empty() ? "" : "\n", title, text);
}

}  // namespace

std::string words_of(const std::vector<const Verb*>& path) {
  std::string out;
  for (const Verb* verb : path) out += (out.empty() ? "" : " ") + verb->name;
  return out;
}

std::vector<std::string> names_of(const Option& option) {
  std::vector<std::string> names;
  std::istringstream list(option.name);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

std::string summary_of(const Verb& verb) { return verb.text.substr(0, verb.text.find('\n')); }

std::string manual_name(const std::vector<const Verb*>& path) {
  std::string name = words_of(path);
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string manual_page(const std::vector<const Verb*>& path) {
  const Verb& verb = *path.back();
  std::string out;
  add_section(out, "NAME", fmt::format("  {} - {}\n", words_of(path), lower_summary(verb)));
  add_section(out, "SYNOPSIS", fmt::format("  {} {}\n", words_of(path), arguments_of(path)));
  add_section(out, "DESCRIPTION", indented(body_of(verb)));
  add_section(out, "VERBS", verbs_of(verb));
  add_section(out, "OPTIONS", options_of(verb));
  if (path.size() > 1) add_section(out, "GLOBAL OPTIONS", options_of(*path.front()));
  return verb.footer.empty() ? out : out + '\n' + verb.footer + '\n';
}

std::string manual_source(const std::vector<const Verb*>& path) {
  const Verb& verb = *path.back();
  options::ManualPage page(manual_name(path), "1", lower_summary(verb), mc_version());
  page.synopsis(words_of(path), arguments_of(path));
  if (const std::string body = body_of(verb); !body.empty()) {
    page.heading("DESCRIPTION");
    page.paragraphs(body);
  }
  if (!verb.verbs.empty()) {
    page.heading("VERBS");
    for (const Verb& inner : verb.verbs) page.item(inner.name, "", summary_of(inner));
  }
  add_options(page, "OPTIONS", verb);
  if (path.size() > 1) add_options(page, "GLOBAL OPTIONS", *path.front());
  page.sections(verb.footer);
  std::vector<const Verb*> above(path.begin(), path.end() - 1);
  if (!above.empty()) page.see(manual_name(above), "1");
  for (const Verb& inner : verb.verbs) {
    std::vector<const Verb*> below = path;
    below.push_back(&inner);
    page.see(manual_name(below), "1");
  }
  page.see("mc-agent", "8");
  return page.text();
}

}  // namespace mc::ctl
