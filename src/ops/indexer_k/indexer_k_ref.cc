// Naive double-precision indexer_k: the oracle.
#include <bit>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "ops/common/quant.h"
#include "ops/indexer_k/indexer_k.h"

namespace megartp::ops {
namespace {

// y[n] = bf16(sum over k of x * x_scale * w * w_scale), one row.
std::vector<double> project(const ReferenceContext& c, int64_t m) {
  const auto* x = c.inputs[0].as<e4m3>();
  const auto* x_scale = c.inputs[1].as<float>();
  const auto* w = c.inputs[2].as<e4m3>();
  const auto* w_scale = c.inputs[3].as<float>();
  const int64_t dim = c.inputs[2].dims[0];
  const int64_t depth = c.inputs[2].dims[1];
  const int64_t blocks = c.inputs[3].dims[1];
  std::vector<double> y;
  for (int64_t n = 0; n < dim; ++n) {
    double sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const double a =
          static_cast<double>(to_float(x[m * depth + k])) * static_cast<double>(x_scale[m * blocks + k / 128]);
      const double b =
          static_cast<double>(to_float(w[n * depth + k])) * static_cast<double>(w_scale[n / 128 * blocks + k / 128]);
      sum += a * b;
    }
    y.push_back(static_cast<double>(to_float(to_bf16(sum))));
  }
  return y;
}

void layer_norm(std::vector<double>& y, const bf16* gain, const bf16* bias, double eps) {
  double mean = 0;
  double variance = 0;
  const auto n = static_cast<double>(y.size());
  for (const double v : y) mean += v / n;
  for (const double v : y) variance += (v - mean) * (v - mean) / n;
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = (y[i] - mean) / std::sqrt(variance + eps) * static_cast<double>(to_float(gain[i])) +
           static_cast<double>(to_float(bias[i]));
}

// Rotates the first `rope` values.
void rotate(std::vector<double>& y, const float* cos_sin, size_t rope, bool interleave) {
  const std::vector<double> in = y;
  for (size_t i = 0; i < rope / 2; ++i) {
    const size_t a = interleave ? 2 * i : i;
    const size_t b = interleave ? 2 * i + 1 : i + rope / 2;
    const auto cosine = static_cast<double>(cos_sin[i]);
    const auto sine = static_cast<double>(cos_sin[rope / 2 + i]);
    y[a] = in[a] * cosine - in[b] * sine;
    y[b] = in[b] * cosine + in[a] * sine;
  }
}

// H[i][j] = (-1)^(number of common set bits of i and j) / sqrt(n).
void hadamard(std::vector<double>& y) {
  const std::vector<double> in = y;
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = 0;
    for (size_t j = 0; j < y.size(); ++j) y[i] += std::popcount(i & j) % 2 == 0 ? in[j] : -in[j];
    y[i] /= std::sqrt(static_cast<double>(y.size()));
  }
}

}  // namespace

Status indexer_k_reference(const ReferenceContext& c) {
  const auto* positions = c.inputs[6].as<int32_t>();
  const auto* slot_mapping = c.inputs[8].as<int32_t>();
  auto* cache = c.inputs[9].as<uint8_t>();
  const int64_t dim = c.inputs[2].dims[0];
  const int64_t num_positions = c.inputs[7].dims[0];
  const int64_t rope = c.inputs[7].dims[1];
  const int64_t num_slots = c.inputs[9].dims[0] * 64;
  const auto& attrs = c.op.attrs;
  for (int64_t m = 0; m < c.inputs[0].dims[0]; ++m) {
    const int64_t slot = slot_mapping[m];
    if (positions[m] < 0 || positions[m] >= num_positions || slot < 0 || slot >= num_slots)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("op '{}': row {} has position {} of {} and cache slot {} of {}", c.op.name, m,
                                    positions[m], num_positions, slot, num_slots));
    std::vector<double> y = project(c, m);
    layer_norm(y, c.inputs[4].as<bf16>(), c.inputs[5].as<bf16>(), attrs.get_double("eps", 1e-6));
    rotate(y, c.inputs[7].as<float>() + positions[m] * rope, static_cast<size_t>(rope),
           attrs.get_bool("interleave", true));
    if (attrs.get_bool("hadamard", false)) hadamard(y);
    std::vector<float> rounded;
    for (const double v : y) rounded.push_back(to_float(to_bf16(v)));
    uint8_t* page = cache + slot / 64 * 64 * (dim + 4);
    auto* key = reinterpret_cast<e4m3*>(page + slot % 64 * dim);
    const float scale = quantize_group(rounded.data(), dim, attrs.get_bool("pow2_scale", false), key);
    __builtin_memcpy(page + 64 * dim + slot % 64 * 4, &scale, 4);
  }
  return {};
}

}  // namespace megartp::ops
