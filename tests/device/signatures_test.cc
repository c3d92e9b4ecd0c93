// SPDX-License-Identifier: Apache-2.0
#include "device/signatures.h"

#include <gtest/gtest.h>

#include "device/fake/abi.h"
#include "libmc/device/driver.h"

namespace mc::device::testing {

Signatures fake_signatures() {
  return {
#include "device/driver_functions.inc"
  };
}

namespace {

TEST(FakeDriverSignatures, AreThoseOfCudasHeader) {
  const Signatures wanted = cuda_signatures();
  if (wanted.empty()) GTEST_SKIP() << "this machine has no cuda.h";
  for (const auto& [name, signature] : fake_signatures()) {
    EXPECT_EQ(signature, wanted.at(name)) << name;
  }
}

template <typename Member>
std::string text_of(Member Calls::*) {
  return Signature<Member>::text();
}

TEST(Driver, TheTableHasTheSignaturesOfTheFunctions) {
  const Signatures of = fake_signatures();
  EXPECT_EQ(text_of(&Calls::init), of.at("cuInit"));
  EXPECT_EQ(text_of(&Calls::get_device_count), of.at("cuDeviceGetCount"));
  EXPECT_EQ(text_of(&Calls::get_device_uuid), of.at("cuDeviceGetUuid_v2"));
  EXPECT_EQ(text_of(&Calls::get_error_name), of.at("cuGetErrorName"));
  EXPECT_EQ(text_of(&Calls::pointer_get_attribute), of.at("cuPointerGetAttribute"));
  EXPECT_EQ(text_of(&Calls::get_address_range), of.at("cuMemGetAddressRange_v2"));
  EXPECT_EQ(text_of(&Calls::primary_context_retain), of.at("cuDevicePrimaryCtxRetain"));
  EXPECT_EQ(text_of(&Calls::context_push), of.at("cuCtxPushCurrent_v2"));
  EXPECT_EQ(text_of(&Calls::context_pop), of.at("cuCtxPopCurrent_v2"));
  EXPECT_EQ(text_of(&Calls::copy_to_host), of.at("cuMemcpyDtoH_v2"));
  EXPECT_EQ(text_of(&Calls::copy_to_device), of.at("cuMemcpyHtoD_v2"));
  EXPECT_EQ(text_of(&Calls::copy_to_host_async), of.at("cuMemcpyDtoHAsync_v2"));
  EXPECT_EQ(text_of(&Calls::copy_to_device_async), of.at("cuMemcpyHtoDAsync_v2"));
  EXPECT_EQ(text_of(&Calls::copy_2d_async), of.at("cuMemcpy2DAsync_v2"));
  EXPECT_EQ(text_of(&Calls::host_register), of.at("cuMemHostRegister_v2"));
  EXPECT_EQ(text_of(&Calls::host_unregister), of.at("cuMemHostUnregister"));
  EXPECT_EQ(text_of(&Calls::get_device_pointer), of.at("cuMemHostGetDevicePointer_v2"));
  EXPECT_EQ(text_of(&Calls::get_memory_handle), of.at("cuIpcGetMemHandle"));
  EXPECT_EQ(text_of(&Calls::open_memory), of.at("cuIpcOpenMemHandle_v2"));
  EXPECT_EQ(text_of(&Calls::close_memory), of.at("cuIpcCloseMemHandle"));
  EXPECT_EQ(text_of(&Calls::reserve_addresses), of.at("cuMemAddressReserve"));
  EXPECT_EQ(text_of(&Calls::free_addresses), of.at("cuMemAddressFree"));
  EXPECT_EQ(text_of(&Calls::retain_chunk), of.at("cuMemRetainAllocationHandle"));
  EXPECT_EQ(text_of(&Calls::export_chunk), of.at("cuMemExportToShareableHandle"));
  EXPECT_EQ(text_of(&Calls::import_chunk), of.at("cuMemImportFromShareableHandle"));
  EXPECT_EQ(text_of(&Calls::map_chunk), of.at("cuMemMap"));
  EXPECT_EQ(text_of(&Calls::unmap_chunk), of.at("cuMemUnmap"));
  EXPECT_EQ(text_of(&Calls::set_access), of.at("cuMemSetAccess"));
  EXPECT_EQ(text_of(&Calls::release_chunk), of.at("cuMemRelease"));
  EXPECT_EQ(text_of(&Calls::stream_create), of.at("cuStreamCreate"));
  EXPECT_EQ(text_of(&Calls::stream_destroy), of.at("cuStreamDestroy_v2"));
  EXPECT_EQ(text_of(&Calls::stream_synchronize), of.at("cuStreamSynchronize"));
  EXPECT_EQ(text_of(&Calls::stream_is_capturing), of.at("cuStreamIsCapturing"));
  EXPECT_EQ(text_of(&Calls::stream_write_value), of.at("cuStreamWriteValue32_v2"));
  EXPECT_EQ(text_of(&Calls::stream_wait_value), of.at("cuStreamWaitValue32_v2"));
  EXPECT_EQ(text_of(&Calls::event_create), of.at("cuEventCreate"));
  EXPECT_EQ(text_of(&Calls::event_destroy), of.at("cuEventDestroy_v2"));
  EXPECT_EQ(text_of(&Calls::event_record), of.at("cuEventRecord"));
  EXPECT_EQ(text_of(&Calls::event_query), of.at("cuEventQuery"));
  EXPECT_EQ(text_of(&Calls::event_synchronize), of.at("cuEventSynchronize"));
  EXPECT_EQ(text_of(&Calls::module_load_data), of.at("cuModuleLoadData"));
  EXPECT_EQ(text_of(&Calls::module_unload), of.at("cuModuleUnload"));
  EXPECT_EQ(text_of(&Calls::module_get_function), of.at("cuModuleGetFunction"));
  EXPECT_EQ(text_of(&Calls::launch_kernel), of.at("cuLaunchKernel"));
}

}  // namespace
}  // namespace mc::device::testing
