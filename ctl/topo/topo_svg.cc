// SPDX-License-Identifier: Apache-2.0
//
// The drawing has a box per NUMA node, with a card per root complex. A card shows GPUs at the left
// and NICs at the right. The nearest GPU and NIC stand in one row and are joined. Below, a heat map
// shows the distances.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "ctl/replay/report/chart.h"
#include "ctl/text/size.h"
#include "ctl/topo/topo_view.h"

namespace mc::ctl {

using namespace fmt::literals;
using transport::Distance;
using transport::Gpu;
using transport::Nic;
using transport::NumaNode;
using transport::Topology;

namespace {

constexpr double kMargin = 28;
constexpr double kNodeWidth = 532;
constexpr double kGap = 24;
constexpr double kPad = 16;
constexpr double kHead = 56;
constexpr double kCardHead = 26;
constexpr double kRow = 50;
constexpr double kChipHeight = 40;
constexpr double kChipWidth = 206;
constexpr double kJoin = 56;
constexpr double kCell = 30;
constexpr double kCellWidth = 68;
constexpr double kLabelWidth = 84;

constexpr std::string_view kDrawing =
    R"svg(<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"
 viewBox="0 0 {width:.0f} {height:.0f}">
<style>{style}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
{content}</svg>
)svg";

constexpr std::string_view kText =
    R"svg(<text x="{x:.1f}" y="{y:.1f}" class="{style}">{words}</text>
)svg";

constexpr std::string_view kTextToTheLeft =
    R"svg(<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="end">{words}</text>
)svg";

constexpr std::string_view kBox =
    R"svg(<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round}"
 class="{style}"/>
)svg";

constexpr std::string_view kJoint =
    R"svg(<line x1="{x1:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y:.1f}" class="join"/>
)svg";

constexpr std::string_view kField =
    R"svg(<rect x="{x:.1f}" y="{y:.1f}" width="{width}" height="{height}" rx="{round}"
 fill="{fill}"{border}/>
)svg";

constexpr std::string_view kNearBorder = R"svg( stroke="#2d6a4f" stroke-width="2")svg";

