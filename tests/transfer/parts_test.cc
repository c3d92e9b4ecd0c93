// SPDX-License-Identifier: Apache-2.0
//
// Parts of the transfer engine alone: the table of numbers, an injected name store, and the answers about checksums.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <set>

#include "libmc/base/checksum.h"
#include "transport/engine/engine.h"
#include "transport/engine/slot_table.h"
#include "transport/engine/verifier.h"
#include "transport/tcp/tcp_transport.h"

namespace mc::transfer {
namespace {

struct Entry {
  std::uint64_t id = 0;
};

TEST(SlotTable, ANumberIsNeverUsedAgain) {
  SlotTable<Entry> table(2);
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 100; ++i) {
    Entry* const entry = table.add(std::make_unique<Entry>());
    ASSERT_NE(entry, nullptr);
    const std::uint64_t id = entry->id;
    EXPECT_TRUE(numbers.insert(id).second);
    EXPECT_EQ(table.find(id), entry);
    table.remove(*entry);
    EXPECT_EQ(table.find(id), nullptr);
  }
}

TEST(SlotTable, AFullTableTakesNoEntryUntilOneIsRemoved) {
  SlotTable<Entry> table(2);
  Entry* const first = table.add(std::make_unique<Entry>());
  ASSERT_NE(table.add(std::make_unique<Entry>()), nullptr);
  EXPECT_TRUE(table.full());
  EXPECT_EQ(table.add(std::make_unique<Entry>()), nullptr);
  table.remove(*first);
  EXPECT_NE(table.add(std::make_unique<Entry>()), nullptr);
}

TEST(SlotTable, UnknownNumbersFindNoEntry) {
  SlotTable<Entry> table(2);
  ASSERT_NE(table.add(std::make_unique<Entry>()), nullptr);
  for (const std::uint64_t id : {0ull, 1ull, 2ull, ~0ull}) EXPECT_EQ(table.find(id), nullptr);
}

// Names in a map that the test owns.
class MapNames final : public NameStore {
 public:
  explicit MapNames(std::map<std::string, Address>& names) : names_(names) {}
  ~MapNames() override { names_.erase(published_); }
  Status publish(const std::string& name, const Address& address, std::uint64_t) override {
    published_ = name;
    names_[name] = address;
    return {};
  }
  Result<Address> find(const std::string& name, std::uint64_t) override {
    const auto at = names_.find(name);
    if (at == names_.end()) return fail(MC_NOT_FOUND, "no such name");
    return at->second;
  }

 private:
  std::map<std::string, Address>& names_;
  std::string published_;
};

TEST(EngineNames, AreThoseOfTheInjectedStore) {
  std::map<std::string, Address> names;
  EngineOptions options;
  options.name = "one";
  auto one = Engine::open(options, std::make_unique<MapNames>(names));
  options.name = "two";
  auto two = Engine::open(options, std::make_unique<MapNames>(names));
  ASSERT_TRUE(one && two);
  EXPECT_TRUE((*two)->open_segment("one", MC_DEFAULT_TIMEOUT_NS));
  EXPECT_EQ((*two)->open_segment("three", MC_DEFAULT_TIMEOUT_NS).error().code(), MC_NOT_FOUND);
  one->reset();
  EXPECT_EQ((*two)->open_segment("one", MC_DEFAULT_TIMEOUT_NS).error().code(), MC_NOT_FOUND);
}

class VerifierTest : public ::testing::Test, private transport::Dialer {
 protected:
  void SetUp() override {
    transport::tcp::TcpOptions options;
    options.node = options.incarnation = 1;
    transport_ = transport::tcp::TcpTransport::create(options, *this).value();
    EngineDescriptor own = blank_engine_descriptor();
    ASSERT_TRUE(registry_.start(*transport_, &own).ok());
    ASSERT_TRUE(verifier_.start(*transport_, &own).ok());
    EXPECT_NE(own.checks, RegionText{});
    const mc_transfer_range ranges[] = {{memory_.data(), kBytes}, {secret_.data(), kBytes}};
    ASSERT_TRUE(registry_.add({ranges, 1}, MC_TRANSFER_WRITE, "").ok());
    ASSERT_TRUE(registry_.add({ranges + 1, 1}, MC_TRANSFER_READ, "").ok());
  }
  void dial(const transport::DialRequest&) override {}
  // As the transport asks: the question lies in a place of the region.
  transport::Outcome ask(const CheckQuestion& question) {
    std::uint64_t ticket = 0;
    const transport::Access access{
        .offset_bytes = 2 * kCheckQuestionBytes, .size_bytes = kCheckQuestionBytes, .write = true};
    const transport::Outcome pinned = verifier_.pin(access, &ticket);
    if (pinned != transport::Outcome::kDone) return pinned;
    std::memcpy(verifier_.place(ticket), &question, sizeof question);
    const transport::Outcome outcome = verifier_.settle(ticket);
    verifier_.unpin(ticket);
    return outcome;
  }
  CheckQuestion question(std::vector<char>& of, std::uint64_t offset, std::uint64_t bytes) {
    return {reinterpret_cast<std::uint64_t>(of.data()) + offset, bytes,
            checksum(0, of.data() + offset, bytes)};
  }

