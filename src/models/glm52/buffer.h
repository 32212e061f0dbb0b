// Buffer: aligned memory of a tensor that the host owns (inputs, copies of weights, outputs).
//
// Copies share the bytes; clone() does not. The bytes start 64-byte aligned, as every backend may demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "megartp/dtype.h"

namespace megartp::glm52 {

struct Buffer {
  DType dtype = DType::kU8;
  std::vector<int64_t> dims;
  std::shared_ptr<std::byte[]> bytes;
  size_t num_bytes = 0;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(bytes.get());
  }
  int64_t num_elems() const { return static_cast<int64_t>(num_bytes / size_in_bytes(dtype)); }
  // Zeroed memory for a shape that the caller has checked (no negative size, no overflow).
  static Buffer make(DType dtype, std::vector<int64_t> dims);
  Buffer clone() const;
};

}  // namespace megartp::glm52
