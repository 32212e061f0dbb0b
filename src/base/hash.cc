#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace megartp {

std::array<uint8_t, 16> Hash128::bytes() const {
  std::array<uint8_t, 16> out{};
  for (size_t i = 0; i < 8; ++i) {
    out[i] = static_cast<uint8_t>(high >> (56 - 8 * i));
    out[8 + i] = static_cast<uint8_t>(low >> (56 - 8 * i));
  }
  return out;
}

std::string Hash128::hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(32);
  for (const uint8_t b : bytes()) {
    out += kDigits[b >> 4];
    out += kDigits[b & 0xfU];
  }
  return out;
}

Hash128 hash128(std::span<const std::byte> data) {
  const XXH128_hash_t h = XXH3_128bits(data.data(), data.size());
  return Hash128{h.high64, h.low64};
}

Hash128 hash128(std::string_view data) { return hash128(std::as_bytes(std::span(data.data(), data.size()))); }

}  // namespace megartp
