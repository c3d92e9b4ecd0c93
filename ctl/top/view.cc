// SPDX-License-Identifier: Apache-2.0
#include "ctl/top/view.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "ctl/text/json.h"
#include "ctl/text/table.h"
#include "ctl/top/summary.h"

namespace mc::ctl::top {
namespace {

constexpr std::size_t kLongestFilter = 64;  // bytes
constexpr std::size_t kWidestCell = 32;
constexpr std::size_t kMostBars = 6;
constexpr std::size_t kWidestBarName = 16;
constexpr double kIntervals[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600};

constexpr std::string_view kKeys[] = {"q quit",    "h help",   "Tab table", "s sort",
                                      "r reverse", "/ filter", "p pause",   "+- interval"};

constexpr std::pair<std::string_view, std::string_view> kHelp[] = {
    {"q", "quit"},
    {"Tab", "the next table: namespaces, sessions, rails"},
    {"Up Down", "scroll by a row; Page Up and Page Down by a page; Home and End to an end"},
    {"Left Right", "scroll the columns; the first column stays"},
    {"s >  <", "sort by the next or by the previous column"},
    {"r", "reverse the order"},
    {"/", "filter: show rows with a text in a name or id; Enter keeps the filter"},
    {"Esc", "clear the filter"},
    {"p", "pause: keep these figures"},
    {"+ -", "a longer or a shorter interval"},
    {"h ?", "this help; any key ends the help"},
    {"", ""},
    {"gets",
     "hits and misses of clients in the pool of this host. Clients keep these counts in "
     "shared memory, and the agent collects the counts. A hit asks no agent, so requests, "
     "latencies and the REQUESTS/s of a session do not include hits."},
    {"remote gets", "gets that other hosts' objects served; each is also a miss in this pool."},
    {"fetched", "bytes of the objects that this host read from other hosts."},
    {"served",
     "bytes that other hosts read from this host, without small objects inside an "
     "answer and without one-sided reads of RDMA or libfabric."},
    {"latency",
     "of requests to the agent that waited for room or for the cluster, by operation. "
     "A figure is the bound of a bucket: the value lies below."},
    {"turn",
     "the longest time that the agent's loop was busy without a look at its other work, "
     "with the cause: in the interval, and ever since the agent started."},
    {"-", "a value that is not known, or not known yet."},
};

std::string interval_text(double interval_s) { return fmt::format("{:g} s", interval_s); }

// The next step above or below the interval.
double changed_interval(double interval_s, bool longer) {
  if (longer) {
    const auto* const next = std::ranges::upper_bound(kIntervals, interval_s);
    return next == std::end(kIntervals) ? interval_s : *next;
  }
  const auto* const next = std::ranges::lower_bound(kIntervals, interval_s);
  return next == std::begin(kIntervals) ? interval_s : *(next - 1);
}

void sort_by_neighbour(View& view, bool next) {
  RowOrder& order = view.orders[view.table];
  const std::size_t count = kTopTables[view.table].columns.size();
  order = {(order.column + (next ? 1 : count - 1)) % count};
  view.first_row = 0;
}

void type_filter(View& view, KeyPress press) {
  switch (press.key) {
    case Key::kText:
      if (view.filter.size() < kLongestFilter) view.filter += press.text;
      break;
    case Key::kBackspace:
      // A character of several bytes goes as one.
      while (!view.filter.empty() &&
             (static_cast<unsigned char>(view.filter.back()) & 0xc0) == 0x80)
        view.filter.pop_back();
      if (!view.filter.empty()) view.filter.pop_back();
      break;
    case Key::kEscape:
      view.filter.clear();
      view.typing = false;
      break;
    case Key::kEnter:
      view.typing = false;
      break;
    default:
      return;
  }
  view.first_row = 0;
}

void scroll(View& view, Key key) {
  const auto up = [&](std::size_t rows) { view.first_row -= std::min(view.first_row, rows); };
  switch (key) {
    case Key::kUp:
      return up(1);
    case Key::kDown:
      ++view.first_row;
      return;
    case Key::kPageUp:
      return up(view.page_rows);
    case Key::kPageDown:
      view.first_row += view.page_rows;
      return;
    case Key::kHome:
      view.first_row = 0;
      return;
    case Key::kEnd:
      view.first_row = ~std::size_t{0} / 2;  // lay_out() takes the last page
      return;
    case Key::kLeft:
      view.first_column = std::max<std::size_t>(view.first_column, 2) - 1;
      return;
    case Key::kRight:
      ++view.first_column;
      return;
    default:
      return;
  }
}

bool press_letter(View& view, char letter) {
  switch (letter) {
    case 'q':
      return false;
    case 's':
    case '>':
      sort_by_neighbour(view, true);
      break;
    case '<':
      sort_by_neighbour(view, false);
      break;
    case 'r':
      view.orders[view.table].reversed = !view.orders[view.table].reversed;
      break;
    case '/':
      view.typing = true;
      break;
    case 'p':
      view.paused = !view.paused;
      break;
    case '+':
    case '-':
      view.interval_s = changed_interval(view.interval_s, letter == '+');
      break;
    case 'h':
    case '?':
      view.help = true;
      view.first_row = 0;
      break;
    default:
      break;
  }
  return true;
}

// ---- Lines --------------------------------------------------------------------------------------

std::size_t width_of(const ScreenLine& line) {
  std::size_t width = 0;
  for (const Span& span : line) width += display_width(span.text);
  return width;
}

// The leading columns of the line.
ScreenLine cut_line(const ScreenLine& line, std::size_t width) {
  ScreenLine out;
  for (const Span& span : line) {
    std::string text = cut_to_width(span.text, width);
    width -= display_width(text);
    if (!text.empty()) out.push_back({std::move(text), span.style});
  }
  return out;
}

// The spans two columns apart, as many a line as fit.
std::vector<ScreenLine> flow(const std::vector<Span>& spans, std::size_t width) {
  std::vector<ScreenLine> lines;
  for (const Span& span : spans) {
    const std::size_t needed = display_width(span.text) + 2;
    if (lines.empty() || width_of(lines.back()) + needed > width) {
      lines.emplace_back();
    } else {
      lines.back().push_back({"  "});
    }
    lines.back().push_back(span);
  }
  return lines;
}

std::vector<std::string> fold(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::vector<ScreenLine> help_lines(std::size_t width) {
  constexpr std::size_t kNameColumns = 12;
  const std::size_t rest = std::max<std::size_t>(width, kNameColumns + 20) - kNameColumns;
  std::vector<ScreenLine> lines;
  for (const auto& [name, text] : kHelp) {
    bool first = true;
    for (std::string& part : fold(text, rest)) {
      const std::string title = first ? std::string(name) : "";
      lines.push_back(
          {{fmt::format("{:<{}}", title, kNameColumns), Style::kStrong}, {std::move(part)}});
      first = false;
    }
  }
  return lines;
}

std::vector<ScreenLine> fact_lines(const View& view, const Feed& feed, std::size_t width) {
  const bool old = !feed.trouble.empty();
  const bool asking = feed.sample.isNull();
  std::vector<ScreenLine> lines;
  if (old) {
    const std::string text =
        "NO ANSWER: " + printable(feed.trouble) + (asking ? "" : " (the figures below are old)");
    for (const std::string& part : fold(text, width)) lines.push_back({{part, Style::kBad}});
  }
  if (asking) {
    lines.push_back(
        {{old ? "mcctl asks again until an agent answers" : "asking the agent", Style::kFaint}});
    return lines;
  }
  bool first = true;
  for (const Paragraph& paragraph : summary_of(feed.sample)) {
    std::vector<Span> spans;
    for (const Fact& fact : paragraph) {
      spans.push_back({fact.text, old               ? Style::kFaint
                                  : fact.is_trouble ? Style::kBad
                                                    : Style::kPlain});
    }
    if (std::exchange(first, false)) {
      spans.push_back(view.paused ? Span{"PAUSED", Style::kStrong}
                                  : Span{"every " + interval_text(view.interval_s), Style::kFaint});
    }
    std::ranges::move(flow(spans, width), std::back_inserter(lines));
  }
  return lines;
}

std::vector<ScreenLine> bar_lines(const Feed& feed, std::size_t width, std::size_t most) {
  const TopTable& table = kTopTables.front();
  // The fullest pools first.
  const auto rows = rows_of(feed.sample, table, order_of(table, "used"), "");
  std::size_t name_width = 0;
  for (const Json::Value* row : rows) {
    name_width = std::max(name_width, display_width(printable(text_field(*row, "name"))));
  }
  name_width = std::min(name_width, kWidestBarName);
  std::vector<ScreenLine> lines;
  for (const Json::Value* row : rows) {
    if (lines.size() == most) break;
    lines.push_back({{occupancy_bar(*row, name_width, width),
                      feed.trouble.empty() ? Style::kGood : Style::kFaint}});
  }
  return lines;
}

std::size_t row_count(const Feed& feed, const TopTable& table) {
  return array_field(feed.sample, table.name).size();
}

ScreenLine names_line(const View& view, const Feed& feed, std::size_t found) {
  ScreenLine line;
  for (std::size_t i = 0; i < kTables; ++i) {
    const TopTable& table = kTopTables[i];
    line.push_back({fmt::format(" {} {} ", table.name, row_count(feed, table)),
                    i == view.table ? Style::kReversed : Style::kPlain});
  }
  const RowOrder order = view.orders[view.table];
  const Column& by = kTopTables[view.table].columns[order.column];
  const bool ascending = by.is_ascending() != order.reversed;
  line.push_back({fmt::format("  by {}, {}", by.key(), ascending ? "ascending" : "descending")});
  if (found > view.page_rows) {
    line.push_back({fmt::format("  rows {}-{} of {}", view.first_row + 1,
                                std::min(found, view.first_row + view.page_rows), found)});
  }
  return line;
}

ScreenLine keys_line(const View& view, std::size_t width) {
  if (view.typing) {
    return {{"filter: " + printable(view.filter) + "_", Style::kStrong},
            {"  Enter keeps, Esc clears"}};
  }
  std::vector<Span> spans;
  if (!view.filter.empty()) {
    spans.push_back({"filter: " + printable(view.filter), Style::kStrong});
    spans.push_back({"Esc clear"});
  }
  for (const std::string_view key : kKeys) spans.push_back({std::string(key)});
  std::vector<ScreenLine> lines = flow(spans, width);
  return lines.front();
}

// The cells of a table that a screen shows, and the width of each column.
struct Grid {
  std::vector<std::size_t> columns;
  std::vector<std::size_t> widths;
  std::vector<std::vector<std::string>> rows;
};

std::string shown_cell(const Json::Value& row, const Column& column) {
  return cut_to_width(cell_text(row, column), kWidestCell);
}

// The columns that fit beside the first one. Corrects view.first_column.
Grid grid_of(View& view, const std::vector<const Json::Value*>& rows, std::size_t width) {
  const TopTable& table = kTopTables[view.table];
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) {
    std::size_t widest = display_width(column.title);
    for (const Json::Value* row : rows) {
      widest = std::max(widest, display_width(shown_cell(*row, column)));
    }
    widths.push_back(widest);
  }
  // Scrolled to the right end, the last column is the last on the screen.
  std::size_t last_start = table.columns.size();
  for (std::size_t used = widths[0];
       last_start > 1 && used + 2 + widths[last_start - 1] <= width;) {
    used += 2 + widths[--last_start];
  }
  last_start = std::clamp<std::size_t>(last_start, 1, table.columns.size() - 1);
  view.first_column = std::clamp<std::size_t>(view.first_column, 1, last_start);

  Grid grid;
  std::size_t used = 0;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (i > 0 && i < view.first_column) continue;
    const std::size_t needed = widths[i] + (i > 0 ? 2 : 0);
    // A column that does not fit is left out, but the first column is cut.
    if (i > 0 && used + needed > width) break;
    used += needed;
    grid.columns.push_back(i);
    grid.widths.push_back(widths[i]);
  }
  const std::size_t end = std::min(rows.size(), view.first_row + view.page_rows);
  for (std::size_t i = view.first_row; i < end; ++i) {
    std::vector<std::string>& cells = grid.rows.emplace_back();
    for (const std::size_t column : grid.columns) {
      cells.push_back(shown_cell(*rows[i], table.columns[column]));
    }
  }
  return grid;
}

std::string padded(std::string_view text, std::size_t width, bool right) {
  const std::string padding(width - std::min(width, display_width(text)), ' ');
  return right ? padding + std::string(text) : std::string(text) + padding;
}

std::vector<ScreenLine> grid_lines(const View& view, const Grid& grid, bool old,
                                   std::size_t width) {
  const TopTable& table = kTopTables[view.table];
  std::vector<ScreenLine> lines(1);
  for (std::size_t i = 0; i < grid.columns.size(); ++i) {
    const Column& column = table.columns[grid.columns[i]];
    const bool sorted = grid.columns[i] == view.orders[view.table].column;
    if (i > 0) lines[0].push_back({"  ", Style::kReversed});
    lines[0].push_back({padded(column.title, grid.widths[i], column.is_number()),
                        sorted ? Style::kStrong : Style::kReversed});
  }
  const std::size_t used = width_of(lines[0]);
  if (used < width) lines[0].push_back({std::string(width - used, ' '), Style::kReversed});
  for (const std::vector<std::string>& cells : grid.rows) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const bool right = table.columns[grid.columns[i]].is_number();
      text += (i > 0 ? "  " : "") + padded(cells[i], grid.widths[i], right);
    }
    lines.push_back({{std::move(text), old ? Style::kFaint : Style::kPlain}});
  }
  return lines;
}

