#include "backends/cuda_common/weight_packing.h"

#include <vector>

#include <gtest/gtest.h>

namespace megartp::cuda {
namespace {

std::vector<std::byte> weight(int64_t n, int64_t k) {
  std::vector<std::byte> bytes(static_cast<size_t>(n * k));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(1 + (i * 2654435761U >> 7) % 255);
  return bytes;
}

// The place of an element by the formula of ops/device_kernel.h, word for word.
size_t place(int64_t n, int64_t k, int64_t size_k) {
  const int64_t tile = (n / 64) * ((size_k + 127) / 128) + k / 128;
  return static_cast<size_t>(tile * 8192 + (n % 64) * 128 + ((k % 128) ^ ((n % 8) * 16)));
}

TEST(WeightPacking, EveryElementIsInItsPlaceAndTheRestIsZero) {
  const std::pair<int64_t, int64_t> shapes[] = {{64, 128}, {1, 1}, {65, 129}, {200, 304}, {2624, 1024}, {63, 127}};
  for (const auto& [n, k] : shapes) {
    const auto from = weight(n, k);
    std::vector<std::byte> packed(packed_weight_bytes(n, k), std::byte{0xee});
    ASSERT_TRUE(pack_weight(from, n, k, packed));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j) {
        std::byte& there = packed[place(i, j, k)];
        ASSERT_EQ(there, from[static_cast<size_t>(i * k + j)]) << n << "x" << k << " at " << i << ", " << j;
        there = std::byte{0};
      }
    for (const std::byte b : packed) ASSERT_EQ(b, std::byte{0});
  }
}

TEST(WeightPacking, Sizes) {
  EXPECT_EQ(packed_weight_bytes(64, 128), 8192U);
  EXPECT_EQ(packed_weight_bytes(2624, 6144), 2624U * 6144U);
  EXPECT_EQ(packed_weight_bytes(65, 129), 4 * 8192U);
  std::vector<std::byte> packed(8192);
  EXPECT_EQ(pack_weight(weight(64, 64), 64, 128, packed).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(pack_weight(weight(64, 128), 64, 128, std::span(packed).first(8000)));
}

}  // namespace
}  // namespace megartp::cuda
