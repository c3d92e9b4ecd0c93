// SPDX-License-Identifier: Apache-2.0
//
// A manual page in the language man(7): headings, paragraphs and lists in, the page's text out.
// Threads: one thread.
// Owns: the text.
// Trusts: the texts of the program. Each text is escaped, so that no text is a request of man(7).
#pragma once

#include <string>
#include <string_view>

namespace mc::options {

class ManualPage {
 public:
  // name: as in the file's name, "mc-agent". section: "8". version: "0.1.0". The page has the date
  // in SOURCE_DATE_EPOCH, else the present date.
  ManualPage(std::string_view name, std::string_view section, std::string_view summary,
             std::string_view version);

  // words: the name of the command. arguments: "[OPTION]... KEY".
  void synopsis(std::string_view words, std::string_view arguments);
  void heading(std::string_view title);
  // Paragraphs that empty lines separate. A paragraph with an indented line keeps its lines.
  void paragraphs(std::string_view text);
  // An entry of a list. argument: the value behind the term, may be empty.
  void item(std::string_view term, std::string_view argument, std::string_view text);
  // Headings, each without indent, and their bodies, each line with an indent of two. EXAMPLES keep
  // their lines. A body whose lines are "TERM   text" becomes a list. Other bodies are filled.
  void sections(std::string_view text);
  // Another page: "mcctl", "1".
  void see(std::string_view name, std::string_view section);

  const std::string& text() const { return text_; }

 private:
  void lines(std::string_view text);  // keeps the lines
  void items(std::string_view text);
  void body(std::string_view title, std::string_view text);

  std::string text_;
  bool after_heading_ = false;  // no request may part a heading from the first paragraph
  bool sees_ = false;
};

}  // namespace mc::options
