// SPDX-License-Identifier: Apache-2.0
//
// Tests of the explorer: known outcomes of small programs, and random programs for which the
// reduced search must find exactly the outcomes of the full search.
#include <array>
#include <random>
#include <set>

#include "shm/atomic.h"
#include "tests/model/scenario.h"

namespace mc::model {
namespace {

enum class What { kLoad, kStore, kRelease, kExchange, kFence, kAwait };
struct Instruction {
  What what = What::kLoad;
  unsigned word = 0;
};
struct Program {
  std::vector<std::vector<Instruction>> threads;
  bool dies = false;  // the first thread may die
};
using Outcome = std::vector<std::uint64_t>;

// The values read and the final memory, for every execution.
std::set<Outcome> outcomes(const Program& program, Memory memory, bool reduce,
                           Verdict* verdict = nullptr) {
  std::set<Outcome> found;
  Options options;
  options.memory = memory;
  options.reduce = reduce;
  if (!reduce) options.max_executions = long_form() ? 30000 : 10000;
  const Verdict result = explore(options, [&](Machine& machine) {
    auto* words = shared<shm::Word64>(4);
    auto reads = std::make_shared<Outcome>();
    std::uint64_t value = 0;
    for (const auto& body : program.threads) {
      const std::size_t at = reads->size();
      reads->resize(at + body.size(), 99);
      machine.thread("thread", [=, &body] {
        for (std::size_t i = 0; i < body.size(); ++i) {
          shm::Word64& word = words[body[i].word];
          switch (body[i].what) {
            case What::kLoad:
              (*reads)[at + i] = word.load_relaxed();
              break;
            case What::kStore:
              word.store_relaxed(value + i + 1);
              break;
            case What::kRelease:
              word.store_release(value + i + 1);
              break;
            case What::kExchange:
              (*reads)[at + i] = word.exchange(value + i + 1);
              break;
            case What::kFence:
              shm::full_fence();
              break;
            case What::kAwait:
              forget_reads();
              while (word.load_relaxed() == 0) retry();
              break;
          }
        }
      });
      value += 10;
    }
    if (program.dies) machine.may_die(0);
    machine.at_end([=, &found] {
      Outcome outcome = *reads;
      for (unsigned i = 0; i < 4; ++i) outcome.push_back(words[i].load_relaxed());
      found.insert(outcome);
    });
  });
  EXPECT_TRUE(result.complete || !reduce);
  if (verdict != nullptr) *verdict = result;
  return found;
}

bool reads_can_be(const std::set<Outcome>& found, const Outcome& reads) {
  return std::any_of(found.begin(), found.end(), [&](const Outcome& outcome) {
    return std::equal(reads.begin(), reads.end(), outcome.begin());
  });
}

constexpr Instruction kReadX{What::kLoad, 0}, kReadY{What::kLoad, 1}, kWriteX{What::kStore, 0},
    kWriteY{What::kStore, 1}, kFullFence{What::kFence, 0};

TEST(ExplorerModel, StoreBuffersDelayStoresUntilAFence) {
  const Program plain{{{kWriteX, kReadY}, {kWriteY, kReadX}}};
  const Program fenced{{{kWriteX, kFullFence, kReadY}, {kWriteY, kFullFence, kReadX}}};
  const Program half{{{kWriteX, kReadY}, {kWriteY, kFullFence, kReadX}}};
  const auto both_miss = [](const Program& program) {
    const bool second_fenced = program.threads[1].size() == 3;
    Outcome reads = {99, 0, 99, 0};
    if (program.threads[0].size() == 3)
      reads = {99, 99, 0, 99, 99, 0};
    else if (second_fenced)
      reads = {99, 0, 99, 99, 0};
    return reads_can_be(outcomes(program, Memory::kTotalStoreOrder, true), reads);
  };
  EXPECT_TRUE(both_miss(plain));
  EXPECT_FALSE(both_miss(fenced));
  EXPECT_TRUE(both_miss(half));
}

TEST(ExplorerModel, OnlyAReleaseKeepsStoresInOrderUnderPartialStoreOrder) {
  const Program relaxed{{{kWriteX, kWriteY}, {kReadY, kReadX}}};
  const Program released{{{kWriteX, {What::kRelease, 1}}, {kReadY, kReadX}}};
  const Outcome flag_without_data = {99, 99, 2, 0};
  EXPECT_TRUE(reads_can_be(outcomes(relaxed, Memory::kPartialStoreOrder, true), flag_without_data));
  EXPECT_FALSE(reads_can_be(outcomes(relaxed, Memory::kTotalStoreOrder, true), flag_without_data));
  EXPECT_FALSE(
      reads_can_be(outcomes(released, Memory::kPartialStoreOrder, true), flag_without_data));
}

Program random_program(std::mt19937& random) {
  Program program;
  const auto pick = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
  const unsigned threads = 2 + pick(2);
  for (unsigned t = 0; t < threads; ++t) {
    std::vector<Instruction> body;
    const unsigned length = threads == 2 ? 2 + pick(3) : 2;
    for (unsigned i = 0; i < length; ++i) {
      body.push_back({static_cast<What>(pick(pick(3) == 0 ? 6 : 5)), pick(2)});
    }
    program.threads.push_back(std::move(body));
  }
  program.dies = pick(4) == 0;
  return program;
}

std::string describe(const Program& program) {
  static const char* const kNames[] = {"load", "store", "release", "exchange", "fence", "await"};
  std::string text = program.dies ? "(first may die) " : "";
  for (const auto& body : program.threads) {
    for (const Instruction& step : body) {
      text += kNames[static_cast<int>(step.what)] + std::string(step.word == 0 ? " x; " : " y; ");
    }
    text += "|| ";
  }
  return text;
}

std::string missing(const std::set<Outcome>& from, const std::set<Outcome>& in) {
  std::string text;
  for (const Outcome& outcome : from) {
    if (in.contains(outcome)) continue;
    text += "\n  only in one:";
    for (const std::uint64_t value : outcome) text += " " + std::to_string(value);
  }
  return text;
}

TEST(ExplorerModel, TheReducedSearchFindsWhatTheFullOneFinds) {
  std::mt19937 random(1);
  const int programs = long_form() ? 2000 : 200;
  std::uint64_t full = 0, reduced = 0;
  for (int i = 0; i < programs; ++i) {
    Program program = random_program(random);
    const Memory memory = i % 2 == 0 ? Memory::kTotalStoreOrder : Memory::kPartialStoreOrder;
    // A wait without end is an outcome like any other here.
    Verdict all, some;
    const auto expected = outcomes(program, memory, false, &all);
    if (!all.complete) continue;  // too large for a quick test
    const auto found = outcomes(program, memory, true, &some);
    EXPECT_EQ(all.violation.empty(), some.violation.empty()) << "program " << i;
    if (all.violation.empty()) {
      EXPECT_TRUE(found == expected) << "program " << i << ": " << describe(program)
                                     << missing(expected, found) << missing(found, expected);
    }
    full += all.executions;
    reduced += some.executions;
  }
  std::printf("%d programs: %llu executions in full, %llu reduced\n", programs,
              static_cast<unsigned long long>(full), static_cast<unsigned long long>(reduced));
}

}  // namespace
}  // namespace mc::model