constexpr std::string_view kDrawingStyle = R"(
text { font-family: "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif; fill: #1f2933; }
.title { font-size: 20px; font-weight: bold; }
.sub { font-size: 12.5px; fill: #52606d; }
.node { fill: #f5f7fa; stroke: #cbd2d9; }
.card { fill: #ffffff; stroke: #e4e7eb; }
.head { font-size: 15px; font-weight: bold; }
.root { font-size: 11px; fill: #7b8794; }
.gpu { fill: #e3f9e5; stroke: #3f9142; }
.nic { fill: #e6f0fb; stroke: #2b6cb0; }
.idle { fill: #fafafa; stroke: #9aa5b1; stroke-dasharray: 4 3; }
.name { font-size: 13px; font-weight: bold; }
.what { font-size: 10.5px; fill: #52606d; }
.warn { font-size: 10.5px; fill: #b44d12; }
.join { stroke: #7b8794; stroke-width: 1.5; }
.tag { font-size: 10.5px; fill: #52606d; text-anchor: middle; }
.cell { font-size: 11px; text-anchor: middle; }
.axis { font-size: 12px; }
.top { font-size: 12px; text-anchor: middle; }
)";

// From near to far; Distance counts from kSame.
constexpr std::array<const char*, 6> kHeat = {"#b7e4c7", "#b7e4c7", "#d8f3dc",
                                              "#fff3bf", "#ffe0b3", "#f3d9d2"};
constexpr std::array<const char*, 6> kHeatWords = {"",
                                                   "one switch",
                                                   "several bridges",
                                                   "the processor's bridge",
                                                   "two bridges of one node",
                                                   "between nodes"};

std::string text(double x, double y, std::string_view style, const std::string& words,
                 std::string_view element = kText) {
  return fmt::format(fmt::runtime(element), "x"_a = x, "y"_a = y, "style"_a = style,
                     "words"_a = html_escape(words));
}

std::string box(double x, double y, double width, double height, double round,
                std::string_view style) {
  return fmt::format(kBox, "x"_a = x, "y"_a = y, "width"_a = width, "height"_a = height,
                     "round"_a = round, "style"_a = style);
}

// A coloured field of the heat map or of its legend.
std::string heat_field(double x, double y, double width, double height, std::string_view fill,
                       bool near) {
  return fmt::format(kField, "x"_a = x, "y"_a = y, "width"_a = width, "height"_a = height,
                     "round"_a = width < kCellWidth / 2 ? 3 : 4, "fill"_a = fill,
                     "border"_a = near ? kNearBorder : "");
}

// The text, cut to fit inside the border.
std::string fitted(const std::string& words, std::size_t columns) {
  if (words.size() <= columns) return words;
  std::size_t end = columns - 1;
  while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xc0) == 0x80) --end;
  return words.substr(0, end) + "…";
}

struct Row {
  const Gpu* gpu = nullptr;
  const Nic* nic = nullptr;
};

struct Card {
  std::string root;
  std::vector<Row> rows;
  double height() const { return kCardHead + static_cast<double>(rows.size()) * kRow + 2; }
};

// Each GPU takes the nearest free NIC; each remaining device has its own row.
std::vector<Row> rows_of(std::vector<const Gpu*> gpus, std::vector<const Nic*> nics) {
  std::vector<Row> rows;
  for (const Gpu* gpu : gpus) {
    const auto nearest = std::ranges::min_element(nics, {}, [&](const Nic* nic) {
      return std::pair(!nic->used(), distance(gpu->pci, nic->pci));
    });
    Row row{gpu, nullptr};
    if (nearest != nics.end() && (*nearest)->used()) {
      row.nic = *nearest;
      nics.erase(nearest);
    }
    rows.push_back(row);
  }
  for (const Nic* nic : nics) rows.push_back({nullptr, nic});
  return rows;
}

std::vector<Card> cards_of(const Topology& topology, int node) {
  std::map<std::string, std::pair<std::vector<const Gpu*>, std::vector<const Nic*>>> roots;
  const auto root_of = [](const transport::PciDevice& pci) {
    return pci.path.empty() ? std::string("not on PCI") : pci.path.front();
  };
  for (const Gpu& gpu : topology.gpus) {
    if (gpu.pci.node == node) roots[root_of(gpu.pci)].first.push_back(&gpu);
  }
  for (const Nic& nic : topology.nics) {
    if (nic.pci.node == node) roots[root_of(nic.pci)].second.push_back(&nic);
  }
  std::vector<Card> cards;
  for (auto& [root, devices] : roots) {
    cards.push_back({root, rows_of(std::move(devices.first), std::move(devices.second))});
  }
  return cards;
}

std::string chip(double x, double y, std::string_view style, const std::string& name,
                 const std::string& model, const std::string& what, bool warn) {
  std::string out = box(x, y, kChipWidth, kChipHeight, 6, style);
  out += text(x + 10, y + 17, "name", fitted(name, 14));
  out += text(x + kChipWidth - 10, y + 17, "what", fitted(model, 18), kTextToTheLeft);
  return out + text(x + 10, y + 32, warn ? "warn" : "what", fitted(what, 32));
}

std::string gpu_chip(double x, double y, const Gpu& gpu) {
  return chip(x, y, "gpu", gpu.name, device_name(gpu.pci), gpu.pci.address, false);
}

std::string nic_chip(double x, double y, const Nic& nic) {
  const bool narrow = nic.used() && nic_link(nic).find("limited") != std::string::npos;
  std::string what = nic.used() ? nic_link(nic) : nic.left_out;
  if (narrow) what = format_rate(nic.bits_per_s()) + ", limited by PCIe";
  return chip(x, y, nic.used() ? "nic" : "idle", nic.name, device_name(nic.pci), what, narrow);
}

std::string card_svg(double x, double y, const Card& card) {
  std::string out = box(x, y, kNodeWidth - 2 * kPad, card.height(), 8, "card");
  out += text(x + 12, y + 17, "root", card.root);
  double at = y + kCardHead;
  const double left = x + 12;
  const double right = left + kChipWidth + kJoin;
  for (const Row& row : card.rows) {
    if (row.gpu != nullptr && row.nic != nullptr) {
      const double middle = at + kChipHeight / 2;
      out += fmt::format(kJoint, "x1"_a = left + kChipWidth, "x2"_a = right, "y"_a = middle);
      out += text(left + kChipWidth + kJoin / 2, middle - 5, "tag",
                  distance_name(distance(row.gpu->pci, row.nic->pci)));
    }
    if (row.gpu != nullptr) out += gpu_chip(left, at, *row.gpu);
    if (row.nic != nullptr) out += nic_chip(right, at, *row.nic);
    at += kRow;
  }
  return out;
}

double node_height(const std::vector<Card>& cards) {
  double height = kHead;
  for (const Card& card : cards) height += card.height() + 10;
  return cards.empty() ? kHead + 30 : height + 6;
}

std::string node_svg(double x, double y, double height, const std::string& head,
                     const std::string& sub, const std::vector<Card>& cards) {
  std::string out = box(x, y, kNodeWidth, height, 12, "node");
  out += text(x + kPad, y + 26, "head", head) + text(x + kPad, y + 44, "sub", fitted(sub, 72));
  double at = y + kHead;
  for (const Card& card : cards) {
    out += card_svg(x + kPad, at, card);
    at += card.height() + 10;
  }
  if (cards.empty()) out += text(x + kPad, y + kHead + 14, "sub", "no GPU and no NIC");
  return out;
}

struct Panel {
  std::string head;
  std::string sub;
  std::vector<Card> cards;
};

std::vector<Panel> panels_of(const Topology& topology) {
  std::vector<Panel> panels;
  for (const NumaNode& node : topology.nodes) {
    std::string sub = node.cpus.empty() ? "" : "CPUs " + node.cpus;
    if (node.memory_bytes > 0) {
      sub += (sub.empty() ? "" : " · ") + format_bytes(node.memory_bytes);
    }
    panels.push_back(
        {fmt::format("NUMA node {}", node.id), sub, cards_of(topology, static_cast<int>(node.id))});
  }
  if (auto rest = cards_of(topology, -1); !rest.empty()) {
    panels.push_back({"Of no known node", "", std::move(rest)});
  }
  return panels;
}

// Draws the heat map at (x, y) and returns the size of the map.
std::string map_svg(const TopoView& view, double x, double y, double* width, double* height) {
  std::vector<const Nic*> nics;
  for (const Nic& nic : view.topology.nics) {
    if (nic.used()) nics.push_back(&nic);
  }
  *width = *height = 0;
  if (nics.empty() || view.topology.gpus.empty()) return "";
  std::string out = text(x, y + 14, "head", "From each GPU to each NIC");
  const double top = y + 46;
  const double left = x + kLabelWidth;
  for (std::size_t i = 0; i < nics.size(); ++i) {
    out += text(left + (static_cast<double>(i) + 0.5) * kCellWidth, top - 8, "top",
                fitted(nics[i]->name, 9));
  }
  double at = top;
  for (const Gpu& gpu : view.topology.gpus) {
    const transport::NicRanking* ranking = view.matrix.find(gpu.name);
    out += text(x, at + 20, "axis", gpu.name);
    for (std::size_t i = 0; i < nics.size(); ++i) {
      const Distance apart = distance(gpu.pci, nics[i]->pci);
      const double cell = left + static_cast<double>(i) * kCellWidth;
      const bool near = ranking != nullptr &&
                        std::ranges::find(ranking->near, nics[i]->name) != ranking->near.end();
      out += heat_field(cell + 2, at + 2, kCellWidth - 4, kCell - 4,
                        kHeat[static_cast<std::size_t>(apart)], near);
      out += text(cell + kCellWidth / 2, at + 19, "cell", distance_name(apart));
    }
    at += kCell;
  }
  at += 26;
  double legend = x;
  *width = kLabelWidth + static_cast<double>(nics.size()) * kCellWidth;
  for (std::size_t i = 1; i < kHeat.size(); ++i) {
    const std::string words =
        fmt::format("{} {}", distance_name(static_cast<Distance>(i)), kHeatWords[i]);
    out += heat_field(legend, at - 11, 14, 14, kHeat[i], false);
    out += text(legend + 20, at, "what", words);
    legend += 40 + 6.3 * static_cast<double>(words.size());
  }
  out += heat_field(legend, at - 11, 14, 14, "none", true);
  out += text(legend + 20, at, "what", "near: used first");
  *width = std::max(*width, legend + 130 - x);
  *height = at + 12 - y;
  return out;
}

}  // namespace

std::string topo_svg(const TopoView& view) {
  const std::vector<Panel> panels = panels_of(view.topology);
  std::string body;
  double y = 84;
  for (std::size_t i = 0; i < panels.size(); i += 2) {
    const bool pair = i + 1 < panels.size();
    const double height =
        std::max(node_height(panels[i].cards), pair ? node_height(panels[i + 1].cards) : 0);
    for (std::size_t k = i; k < panels.size() && k < i + 2; ++k) {
      const double x = kMargin + static_cast<double>(k - i) * (kNodeWidth + kGap);
      body += node_svg(x, y, height, panels[k].head, panels[k].sub, panels[k].cards);
    }
    y += height + kGap;
  }
  double map_width = 0, map_height = 0;
  body += map_svg(view, kMargin, y, &map_width, &map_height);
  const double nodes = panels.size() > 1 ? 2 * kNodeWidth + kGap : kNodeWidth;
  const double width = 2 * kMargin + std::max(nodes, map_width);
  const double height = y + map_height + (map_height > 0 ? kMargin : 4);
  const std::string head =
      text(kMargin, 42, "title", view.source.substr(view.source.rfind('/') + 1)) +
      text(kMargin, 64, "sub", topo_summary(view.topology));
  return fmt::format(kDrawing, "width"_a = width, "height"_a = height, "style"_a = kDrawingStyle,
                     "content"_a = head + body);
}

}  // namespace mc::ctl
