// Compiled kernels on disk, one file each, under a hash of everything that decides the code.
//
//   $MEGARTP_CACHE_DIR/cubins/<32 hex digits>
//   "MEGARTPK" | XXH3-128 of the rest | u32 n, symbol | u64 n, cubin | u32 n, the compiler's log      little-endian
//
// Several processes may use a folder at once: files appear whole (written beside and renamed) and are never changed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "megartp/error.h"

namespace megartp::codegen {

struct CachedCubin {
  std::string symbol;
  std::string cubin;
  std::string log;
  friend bool operator==(const CachedCubin&, const CachedCubin&) = default;
};

std::string encode_cached_cubin(const CachedCubin& entry);
// kParse when the bytes are not whole: another size, another checksum, another kind of file.
Result<CachedCubin> decode_cached_cubin(std::string_view bytes);

class CubinCache {
 public:
  // An empty folder: no cache, nothing is found and nothing stored. It is made when the first entry is stored.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  enum class Found : uint8_t { kAbsent, kCorrupt, kWhole };
  // kCorrupt also when the file cannot be read; the caller compiles and stores anew. Thread-safe.
  Found find(const Hash128& key, CachedCubin& entry) const;
  // kIo when the file cannot be written. Thread-safe.
  Status store(const Hash128& key, const CachedCubin& entry) const;

  std::string path_of(const Hash128& key) const { return folder_ + "/" + key.hex(); }
  bool is_on() const { return !folder_.empty(); }

 private:
  std::string folder_;
};

}  // namespace megartp::codegen