// Shows the lines from view.first_row on.
std::vector<ScreenLine> scrolled(View& view, std::vector<ScreenLine> lines, std::size_t height) {
  view.page_rows = std::max<std::size_t>(height, 1);
  view.first_row = std::min(view.first_row, lines.size() - std::min(lines.size(), height));
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(view.first_row));
  if (lines.size() > height) lines.resize(height);
  return lines;
}

// The screen above the line of the keys.
std::vector<ScreenLine> body_of(View& view, const Feed& feed, std::size_t width,
                                std::size_t height) {
  if (view.help) return scrolled(view, help_lines(width), height);
  const TopTable& table = kTopTables[view.table];
  const auto rows = rows_of(feed.sample, table, view.orders[view.table], view.filter);
  // The names of the tables, and the titles of the columns.
  constexpr std::size_t kTableLines = 2;
  const std::size_t free_lines = height - std::min(height, kTableLines);
  // The table has half of the lines, or more if the facts are few.
  std::size_t most_facts =
      free_lines - std::min(free_lines, std::max<std::size_t>(3, free_lines / 2));
  // Even a small screen says that the figures are old.
  if (!feed.trouble.empty())
    most_facts = std::max(most_facts, std::min<std::size_t>(1, free_lines));
  std::vector<ScreenLine> lines = fact_lines(view, feed, width);
  if (lines.size() > most_facts) lines.resize(most_facts);
  const std::size_t most_bars = std::min(kMostBars, most_facts - lines.size());
  std::ranges::move(bar_lines(feed, width, most_bars), std::back_inserter(lines));

  view.page_rows = std::max<std::size_t>(free_lines - lines.size(), 1);
  view.first_row = std::min(view.first_row, rows.size() - std::min(rows.size(), view.page_rows));
  lines.push_back(names_line(view, feed, rows.size()));
  const Grid grid = grid_of(view, rows, width);
  std::ranges::move(grid_lines(view, grid, !feed.trouble.empty(), width),
                    std::back_inserter(lines));
  if (rows.empty()) {
    lines.push_back(
        {{view.filter.empty() ? "none" : "no row has the text of the filter", Style::kFaint}});
  }
  return lines;
}

}  // namespace

