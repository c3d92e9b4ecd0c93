// SPDX-License-Identifier: Apache-2.0
#include "rdma/rdma_hosts.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace mc::transport::testing {

namespace {
std::vector<std::string> words(const char* text) {
  std::istringstream stream(text == nullptr ? "" : text);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}
}  // namespace

std::vector<std::string> devices_a() { return words(std::getenv("MC_RDMA_DEVICES_A")); }
std::vector<std::string> devices_b() { return words(std::getenv("MC_RDMA_DEVICES_B")); }

void shell(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  char line[256];
  while (std::fgets(line, sizeof line, pipe) != nullptr) said += line;
  ASSERT_EQ(::pclose(pipe), 0) << command << ": " << said;
}

void RdmaHostsTest::SetUp() {
  if (devices_a().size() < 2 || devices_b().size() < 2) {
    GTEST_SKIP() << "no RDMA devices here; tests/run --rdma starts a machine that has them";
  }
  options_a_ = RdmaPair::options(kNodeA, devices_a());
  options_b_ = RdmaPair::options(kNodeB, devices_b());
  options_a_.ack_timeout = options_b_.ack_timeout = kAckTimeout;
  start();
}

void RdmaHostsTest::start() {
  pair_ = std::make_unique<RdmaPair>(rdma::load_verbs().value(), options_a_, options_b_);
  RegionSpec spec;
  spec.data = memory_arena().data();
  spec.size_bytes = memory_arena().size();
  static_cast<void>(pair_->a().register_region(spec).value());
  spec.data = memory_.data();
  spec.size_bytes = memory_.size();
  spec.rights = kRemoteRead;
  region_ = pair_->b().register_region(spec).value();
  peer_ = pair_->a().connect({kNodeB, 1}).value();
  remote_ = pair_->a().import_region(peer_, pair_->b().describe(region_).value()).value();
}

Operation RdmaHostsTest::read(std::uint64_t offset, const Piece& piece) const {
  Operation operation;
  operation.peer = peer_;
  operation.region = remote_;
  operation.offset_bytes = offset;
  operation.pieces = {&piece, 1};
  operation.deadline_ns = now_ns() + 30 * kSecondNs;
  return operation;
}

OperationId RdmaHostsTest::submit(Operation operation) {
  EXPECT_EQ(pair_->a().submit({&operation, 1}, now_ns()), 1u);
  return operation.id;
}

void RdmaHostsTest::step() { pair_->step(now_ns(), at_a_, at_b_); }

bool RdmaHostsTest::wait_for(const std::function<bool()>& holds, std::uint64_t within_ns) {
  const std::uint64_t until_ns = now_ns() + within_ns;
  while (!holds()) {
    if (now_ns() > until_ns) return false;
    step();
  }
  return true;
}

const Event* RdmaHostsTest::event_of(OperationId id) const {
  for (const Event& event : at_a_) {
    if (event.kind == Event::Kind::kCompleted && event.id == id) return &event;
  }
  return nullptr;
}

Outcome RdmaHostsTest::run(const Operation& operation) {
  const OperationId id = submit(operation);
  EXPECT_TRUE(wait_for([&] { return event_of(id) != nullptr; })) << rails();
  return event_of(id) != nullptr ? event_of(id)->outcome : Outcome::kBusy;
}

int RdmaHostsTest::up() const {
  const std::string text = rails();
  int found = 0;
  for (auto at = text.find(": up"); at != std::string::npos; at = text.find(": up", at + 1)) {
    ++found;
  }
  return found;
}

void RdmaHostsTest::warm_up() {
  Memory to(64);
  const Piece piece{to.data(), to.size(), kNoRegion};
  ASSERT_EQ(run(read(0, piece)), Outcome::kDone);
  ASSERT_TRUE(wait_for([&] { return up() == 4; })) << rails();
}

RdmaHostsTest::Load RdmaHostsTest::read_until(const std::function<bool()>& holds,
                                              std::uint64_t within_ns) {
  constexpr std::size_t kAtOnce = 8;
  constexpr std::size_t kBytes = 128 * 1024;
  Load load;
  std::array<Memory, kAtOnce> to;
  std::array<Piece, kAtOnce> pieces;
  std::array<std::uint64_t, kAtOnce> offsets{};
  std::uint64_t next = 0;
  const auto begin = [&](std::size_t i) {
    offsets[i] = next++ * 4099 % (kRegionBytes - kBytes);
    std::ranges::fill(to[i], std::byte{0});
    Operation operation = read(offsets[i], pieces[i]);
    operation.cookie = i;
    submit(operation);
  };
  const std::uint64_t until_ns = now_ns() + within_ns;
  std::uint64_t last_ns = now_ns();
  at_a_.clear();
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    to[i].resize(kBytes);
    pieces[i] = {to[i].data(), kBytes, kNoRegion};
    begin(i);
  }
  std::size_t open = kAtOnce;
  while (open > 0) {
    step();
    load.held = load.held || holds();
    const bool over = load.held || now_ns() > until_ns;
    for (const Event& event : std::exchange(at_a_, {})) {
      if (event.kind != Event::Kind::kCompleted) continue;
      const std::size_t i = event.cookie;
      if (event.outcome == Outcome::kDone) {
        ++load.done;
        load.longest_gap_ns = std::max(load.longest_gap_ns, now_ns() - last_ns);
        last_ns = now_ns();
        if (std::memcmp(to[i].data(), &memory_[offsets[i]], kBytes) != 0) ++load.wrong;
      } else {
        ++load.failed;
      }
      if (over) {
        --open;
      } else {
        begin(i);
      }
    }
  }
  return load;
}

}  // namespace mc::transport::testing
