// SPDX-License-Identifier: Apache-2.0
#include "libmc/options/manual_page.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <sstream>

namespace mc::options {
namespace {

constexpr std::size_t kSourceColumns = 78;  // mandoc asks for lines of at most 80 bytes

// Dashes and quotes stay the characters that a shell takes. kProse: apostrophes may become curly.
enum class Escapes { kProse, kLiteral };

std::string escaped(std::string_view text, Escapes escapes) {
  std::string out;
  for (const char c : text) {
    const bool literal = escapes == Escapes::kLiteral;
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '\'':
        out += literal ? "\\(aq" : "'";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// A line of text must not begin like a request.
std::string guarded(const std::string& line) {
  return (line.starts_with('.') || line.starts_with('\'') ? "\\&" : "") + line + '\n';
}

std::string filled(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string out;
  std::string line;
  for (std::string word; words >> word;) {
    word = escaped(word, Escapes::kProse);
    if (!line.empty() && line.size() + 1 + word.size() > kSourceColumns) {
      out += guarded(line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? out : out + guarded(line);
}

// A long list without blanks may break behind its commas.
std::string breakable(const std::string& list) {
  std::string out;
  for (const char c : list) {
    out += c;
    if (c == ',') out += "\\:";
  }
  return out;
}

std::string page_date() {
  std::time_t now = std::time(nullptr);
  if (const char* const given = std::getenv("SOURCE_DATE_EPOCH")) {
    now = static_cast<std::time_t>(std::strtoll(given, nullptr, 10));
  }
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> date{};
  return {date.data(), std::strftime(date.data(), date.size(), "%Y-%m-%d", &parts)};
}

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

}  // namespace

ManualPage::ManualPage(std::string_view name, std::string_view section, std::string_view summary,
                       std::string_view version) {
  text_ = ".TH " + escaped(upper_case(name), Escapes::kLiteral) + ' ' + std::string(section) + ' ' +
          page_date() + " \"mc " + std::string(version) + "\"\n";
  text_ += ".nh\n.ad l\n";  // a hyphenated command cannot be copied
  heading("NAME");
  text_ += filled(std::string(name) + " - " + std::string(summary));
}

void ManualPage::synopsis(std::string_view words, std::string_view arguments) {
  heading("SYNOPSIS");
  text_ += "\\fB" + escaped(words, Escapes::kLiteral) + "\\fR\n" +
           guarded(escaped(arguments, Escapes::kLiteral));
  after_heading_ = false;
}

void ManualPage::heading(std::string_view title) {
  text_ += ".SH " + escaped(title, Escapes::kProse) + '\n';
  after_heading_ = true;
}

void ManualPage::lines(std::string_view text) {
  std::istringstream all{std::string(text)};
  text_ += ".nf\n";
  for (std::string line; std::getline(all, line);) {
    text_ += guarded(escaped(line, Escapes::kLiteral));
  }
  text_ += ".fi\n";
}

void ManualPage::paragraphs(std::string_view text) {
  while (!text.empty()) {
    std::size_t end = text.find("\n\n");
    if (end == std::string_view::npos) end = text.size();
    const std::string_view paragraph = text.substr(0, end);
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    if (!after_heading_) text_ += ".PP\n";
    after_heading_ = false;
    const bool keeps = paragraph.starts_with(' ') || paragraph.find("\n ") != paragraph.npos;
    if (keeps) {
      lines(paragraph);
    } else {
      text_ += filled(paragraph);
    }
  }
}

void ManualPage::item(std::string_view term, std::string_view argument, std::string_view text) {
  text_ += ".TP\n\\fB" + escaped(term, Escapes::kLiteral) + "\\fR";
  if (!argument.empty())
    text_ += " \\fI" + breakable(escaped(argument, Escapes::kLiteral)) + "\\fR";
  text_ += '\n' + filled(text);
  after_heading_ = false;
}

void ManualPage::items(std::string_view text) {
  std::istringstream all{std::string(text)};
  std::string term;
  std::string meaning;
  for (std::string line; std::getline(all, line);) {
    if (line.starts_with(' ')) {
      meaning += line;
      continue;
    }
    if (!term.empty()) item(term, "", meaning);
    const std::size_t gap = line.find("  ");
    term = line.substr(0, gap);
    meaning = gap == std::string::npos ? "" : line.substr(gap);
  }
  item(term, "", meaning);
}

void ManualPage::body(std::string_view title, std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  if (text.empty()) return;
  if (title == "EXAMPLES") {
    lines(text);
  } else if (text.find("  ") != std::string_view::npos) {
    items(text);
  } else {
    text_ += filled(text);
  }
}

void ManualPage::sections(std::string_view text) {
  std::istringstream all{std::string(text)};
  std::string title;
  std::string lines_of_title;
  for (std::string line; std::getline(all, line);) {
    if (line.empty() || line.starts_with(' ')) {
      lines_of_title += line.substr(std::min<std::size_t>(2, line.size())) + '\n';
      continue;
    }
    body(title, lines_of_title);
    lines_of_title.clear();
    title = line;
    heading(title);
  }
  body(title, lines_of_title);
  after_heading_ = false;
}

void ManualPage::see(std::string_view name, std::string_view section) {
  if (!sees_) {
    heading("SEE ALSO");
  } else {
    text_.insert(text_.size() - 1, ",");
  }
  sees_ = true;
  after_heading_ = false;
  text_ += ".BR " + escaped(name, Escapes::kLiteral) + " (" + std::string(section) + ")\n";
}

}  // namespace mc::options
