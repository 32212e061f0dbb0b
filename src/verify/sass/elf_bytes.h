// A named range of an untrusted file, from which nothing outside can be read. Used by the cubin reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "graph/text.h"
#include "megartp/error.h"

namespace megartp::sass {

class ElfBytes {
 public:
  ElfBytes(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  std::string_view bytes() const { return bytes_; }
  uint64_t size() const { return bytes_.size(); }
  const std::string& name() const { return name_; }

  // A little-endian integer; the caller has checked that it is inside (beyond the end reads as zero, never outside).
  template <class T>
  T at(uint64_t offset) const {
    T value{};
    if (offset <= bytes_.size() && bytes_.size() - offset >= sizeof(T))
      std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  Result<ElfBytes> part(uint64_t offset, uint64_t size, std::string name) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      return make_error(ErrorCode::kParse,
                        fmt::format("{} ({} bytes at offset {:#x}) reaches beyond the end of {} ({} bytes)", name, size,
                                    offset, name_, bytes_.size()));
    return ElfBytes(bytes_.substr(offset, size), std::move(name));
  }

  // The text that ends with a zero byte.
  Result<std::string> text(uint64_t offset) const {
    constexpr uint64_t kMaxName = 1U << 16;
    const size_t end = offset < bytes_.size() ? bytes_.find('\0', offset) : std::string_view::npos;
    if (end == std::string_view::npos || end - offset > kMaxName)
      return make_error(ErrorCode::kParse, fmt::format("{}: no name at offset {:#x}", name_, offset));
    return std::string(bytes_.substr(offset, end - offset));
  }

 private:
  std::string_view bytes_;
  std::string name_;
};

}  // namespace megartp::sass
