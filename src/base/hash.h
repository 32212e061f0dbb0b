// XXH3-128: checksums of files and identities of graphs, plans and caches. Not for secrets.
//
// The value is the same on every machine (little- or big-endian) and in every release: files and cache folders depend
// on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megartp {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  // 16 bytes, most significant first: what files store.
  std::array<uint8_t, 16> bytes() const;
  // 32 lower-case digits of the same bytes, as `xxhsum -H2` prints them.
  std::string hex() const;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

Hash128 hash128(std::span<const std::byte> data);
Hash128 hash128(std::string_view data);

}  // namespace megartp
