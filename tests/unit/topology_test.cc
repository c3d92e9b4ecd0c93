// SPDX-License-Identifier: Apache-2.0
//
// Topologies of recorded machines, tests/data/topology.
#include "transport/topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ctl/topo/hwloc_reader.h"
#include "transport/topology/nic_choice.h"
#include "transport/topology/priority_matrix.h"
#include "transport/topology/sysfs_reader.h"

namespace mc::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string text_of(const std::string& name) {
  std::ifstream file(std::string(MC_TEST_DATA) + "/topology/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

RecordedTree tree_of(const std::string& name) {
  auto tree = RecordedTree::parse(text_of(name));
  EXPECT_TRUE(tree) << name;
  return tree ? std::move(*tree) : RecordedTree();
}

Topology machine(const std::string& name, const NicFilter& filter = {}) {
  Topology topology = read_topology(tree_of(name));
  choose_nics(topology, filter);
  return topology;
}

std::vector<std::string> used(const Topology& topology) {
  std::vector<std::string> names;
  for (const Nic& nic : topology.nics) {
    if (nic.used()) names.push_back(nic.name);
  }
  return names;
}

std::string left_out(const Topology& topology, const std::string& nic) {
  return topology.nic(nic) == nullptr ? "not there" : topology.nic(nic)->left_out;
}

TEST(Topology, ADgxHasANicBesideEachGpu) {
  const Topology dgx = machine("dgx-h100.tree");
  ASSERT_EQ(dgx.nodes.size(), 2u);
  EXPECT_EQ(dgx.nodes[1].cpus, "56-111,168-223");
  EXPECT_EQ(dgx.nodes[0].memory_bytes, 1056429136ull * 1024);
  EXPECT_THAT(dgx.nodes[0].distances, ElementsAre(10, 21));
  ASSERT_EQ(dgx.gpus.size(), 8u) << "and the console's display is none";
  EXPECT_EQ(dgx.gpus[0].name, "cuda:0");
  EXPECT_EQ(dgx.gpus[0].pci.address, "0000:1b:00.0");
  EXPECT_EQ(dgx.gpus[7].pci.node, 1);

  const char* const beside[] = {"mlx5_0", "mlx5_3", "mlx5_4",  "mlx5_5",
                                "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"};
  const PriorityMatrix matrix = make_priority_matrix(dgx);
  for (std::size_t i = 0; i < 8; ++i) {
    const NicRanking* const ranking = matrix.find("cuda:" + std::to_string(i));
    ASSERT_NE(ranking, nullptr);
    EXPECT_THAT(ranking->near, ElementsAre(beside[i]));
    EXPECT_EQ(ranking->far.size(), 9u);
    const Nic& nic = *dgx.nic(beside[i]);
    EXPECT_EQ(distance(dgx.gpus[i].pci, nic.pci), Distance::kBridges);
    EXPECT_EQ(nic.bits_per_s(), 400'000'000'000u);
  }
  EXPECT_EQ(distance(dgx.gpus[0].pci, dgx.nic("mlx5_3")->pci), Distance::kNode);
  EXPECT_EQ(distance(dgx.gpus[0].pci, dgx.nic("mlx5_11")->pci), Distance::kSystem);
  EXPECT_THAT(matrix.find("cpu:0")->near,
              ElementsAre("mlx5_0", "mlx5_1", "mlx5_3", "mlx5_4", "mlx5_5"));
  EXPECT_EQ(left_out(dgx, "mlx5_2"), "its port is down");
  EXPECT_EQ(left_out(dgx, "eno3"), "without RDMA; for TCP only");
  EXPECT_THAT(dgx.nic("mlx5_0")->netdevs, ElementsAre("ibp24s0"));
  // Two functions of the same card.
  EXPECT_EQ(distance(dgx.nic("mlx5_1")->pci, dgx.nic("mlx5_2")->pci), Distance::kSwitch);
}

TEST(Topology, ANarrowSlotLimitsANicBelowItsPort) {
  const Topology host = machine("two-socket.tree");
  const Nic& narrow = *host.nic("mlx5_1");
  EXPECT_EQ(narrow.ports[0].bits_per_s, 100'000'000'000u);
  EXPECT_EQ(narrow.bits_per_s(), 63'015'384'615u);
  EXPECT_GT(narrow.pci.max_bits_per_s, narrow.pci.bits_per_s);
  EXPECT_EQ(host.nic("mlx5_0")->bits_per_s(), 100'000'000'000u);
  ASSERT_EQ(host.gpus.size(), 2u);
  EXPECT_EQ(host.gpus[0].name, "cuda:0");
  EXPECT_EQ(host.gpus[1].name, "hip:0");
  const PriorityMatrix matrix = make_priority_matrix(host);
  EXPECT_THAT(matrix.find("cuda:0")->near, ElementsAre("mlx5_0"));
  EXPECT_EQ(distance(host.gpus[0].pci, host.nic("mlx5_0")->pci), Distance::kHost);
  EXPECT_THAT(matrix.find("hip:0")->near, ElementsAre("mlx5_1"));
  EXPECT_THAT(matrix.find("hip:0")->far, ElementsAre("mlx5_0"));
  EXPECT_THAT(matrix.find("cpu:1")->near, ElementsAre("mlx5_1"));
}

TEST(Topology, ADeviceWhoseNodeIsNotSaidIsOnTheOnlyOne) {
  const Topology host = machine("one-nic.tree");
  ASSERT_EQ(host.nics.size(), 1u);
  EXPECT_EQ(host.nics[0].pci.node, 0);
  EXPECT_THAT(host.nics[0].netdevs, ElementsAre("enp1s0"));
  EXPECT_THAT(make_priority_matrix(host).find("cpu:0")->near, ElementsAre("mlx5_0"));
}

TEST(Topology, VirtualFunctionsServeWhereTheirPhysicalOneDoesNot) {
  const Topology host = machine("sr-iov.tree");
  EXPECT_THAT(used(host), ElementsAre("mlx5_0"));
  EXPECT_EQ(left_out(host, "mlx5_2"), "a virtual function of mlx5_0, which is used");
  EXPECT_EQ(host.nic("mlx5_2")->pci.node, 1) << "by its processors";
  EXPECT_EQ(host.nic("mlx5_2")->parent, "0000:81:00.0");
  EXPECT_THAT(used(machine("sr-iov.tree", {{}, {"mlx5_0"}})),
              ElementsAre("mlx5_1", "mlx5_2", "mlx5_3"));
  // Node 0 has no NIC: the nearest NIC serves.
  EXPECT_THAT(make_priority_matrix(host).find("cpu:0")->near, ElementsAre("mlx5_0"));
}

TEST(Topology, AContainerWithoutDevicesHasNone) {
  const Topology host = machine("no-nic.tree");
  EXPECT_EQ(host.nodes.size(), 1u);
  EXPECT_TRUE(host.nics.empty());
  EXPECT_TRUE(host.gpus.empty());
  const PriorityMatrix matrix = make_priority_matrix(host);
  EXPECT_TRUE(matrix.find("cpu:0")->near.empty());

  const Topology nothing = read_topology(RecordedTree());
  EXPECT_TRUE(nothing.nodes.empty());
  EXPECT_TRUE(make_priority_matrix(nothing).places.empty());
}

TEST(Topology, AnyHostsTopologyCanBeRead) {
  const DirectoryTree tree;
  const Topology host = read_topology(tree);
  for (const Nic& nic : host.nics) EXPECT_FALSE(nic.name.empty());
  for (const Gpu& gpu : host.gpus) EXPECT_FALSE(gpu.pci.address.empty());
}

void expect_same(const Topology& one, const Topology& other) {
  ASSERT_EQ(one.nodes.size(), other.nodes.size());
  ASSERT_EQ(one.nics.size(), other.nics.size());
  ASSERT_EQ(one.gpus.size(), other.gpus.size());
  for (std::size_t i = 0; i < one.nics.size(); ++i) {
    const Nic& a = one.nics[i];
    const Nic& b = other.nics[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.netdevs, b.netdevs);
    EXPECT_EQ(a.pci.path, b.pci.path);
    EXPECT_EQ(a.pci.node, b.pci.node);
    EXPECT_EQ(a.parent, b.parent);
    EXPECT_EQ(a.bits_per_s(), b.bits_per_s());
  }
  for (std::size_t i = 0; i < one.gpus.size(); ++i) {
    EXPECT_EQ(one.gpus[i].pci.path, other.gpus[i].pci.path);
  }
  EXPECT_EQ(make_priority_matrix(one).places, make_priority_matrix(other).places);
}

TEST(DeviceTree, ARecordedTopologyReadsTheSame) {
  for (const char* name : {"dgx-h100.tree", "sr-iov.tree", "no-nic.tree"}) {
    const RecordedTree tree = tree_of(name);
    const Recorder recorder(tree);
    const Topology first = read_topology(recorder);
    const auto again = RecordedTree::parse(recorder.text());
    ASSERT_TRUE(again) << again.error().to_string();
    expect_same(first, read_topology(*again));
  }
}

TEST(DeviceTree, ARecordSurvivesARoundTrip) {
  std::ifstream file(std::string(MC_TEST_GOLDEN) + "/topology-v1.txt");
  std::ostringstream golden;
  golden << file.rdbuf();
  const RecordedTree tree = tree_of("one-nic.tree");
  const Recorder recorder(tree);
  read_topology(recorder);
  EXPECT_EQ(recorder.text(), golden.str());
  const auto again = RecordedTree::parse(golden.str());
  ASSERT_TRUE(again);
  EXPECT_EQ(read_topology(*again).nics.size(), 1u);
}

// The same machine as files and links below a directory.
TEST(DeviceTree, ADirectoryReadsLikeItsRecord) {
  const auto root =
      std::filesystem::temp_directory_path() / ("mc-tree-" + std::to_string(::getpid()));
  std::istringstream lines(text_of("two-socket.tree"));
  std::string line;
  while (std::getline(lines, line)) {
    const bool link = line.find(" -> ") != std::string::npos;
    const std::size_t middle = line.find(link ? " -> " : " = ");
    if (line.front() != '/' || middle == std::string::npos) continue;
    const std::filesystem::path at(root.string() + line.substr(0, middle));
    std::filesystem::create_directories(at.parent_path());
    if (link) {
      const std::filesystem::path target(root.string() + line.substr(middle + 4));
      std::filesystem::create_directories(target);
      std::filesystem::create_directory_symlink(std::filesystem::relative(target, at.parent_path()),
                                                at);
    } else {
      std::ofstream(at) << line.substr(middle + 3) << '\n';
    }
  }
  expect_same(read_topology(DirectoryTree(root.string())),
              read_topology(tree_of("two-socket.tree")));
  std::filesystem::remove_all(root);
}

TEST(DeviceTree, LinksThatLeadInCirclesEnd) {
  const auto tree = RecordedTree::parse("mc-tree 1\n/a -> /b\n/b -> /a\n/c -> /c/c\n/c/d = 1\n");
  ASSERT_TRUE(tree);
  EXPECT_FALSE(tree->resolve("/a/x"));
  EXPECT_FALSE(tree->resolve("/c/d"));
  EXPECT_THAT(tree->list("/a"), IsEmpty());
}

TEST(DeviceTree, AnInvalidRecordIsRefusedWithItsLine) {
  EXPECT_FALSE(RecordedTree::parse("mc-tree 2\n"));
  EXPECT_FALSE(RecordedTree::parse(""));
  for (const char* line : {"/a", "a = 1", "/a/../b = 1", "/a//b = 1", "/a -> b", "/a -> /../b"}) {
    const auto tree = RecordedTree::parse("mc-tree 1\n# fine\n" + std::string(line) + "\n");
    ASSERT_FALSE(tree) << line;
    EXPECT_THAT(std::string(tree.error().text()), HasSubstr("line 3")) << line;
  }
  EXPECT_FALSE(RecordedTree::parse("mc-tree 1\n" + std::string(kMaxTreeBytes, '#')));
}

TEST(DeviceTree, ValuesMayBeEmptyOrHaveSeveralLines) {
  const auto tree = RecordedTree::parse("mc-tree 1\n/a = one\\ntwo\\\\\n/b =\n/c = x = y -> z\n");
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->read("/a"), "one\ntwo\\");
  EXPECT_EQ(tree->read("/b"), "");
  EXPECT_EQ(tree->read("/c"), "x = y -> z");
  EXPECT_EQ(tree->read("/d"), std::nullopt);
}

TEST(Hwloc, AFileOfLstopoIsRead) {
  auto host = ctl::read_hwloc_xml(text_of("two-socket-hwloc.xml"));
  ASSERT_TRUE(host) << host.error().to_string();
  choose_nics(*host, {});
  ASSERT_EQ(host->nodes.size(), 2u);
  EXPECT_EQ(host->nodes[1].cpus, "2-3");
  EXPECT_THAT(host->nodes[1].distances, ElementsAre(21, 10));
  ASSERT_EQ(host->nics.size(), 2u);
  EXPECT_THAT(host->nics[1].netdevs, ElementsAre("ibp195s0"));
  EXPECT_EQ(host->nics[1].pci.node, 1);
  EXPECT_TRUE(host->nics[1].ports[0].active);
  ASSERT_EQ(host->gpus.size(), 2u);
  EXPECT_EQ(distance(host->gpus[0].pci, host->nics[0].pci), Distance::kSwitch);
  EXPECT_EQ(distance(host->gpus[0].pci, host->nics[1].pci), Distance::kSystem);
  EXPECT_THAT(make_priority_matrix(*host).find("cuda:1")->near, ElementsAre("mlx5_1"));
}

TEST(Hwloc, AnotherFileIsRefused) {
  EXPECT_FALSE(ctl::read_hwloc_xml(""));
  EXPECT_FALSE(ctl::read_hwloc_xml("{\"cpu:0\": []}"));
  const std::string text = text_of("two-socket-hwloc.xml");
  EXPECT_FALSE(ctl::read_hwloc_xml(text.substr(0, text.size() / 2)));
}

TEST(NicChoice, TheDenyListWinsOverTheAllowList) {
  const Topology dgx = machine("dgx-h100.tree", {{"mlx5_1?", "ibp24s0"}, {"0000:dc:00.0"}});
  EXPECT_THAT(used(dgx), ElementsAre("mlx5_0", "mlx5_10"));
  EXPECT_EQ(left_out(dgx, "mlx5_11"), "on the deny list");
  EXPECT_EQ(left_out(dgx, "mlx5_3"), "not on the allow list");
  EXPECT_THAT(unmatched(dgx, {{"mlx4_*", "mlx5_0"}, {"eth?"}}), ElementsAre("mlx4_*", "eth?"));
}

TEST(NicChoice, WithoutRdmaTheOthersServe) {
  EXPECT_THAT(used(machine("dgx-h100.tree", {{"eno*"}, {}})), ElementsAre("eno3"));
}

TEST(NicChoice, AnElasticFabricAdapterIsAnRdmaDeviceOfAmazons) {
  Topology topology;
  EXPECT_FALSE(has_efa(topology));
  Nic nic;
  nic.rdma = true;
  nic.pci.vendor = 0x15b3;
  topology.nics.push_back(nic);
  nic.rdma = false;  // the vendor's Ethernet device
  nic.pci.vendor = 0x1d0f;
  topology.nics.push_back(nic);
  EXPECT_FALSE(has_efa(topology));
  topology.nics.back().rdma = true;
  EXPECT_TRUE(has_efa(topology));
}

TEST(NicChoice, PatternsMatchLikeAShells) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("mlx5_*", "mlx5_10"));
  EXPECT_TRUE(matches("*5*0", "mlx5_10"));
  EXPECT_TRUE(matches("m?x5_1", "mlx5_1"));
  EXPECT_FALSE(matches("mlx5_?", "mlx5_10"));
  EXPECT_FALSE(matches("mlx5", "mlx5_1"));
  EXPECT_FALSE(matches("", "x"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
}

TEST(PriorityMatrix, AFileOfMooncakesFormReplacesPlaces) {
  const Topology host = machine("two-socket.tree");
  for (
      const char* text :
      {R"({"cpu:0": [["mlx5_1"], ["mlx5_0"]], "npu:0": [["mlx5_0"]]})",
       R"({"nic_priority_matrix": {"cpu:0": [["mlx5_1"], ["mlx5_0"]], "npu:0": [["mlx5_0"], []]}})",
       R"({"nic_priority_matrix":
            "{\"cpu:0\": [[\"mlx5_1\"], [\"mlx5_0\"]], \"npu:0\": [[\"mlx5_0\"]]}"})"}) {
    PriorityMatrix matrix = make_priority_matrix(host);
    const auto file = parse_priority_matrix(text);
    ASSERT_TRUE(file) << file.error().to_string();
    ASSERT_TRUE(override_places(matrix, *file, host).ok());
    EXPECT_THAT(matrix.find("cpu:0")->near, ElementsAre("mlx5_1"));
    EXPECT_THAT(matrix.find("npu:0")->near, ElementsAre("mlx5_0"));
    EXPECT_THAT(matrix.find("cpu:1")->near, ElementsAre("mlx5_1")) << "not in the file";
  }
}

TEST(PriorityMatrix, AnInvalidMatrixIsRefused) {
  for (const char* text :
       {"", "[]", "{", "null", R"({"cpu:0": ["mlx5_0"]})", R"({"cpu:0": []})",
        R"({"cpu:0": [[], [], []]})", R"({"cpu:0": [[1]]})", R"({"cpu:0": [[""]]})",
        R"({"": [["mlx5_0"]]})", R"({"cpu 0": [["mlx5_0"]]})", "{\"c\xff\": [[\"mlx5_0\"]]}",
        R"({"nic_priority_matrix": 5})", R"({"nic_priority_matrix": "{"})",
        R"({"a": [["x"]], "a": [["y"]]})", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}) {
    EXPECT_FALSE(parse_priority_matrix(text)) << text;
  }
  EXPECT_FALSE(parse_priority_matrix(std::string(kMaxMatrixBytes + 1, ' ')));
}

TEST(PriorityMatrix, NicsThatAreNotThereAreNamed) {
  const Topology dgx = machine("dgx-h100.tree");
  PriorityMatrix matrix = make_priority_matrix(dgx);
  const auto before = matrix.places;
  const Status gone =
      override_places(matrix, *parse_priority_matrix(R"({"cpu:0": [["mlx4_0"]]})"), dgx);
  EXPECT_THAT(std::string(gone.text()), HasSubstr("mlx4_0"));
  const Status down =
      override_places(matrix, *parse_priority_matrix(R"({"cpu:0": [["mlx5_2"]]})"), dgx);
  EXPECT_THAT(std::string(down.text()), HasSubstr("port is down"));
  EXPECT_EQ(matrix.places, before);
}

TEST(PriorityMatrix, ItsTextReadsTheSame) {
  const PriorityMatrix matrix = make_priority_matrix(machine("dgx-h100.tree"));
  const auto again = parse_priority_matrix(matrix_text(matrix));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->places, matrix.places);
}

TEST(PriorityMatrix, NearNicsAreBitsForTheRails) {
  const PriorityMatrix matrix = make_priority_matrix(machine("two-socket.tree"));
  const std::vector<std::string> nics = {"mlx5_0", "mlx5_1"};
  EXPECT_EQ(matrix.near_bits("cuda:0", nics), 0b01u);
  EXPECT_EQ(matrix.near_bits("cpu:1", nics), 0b10u);
  EXPECT_EQ(matrix.near_bits("cuda:9", nics), ~std::uint64_t{0});
}

TEST(Pcie, LinksCarryLessThanTheirLineRate) {
  EXPECT_EQ(pcie_bits_per_s("8.0 GT/s PCIe", "8"), 63'015'384'615u);
  EXPECT_EQ(pcie_bits_per_s("5.0 GT/s PCIe", "4"), 16'000'000'000u);
  EXPECT_EQ(pcie_bits_per_s("2.5 GT/s", "1"), 2'000'000'000u);
  for (const char* speed : {"Unknown", "", "8.0", "nan GT/s", "-8.0 GT/s", "1e9 GT/s"}) {
    EXPECT_EQ(pcie_bits_per_s(speed, "8"), 0u) << speed;
  }
  EXPECT_EQ(pcie_bits_per_s("8.0 GT/s PCIe", "63"), 0u);
  EXPECT_EQ(pcie_bits_per_s("8.0 GT/s PCIe", "0"), 0u);
}

}  // namespace
}  // namespace mc::transport
