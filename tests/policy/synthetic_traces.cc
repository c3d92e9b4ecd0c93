// SPDX-License-Identifier: Apache-2.0
#include "policy/synthetic_traces.h"

#include <cmath>
#include <map>
#include <random>
#include <utility>

namespace mc::test {
namespace {

using Chain = std::vector<std::uint32_t>;

class Builder {
 public:
  explicit Builder(std::uint64_t seed) : random_(seed) {}

  // From 0 to end - 1. Not a std distribution: their results differ between libraries.
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  double unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  void extend(Chain& chain, std::size_t blocks) {
    for (std::size_t i = 0; i < blocks; ++i) {
      chain.push_back(static_cast<std::uint32_t>(trace_.block_count++));
    }
  }
  Chain fresh(std::size_t blocks) {
    Chain chain;
    extend(chain, blocks);
    return chain;
  }
  std::vector<Chain> documents(std::size_t count, std::size_t shortest, std::size_t spread) {
    std::vector<Chain> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(fresh(shortest + below(spread)));
    return all;
  }
  void request(Chain blocks) {
    trace_.reference_count += blocks.size();
    const auto tokens = static_cast<std::uint64_t>(blocks.size()) * 512;
    trace_.requests.push_back({trace_.requests.size() * 100, tokens, 100, std::move(blocks)});
  }
  // Requests the chain, followed by a new question.
  void ask(Chain chain, std::size_t question_blocks) {
    extend(chain, question_blocks);
    request(std::move(chain));
  }
  ctl::Trace finish() { return std::move(trace_); }

 private:
  std::mt19937_64 random_;
  ctl::Trace trace_;
};

class Zipf {
 public:
  Zipf(std::size_t count, double exponent) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += std::pow(static_cast<double>(i + 1), -exponent);
      sums_.push_back(sum);
    }
  }
  std::size_t operator()(Builder& builder) const {
    const double at = builder.unit() * sums_.back();
    std::size_t rank = 0;
    while (rank + 1 < sums_.size() && sums_[rank] < at) ++rank;
    return rank;
  }

 private:
  std::vector<double> sums_;
};

SyntheticTrace chats(std::uint64_t seed) {
  Builder b(seed);
  const auto prompts = b.documents(12, 2, 6);
  const Zipf popular(prompts.size(), 1.0);
  std::vector<Chain> sessions(250);
  for (int i = 0; i < 12'000; ++i) {
    Chain& session = sessions[b.below(sessions.size())];
    if (session.empty() || b.one_in(5)) session = prompts[popular(b)];
    b.extend(session, 1 + b.below(6));
    b.ask(session, 1);
  }
  return {"chats with shared system prompts", b.finish(), {600, 2'000, 5'000}};
}

SyntheticTrace zipf_documents(std::uint64_t seed) {
  Builder b(seed);
  const auto documents = b.documents(1'500, 4, 24);
  const Zipf popular(documents.size(), 0.9);
  for (int i = 0; i < 10'000; ++i) b.ask(documents[popular(b)], 1 + b.below(2));
  return {"documents shared by Zipf", b.finish(), {800, 3'000, 10'000}};
}

SyntheticTrace scans(std::uint64_t seed) {
  Builder b(seed);
  const auto documents = b.documents(150, 4, 16);
  const Zipf popular(documents.size(), 0.7);
  for (int i = 0; i < 8'000; ++i) {
    b.ask(documents[popular(b)], 1);
    if (!b.one_in(100)) continue;
    for (int scan = 0; scan < 40; ++scan) b.request(b.fresh(30 + b.below(60)));
  }
  return {"one-off scans over a hot set", b.finish(), {600, 1'500, 2'500}};
}

SyntheticTrace rag(std::uint64_t seed) {
  Builder b(seed);
  const Chain prompt = b.fresh(3);
  const Zipf popular(300, 0.9);
  std::map<std::pair<std::size_t, std::size_t>, Chain> contexts;  // a document after another
  for (int i = 0; i < 10'000; ++i) {
    const std::size_t first = popular(b);
    const std::size_t second = popular(b);
    Chain& lead = contexts[{first, 300}];
    if (lead.empty()) {
      lead = prompt;
      b.extend(lead, 3 + first % 5);
    }
    Chain& both = contexts[{first, second}];
    if (both.empty()) {
      both = contexts[{first, 300}];
      b.extend(both, 3 + second % 5);
    }
    b.ask(both, 1);
  }
  return {"retrieved documents in pairs", b.finish(), {600, 2'000, 8'000}};
}

SyntheticTrace agent_loops(std::uint64_t seed) {
  Builder b(seed);
  const Chain tools = b.fresh(6);
  std::vector<Chain> agents(40, tools);
  for (int i = 0; i < 12'000; ++i) {
    Chain& agent = agents[b.below(agents.size())];
    if (b.one_in(30)) agent = tools;
    b.extend(agent, 1 + b.below(3));
    b.request(agent);
  }
  return {"agents in loops", b.finish(), {500, 1'500, 4'000}};
}

SyntheticTrace loop(std::uint64_t seed) {
  Builder b(seed);
  const auto documents = b.documents(150, 8, 5);
  for (int round = 0; round < 40; ++round) {
    for (const Chain& document : documents) b.ask(document, 1);
  }
  return {"a loop larger than the pool", b.finish(), {500, 1'000, 1'400}};
}

SyntheticTrace moving_favourites(std::uint64_t seed) {
  Builder b(seed);
  const Zipf popular(250, 0.8);
  for (int phase = 0; phase < 5; ++phase) {
    const auto documents = b.documents(250, 4, 16);
    for (int i = 0; i < 2'500; ++i) b.ask(documents[popular(b)], 1);
  }
  return {"favourites that change", b.finish(), {500, 1'500, 3'000}};
}

SyntheticTrace recent_only(std::uint64_t seed) {
  Builder b(seed);
  std::vector<Chain> recent(60);
  for (int i = 0; i < 10'000; ++i) {
    Chain& session = recent[static_cast<std::size_t>(i) % recent.size()];
    if (session.empty() || session.size() > 40) session.clear();
    b.extend(session, 2);
    b.request(session);
    if (b.one_in(2)) b.request(session);
  }
  return {"sessions that take turns", b.finish(), {800, 1'400, 2'500}};
}

}  // namespace

std::vector<SyntheticTrace> synthetic_traces(std::uint64_t seed) {
  std::vector<SyntheticTrace> all;
  for (auto make :
       {chats, zipf_documents, scans, rag, agent_loops, loop, moving_favourites, recent_only}) {
    all.push_back(make(seed));
  }
  return all;
}

}  // namespace mc::test
