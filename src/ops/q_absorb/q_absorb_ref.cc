// Naive double-precision q_absorb: the oracle.
#include "base/bfloat16.h"
#include "base/float8.h"
#include "ops/q_absorb/q_absorb.h"

namespace megartp::ops {

Status q_absorb_reference(const ReferenceContext& c) {
  const auto* q_nope = c.inputs[0].as<bf16>();
  const auto* kv_b = c.inputs[1].as<e4m3>();
  const auto* kv_b_scale = c.inputs[2].as<float>();
  auto* q_out = c.inputs[3].as<bf16>();
  const int64_t rows = c.inputs[0].dims[0];
  const int64_t heads = c.inputs[0].dims[1];
  const int64_t nope = c.inputs[0].dims[2];
  const int64_t kv_lora = c.inputs[1].dims[1];
  const int64_t scale_columns = c.inputs[2].dims[1];
  const int64_t out_columns = c.inputs[3].dims[2];
  const int64_t head_rows = nope + c.op.attrs.get_int("v", 0);
  std::vector<double> sum(static_cast<size_t>(kv_lora));
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t m = 0; m < rows; ++m) {
      for (double& s : sum) s = 0;
      for (int64_t d = 0; d < nope; ++d) {
        const int64_t w_row = h * head_rows + d;
        const double q = to_float(q_nope[(m * heads + h) * nope + d]);
        for (int64_t n = 0; n < kv_lora; ++n) {
          const float scale = kv_b_scale[w_row / 128 * scale_columns + n / 128];
          const float w = round_bf16(to_float(kv_b[w_row * kv_lora + n]) * scale);
          sum[static_cast<size_t>(n)] += q * static_cast<double>(w);
        }
      }
      for (int64_t n = 0; n < kv_lora; ++n)
        q_out[(m * heads + h) * out_columns + n] = to_bf16(sum[static_cast<size_t>(n)]);
    }
  }
  return {};
}

}  // namespace megartp::ops
