// SPDX-License-Identifier: Apache-2.0
//
// The output of mcctl topo and rails.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ctl/text/agent_view.h"
#include "ctl/topo/topo_view.h"
#include "transport/topology/nic_choice.h"
#include "transport/topology/sysfs_reader.h"

namespace mc::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TopoView machine(const std::string& name) {
  std::ifstream file(fmt::format("{}/topology/{}", MC_TEST_DATA, name));
  std::ostringstream text;
  text << file.rdbuf();
  TopoView view;
  view.source = name;
  view.topology = read_topology(*transport::RecordedTree::parse(text.str()));
  choose_nics(view.topology, {});
  view.matrix = make_priority_matrix(view.topology);
  return view;
}

TEST(CtlTopo, TextShowsTheTree) {
  EXPECT_EQ(topo_text(machine("two-socket.tree")),
            "two-socket.tree: 2 NUMA nodes, 2 GPUs, 2 NICs\n"
            "\n"
            "node 0  CPUs 0-63  504 GiB\n"
            "└─ pci0000:40\n"
            "   ├─ mlx5_0  0000:41:00.0  ConnectX-5       100 Gb/s RoCE  ens3\n"
            "   └─ cuda:0  0000:44:00.0  A100 PCIe 40 GB  PCIe 252 Gb/s\n"
            "\n"
            "node 1  CPUs 64-127  504 GiB\n"
            "├─ pci0000:80\n"
            "│  └─ hip:0   0000:81:00.0  MI250       PCIe 252 Gb/s\n"
            "└─ pci0000:c0\n"
            "   └─ mlx5_1  0000:c1:00.0  ConnectX-5  63 Gb/s RoCE, limited by PCIe (its port: 100 "
            "Gb/s, a wider slot: 126 Gb/s)  ens9\n"
            "\n"
            "        mlx5_0  mlx5_1\n"
            "cuda:0  PHB     SYS\n"
            "hip:0   SYS     NODE\n"
            "PIX one switch, PXB several bridges, PHB the processor's bridge, NODE two bridges of "
            "one node,\n"
            "SYS between nodes\n"
            "\n"
            "MEMORY  NEAR    FAR\n"
            "cpu:0   mlx5_0  mlx5_1\n"
            "cpu:1   mlx5_1  mlx5_0\n"
            "cuda:0  mlx5_0  mlx5_1\n"
            "hip:0   mlx5_1  mlx5_0\n");
}

TEST(CtlTopo, AHostWithoutNicsIsExplained) {
  const std::string text = topo_text(machine("no-nic.tree"));
  EXPECT_THAT(text, HasSubstr("1 NUMA node, 0 GPUs, 0 NICs"));
  EXPECT_THAT(text, HasSubstr("No NIC that bytes could go over"));
  TopoView nothing;
  EXPECT_THAT(topo_text(nothing), HasSubstr("0 NUMA nodes"));
  EXPECT_THAT(topo_svg(nothing), HasSubstr("</svg>"));
}

TEST(CtlTopo, JsonHasTheMatrixInMooncakesForm) {
  const Json::Value value = topo_json(machine("dgx-h100.tree"));
  EXPECT_EQ(value["nic_priority_matrix"]["cuda:3"][0][0].asString(), "mlx5_5");
  EXPECT_EQ(value["nic_priority_matrix"]["cuda:3"][1].size(), 9u);
  EXPECT_EQ(value["gpus"][0]["distances"]["mlx5_0"].asString(), "PXB");
  EXPECT_EQ(value["nics"].size(), 13u);
  EXPECT_EQ(value["nodes"][1]["distances"][0].asUInt(), 21u);
}

TEST(CtlTopo, TheDrawingNamesEverythingAndEscapesIt) {
  TopoView view = machine("dgx-h100.tree");
  view.topology.nics[0].left_out = "<script>";
  const std::string svg = topo_svg(view);
  for (const auto& nic : view.topology.nics)
    EXPECT_THAT(svg, HasSubstr(fmt::format(">{}<", nic.name)));
  for (const auto& gpu : view.topology.gpus)
    EXPECT_THAT(svg, HasSubstr(fmt::format(">{}<", gpu.name)));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
}

Json::Value rail(const char* name, std::uint64_t done_bytes) {
  Json::Value value;
  value["transport"] = "tcp";
  value["name"] = name;
  value["health"] = "up";
  value["bandwidth_bytes_per_s"] = Json::UInt64{2} << 30;
  value["latency_ns"] = 5000;
  value["outstanding_bytes"] = 1024;
  value["window_bytes"] = 4096;
  value["done_bytes"] = Json::UInt64{done_bytes};
  value["done_slices"] = 7;
  value["failures"] = 1;
  value["taken_back_slices"] = 2;
  return value;
}

Json::Value rails(std::uint64_t done_bytes) {
  Json::Value value;
  value["read_bytes"] = Json::UInt64{done_bytes};
  value["served_bytes"] = 0;
  Json::Value peer;
  peer["node"] = 9;
  peer["address"] = "10.0.0.2:7401";
  peer["rails"].append(rail("bulk 1", done_bytes));
  value["peers"].append(peer);
  return value;
}

TEST(CtlRails, TheTransportBesideTcpIsShownWithItsObstacles) {
  Json::Value value = rails(0);
  EXPECT_THAT(rails_text(value), Not(HasSubstr("TCP")));
  value["one_sided"]["obstacles"] = "no EFA";
  EXPECT_THAT(rails_text(value), HasSubstr("\nTCP alone: no EFA\n"));
  value["one_sided"]["transport"] = "fabric";
  value["one_sided"]["devices"] = "efa rdmap0s6-rdm";
  EXPECT_THAT(rails_text(value),
              HasSubstr("\nBeside TCP: fabric, efa rdmap0s6-rdm; not used: no EFA\n"));
  value["one_sided"]["obstacles"] = "";
  EXPECT_THAT(rails_text(value), HasSubstr("\nBeside TCP: fabric, efa rdmap0s6-rdm\n"));
}

TEST(CtlRails, EachRailHasALine) {
  EXPECT_EQ(rails_text(rails(3u << 20)),
            "         PEER  BY   RAIL    HEALTH  LOAD    MEASURED  LATENCY   CARRIED  SLICES  "
            "FAILURES  SENT AGAIN\n"
            "10.0.0.2:7401  tcp  bulk 1  up       25%  2.00 GiB/s  5.00 us  3.00 MiB       7  "
            "       1           2\n");
  EXPECT_THAT(rails_text(Json::Value()), HasSubstr("no rails"));
  EXPECT_THAT(rails_text(Json::Value("junk")), HasSubstr("no rails"));
}

}  // namespace
}  // namespace mc::ctl