View::View(const Arrangement& arrangement, double interval)
    : filter(arrangement.filter), interval_s(interval) {
  for (std::size_t i = kTables; i-- > 0;) {
    orders[i] = order_of(kTopTables[i], arrangement.sort);
    if (kTopTables[i].column_of(arrangement.sort)) table = i;
  }
}

bool press(View& view, KeyPress press) {
  if (press.key == Key::kNone) return true;
  const bool scrolls = press.key >= Key::kUp && press.key <= Key::kEnd;
  if (view.help && !scrolls) {
    view.help = false;
    view.first_row = 0;
    return true;
  }
  if (scrolls) {
    scroll(view, press.key);
  } else if (view.typing) {
    type_filter(view, press);
  } else if (press.key == Key::kEscape) {
    view.filter.clear();
    view.first_row = 0;
  } else if (press.key == Key::kTab) {
    view.table = (view.table + 1) % kTables;
    view.first_row = 0;
    view.first_column = 1;
  } else if (press.key == Key::kText) {
    return press_letter(view, press.text);
  }
  return true;
}

std::vector<ScreenLine> lay_out(View& view, const Feed& feed, std::size_t width,
                                std::size_t height) {
  if (width == 0 || height == 0) return {};
  std::vector<ScreenLine> lines = body_of(view, feed, width, height - 1);
  lines.resize(height - 1);
  lines.push_back(keys_line(view, width));
  for (ScreenLine& line : lines) line = cut_line(line, width);
  return lines;
}

}  // namespace mc::ctl::top
