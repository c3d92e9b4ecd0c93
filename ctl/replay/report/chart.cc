// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/report/chart.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace mc::ctl {

using namespace fmt::literals;

namespace {

constexpr std::string_view kFigure = R"svg(<figure><figcaption>{title}</figcaption>{note}
<div class="legend">{legend}</div>
<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">
{grid}{lines}{hovers}</svg></figure>
)svg";

constexpr std::string_view kEmptyFigure = R"svg(<figure><figcaption>{title}</figcaption>{note}
<p class="note">Nothing was recorded.</p></figure>
)svg";

constexpr std::string_view kNote = R"svg(<p class="note">{}</p>)svg";

constexpr std::string_view kLegendEntry =
    R"svg(<span><svg width="22" height="10" aria-hidden="true">
<path class="line s{style}{dashed}" d="M1 5L21 5"/></svg>{name}</span>
)svg";

constexpr std::string_view kText =
    R"svg(<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>
)svg";

constexpr std::string_view kUpright =
    R"svg(<text class="label" text-anchor="middle"
 transform="translate(14 {y:.1f}) rotate(-90)">{words}</text>
)svg";

constexpr std::string_view kStroke =
    R"svg(<line class="{style}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>
)svg";

constexpr std::string_view kArea =
    R"svg(<path class="area s{style}" d="{path}L{right:.1f} {bottom:.1f}L{left:.1f} {bottom:.1f}Z"/>
)svg";

constexpr std::string_view kPath = R"svg(<path class="line s{style}{dashed}" d="{path}"/>
)svg";

// A dot with the values as its title, visible only under the pointer.
constexpr std::string_view kHover =
    R"svg(<circle class="hover s{style}" r="5" cx="{x:.1f}" cy="{y:.1f}">
<title>{words}</title></circle>
)svg";

constexpr double kWidth = 640;
constexpr double kHeight = 300;
constexpr double kLeft = 90;
constexpr double kRight = 34;
constexpr double kTop = 14;
constexpr double kBottom = 46;
constexpr std::size_t kHoverPoints = 60;

// Maps the values of one axis to pixels.
class Scale {
 public:
  Scale(const ChartAxis& axis, double low, double high, double from, double to)
      : logarithmic_(axis.logarithmic), low_(low), high_(high), from_(from), to_(to) {
    if (logarithmic_) {
      low_ = std::pow(10, std::floor(std::log10(std::max(low, 1.0))));
      high_ = std::pow(10, std::ceil(std::log10(std::max(high, low_ * 1.01))));
      for (double tick = low_; tick <= high_ * 1.01; tick *= 10) ticks_.push_back(tick);
    } else {
      low_ = 0;
      const double step = step_of(axis, std::max(high, axis.least_top));
      for (double tick = 0; tick < high_ + step * 0.999; tick += step) ticks_.push_back(tick);
      if (ticks_.size() < 2) ticks_.push_back(step);
    }
  }

  // The vertical axis ends at its last tick; the horizontal axis ends with its data.
  void end_at_last_tick() { high_ = ticks_.back(); }
  void end_with_data() {
    while (ticks_.size() > 2 && ticks_.back() > high_ * 1.0001) ticks_.pop_back();
    high_ = std::max(high_, ticks_.back());
  }

  double pixel(double value) const {
    const double share = logarithmic_
                             ? std::log10(std::max(value, low_) / low_) / std::log10(high_ / low_)
                             : value / high_;
    return from_ + (to_ - from_) * std::clamp(share, 0.0, 1.0);
  }
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  // A round step, for four to eight ticks.
  static double step_of(const ChartAxis& axis, double high) {
    const double rough = std::max(high, 1e-9) / 5;
    if (axis.binary) return std::pow(2, std::round(std::log2(rough)));
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double lead = rough / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
  }

  bool logarithmic_;
  double low_;
  double high_;
  double from_;
  double to_;
  std::vector<double> ticks_;
};

struct Range {
  double low = 0;
  double high = 0;
};

template <typename Pick>
std::optional<Range> range_of(const Chart& chart, Pick pick) {
  std::optional<Range> range;
  for (const ChartSeries& series : chart.series) {
    for (const auto& point : series.points) {
      const double value = pick(point);
      if (!std::isfinite(value)) continue;
      if (!range) range = Range{value, value};
      range->low = std::min(range->low, value);
      range->high = std::max(range->high, value);
    }
  }
  return range;
}

