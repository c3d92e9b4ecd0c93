// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace mc::ctl {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 300;
constexpr double kLeft = 90;
constexpr double kRight = 34;
constexpr double kTop = 14;
constexpr double kBottom = 46;
constexpr std::size_t kHoverPoints = 60;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

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

std::string tag_text(const char* klass, double x, double y, const char* anchor,
                     const std::string& text) {
  return std::string("<text class=\"") + klass + "\" x=\"" + number(x) + "\" y=\"" + number(y) +
         "\" text-anchor=\"" + anchor + "\">" + html_escape(text) + "</text>";
}

std::string grid(const Chart& chart, const Scale& x, const Scale& y) {
  std::string out;
  const double right = kWidth - kRight;
  const double bottom = kHeight - kBottom;
  for (const double tick : y.ticks()) {
    const std::string at = number(y.pixel(tick));
    out += "<line class=\"grid\" x1=\"" + number(kLeft) + "\" x2=\"" + number(right) + "\" y1=\"" +
           at + "\" y2=\"" + at + "\"/>";
    out += tag_text("tick", kLeft - 8, y.pixel(tick) + 4, "end", chart.y.format(tick));
  }
  for (const double tick : x.ticks()) {
    const std::string at = number(x.pixel(tick));
    out += "<line class=\"axis\" x1=\"" + at + "\" x2=\"" + at + "\" y1=\"" + number(bottom) +
           "\" y2=\"" + number(bottom + 4) + "\"/>";
    out += tag_text("tick", x.pixel(tick), bottom + 18, "middle", chart.x.format(tick));
  }
  out += "<line class=\"axis\" x1=\"" + number(kLeft) + "\" x2=\"" + number(right) + "\" y1=\"" +
         number(bottom) + "\" y2=\"" + number(bottom) + "\"/>";
  out += tag_text("label", (kLeft + right) / 2, kHeight - 8, "middle", chart.x.label);
  const std::string middle = number((kTop + bottom) / 2);
  out += "<text class=\"label\" text-anchor=\"middle\" transform=\"translate(14 " + middle +
         ") rotate(-90)\">" + html_escape(chart.y.label) + "</text>";
  return out;
}

std::string line(const ChartSeries& series, const Scale& x, const Scale& y) {
  std::string path;
  std::optional<double> first_x;
  double last_x = 0;
  for (const auto& point : series.points) {
    if (!drawable(point)) continue;
    last_x = x.pixel(point.first);
    path += first_x ? 'L' : 'M';
    path += number(last_x) + " " + number(y.pixel(point.second));
    if (!first_x) first_x = last_x;
  }
  if (!first_x) return {};
  const std::string style = std::string("s").append(std::to_string(series.style));
  std::string out;
  if (series.filled) {
    const std::string bottom = number(kHeight - kBottom);
    out += "<path class=\"area " + style + "\" d=\"" + path + "L" + number(last_x) + " " + bottom +
           "L" + number(*first_x) + " " + bottom + "Z\"/>";
  }
  return out + "<path class=\"line " + style + (series.dashed ? " dashed" : "") + "\" d=\"" + path +
         "\"/>";
}

// A dot with the values as its title, visible only under the pointer.
std::string hovers(const Chart& chart, const ChartSeries& series, const Scale& x, const Scale& y) {
  std::string out;
  const std::size_t step = series.points.size() / kHoverPoints + 1;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const bool last = i + 1 == series.points.size();
    if (!drawable(series.points[i]) || (i % step != 0 && !last)) continue;
    const auto& [px, py] = series.points[i];
    out += "<circle class=\"hover s" + std::to_string(series.style) + "\" r=\"5\" cx=\"" +
           number(x.pixel(px)) + "\" cy=\"" + number(y.pixel(py)) + "\"><title>" +
           html_escape(series.name + "\n" + chart.x.label + ": " + chart.x.format(px) + "\n" +
                       chart.y.label + ": " + chart.y.format(py)) +
           "</title></circle>";
  }
  return out;
}

std::string legend(const Chart& chart) {
  std::string out = "<div class=\"legend\">";
  for (const ChartSeries& series : chart.series) {
    out += "<span><svg width=\"22\" height=\"10\" aria-hidden=\"true\"><path class=\"line s" +
           std::to_string(series.style) + (series.dashed ? " dashed" : "") +
           "\" d=\"M1 5L21 5\"/></svg>" + html_escape(series.name) + "</span>";
  }
  return out + "</div>";
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string chart_svg(const Chart& chart) {
  std::string out = "<figure><figcaption>" + html_escape(chart.title) + "</figcaption>";
  if (!chart.note.empty()) out += "<p class=\"note\">" + html_escape(chart.note) + "</p>";
  const auto xs = range_of(chart, [](const auto& point) { return point.first; });
  const auto ys = range_of(chart, [](const auto& point) { return point.second; });
  if (!xs || !ys) return out + "<p class=\"note\">Nothing was recorded.</p></figure>";
  Scale x(chart.x, xs->low, xs->high, kLeft, kWidth - kRight);
  Scale y(chart.y, ys->low, ys->high, kHeight - kBottom, kTop);
  x.end_with_data();
  y.end_at_last_tick();
  out += legend(chart);
  out += "<svg class=\"chart\" viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) +
         "\" role=\"img\" aria-label=\"" + html_escape(chart.title) + "\">";
  out += grid(chart, x, y);
  for (const ChartSeries& series : chart.series) out += line(series, x, y);
  for (const ChartSeries& series : chart.series) out += hovers(chart, series, x, y);
  return out + "</svg></figure>";
}

}  // namespace mc::ctl
