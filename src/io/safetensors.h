// safetensors: 8-byte little-endian header length, JSON header, raw tensor bytes.
//
// The reader maps the file and checks everything before it hands out a pointer: header length and JSON, unique names,
// dtypes, shapes that multiply without overflow, offsets in range, matching byte counts, no overlap, no holes. It never
// reads outside the file, whatever the header says. Views point into the mapping and live as long as the
// SafetensorsFile. (A file that somebody shortens while it is mapped cannot be guarded against; writers here replace
// files instead of changing them.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megartp/dtype.h"
#include "megartp/error.h"

namespace megartp {

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  const std::byte* data = nullptr;  // may be unaligned for its dtype: see aligned_copy in callers
  size_t num_bytes = 0;
};

class SafetensorsFile {
 public:
  SafetensorsFile();
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  // kNotFound or kIo with the path; kParse, or kUnsupported for a dtype, with the path, what is wrong, and the tensor
  // if any.
  static Result<SafetensorsFile> open(const std::string& path);
  // Parses bytes that the caller keeps alive (used by the fuzzer).
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes);

  const std::vector<TensorView>& tensors() const;  // by ascending offset
  const std::map<std::string, std::string>& metadata() const;
  const TensorView* find(std::string_view name) const;
  // The named tensor, checked: kNotFound, or kParse with tensor, expected and actual dtype or shape.
  Result<const TensorView*> get(std::string_view name, DType dtype, std::span<const int64_t> dims) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What to write; bytes are produced by `fill` when its turn comes, in chunks, so that a checkpoint never has to fit in
// memory.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  // Exactly one of the two: a pointer to all bytes, or a generator called with (byte offset, buffer).
  const void* data = nullptr;
  std::function<Status(uint64_t, std::span<std::byte>)> fill;
};

// Writes to a temporary file beside `path`, fsyncs, renames: a reader never sees half a file, and an error leaves
// nothing behind. Tensor data starts 64-byte aligned. The format forbids holes, so tensors are ordered by the power of
// two that divides their size: every tensor is aligned to its element at least, and to 64 bytes if its size is a
// multiple of 64. `progress` gets the bytes written so far and the size of the file.
Status write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata = {},
                         const std::function<void(uint64_t done, uint64_t total)>& progress = {});

}  // namespace megartp
