// SPDX-License-Identifier: Apache-2.0
//
// A line chart as inline SVG: axes with units and ticks, a legend, hover titles. The
//   style of the page sets the colours (classes s0, s1, ...), so the page decides about light and
//   dark.
// Threads: any; pure functions.
// Owns: nothing.
// Trusts: nothing; all text is escaped, and numbers that are not finite are left out.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mc::ctl {

struct ChartAxis {
  std::string label;
  std::function<std::string(double)> format;
  bool logarithmic = false;  // powers of ten
  bool binary = false;       // ticks at powers of two times 1, for bytes
  double least_top = 0;      // the axis reaches at least to here
};

struct ChartSeries {
  std::string name;
  unsigned style = 0;  // class of the line
  bool dashed = false;
  bool filled = false;                            // down to the x axis
  std::vector<std::pair<double, double>> points;  // by rising x
};

struct Chart {
  std::string title;
  std::string note;  // under the title; may be empty
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartSeries> series;
};

// Text for element content and attribute values.
std::string html_escape(std::string_view text);

std::string chart_svg(const Chart& chart);

}  // namespace mc::ctl
