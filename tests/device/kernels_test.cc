// SPDX-License-Identifier: Apache-2.0
#include "libmc/device/kernels.h"

#include <cstring>
#include <random>

#include "device/device_fixture.h"
#include "libmc/base/checksum.h"

namespace mc::device {
namespace {

class Kernel : public testing::DeviceTest {
 protected:
  static std::span<const std::byte> image() {
    if (testing::has_gpu() || !kernel_image().empty()) return kernel_image();
    return {static_cast<const std::byte*>(testing::fake().kernels()), 1};
  }
  void SetUp() override {
    if (image().empty()) GTEST_SKIP() << "this build has no kernels: nvcc was missing";
    auto loaded = Kernels::load(*Driver::find(), 0, image());
    ASSERT_TRUE(loaded) << loaded.error().text();
    kernels_ = std::move(*loaded);
  }

  template <typename Piece>
  const Piece* list(const std::vector<Piece>& pieces) {
    return reinterpret_cast<const Piece*>(on_device(pieces.data(), pieces.size() * sizeof(Piece)));
  }
  std::vector<unsigned char> random_bytes(std::size_t size) {
    std::vector<unsigned char> bytes(size);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(chance_());
    return bytes;
  }
  void synchronize() { ASSERT_EQ(CU(cuStreamSynchronize)(stream_), 0); }

  std::unique_ptr<Kernels> kernels_;
  std::minstd_rand chance_{7};
};

TEST_F(Kernel, CopiesPiecesOfAnySizeAndAlignmentAndNoByteBesideThem) {
  const std::size_t size = 256 * 1024;
  const std::vector<unsigned char> source = random_bytes(size);
  const std::vector<unsigned char> before = random_bytes(size);
  const CUdeviceptr from = on_device(source.data(), size);
  const CUdeviceptr to = on_device(before.data(), size);
  std::vector<unsigned char> expected = before;
  std::vector<CopiedPiece> pieces;
  std::size_t at = 0;
  for (const std::size_t bytes :
       {0U, 1U, 7U, 8U, 15U, 16U, 17U, 64U, 4096U, 16384U, 65536U, 70001U}) {
    for (const std::size_t shift : {0U, 8U, 3U}) {  // words of 16 bytes, of 8 bytes, and bytes
      const std::size_t from_at = chance_() % (size - bytes - 16) / 16 * 16 + shift % 16;
      at = (at + 15) / 16 * 16 + shift;
      if (at + bytes > size) break;
      pieces.push_back({to + at, from + from_at, bytes});
      std::memcpy(expected.data() + at, source.data() + from_at, bytes);
      at += bytes + 1;
    }
  }
  ASSERT_GT(pieces.size(), 30u);
  for (const std::uint32_t blocks : {1U, 4U, 100U}) {
    ASSERT_EQ(CU(cuMemcpyHtoD_v2)(to, before.data(), size), 0);
    ASSERT_EQ(CU(cuStreamSynchronize)(nullptr), 0);
    const auto count = static_cast<std::uint32_t>(pieces.size());
    ASSERT_TRUE(kernels_->copy(list(pieces), count, blocks, stream_).ok());
    synchronize();
    EXPECT_TRUE(from_device<unsigned char>(to, size) == expected) << blocks;
  }
}

TEST_F(Kernel, TheChecksumOfPiecesIsTheObjects) {
  const std::size_t size = 300'000;
  const std::vector<unsigned char> bytes = random_bytes(size);
  const CUdeviceptr from = on_device(bytes.data(), size);
  const std::uint64_t key = 0x1234567890abcdef;
  for (const std::vector<std::size_t>& sizes :
       {std::vector<std::size_t>{1}, {0}, {4096}, {4097}, {size}, {100'000, 1, 8192, 191'807}}) {
    std::size_t whole = 0;
    for (const std::size_t piece : sizes) whole += piece;
    const CUdeviceptr sum = on_device(&kNoSum, sizeof kNoSum);
    std::vector<SummedPiece> pieces;
    std::size_t at = 0;
    for (const std::size_t piece : sizes) {
      pieces.push_back({from + at, piece, whole - at - piece, at == 0 ? ~key : 0, sum});
      at += piece;
    }
    const auto count = static_cast<std::uint32_t>(pieces.size());
    ASSERT_TRUE(kernels_->checksum(list(pieces), count, 2, stream_).ok());
    synchronize();
    EXPECT_EQ(from_device<std::uint64_t>(sum, 1)[0], checksum(key, bytes.data(), whole)) << whole;
  }
}

TEST_F(Kernel, AStreamDoesTheWorkInItsOrder) {
  const std::vector<unsigned char> first = random_bytes(100'000);
  const std::vector<unsigned char> second = random_bytes(100'000);
  const CUdeviceptr from = on_device(first.data(), first.size());
  const CUdeviceptr later = on_device(second.data(), second.size());
  const CUdeviceptr to = allocate(first.size());
  const CopiedPiece* const gather = list<CopiedPiece>({{to, from, first.size()}});
  ASSERT_EQ(CU(cuMemcpyAsync)(from, later, second.size(), stream_), 0);
  ASSERT_TRUE(kernels_->copy(gather, 1, 1, stream_).ok());
  ASSERT_EQ(CU(cuMemcpyAsync)(from, to, 0, stream_), 0);
  synchronize();
  EXPECT_TRUE(from_device<unsigned char>(to, second.size()) == second);
}

TEST_F(Kernel, ABuildWithoutKernelsAndADriverThatRefusesThemSaySo) {
  const auto none = Kernels::load(*Driver::find(), 0, {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), MC_UNSUPPORTED);
  EXPECT_NE(none.error().text().find("nvcc"), std::string::npos);
  const std::byte nonsense[64] = {};
  const auto refused = Kernels::load(*Driver::find(), 0, nonsense);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), MC_DEVICE_FAILED);
  EXPECT_NE(refused.error().text().find("cuModuleLoadData"), std::string::npos)
      << refused.error().text();
}

}  // namespace
}  // namespace mc::device
