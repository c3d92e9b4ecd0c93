// SPDX-License-Identifier: Apache-2.0
//
// The screen of "mcctl top" without a terminal: the choices of the user, the keys that change the
//   choices, and the lines that a sample makes on a screen of a given size.
// Threads: any; pure functions. Owns: a View owns its texts.
// Trusts: nothing; lines have no control characters.
//
//   facts            agent 0.1.0  pid 77  up 3h 04m …          as many lines as the screen allows
//   bars             default  [######......]  45%  1.80 GiB of 4.00 GiB
//   names of tables  namespaces 2  sessions 14  rails 0   by requests/s …
//   titles           PID  LABEL  …
//   rows             the rest of the screen
//   keys             q quit  h help …
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <json/value.h>

#include "ctl/top/rows.h"

namespace mc::ctl::top {

enum class Key {
  kNone,
  kText,  // a byte of text
  kUp,
  kDown,
  kLeft,
  kRight,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kTab,
  kEnter,
  kEscape,
  kBackspace,
};

struct KeyPress {
  Key key = Key::kNone;
  char text = 0;
};

struct View {
  View(const Arrangement& arrangement, double interval);

  std::size_t table = 0;  // of kTopTables
  std::array<RowOrder, kTables> orders;
  std::string filter;
  bool typing = false;           // the keys are letters of the filter
  std::size_t first_row = 0;     // of the table, or the first line of the help
  std::size_t first_column = 1;  // the leftmost column beside column 0
  bool paused = false;
  bool help = false;
  double interval_s;
  std::size_t page_rows = 1;  // rows that the last screen showed
};

// Changes the view as the key says. False: the key ends the program.
bool press(View& view, KeyPress press);

enum class Style { kPlain, kStrong, kFaint, kReversed, kGood, kBad };

struct Span {
  std::string text;
  Style style = Style::kPlain;
};
using ScreenLine = std::vector<Span>;

// The newest figures, or null before the first answer. trouble: the reason why the agent does not
// answer; the figures are old then.
struct Feed {
  Json::Value sample;
  std::string trouble = {};
};

// At most `height` lines of at most `width` columns. Corrects the view's positions, which depend on
// the rows and on the size.
std::vector<ScreenLine> lay_out(View& view, const Feed& feed, std::size_t width,
                                std::size_t height);

}  // namespace mc::ctl::top
