#include "models/glm52/buffer.h"

#include <cstring>
#include <new>

namespace megartp::glm52 {

Buffer Buffer::make(DType dtype, std::vector<int64_t> dims) {
  constexpr std::align_val_t kAlignment{64};
  Buffer b;
  b.dtype = dtype;
  b.num_bytes = size_in_bytes(dtype);
  for (const int64_t d : dims) b.num_bytes *= static_cast<size_t>(d);
  b.dims = std::move(dims);
  auto* memory = static_cast<std::byte*>(::operator new(b.num_bytes, kAlignment));
  b.bytes = std::shared_ptr<std::byte[]>(memory, [](std::byte* p) { ::operator delete(p, kAlignment); });
  std::memset(memory, 0, b.num_bytes);
  return b;
}

Buffer Buffer::clone() const {
  Buffer b = make(dtype, dims);
  std::memcpy(b.bytes.get(), bytes.get(), num_bytes);
  return b;
}

}  // namespace megartp::glm52
