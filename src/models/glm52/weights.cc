#include "models/glm52/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/parallel.h"

namespace megartp::glm52 {
namespace {

constexpr uint64_t kScanBlock =
    4096;  // a block's verdict first, by a loop that vectorises; the position only in a bad one
constexpr uint64_t kScanGrain = uint64_t{1} << 20;
constexpr size_t kAlignment = 16;  // what the tiles' loads expect of a tensor's start

// The first index in [0, count) for which `is_bad` holds, or count.
template <class IsBad>
uint64_t find_bad(uint64_t count, const IsBad& is_bad) {
  std::atomic<uint64_t> first{count};
  parallel_for(count, kScanGrain, [&](uint64_t begin, uint64_t end) {
    for (uint64_t block = begin; block < end; block += kScanBlock) {
      const uint64_t block_end = std::min(end, block + kScanBlock);
      uint8_t any = 0;
      for (uint64_t i = block; i < block_end; ++i) any = static_cast<uint8_t>(any | (is_bad(i) ? 1 : 0));
      if (any == 0) continue;
      uint64_t i = block;
      while (!is_bad(i)) ++i;
      // relaxed: only the value counts, and the threads are joined before it is read.
      uint64_t seen = first.load(std::memory_order_relaxed);
      while (i < seen && !first.compare_exchange_weak(seen, i, std::memory_order_relaxed)) {
      }
      return;
    }
  });
  return first.load(std::memory_order_relaxed);
}

std::string position(const WeightSpec& spec, uint64_t i) {
  if (spec.dims.size() < 2) return fmt::format("[{}]", i);
  const auto columns = static_cast<uint64_t>(spec.dims[1]);
  return fmt::format("[{}][{}]", i / columns, i % columns);
}

Status scan(const WeightSpec& spec, const std::byte* data, size_t num_bytes) {
  const uint64_t count = num_bytes / size_in_bytes(spec.dtype);
  const auto fail = [&](uint64_t i, const std::string& what) {
    return make_error(ErrorCode::kParse, fmt::format("tensor '{}' has {} at {}", spec.name, what, position(spec, i)));
  };
  if (spec.dtype == DType::kF8E4M3) {
    const auto* codes = reinterpret_cast<const uint8_t*>(data);
    const uint64_t i = find_bad(count, [&](uint64_t k) { return (codes[k] & 0x7fU) == 0x7fU; });
    if (i < count) return fail(i, fmt::format("the NaN code {:#04x}", codes[i]));
  } else if (spec.dtype == DType::kBF16) {
    const auto* values = reinterpret_cast<const bf16*>(data);
    const uint64_t i = find_bad(count, [&](uint64_t k) { return (values[k].bits & 0x7f80U) == 0x7f80U; });
    if (i < count) return fail(i, fmt::format("the value {}", to_float(values[i])));
  } else {
    const auto* scales = reinterpret_cast<const float*>(data);
    const uint64_t i = find_bad(count, [&](uint64_t k) { return !(scales[k] > 0.0F && std::isfinite(scales[k])); });
    if (i < count) return fail(i, fmt::format("the scale {}", scales[i]));
  }
  return {};
}

Result<Weights> bind(const Config& config, int64_t layer, SafetensorsFile file, bool scan_values) {
  Weights weights;
  weights.file = std::make_shared<SafetensorsFile>(std::move(file));
  for (const WeightSpec& spec : layer_weights(config, layer)) {
    const TensorView* view = MEGARTP_TRY(weights.file->get(spec.name, spec.dtype, spec.dims));
    const std::byte* data = view->data;
    if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
      Buffer copy = Buffer::make(spec.dtype, spec.dims);
      std::memcpy(copy.bytes.get(), data, view->num_bytes);
      data = copy.bytes.get();
      weights.copies.push_back(std::move(copy));
    }
    if (scan_values) MEGARTP_TRY(scan(spec, data, view->num_bytes));
    weights.items.push_back({spec.graph_tensor, data, view->num_bytes});
  }
  return weights;
}

}  // namespace

const Weights::Item* Weights::find(std::string_view graph_tensor) const {
  const auto it =
      std::find_if(items.begin(), items.end(), [&](const Item& item) { return item.graph_tensor == graph_tensor; });
  return it == items.end() ? nullptr : &*it;
}

Result<Weights> load_weights(const Config& config, int64_t layer, const std::string& path, bool scan_values) {
  MEGARTP_TRY(check_config(config));
  MEGARTP_TRY(check_layer(config, layer));
  SafetensorsFile file = MEGARTP_TRY(SafetensorsFile::open(path));
  Result<Weights> weights = bind(config, layer, std::move(file), scan_values);
  if (!weights) return tl::unexpected(std::move(weights).error().with("path", path));
  return weights;
}

}  // namespace megartp::glm52
