// Named tensors of an executable and their addresses.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/dtype.h"
#include "megartp/error.h"
#include "megartp/op_graph.h"

namespace megartp {

// 64-byte aligned memory, zeroed.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t num_bytes);
  ~AlignedBytes();
  AlignedBytes(AlignedBytes&& o) noexcept;
  AlignedBytes& operator=(AlignedBytes&& o) noexcept;
  std::byte* get() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct BoundTensor {
  std::string name;
  DType dtype = DType::kF32;
  Storage storage = Storage::kActivation;
  size_t num_bytes = 0;
  bool external = true;  // bound by the caller
  void* address = nullptr;
};

class Bindings {
 public:
  explicit Bindings(std::vector<BoundTensor> tensors);

  // Errors: unknown name, a tensor that is not external, wrong size, null or misaligned address.
  Status bind(std::string_view name, void* data, size_t num_bytes);
  // Every external tensor has an address, or an error that names the first one that has not.
  Status check_complete() const;
  void* address(std::string_view name) const;
  const std::vector<BoundTensor>& tensors() const { return tensors_; }
  // Fills everything that a run writes and a caller may read (workspace, outputs; not states) with `byte`.
  void poison(std::byte byte);

 private:
  std::vector<BoundTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace megartp
