#include "codegen/cubin_cache.h"

#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"

namespace megartp::codegen {
namespace {

constexpr std::string_view kMagic = "MEGARTPK";
constexpr size_t kHashBytes = 16;
constexpr uint64_t kMaxEntryBytes = uint64_t{1} << 28;

template <class T>
void append_sized(std::string& out, const std::string& bytes) {
  const T size = static_cast<T>(bytes.size());
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(static_cast<uint64_t>(size) >> (8 * i) & 0xff);
  out += bytes;
}

// Takes a sized string from the front; false when the bytes end before it does.
template <class T>
bool take_sized(std::string_view& bytes, std::string& out) {
  if (bytes.size() < sizeof(T)) return false;
  uint64_t size = 0;
  for (size_t i = 0; i < sizeof(T); ++i) size |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  bytes.remove_prefix(sizeof(T));
  if (size > bytes.size()) return false;
  out.assign(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return true;
}

}  // namespace

std::string encode_cached_cubin(const CachedCubin& entry) {
  std::string rest;
  append_sized<uint32_t>(rest, entry.symbol);
  append_sized<uint64_t>(rest, entry.cubin);
  append_sized<uint32_t>(rest, entry.log);
  const auto hash = hash128(rest).bytes();
  std::string out(kMagic);
  out.append(reinterpret_cast<const char*>(hash.data()), hash.size());
  return out + rest;
}

Result<CachedCubin> decode_cached_cubin(std::string_view bytes) {
  if (bytes.size() < kMagic.size() + kHashBytes || !bytes.starts_with(kMagic))
    return make_error(ErrorCode::kParse, "not a cached kernel");
  bytes.remove_prefix(kMagic.size());
  const std::string_view stored = bytes.substr(0, kHashBytes);
  bytes.remove_prefix(kHashBytes);
  const auto hash = hash128(bytes).bytes();
  if (std::memcmp(stored.data(), hash.data(), kHashBytes) != 0)
    return make_error(ErrorCode::kParse, "a cached kernel with a wrong checksum");
  CachedCubin entry;
  if (!take_sized<uint32_t>(bytes, entry.symbol) || !take_sized<uint64_t>(bytes, entry.cubin) ||
      !take_sized<uint32_t>(bytes, entry.log) || !bytes.empty())
    return make_error(ErrorCode::kParse, "a cached kernel whose parts do not fill it");
  return entry;
}

CubinCache::Found CubinCache::find(const Hash128& key, CachedCubin& entry) const {
  if (!is_on()) return Found::kAbsent;
  const auto bytes = read_file(path_of(key), kMaxEntryBytes);
  if (!bytes) return bytes.error().code == ErrorCode::kNotFound ? Found::kAbsent : Found::kCorrupt;
  auto decoded = decode_cached_cubin(*bytes);
  if (!decoded) return Found::kCorrupt;
  entry = std::move(*decoded);
  return Found::kWhole;
}

Status CubinCache::store(const Hash128& key, const CachedCubin& entry) const {
  if (!is_on()) return {};
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return make_error(ErrorCode::kIo, fmt::format("{}: {}", folder_, error.message()));
  return write_file_atomic(path_of(key), encode_cached_cubin(entry));
}

}  // namespace megartp::codegen
