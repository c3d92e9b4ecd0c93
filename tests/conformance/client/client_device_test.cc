// SPDX-License-Identifier: Apache-2.0
//
// Puts from and gets into device memory. The driver is a fake; a direct access to its device memory
// ends the process. No GPU takes part.
#include <cstring>

#include "conformance/client/agent_fixture.h"
#include "device/driver_library.h"

namespace mc::conformance {
namespace {

class Device : public ClientTest {
 protected:
  ~Device() override { cuda_.fail(nullptr, 0, 0); }

  // Allocates device memory with the text.
  void* on_device(const std::string& text, int device = 1) {
    void* const address = cuda_.allocate(text.size(), device, false);
    std::memcpy(cuda_.behind(address), text.data(), text.size());
    return address;
  }
  std::string text_at(const void* address, std::size_t size) {
    return {reinterpret_cast<const char*>(cuda_.behind(address)), size};
  }
  mc_status put_from(mc_client* client, const std::string& key, const void* address,
                     std::size_t size) {
    return mc_put(client, slice(key), {address, size}, nullptr);
  }
  mc_status get_into(mc_client* client, const std::string& key, void* address, std::size_t size) {
    std::size_t length = 0;
    return mc_get(client, slice(key), address, size, &length);
  }

  const FakeDriver& cuda_ = mc::device::testing::fake();
};
MC_EVERYWHERE(Device);

TEST_P(Device, AStreamOrdersCopiesOfDeviceMemoryAlone) {
  serve({{"pool_bytes", "256MiB"}});
  mc_client* client = open();
  ASSERT_EQ(put(client, "old", "value"), MC_OK);
  std::string value = "value";
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  options.stream = MC_LEGACY_STREAM;
  EXPECT_EQ(mc_put(client, slice("new"), slice(value), &options), MC_INVALID_ARGUMENT);
  const mc_span into{value.data(), value.size()};
  mc_get_item item{slice("old"), &into, 1, 0, 0, MC_OK};
  EXPECT_EQ(mc_get_batch_on_stream(client, &item, 1, MC_LEGACY_STREAM), MC_INVALID_ARGUMENT);
  EXPECT_EQ(item.status, MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_get_batch_on_stream(client, &item, 1, nullptr), MC_OK);
  mc_reservation* reservation = nullptr;
  ASSERT_EQ(mc_reserve(client, value.size(), 0, &reservation), MC_OK);
  const mc_slice from = slice(value);
  const mc_write_item part{reservation, 0, &from, 1};
  EXPECT_EQ(mc_write_reservations(client, &part, 1, MC_LEGACY_STREAM), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_write_reservations(client, &part, 1, nullptr), MC_OK);
  EXPECT_EQ(mc_commit(reservation, slice("new"), value.size(), &options), MC_INVALID_ARGUMENT);
  mc_group* group = nullptr;
  ASSERT_EQ(mc_group_begin(client, &group), MC_OK);
  options.group = group;
  EXPECT_EQ(mc_put(client, slice("new"), slice(value), &options), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_group_commit(group, 0), MC_GROUP_ABORTED);
  EXPECT_EQ(mc_exists(client, slice("new")), MC_NOT_FOUND);
}

TEST_P(Device, ValuesComeFromDevicesAndGoThere) {
  serve({{"pool_bytes", "256MiB"}});
  mc_client* client = open();
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, 3 * kMiB + 5, 12 * kMiB}) {
    const std::string key = "size." + std::to_string(size);
    const std::string value = content(key, size);
    ASSERT_EQ(put_from(client, key, on_device(value), size), MC_OK) << mc_last_error();
    EXPECT_TRUE(get(client, key) == value) << size;
    void* const back = on_device(std::string(size, '!'), 0);
    ASSERT_EQ(get_into(client, key, back, size), MC_OK) << mc_last_error();
    EXPECT_TRUE(text_at(back, size) == value) << size;
    mc_view view{};
    ASSERT_EQ(mc_get_view(client, slice(key), &view), MC_OK);
    EXPECT_EQ(mc_view_verify(&view, slice(key)), MC_OK);
    mc_view_release(&view);
  }
  // Host memory and managed memory take the same path as without a driver.
  ASSERT_EQ(put(client, "host", content("host", 70000)), MC_OK);
  EXPECT_TRUE(get(client, "host") == content("host", 70000));
  void* const managed = cuda_.allocate(5000, 1, true);
  const std::uint64_t copies = cuda_.calls("cuMemcpy");
  std::memcpy(managed, content("managed", 5000).data(), 5000);
  ASSERT_EQ(put_from(client, "managed", managed, 5000), MC_OK);
  EXPECT_TRUE(get(client, "managed") == content("managed", 5000));
  EXPECT_EQ(cuda_.calls("cuMemcpy"), copies);
}

