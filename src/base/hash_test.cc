#include "base/hash.h"

#include <cstdio>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace megartp {
namespace {

// Published value of XXH3-128 for no input; the others come from the library itself (libxxhash 0.8.1).
TEST(Hash, KnownValues) {
  EXPECT_EQ(hash128("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash128("MegaRTP").hex(), "92641d1153b2f46875297a8e2a3cbd74");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  EXPECT_EQ(hash128(text).hex(), "abee229cdadad76d10ad30264426c830");
}

TEST(Hash, BytesAndHexSayTheSame) {
  const Hash128 h = hash128("abc");
  const auto bytes = h.bytes();
  std::string hex;
  for (const uint8_t b : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(b));
    hex += digits;
  }
  EXPECT_EQ(h.hex(), hex);
  EXPECT_EQ(bytes[0], h.high >> 56);
  EXPECT_EQ(bytes[15], h.low & 0xffU);
}

TEST(Hash, EveryByteAndTheLengthCount) {
  for (const size_t n : {1U, 8U, 16U, 17U, 128U, 240U, 241U, 5000U}) {
    const std::string base(n, 'x');
    EXPECT_NE(hash128(base), hash128(base + "x"));
    for (const size_t at : {size_t{0}, n / 2, n - 1}) {
      std::string changed = base;
      changed[at] = 'y';
      EXPECT_NE(hash128(base), hash128(changed)) << n << " " << at;
    }
    EXPECT_EQ(hash128(base), hash128(std::as_bytes(std::span(base.data(), base.size()))));
  }
}

}  // namespace
}  // namespace megartp
