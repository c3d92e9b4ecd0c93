// SPDX-License-Identifier: Apache-2.0
#include "shm/ring.h"
#include "tests/model/scenario.h"

namespace mc::model {
namespace {

constexpr std::uint32_t kEpoch = 7;

shm::RecordWords record(std::uint64_t number) {
  shm::RecordWords words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = number * 16 + i + 1;
  return words;
}

struct RingWorld {
  // Starts after earlier records, so that positions wrap during a run.
  RingWorld(Machine& machine, std::uint64_t position, std::uint32_t old_epoch = 0) {
    slots = shared<shm::RingSlot>(shm::kRingSlots);
    machine.name(slots, sizeof(shm::RingSlot) * shm::kRingSlots, "slot");
    if (old_epoch != 0) {
      shm::RingProducer before(slots, old_epoch);
      for (std::uint64_t i = 0; i < 3; ++i) before.publish(record(100 + i));
    }
    producer = shm::RingProducer(slots, kEpoch);
    consumer = shm::RingConsumer(slots, kEpoch);
    shm::RecordWords words;
    for (std::uint64_t i = 0; i < position; ++i) {
      producer.publish(record(200 + i));
      consumer.poll(words);
    }
  }

  void produce(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) producer.publish(record(i));
  }
  void consume(std::uint64_t count) {
    shm::RecordWords words;
    for (std::uint64_t i = 0; i < count; ++i) {
      forget_reads();
      while (!consumer.poll(words)) retry();
      expect(words == record(i), "records arrive whole, once and in order");
    }
    expect(!consumer.poll(words), "nothing arrives that was not sent");
  }

  shm::RingSlot* slots;
  shm::RingProducer producer;
  shm::RingConsumer consumer;
};

Build ring(std::uint64_t count, std::uint64_t position, bool dies = false,
           std::uint32_t old_epoch = 0) {
  return [=](Machine& machine) {
    auto world = std::make_shared<RingWorld>(machine, position, old_epoch);
    machine.thread("producer", [world, count] { world->produce(count); });
    machine.thread("consumer", [world, count] { world->consume(count); });
    if (dies) machine.may_die(0);
  };
}

TEST(RingModel, RecordsArriveOnceInOrderAndUntorn) { expect_holds(ring(3, 0)); }

TEST(RingModel, RecordsArriveAcrossTheWrap) { expect_holds(ring(2, shm::kRingSlots - 1)); }

TEST(RingModel, AProducerThatDiesAtAnyStepLeavesNoHalfRecord) { expect_holds(ring(2, 0, true)); }

TEST(RingModel, RecordsOfAnEarlierEpochAreNotTaken) {
  expect_holds(ring(2, 0, false, kEpoch - 1));
  expect_holds(ring(1, 0, true, kEpoch - 1));
}

TEST(RingMutant, AStampBeforeItsRecordIsFound) {
  expect_found(Memory::kTotalStoreOrder, ring(1, 0),
               {{"publish", Kind::kStore, Action::kLate, Mutation::Of::kRelaxed}});
}

TEST(RingMutant, AStampWithoutReleaseIsFound) {
  expect_found(Memory::kPartialStoreOrder, ring(1, 0), {{"publish", Kind::kStore, Action::kRelax}});
}

TEST(RingMutant, ARestartWithTheSameEpochIsFound) {
  expect_found(Memory::kTotalStoreOrder, ring(2, 0, false, kEpoch));
}

}  // namespace
}  // namespace mc::model
