// SPDX-License-Identifier: Apache-2.0
//
// Memory of a sparse region with devices that come later. A thread beside the loop registers only
// the memory that the device lacks.
#include "transport/one_sided/local_regions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>

namespace mc::transport {
namespace {

constexpr DescriptorFormat kFormat{"test", 0x54534554, sizeof(std::uint64_t), 4};
constexpr std::uint64_t kBytes = 1u << 20;

// Devices that count registrations.
class CountingRegistrar : public Registrar {
 public:
  const DescriptorFormat& format() const override { return kFormat; }
  std::size_t slot_count() const override { return 4; }
  const void* device(std::size_t slot) const override {
    const auto at = open_.find(slot);
    return at == open_.end() ? nullptr : &at->second;
  }
  std::uint64_t epoch(std::size_t slot) const override { return open_.at(slot); }
  std::uint64_t base_of(const std::byte*) const override { return 0; }
  Status admit(const RegionSpec&) const override { return {}; }
  Result<std::unique_ptr<Registration>> register_memory(std::size_t slot, const RegionSpec&,
                                                        const MemoryRange&) const override {
    if (refusing_ == slot) return fail(MC_NO_MEMORY, "no more memory for device");
    auto made = std::make_unique<Counted>(alive_);
    made->remote_key = 100 * (slot + 1) + ++count_;
    return made;
  }

  void open(std::size_t slot) { open_[slot] = 7 + slot; }
  void close(std::size_t slot) { open_.erase(slot); }
  void refuse(std::size_t slot) { refusing_ = slot; }
  std::uint64_t count() const { return count_; }
  int alive() const { return alive_; }

 private:
  struct Counted : Registration {
    explicit Counted(std::atomic<int>& all) : alive(all) { ++alive; }
    ~Counted() override { --alive; }
    std::atomic<int>& alive;
  };

  std::map<std::size_t, std::uint64_t> open_;
  std::size_t refusing_ = ~std::size_t{0};
  mutable std::uint64_t count_ = 0;
  mutable std::atomic<int> alive_{0};
};

class LocalRegionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registrar_.open(0);
    RegionSpec spec;
    spec.data = memory_.data();
    spec.size_bytes = memory_.size();
    spec.rights = kRemoteRead;
    spec.sparse = true;
    region_ = regions_.add(spec).value();
    regions_.back(region_, kAll);
  }
  // Keys of the first chunk by slot; 0: none.
  std::map<std::size_t, std::uint64_t> keys() const {
    const auto described =
        RegionDescriptor::decode(kFormat, regions_.describe(region_).value()).value();
    std::map<std::size_t, std::uint64_t> keys;
    for (const RegionKeys& device : described.devices) keys[device.slot] = device.keys.front();
    return keys;
  }
  // The loop's reaction when a thread has registered memory.
  void finish(std::size_t slot) { workers_.finish(registrar_.device(slot)); }

  static constexpr MemoryRange kAll[] = {{0, kBytes}};
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  CountingRegistrar registrar_;
  Workers workers_{1, make_eventfd().value()};
  LocalRegions regions_{1, 1, 1, registrar_, workers_};
  RegionId region_ = kNoRegion;
};

TEST_F(LocalRegionsTest, ADeviceThatComesLaterRegistersBesideTheLoopAndAlone) {
  finish(0);
  const std::uint64_t first = keys().at(0);
  EXPECT_NE(first, 0u);
  registrar_.open(1);
  EXPECT_TRUE(regions_.on_opened(1).ok());
  EXPECT_EQ(keys().at(0), first);
  EXPECT_EQ(keys().at(1), 0u) << "the loop has not waited for it";
  finish(1);
  EXPECT_EQ(keys().at(0), first) << "the other device has it already";
  EXPECT_NE(keys().at(1), 0u);
  EXPECT_EQ(registrar_.count(), 2u);
}

TEST_F(LocalRegionsTest, ADeviceThatComesBackGetsAnotherKey) {
  finish(0);
  const std::uint64_t first = keys().at(0);
  regions_.on_closing(0);
  registrar_.close(0);
  EXPECT_TRUE(keys().empty());
  registrar_.open(0);
  EXPECT_TRUE(regions_.on_opened(0).ok());
  finish(0);
  EXPECT_NE(keys().at(0), 0u);
  EXPECT_NE(keys().at(0), first);
}

TEST_F(LocalRegionsTest, ADeviceThatComesWhileAnotherRegistersGetsAllTheSame) {
  registrar_.open(1);
  EXPECT_TRUE(regions_.on_opened(1).ok());
  finish(0);
  finish(1);
  EXPECT_NE(keys().at(0), 0u);
  EXPECT_NE(keys().at(1), 0u);
}

TEST_F(LocalRegionsTest, ADeviceThatComesLaterAndCannotRegisterIsSaidAndTheOtherGoesOn) {
  finish(0);
  const std::uint64_t first = keys().at(0);
  registrar_.open(1);
  registrar_.refuse(1);
  EXPECT_TRUE(regions_.on_opened(1).ok());
  finish(1);
  EXPECT_EQ(keys().at(0), first);
  EXPECT_EQ(keys().at(1), 0u);
  EXPECT_EQ(regions_.backing(region_).code(), MC_NO_MEMORY);
}

TEST_F(LocalRegionsTest, AClosedRegionHoldsItsMemoryUntilEachRegistrationHasEnded) {
  registrar_.open(1);
  EXPECT_TRUE(regions_.on_opened(1).ok());
  finish(0);
  finish(1);
  EXPECT_EQ(registrar_.alive(), 2);
  EXPECT_FALSE(regions_.close(region_)) << "the loop does not wait for devices";
  EXPECT_FALSE(regions_.describe(region_));
  EXPECT_TRUE(regions_.knows(region_));
  finish(0);
  finish(1);
  EXPECT_EQ(registrar_.alive(), 0);
  EXPECT_TRUE(regions_.close(region_));
  EXPECT_FALSE(regions_.knows(region_));
  EXPECT_TRUE(regions_.close(region_));
}

TEST_F(LocalRegionsTest, ARegionThatIsClosedWhileADeviceRegistersItEndsToo) {
  EXPECT_EQ(regions_.backing(region_).code(), MC_BUSY);
  EXPECT_FALSE(regions_.close(region_));
  finish(0);
  EXPECT_EQ(registrar_.alive(), 0);
  EXPECT_TRUE(regions_.close(region_));
}

TEST_F(LocalRegionsTest, ARangeThatLosesItsMemoryWhileADeviceComesIsNotRegistered) {
  finish(0);
  registrar_.open(1);
  EXPECT_TRUE(regions_.on_opened(1).ok());
  EXPECT_TRUE(regions_.back(region_, {}));
  finish(0);
  finish(1);
  EXPECT_EQ(keys().at(0), 0u);
  EXPECT_EQ(keys().at(1), 0u);
}

}  // namespace
}  // namespace mc::transport
