// Naive double-precision indexer_q: the oracle.
#include <bit>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "ops/common/quant.h"
#include "ops/indexer_q/indexer_q.h"

namespace megartp::ops {
namespace {

double dequantized(const HostTensor& codes, const HostTensor& scales, int64_t row, int64_t scale_row, int64_t k) {
  return static_cast<double>(to_float(codes.as<e4m3>()[row * codes.dims[1] + k])) *
         static_cast<double>(scales.as<float>()[scale_row * scales.dims[1] + k / 128]);
}

double rounded_to_bf16(double v) { return static_cast<double>(to_float(to_bf16(v))); }

// One head of one row: RoPE of its first dims, optional Hadamard rotation.
std::vector<double> rotated(const std::vector<double>& in, const float* cos_sin, size_t rope, const Attrs& attrs) {
  std::vector<double> out = in;
  for (size_t i = 0; i < rope / 2; ++i) {
    const bool interleave = attrs.get_bool("interleave", true);
    const size_t a = interleave ? 2 * i : i;
    const size_t b = interleave ? 2 * i + 1 : i + rope / 2;
    const auto cosine = static_cast<double>(cos_sin[i]);
    const auto sine = static_cast<double>(cos_sin[rope / 2 + i]);
    out[a] = in[a] * cosine - in[b] * sine;
    out[b] = in[a] * sine + in[b] * cosine;
  }
  if (!attrs.get_bool("hadamard", false)) return out;
  std::vector<double> spread(out.size(), 0.0);
  for (size_t i = 0; i < out.size(); ++i)
    for (size_t j = 0; j < out.size(); ++j)
      spread[i] += (std::popcount(i & j) % 2 == 0 ? out[j] : -out[j]) / std::sqrt(static_cast<double>(out.size()));
  return spread;
}

}  // namespace

Status indexer_q_reference(const ReferenceContext& c) {
  const auto* gate_partials = c.inputs[4].as<float>();
  const auto* positions = c.inputs[5].as<int32_t>();
  const int64_t rows = c.inputs[0].dims[0];
  const int64_t depth = c.inputs[0].dims[1];
  const int64_t heads = c.outputs[0].dims[1];
  const int64_t dim = c.outputs[0].dims[2];
  const int64_t num_positions = c.inputs[6].dims[0];
  const int64_t rope = c.inputs[6].dims[1];
  for (int64_t m = 0; m < rows; ++m) {
    if (positions[m] < 0 || positions[m] >= num_positions)
      return make_error(ErrorCode::kInvalidArgument, fmt::format("op '{}': row {} has position {} of {}", c.op.name, m,
                                                                 positions[m], num_positions));
    const float* cos_sin = c.inputs[6].as<float>() + positions[m] * rope;
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> y;
      for (int64_t n = h * dim; n < (h + 1) * dim; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k)
          sum += dequantized(c.inputs[0], c.inputs[1], m, m, k) * dequantized(c.inputs[2], c.inputs[3], n, n / 128, k);
        y.push_back(rounded_to_bf16(sum));
      }
      std::vector<float> values;
      for (const double v : rotated(y, cos_sin, static_cast<size_t>(rope), c.op.attrs))
        values.push_back(to_float(to_bf16(v)));
      const int64_t at = m * heads + h;
      const float scale = quantize_group(values.data(), dim, c.op.attrs.get_bool("pow2_scale", true),
                                         c.outputs[0].as<e4m3>() + at * dim);
      double gate = 0;
      for (int64_t s = 0; s < c.inputs[4].dims[0]; ++s)
        gate += static_cast<double>(gate_partials[s * rows * heads + at]);
      c.outputs[1].as<float>()[at] = scale;
      c.outputs[2].as<float>()[at] =
          static_cast<float>(gate * static_cast<double>(scale) * c.op.attrs.get_double("score_scale", 0));
      c.outputs[3].as<float>()[at] = static_cast<float>(gate);
    }
  }
  return {};
}

}  // namespace megartp::ops
