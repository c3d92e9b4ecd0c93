// SPDX-License-Identifier: Apache-2.0
//
// The messages between engines, byte by byte, and the refusal of bad messages.
#include <gtest/gtest.h>

#include <cstring>

#include "transport/engine/address.h"
#include "transport/engine/wire/check.h"
#include "transport/engine/wire/directory.h"
#include "transport/engine/wire/engine_descriptor.h"
#include "transport/engine/wire/notification.h"
#include "unit/golden_file.h"

namespace mc::transfer {
namespace {

template <typename T>
void fill(T* bytes, unsigned first) {
  for (auto& byte : *bytes) byte = static_cast<std::byte>(first++);
}

EngineDescriptor sample_engine_descriptor() {
  EngineDescriptor engine_descriptor = blank_engine_descriptor();
  engine_descriptor.node = 0x1122334455667788;
  engine_descriptor.incarnation = 0x99;
  fill(&engine_descriptor.directory, 0xa0);
  engine_descriptor.directory_bytes = 0x10000;
  fill(&engine_descriptor.boot_id, 0x10);
  engine_descriptor.pid_namespace = 0xf0000001;
  engine_descriptor.pid = 4711;
  engine_descriptor.directory_address = 0x7f0011223344;
  fill(&engine_descriptor.nonce, 0xc0);
  fill(&engine_descriptor.checks, 0xe0);
  return engine_descriptor;
}

std::vector<DirectoryEntry> sample_entries() {
  std::vector<DirectoryEntry> entries = {{0x1000, 0x2000, 1, 2, {}}, {0x3000, 0x10, 3, 1, {}}};
  for (DirectoryEntry& entry : entries) fill(&entry.descriptor, 0x40);
  return entries;
}

golden::Bytes sample_directory() {
  DirectoryWriter writer(sample_engine_descriptor().nonce);
  writer.publish(sample_entries());
  return {writer.data(), writer.data() + kDirectoryHeadBytes + 2 * kDirectoryEntryBytes};
}

std::map<std::string, golden::Bytes> samples() {
  return {{"card", golden::bytes_of(sample_engine_descriptor())},
          {"directory", sample_directory()},
          {"notification", encode_notification("name", "message")},
          {"question", golden::bytes_of(CheckQuestion{0x1000, 0x2000, 0x1122334455667788})}};
}

TEST(TransferMessages, HaveTheBytesOfVersionTwo) { golden::compare("transfer-v2.txt", samples()); }

TEST(TransferMessages, TheGoldenFileIsDecoded) {
  golden::Sections sections = golden::read("transfer-v2.txt");
  const auto engine_descriptor = decode_engine_descriptor(sections["card"]);
  ASSERT_TRUE(engine_descriptor);
  EXPECT_EQ(engine_descriptor->pid, 4711u);
  const auto directory = decode_directory(sections["directory"]);
  ASSERT_TRUE(directory);
  EXPECT_EQ(directory->entries.size(), 2u);
  EXPECT_EQ(directory->generation, 2u);
  const auto notification = decode_notification(sections["notification"]);
  ASSERT_TRUE(notification);
  EXPECT_EQ(notification->name + "/" + notification->message, "name/message");
}

TEST(TransferMessages, ADescriptorOutOfRangeIsRefused) {
  const auto refuses = [](auto change) {
    EngineDescriptor engine_descriptor = sample_engine_descriptor();
    change(engine_descriptor);
    return !decode_engine_descriptor(std::as_bytes(std::span(&engine_descriptor, 1)));
  };
  EXPECT_FALSE(refuses([](EngineDescriptor&) {}));
  EXPECT_TRUE(refuses([](EngineDescriptor& engine_descriptor) { engine_descriptor.magic ^= 1; }));
  EXPECT_TRUE(refuses([](EngineDescriptor& engine_descriptor) { ++engine_descriptor.version; }));
  EXPECT_TRUE(refuses([](EngineDescriptor& engine_descriptor) { --engine_descriptor.size_bytes; }));
  EXPECT_TRUE(refuses([](EngineDescriptor& engine_descriptor) { engine_descriptor.node = 0; }));
  EXPECT_TRUE(refuses([](EngineDescriptor& engine_descriptor) {
    engine_descriptor.directory_bytes = kMaxDirectoryBytes + 1;
  }));
  EXPECT_TRUE(refuses([](EngineDescriptor& engine_descriptor) {
    engine_descriptor.directory_bytes = kDirectoryHeadBytes - 1;
  }));
  EXPECT_TRUE(
      refuses([](EngineDescriptor& engine_descriptor) { engine_descriptor.reserved1 = 1; }));
}

// Writes a table as the owner would, but with the entries of a hostile owner.
Result<Directory> decoded(std::vector<DirectoryEntry> entries) {
  DirectoryWriter writer({});
  writer.publish(entries);
  return decode_directory({writer.data(), kMaxDirectoryBytes});
}

TEST(TransferMessages, ATableThatContradictsItselfIsRefused) {
  EXPECT_TRUE(decoded({}));
  EXPECT_TRUE(decoded(sample_entries()));
  EXPECT_FALSE(decoded({{0, 1, 1, 0, {}}}));
  EXPECT_FALSE(decoded({{4096, 0, 1, 0, {}}}));
  EXPECT_FALSE(decoded({{4096, 1, 4, 0, {}}}));
  EXPECT_FALSE(decoded({{4096, ~std::uint64_t{0}, 1, 0, {}}}));
  EXPECT_FALSE(decoded({{4096, 100, 1, 0, {}}, {4195, 1, 1, 0, {}}}));
  EXPECT_FALSE(decoded({{8192, 1, 1, 0, {}}, {4096, 1, 1, 0, {}}}));
}

TEST(TransferMessages, ATornTableIsReadAgain) {
  golden::Bytes bytes = sample_directory();
  bytes[kDirectoryHeadBytes] ^= std::byte{1};
  EXPECT_EQ(decode_directory(bytes).error().code(), MC_BUSY);
  bytes = sample_directory();
  EXPECT_EQ(decode_directory(std::span(bytes).first(bytes.size() - 1)).error().code(), MC_BUSY);
  EXPECT_EQ(decode_directory(std::span(bytes).first(63)).error().code(), MC_CORRUPT);
}

TEST(TransferMessages, ARangeIsFoundInOneEntryOnly) {
  const auto directory = decoded(sample_entries());
  ASSERT_TRUE(directory);
  EXPECT_NE(directory->find(0x1000, 0x2000), nullptr);
  EXPECT_NE(directory->find(0x3000, 1), nullptr);
  EXPECT_EQ(directory->find(0xfff, 1), nullptr);
  EXPECT_EQ(directory->find(0x2fff, 2), nullptr);  // two adjacent entries
  EXPECT_EQ(directory->find(0x1001, ~std::uint64_t{0}), nullptr);
  EXPECT_EQ(directory->find(0x3010, 1), nullptr);
}

TEST(TransferMessages, ANotificationOfOddLengthsIsRefused) {
  auto bytes = encode_notification("name", "message");
  EXPECT_FALSE(decode_notification(std::span(bytes).first(7)));
  EXPECT_FALSE(decode_notification(std::span(bytes).first(11)));
  EXPECT_TRUE(decode_notification(std::span(bytes).first(12)));
  bytes[0] = std::byte{2};
  EXPECT_FALSE(decode_notification(bytes));
}

TEST(TransferAddress, TextBecomesAnAddressOrAnError) {
  EXPECT_EQ(text_of(resolve("10.0.0.7:7400").value()), "10.0.0.7:7400");
  EXPECT_EQ(text_of(resolve("[fd00::7]:1").value()), "[fd00::7]:1");
  EXPECT_EQ(text_of(resolve("localhost:0").value()), "127.0.0.1:0");
  for (const char* text : {"", ":1", "10.0.0.7", "10.0.0.7:", "10.0.0.7:x", "10.0.0.7:65536"}) {
    EXPECT_FALSE(resolve(text)) << text;
  }
  EXPECT_TRUE(is_loopback(resolve("127.0.0.2:1").value()));
  EXPECT_FALSE(is_loopback(resolve("10.0.0.7:1").value()));
  EXPECT_TRUE(is_wildcard(resolve("0.0.0.0:1").value()));
}

}  // namespace
}  // namespace mc::transfer
