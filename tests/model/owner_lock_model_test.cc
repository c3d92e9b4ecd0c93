// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/session/owner_lock.h"
#include "tests/model/scenario.h"

namespace mc::model {
namespace {

struct OwnerLockWorld {
  client::OwnerLock lock;
  shm::Word64 inside;   // number of threads inside
  shm::Word64 guarded;  // written by the thread inside
};

void use(OwnerLockWorld& world) {
  expect(world.inside.load_relaxed() == 0, "owner and visitor are never inside together");
  world.inside.store_relaxed(1);
  world.guarded.store_relaxed(world.guarded.load_relaxed() + 1);
  world.inside.store_relaxed(0);
}

// Mirrors Channel's ReservationCacheLock and ReservationCacheVisit.
Build owner_and_visitor(std::uint64_t uses, std::uint64_t visits) {
  return [=](Machine& machine) {
    auto* world = shared<OwnerLockWorld>();
    machine.thread("owner", [=] {
      for (std::uint64_t i = 0; i < uses; ++i) {
        forget_reads();
        while (!world->lock.try_lock()) retry();
        use(*world);
        world->lock.unlock();
      }
    });
    machine.thread("visitor", [=] {
      for (std::uint64_t i = 0; i < visits; ++i) {
        world->lock.want();
        forget_reads();
        while (!world->lock.owner_is_out()) retry();
        use(*world);
        world->lock.end_visit();
      }
    });
    machine.at_end([=] {
      expect(world->guarded.load_relaxed() == uses + visits, "no write of either is lost");
    });
  };
}

TEST(OwnerLockModel, OwnerAndVisitorAreNeverInsideTogether) {
  expect_holds(owner_and_visitor(2, 1));
  expect_holds(owner_and_visitor(1, 2));
}

TEST(OwnerLockModel, MutantsAreFound) {
  using enum Mutation::Of;
  for (const Memory memory : {Memory::kTotalStoreOrder, Memory::kPartialStoreOrder}) {
    expect_found(memory, owner_and_visitor(1, 1), {{"want", Kind::kFence, Action::kSkip}});
    expect_found(memory, owner_and_visitor(1, 1), {{"try_lock", Kind::kFence, Action::kSkip}});
    expect_found(memory, owner_and_visitor(1, 1), {{"try_lock", Kind::kStore, Action::kSkip}});
  }
  expect_found(Memory::kPartialStoreOrder, owner_and_visitor(1, 1),
               {{"unlock", Kind::kStore, Action::kRelax}});
}

}  // namespace
}  // namespace mc::model