bool drawable(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

std::string text(const char* style, double x, double y, const char* anchor,
                 const std::string& words) {
  return fmt::format(kText, "style"_a = style, "x"_a = x, "y"_a = y, "anchor"_a = anchor,
                     "words"_a = html_escape(words));
}

std::string stroke(const char* style, double x1, double x2, double y1, double y2) {
  return fmt::format(kStroke, "style"_a = style, "x1"_a = x1, "x2"_a = x2, "y1"_a = y1,
                     "y2"_a = y2);
}

const char* dashed(const ChartSeries& series) { return series.dashed ? " dashed" : ""; }

std::string grid(const Chart& chart, const Scale& x, const Scale& y) {
  std::string out;
  const double right = kWidth - kRight;
  const double bottom = kHeight - kBottom;
  for (const double tick : y.ticks()) {
    const double at = y.pixel(tick);
    out += stroke("grid", kLeft, right, at, at);
    out += text("tick", kLeft - 8, at + 4, "end", chart.y.format(tick));
  }
  for (const double tick : x.ticks()) {
    const double at = x.pixel(tick);
    out += stroke("axis", at, at, bottom, bottom + 4);
    out += text("tick", at, bottom + 18, "middle", chart.x.format(tick));
  }
  out += stroke("axis", kLeft, right, bottom, bottom);
  out += text("label", (kLeft + right) / 2, kHeight - 8, "middle", chart.x.label);
  return out +
         fmt::format(kUpright, "y"_a = (kTop + bottom) / 2, "words"_a = html_escape(chart.y.label));
}

std::string line(const ChartSeries& series, const Scale& x, const Scale& y) {
  std::string path;
  std::optional<double> left;
  double right = 0;
  for (const auto& point : series.points) {
    if (!drawable(point)) continue;
    right = x.pixel(point.first);
    path += fmt::format("{}{:.1f} {:.1f}", left ? 'L' : 'M', right, y.pixel(point.second));
    if (!left) left = right;
  }
  if (!left) return {};
  std::string out;
  if (series.filled) {
    out += fmt::format(kArea, "style"_a = series.style, "path"_a = path, "left"_a = *left,
                       "right"_a = right, "bottom"_a = kHeight - kBottom);
  }
  return out +
         fmt::format(kPath, "style"_a = series.style, "dashed"_a = dashed(series), "path"_a = path);
}

std::string hovers(const Chart& chart, const ChartSeries& series, const Scale& x, const Scale& y) {
  std::string out;
  const std::size_t step = series.points.size() / kHoverPoints + 1;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const bool last = i + 1 == series.points.size();
    if (!drawable(series.points[i]) || (i % step != 0 && !last)) continue;
    const auto& [px, py] = series.points[i];
    const std::string words = fmt::format("{}\n{}: {}\n{}: {}", series.name, chart.x.label,
                                          chart.x.format(px), chart.y.label, chart.y.format(py));
    out += fmt::format(kHover, "style"_a = series.style, "x"_a = x.pixel(px), "y"_a = y.pixel(py),
                       "words"_a = html_escape(words));
  }
  return out;
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string chart_svg(const Chart& chart) {
  const std::string title = html_escape(chart.title);
  const std::string note = chart.note.empty() ? "" : fmt::format(kNote, html_escape(chart.note));
  const auto xs = range_of(chart, [](const auto& point) { return point.first; });
  const auto ys = range_of(chart, [](const auto& point) { return point.second; });
  if (!xs || !ys) return fmt::format(kEmptyFigure, "title"_a = title, "note"_a = note);
  Scale x(chart.x, xs->low, xs->high, kLeft, kWidth - kRight);
  Scale y(chart.y, ys->low, ys->high, kHeight - kBottom, kTop);
  x.end_with_data();
  y.end_at_last_tick();
  std::string legend, lines, dots;
  for (const ChartSeries& series : chart.series) {
    legend += fmt::format(kLegendEntry, "style"_a = series.style, "dashed"_a = dashed(series),
                          "name"_a = html_escape(series.name));
    lines += line(series, x, y);
    dots += hovers(chart, series, x, y);
  }
  return fmt::format(kFigure, "title"_a = title, "note"_a = note, "legend"_a = legend,
                     "width"_a = kWidth, "height"_a = kHeight, "grid"_a = grid(chart, x, y),
                     "lines"_a = lines, "hovers"_a = dots);
}

}  // namespace mc::ctl