TEST_P(Device, PiecesAndRangesMayBeOfEitherMemory) {
  serve();
  mc_client* client = open();
  std::string head = content("head", 1000);
  const std::string body = content("body", 150000);
  const std::string key = "pieces";
  const mc_slice pieces[] = {{head.data(), head.size()}, {on_device(body), body.size()}};
  mc_put_item item{slice(key), pieces, 2, {nullptr, 0}, MC_INTERNAL};
  ASSERT_EQ(mc_put_batch(client, &item, 1, nullptr), MC_OK) << mc_last_error();
  ASSERT_TRUE(get(client, key) == head + body);
  // A range from the middle of the object: 500 bytes to the host, the next 2,000 bytes to a device.
  std::string host(500, '!');
  void* const device = on_device(std::string(2000, '!'), 0);
  const mc_span into[] = {{host.data(), host.size()}, {device, 2000}};
  mc_get_item wanted{slice(key), into, 2, 700, 2500, MC_INTERNAL};
  ASSERT_EQ(mc_get_batch(client, &wanted, 1), MC_OK) << mc_last_error();
  const std::string expected = (head + body).substr(700, 2500);
  EXPECT_EQ(host, expected.substr(0, 500));
  EXPECT_TRUE(text_at(device, 2000) == expected.substr(500));
}

TEST_P(Device, GroupsAndAsynchronousPutsAcceptDeviceMemory) {
  serve();
  mc_client* client = open();
  const std::string value = content("value", 60000);
  mc_group* group = nullptr;
  ASSERT_EQ(mc_group_begin(client, &group), MC_OK);
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  options.group = group;
  const std::string key = "grouped";
  ASSERT_EQ(mc_put(client, slice(key), {on_device(value), value.size()}, &options), MC_OK);
  ASSERT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(client, key) == value);

  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  const auto one = [&] {
    mc_completion completion{};
    std::size_t count = 0;
    EXPECT_EQ(mc_cq_wait(cq, &completion, 1, &count, 10'000'000'000), MC_OK);
    return completion.status;
  };
  const std::string later = "later";
  const mc_slice piece{on_device(value), value.size()};
  const mc_put_item item{slice(later), &piece, 1, {nullptr, 0}, MC_INTERNAL};
  ASSERT_EQ(mc_put_async(client, cq, &item, 1, nullptr, 1, nullptr), MC_OK);
  EXPECT_EQ(one(), MC_OK);
  void* const back = on_device(std::string(value.size(), '!'));
  const mc_span span{back, value.size()};
  mc_get_item wanted{slice(later), &span, 1, 0, 0, MC_INTERNAL};
  ASSERT_EQ(mc_get_async(client, cq, &wanted, 1, 2, nullptr), MC_OK);
  EXPECT_EQ(one(), MC_OK);
  EXPECT_TRUE(text_at(back, value.size()) == value);

  cuda_.fail("cuMemcpy", 0, 700);
  const std::string refused = "refused";
  const mc_put_item bad{slice(refused), &piece, 1, {nullptr, 0}, MC_INTERNAL};
  ASSERT_EQ(mc_put_async(client, cq, &bad, 1, nullptr, 3, nullptr), MC_OK);
  EXPECT_EQ(one(), MC_DEVICE_FAILED);
  EXPECT_EQ(exists(client, refused), MC_NOT_FOUND);
  mc_cq_destroy(cq);
}

TEST_P(Device, ARangeMayCrossChunksOfAnAllocationButNoHole) {
  serve();
  mc_client* client = open();
  const std::string value = content("chunks", 5 * kMiB);
  auto* const chunks = static_cast<std::byte*>(cuda_.allocate_chunks(2 * kMiB, 5, 3, 1));
  std::memcpy(cuda_.behind(chunks), value.data(), value.size());
  ASSERT_EQ(put_from(client, "whole", chunks, value.size()), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(client, "whole") == value);
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, put_from(client, "hole", chunks, 10 * kMiB)));
  EXPECT_NE(std::string(mc_last_error()).find("last 4194304 bytes"), std::string::npos)
      << mc_last_error();
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, get_into(client, "whole", chunks + 2 * kMiB, 5 * kMiB)));
}

TEST_P(Device, ARefusedCopyStoresNothingAndHoldsNothing) {
  serve({{"pool_bytes", "64MiB"}});
  mc_client* client = open();
  const std::string value = content("value", kMiB);
  void* const device = on_device(value);
  cuda_.fail("cuMemcpy", 0, 700);
  // More puts than the pool and the staging hold together: refused puts give their memory back.
  for (int i = 0; i < 200; ++i) {
    const std::string key = "refused." + std::to_string(i);
    ASSERT_EQ(put_from(client, key, device, value.size()), MC_DEVICE_FAILED) << i;
    EXPECT_NE(std::string(mc_last_error()).find("cuMemcpyDtoH"), std::string::npos);
    ASSERT_EQ(exists(client, key), MC_NOT_FOUND);
  }
  cuda_.fail(nullptr, 0, 0);
  ASSERT_EQ(put_from(client, "kept", device, value.size()), MC_OK) << mc_last_error();
  cuda_.fail("cuMemcpy", 0, 700);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(get_into(client, "kept", device, value.size()), MC_DEVICE_FAILED);
  }
  cuda_.fail(nullptr, 0, 0);
  EXPECT_EQ(get_into(client, "kept", device, value.size()), MC_OK);
  EXPECT_TRUE(text_at(device, value.size()) == value);
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT,
                   put_from(client, "long", static_cast<std::byte*>(device) + 1, value.size())));
  EXPECT_NE(std::string(mc_last_error()).find("beyond its allocation"), std::string::npos);
}

}  // namespace
}  // namespace mc::conformance
