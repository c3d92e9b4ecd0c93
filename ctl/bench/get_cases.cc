// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "ctl/bench/cases.h"

namespace mc::ctl {
namespace {

constexpr double kViewTargetNs = 100;
constexpr std::uint64_t kPingTimeoutNs = 1'000'000'000;

CaseResult about(const char* name, const Dataset& objects) {
  CaseResult result = case_named(name, objects.object_bytes());
  result.keys = objects.key_count();
  result.measured_keys = objects.measured_keys();
  return result;
}

CaseResult without_objects(const char* name, std::size_t size, const std::string& error) {
  CaseResult result = case_named(name, size);
  result.error = error;
  return result;
}

SamplePlan grouped(const BenchRig& rig, std::size_t bytes) {
  SamplePlan plan = rig.plan.sample;
  plan.group = std::clamp<std::uint64_t>(kGroupBytes / std::max<std::size_t>(bytes, 1), 1, kGroup);
  return plan;
}

CaseResult get_copy(BenchRig& rig, std::size_t size) {
  std::string error;
  const Dataset* objects = rig.objects(size, &error);
  if (objects == nullptr) return without_objects("get_copy", size, error);
  std::vector<unsigned char> buffer(size, 1);
  const Subject ours{{}, [&](std::uint64_t first, std::uint64_t count) {
                       for (std::uint64_t i = 0; i < count; ++i) {
                         std::size_t length = 0;
                         const mc_status status =
                             mc_get(rig.client, objects->pick(first + i).key.slice(), buffer.data(),
                                    buffer.size(), &length);
                         if (status != MC_OK) return status;
                       }
                       return MC_OK;
                     }};
  const Subject limit{{}, [&](std::uint64_t first, std::uint64_t count) {
                        for (std::uint64_t i = 0; i < count; ++i) {
                          std::memcpy(buffer.data(), objects->pick(first + i).data, size);
                          asm volatile("" : : "r"(buffer.data()) : "memory");
                        }
                        return MC_OK;
                      }};
  CaseResult result = about("get_copy", *objects);
  result.limit = "memcpy";
  set_samples(result, measure({ours, limit}, grouped(rig, size)), static_cast<double>(size));
  return result;
}

CaseResult get_view(BenchRig& rig, std::size_t size) {
  std::string error;
  const Dataset* objects = rig.objects(size, &error);
  if (objects == nullptr) return without_objects("get_view", size, error);
  const Subject ours{{}, [&](std::uint64_t first, std::uint64_t count) {
                       for (std::uint64_t i = 0; i < count; ++i) {
                         mc_view view;
                         const mc_status status =
                             mc_get_view(rig.client, objects->pick(first + i).key.slice(), &view);
                         if (status != MC_OK) return status;
                         mc_view_release(&view);
                       }
                       return MC_OK;
                     }};
  CaseResult result = about("get_view", *objects);
  result.target_ns = kViewTargetNs;
  set_samples(result, measure({ours}, grouped(rig, 1)), 0);
  return result;
}

CaseResult get_miss(BenchRig& rig, std::size_t size) {
  std::string error;
  const Dataset* objects = rig.objects(size, &error);
  if (objects == nullptr) return without_objects("get_miss", size, error);
  const Subject ours{{}, [&](std::uint64_t first, std::uint64_t count) {
                       for (std::uint64_t i = 0; i < count; ++i) {
                         mc_view view;
                         const mc_status status =
                             mc_get_view(rig.client, objects->absent(first + i).slice(), &view);
                         if (status == MC_OK) mc_view_release(&view);
                         if (status != MC_NOT_FOUND) return status == MC_OK ? MC_INTERNAL : status;
                       }
                       return MC_OK;
                     }};
  CaseResult result = about("get_miss", *objects);
  result.target_ns = kViewTargetNs;
  set_samples(result, measure({ours}, grouped(rig, 1)), 0);
  return result;
}

CaseResult get_batch(BenchRig& rig, std::size_t size) {
  std::string error;
  const Dataset* objects = rig.objects(size, &error);
  if (objects == nullptr) return without_objects("get_batch", size, error);
  std::vector<unsigned char> buffer(kBatch * size, 1);
  std::vector<mc_span> pieces;
  for (std::uint64_t i = 0; i < kBatch; ++i) pieces.push_back({buffer.data() + i * size, size});
  std::vector<mc_get_item> items(kBatch);
  const auto prepare = [&](std::uint64_t first, std::uint64_t) {
    for (std::uint64_t i = 0; i < kBatch; ++i) {
      items[i] = mc_get_item{};
      items[i].key = objects->pick(first * kBatch + i).key.slice();
      items[i].pieces = &pieces[i];
      items[i].piece_count = 1;
    }
  };
  const Subject ours{prepare, [&](std::uint64_t, std::uint64_t) {
                       return mc_get_batch(rig.client, items.data(), items.size());
                     }};
  const Subject limit{{}, [&](std::uint64_t first, std::uint64_t) {
                        for (std::uint64_t i = 0; i < kBatch; ++i) {
                          std::memcpy(pieces[i].data, objects->pick(first * kBatch + i).data, size);
                        }
                        asm volatile("" : : "r"(buffer.data()) : "memory");
                        return MC_OK;
                      }};
  CaseResult result = about("get_batch", *objects);
  result.batch = kBatch;
  result.limit = "memcpy";
  SamplePlan plan = rig.plan.sample;
  plan.group = 1;
  set_samples(result, measure({ours, limit}, plan), static_cast<double>(kBatch * size));
  return result;
}

CaseResult ring_noop(BenchRig& rig, std::size_t) {
  const Subject ours{{}, [&](std::uint64_t, std::uint64_t count) {
                       mc_status status = MC_OK;
                       for (std::uint64_t i = 0; i < count && status == MC_OK; ++i) {
                         status = mc_ping(rig.client, kPingTimeoutNs);
                       }
                       return status;
                     }};
  // The peer spins only during rounds of the limit; otherwise the peer would take a processor from
  // the agent.
  const Subject limit{{},
                      [&](std::uint64_t, std::uint64_t count) {
                        for (std::uint64_t i = 0; i < count; ++i) rig.ping->spin_ping();
                        return MC_OK;
                      },
                      [&] { rig.ping->begin_spin(); },
                      [&] { rig.ping->end_spin(); }};
  CaseResult result = case_named("ring_noop", 0);
  result.limit = "pingpong";
  set_samples(result, measure({ours, limit}, grouped(rig, 1)), 0);
  return result;
}

}  // namespace

const Dataset* BenchRig::objects(std::size_t object_bytes, std::string* error) {
  if (dataset && dataset->object_bytes() == object_bytes) return &*dataset;
  dataset.reset();
  Result<Dataset> stored = Dataset::store(client, object_bytes, plan.keys, pool_bytes);
  if (!stored) {
    *error = stored.error().to_string();
    return nullptr;
  }
  dataset.emplace(std::move(*stored));
  return &*dataset;
}

void set_samples(CaseResult& result, const SampleRun& run, double bytes) {
  if (run.status != MC_OK) {
    result.error = std::string(mc_status_name(run.status)) + ": " + mc_last_error();
    return;
  }
  result.ours = run.samples[0];
  if (result.ours.p50_ns > 0) result.bytes_per_s = bytes / result.ours.p50_ns * 1e9;
  if (run.samples.size() < 2) return;
  result.of_limit = run.samples[1];
  if (result.of_limit.p50_ns > 0) result.limit_bytes_per_s = bytes / result.of_limit.p50_ns * 1e9;
}

std::vector<BenchCase> get_cases() {
  return {{"ring_noop", "a round trip through the ring that does nothing", {0}, ring_noop},
          {"get_miss", "a view of a key that is not there", {4 * kKiB}, get_miss},
          {"get_copy", "an object into a buffer", {4 * kKiB, kMiB}, get_copy},
          {"get_view", "an object read in place", {4 * kKiB, 4 * kMiB}, get_view},
          {"get_batch", "32 objects into a buffer", {kMiB}, get_batch}};
}

}  // namespace mc::ctl
