// libFuzzer entry of the safetensors reader: whatever the bytes are, parse() ends, and every view it gives lies inside
// them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = megartp::SafetensorsFile::parse(bytes);
  if (!file) {
    const std::string text = file.error().to_string();
    if (text.empty() || text.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  size_t total = 0;
  for (const megartp::TensorView& t : file->tensors()) {
    if (t.data < bytes.data() || t.data + t.num_bytes > bytes.data() + bytes.size()) std::abort();
    if (file->find(t.name) != &t) std::abort();
    total += t.num_bytes;
  }
  if (total > size) std::abort();
  return 0;
}
