// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/jobs/disk_worker.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "agent/tier/jobs/disk_thread.h"
#include "tier/model_disk.h"

namespace mc::tier::testing {
namespace {

class WorkerRig {
 public:
  WorkerRig() {
    auto disk = std::make_unique<ModelDisk>(16 << 20, 1);
    model = disk.get();
    model->set_speed({.read_ns = 50'000, .write_ns = 50'000, .flush_ns = 500'000});
    worker = std::make_unique<DiskWorker>(std::move(disk));
  }
  void write(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes, bool durable,
             std::byte with = std::byte{7}, bool soon = false) {
    Job job{.kind = Job::Kind::kWrite, .id = id, .offset = offset, .bytes = bytes};
    job.own.assign(bytes, with);
    job.pieces.push_back({job.own.data(), bytes});
    job.durable = durable;
    job.soon = soon;
    worker->submit(std::move(job));
  }
  void read(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes) {
    worker->submit({.kind = Job::Kind::kRead, .id = id, .offset = offset, .bytes = bytes});
  }
  // The ids of jobs that ended, in that order.
  std::vector<std::uint64_t> run() {
    for (int i = 0; i < 10'000 && !worker->idle(); ++i) step();
    worker->take_ended(ends);
    std::vector<std::uint64_t> ids;
    for (const JobEnd& end : ends) ids.push_back(end.id);
    return ids;
  }
  void step() {
    now += 10'000;
    model->set_now(now);
    worker->do_work(now);
  }

  ModelDisk* model;
  std::unique_ptr<DiskWorker> worker;
  std::vector<JobEnd> ends;
  std::uint64_t now = 0;
};

TEST(DiskWorker, LargeWritesAndReadsGoInPartsAndComeBackWhole) {
  WorkerRig rig;
  rig.write(1, 8192, (3 << 20) + 4096, false, std::byte{9});
  EXPECT_EQ(rig.run(), (std::vector<std::uint64_t>{1}));
  rig.ends.clear();
  rig.read(2, 8192, (3 << 20) + 4096);
  rig.run();
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_EQ(rig.ends[0].bytes, std::vector<std::byte>((3 << 20) + 4096, std::byte{9}));
}

TEST(DiskWorker, ADurableWriteSurvivesAPowerCut) {
  WorkerRig rig;
  rig.write(1, 0, 65536, true);
  rig.run();
  const SparseBytes image = rig.model->power_cut();
  std::vector<std::byte> bytes(65536);
  image.read(0, bytes);
  EXPECT_EQ(bytes, std::vector<std::byte>(65536, std::byte{7}));
}

TEST(DiskWorker, OneFlushServesManyWrites) {
  WorkerRig rig;
  for (std::uint64_t id = 1; id <= 32; ++id) rig.write(id, id * 65536, 65536, true);
  EXPECT_EQ(rig.run().size(), 32u);
  EXPECT_LE(rig.model->counts().flushes, 4u);
}

TEST(DiskWorker, WritesThatEndTogetherShareAFlushAlsoIfAClientWaits) {
  WorkerRig rig;
  for (std::uint64_t id = 1; id <= 12; ++id)
    rig.write(id, id * 4096, 4096, true, std::byte{7}, true);
  EXPECT_EQ(rig.run().size(), 12u);
  EXPECT_EQ(rig.model->counts().flushes, 1u);
}

TEST(DiskWorker, WritesGoOnDuringAFlush) {
  WorkerRig rig;
  rig.model->set_speed({.write_ns = 50'000, .flush_ns = 50'000'000});
  for (std::uint64_t id = 1; id <= 40; ++id) rig.write(id, 0, 1 << 20, true);
  for (int i = 0; i < 1'000 && rig.model->counts().flushes == 0; ++i) rig.step();
  EXPECT_GE(rig.model->counts().writes, 32u);
  EXPECT_EQ(rig.run().size(), 40u);
}

TEST(DiskWorker, TheCallerHearsOfAReadBeforeAllAreProcessed) {
  WorkerRig rig;
  for (std::uint64_t id = 1; id <= 8; ++id) rig.read(id, id * 65536, 40'960);
  for (int i = 0; i < 100 && rig.ends.empty(); ++i) {
    rig.step();
    rig.worker->take_ended(rig.ends);
  }
  EXPECT_EQ(rig.ends.size(), 2u);
  EXPECT_EQ(rig.worker->next_work_ns(), 0u);
  EXPECT_EQ(rig.run().size(), 8u);
}

TEST(DiskWorker, ADiskThatEndsManyReadsAtOnceGetsOthersBeforeTheCallerAnswers) {
  WorkerRig rig;
  const auto read_32 = [&rig] {
    for (std::uint64_t id = 1; id <= 32; ++id) rig.read(id, id * 65536, 16'384);
  };
  for (int round = 0; round < 32; ++round) {
    read_32();
    rig.run();
  }
  const std::uint64_t before = rig.model->counts().reads;
  const auto reads = [&] { return rig.model->counts().reads - before; };
  read_32();
  while (reads() == 0) rig.step();
  EXPECT_GE(reads(), 24u);
  EXPECT_LT(reads(), 32u);
  for (int i = 0; i < 5; ++i) rig.step();  // the time of a read
  EXPECT_EQ(reads(), 32u);
}

TEST(DiskWorker, FewReadsBeginAtOnceAlsoAfterManyThatEndedTogether) {
  WorkerRig rig;
  for (std::uint64_t id = 1; id <= 32; ++id) rig.read(id, id * 65536, 16'384);
  rig.run();
  const std::uint64_t before = rig.model->counts().reads;
  for (std::uint64_t id = 1; id <= 3; ++id) rig.read(id, id * 65536, 16'384);
  while (rig.model->counts().reads == before) rig.step();
  EXPECT_EQ(rig.model->counts().reads - before, 3u);
}

TEST(DiskWorker, EndsWithReadsThatAreNotProcessed) {
  WorkerRig rig;
  for (std::uint64_t id = 1; id <= 8; ++id) rig.read(id, id * 65536, 40'960);
  while (rig.worker->next_work_ns() != 0) rig.step();
  rig.worker->give_up();
  rig.worker->close();
}

TEST(DiskWorker, AWriteIsDurableOnlyWithAllWritesThatBeganBefore) {
  WorkerRig rig;
  rig.model->set_slowness(1'000);
  rig.write(1, 0, 4096, true);
  rig.step();
  rig.model->set_slowness(1);
  rig.write(2, 4096, 4096, true);
  EXPECT_EQ(rig.run(), (std::vector<std::uint64_t>{1, 2}));
}

TEST(DiskWorker, ReadsOvertakeWritesThatWait) {
  WorkerRig rig;
  for (std::uint64_t id = 1; id <= 10; ++id) rig.write(id, id << 20, 1 << 20, false);
  rig.read(11, 0, 4096);
  const auto ids = rig.run();
  const auto at = std::find(ids.begin(), ids.end(), 11) - ids.begin();
  EXPECT_LT(at, 9);
}

TEST(DiskWorker, AFailedFlushFailsEachWriteThatWaited) {
  WorkerRig rig;
  rig.model->fail_next(ModelDisk::Kind::kFlush, 1, EIO);
  for (std::uint64_t id = 1; id <= 3; ++id) rig.write(id, id * 65536, 65536, true);
  rig.run();
  ASSERT_EQ(rig.ends.size(), 3u);
  for (const JobEnd& end : rig.ends) {
    EXPECT_EQ(end.outcome, JobEnd::Outcome::kFailed);
    EXPECT_EQ(end.error, EIO);
  }
}

TEST(DiskWorker, AnErrorInTheMiddleOfALongReadEndsTheReadOnce) {
  WorkerRig rig;
  rig.model->fail_range(ModelDisk::Kind::kRead, 2 << 20, 4096, EIO);
  rig.read(1, 0, 8 << 20);
  rig.read(2, 12 << 20, 4096);
  EXPECT_EQ(rig.run().size(), 2u);
  for (const JobEnd& end : rig.ends) {
    EXPECT_EQ(end.outcome, end.id == 1 ? JobEnd::Outcome::kFailed : JobEnd::Outcome::kDone);
  }
}

TEST(DiskThread, DoesJobsAndSignalsTheirEnds) {
  auto thread = DiskThread::start(std::make_unique<ModelDisk>(16 << 20, 1));
  ASSERT_TRUE(thread);
  for (std::uint64_t id = 1; id <= 100; ++id) {
    Job job{.kind = Job::Kind::kWrite, .id = id, .offset = id * 4096, .bytes = 4096};
    job.pieces.push_back({nullptr, 4096});
    job.durable = true;
    (*thread)->submit(std::move(job));
  }
  std::vector<JobEnd> ended;
  while (ended.size() < 100 && wait_readable((*thread)->wait_fd(), 60'000'000'000)) {
    (*thread)->take_ended(ended);
  }
  EXPECT_EQ(ended.size(), 100u);
}

TEST(DiskThread, EndsWithJobsUnderWay) {
  auto thread = DiskThread::start(std::make_unique<ModelDisk>(16 << 20, 1));
  ASSERT_TRUE(thread);
  for (std::uint64_t id = 1; id <= 100; ++id) {
    (*thread)->submit({.kind = Job::Kind::kRead, .id = id, .offset = 0, .bytes = 8 << 20});
  }
  thread->reset();
}

}  // namespace
}  // namespace mc::tier::testing