  static constexpr std::uint64_t kBytes = 100'000;
  std::vector<char> memory_ = std::vector<char>(kBytes, 7);
  std::vector<char> secret_ = std::vector<char>(kBytes, 8);
  DeviceStaging devices_;
  std::unique_ptr<transport::tcp::TcpTransport> transport_;
  MemoryRegistry registry_{devices_};
  Verifier verifier_{registry_};
};

TEST_F(VerifierTest, TellsWhetherTheBytesHaveTheSum) {
  EXPECT_EQ(ask(question(memory_, 1, kBytes - 1)), transport::Outcome::kDone);
  const CheckQuestion before = question(memory_, 10, 10);
  memory_[15] = 9;
  EXPECT_EQ(ask(before), transport::Outcome::kCorrupt);
}

TEST_F(VerifierTest, TellsNothingOfMemoryThatPeersMayNotWrite) {
  EXPECT_EQ(ask(question(secret_, 0, 10)), transport::Outcome::kRefused);
  EXPECT_EQ(ask({0x1000, 10, 0}), transport::Outcome::kStale);
  CheckQuestion beyond = question(memory_, 0, 10);
  beyond.size_bytes = kBytes + 1;
  EXPECT_EQ(ask(beyond), transport::Outcome::kStale);
  for (const std::uint64_t bytes : {std::uint64_t{0}, kMaxCheckBytes + 1, ~std::uint64_t{0}}) {
    CheckQuestion odd = question(memory_, 0, 10);
    odd.size_bytes = bytes;
    EXPECT_EQ(ask(odd), transport::Outcome::kInvalid);
  }
}

TEST_F(VerifierTest, ReadsNoMemoryThatThisProcessCannotRead) {
  void* const none =
      ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(none, MAP_FAILED);
  const mc_transfer_range range{none, kBytes};
  ASSERT_TRUE(registry_.add({&range, 1}, MC_TRANSFER_WRITE, "").ok());
  EXPECT_EQ(ask({reinterpret_cast<std::uint64_t>(none), 10, 0}), transport::Outcome::kInvalid);
  EXPECT_EQ(::munmap(none, kBytes), 0);
}

TEST_F(VerifierTest, APlaceHasOneQuestionAtATime) {
  std::uint64_t first = 0, second = 0;
  transport::Access access{.size_bytes = kCheckQuestionBytes, .write = true};
  ASSERT_EQ(verifier_.pin(access, &first), transport::Outcome::kDone);
  EXPECT_EQ(verifier_.pin(access, &second), transport::Outcome::kBusy);
  access.offset_bytes = kCheckQuestionBytes;
  EXPECT_EQ(verifier_.pin(access, &second), transport::Outcome::kDone);
  verifier_.unpin(first);
  access.offset_bytes = 0;
  EXPECT_EQ(verifier_.pin(access, &first), transport::Outcome::kDone);
  access.offset_bytes = 1;
  EXPECT_EQ(verifier_.pin(access, &first), transport::Outcome::kInvalid);
  access = {.size_bytes = kCheckQuestionBytes + 1, .write = true};
  EXPECT_EQ(verifier_.pin(access, &first), transport::Outcome::kInvalid);
}

}  // namespace
}  // namespace mc::transfer
