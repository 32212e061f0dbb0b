// main_q, the oracle: whole op, plain loops, double precision with the roundings that the specification names.
#include <algorithm>
#include <vector>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "ops/main_q/main_q.h"

namespace megartp::ops {

Status main_q_reference(const ReferenceContext& c) {
  const HostTensor& x = c.inputs[0];
  const HostTensor& weight = c.inputs[2];
  const HostTensor& q_nope = c.outputs[0];
  const HostTensor& q_out = c.outputs[1];
  const int64_t k = x.dims[1];
  const int64_t blocks = c.inputs[1].dims[1];
  const int64_t heads = q_nope.dims[1];
  const int64_t nope = q_nope.dims[2];
  const int64_t rope = c.inputs[5].dims[1];
  const int64_t out_cols = q_out.dims[2];
  std::vector<double> head(static_cast<size_t>(nope + rope));
  for (int64_t m = 0; m < x.dims[0]; ++m) {
    const e4m3* x_row = x.as<const e4m3>() + m * k;
    const float* x_scale = c.inputs[1].as<const float>() + m * blocks;
    const float* table = c.inputs[5].as<const float>() + int64_t{c.inputs[4].as<const int32_t>()[m]} * rope;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < nope + rope; ++d) {
        const int64_t n = h * (nope + rope) + d;
        const e4m3* w = weight.as<const e4m3>() + n * k;
        const float* w_scale = c.inputs[3].as<const float>() + n / 128 * blocks;
        double sum = 0;
        for (int64_t b = 0; b < blocks; ++b) {
          double dot = 0;
          for (int64_t i = b * 128; i < std::min(k, (b + 1) * 128); ++i)
            dot += static_cast<double>(to_float(x_row[i])) * static_cast<double>(to_float(w[i]));
          sum += dot * static_cast<double>(x_scale[b]) * static_cast<double>(w_scale[b]);
        }
        head[static_cast<size_t>(d)] = static_cast<double>(to_float(to_bf16(sum)));
      }
      for (int64_t d = 0; d < nope; ++d)
        q_nope.as<bf16>()[(m * heads + h) * nope + d] = to_bf16(head[static_cast<size_t>(d)]);
      bf16* rotated = q_out.as<bf16>() + (m * heads + h) * out_cols + out_cols - rope;
      for (int64_t i = 0; i < rope / 2; ++i) {
        const double a = head[static_cast<size_t>(nope + 2 * i)];
        const double b = head[static_cast<size_t>(nope + 2 * i + 1)];
        const double cosine = static_cast<double>(table[i]);
        const double sine = static_cast<double>(table[rope / 2 + i]);
        rotated[2 * i] = to_bf16(a * cosine - b * sine);
        rotated[2 * i + 1] = to_bf16(a * sine + b * cosine);
      }
    }
  }
  return {};
}

}  // namespace megartp::ops
