// qkv_a, the oracle: whole op, plain loops, double precision with the roundings that the specification names. Shares
// nothing with the tile but the number formats.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "ops/qkv_a/qkv_a.h"

namespace megartp::ops {
namespace {

// y[n] = sum over k of (x[k] * x_scale[k/128]) * (w[n][k] * w_scale[n/128][k/128]), rounded to bf16, appended to `z`.
void project(const e4m3* x, const float* x_scale, const HostTensor& weight, const HostTensor& scale,
             std::vector<double>& z) {
  const int64_t rows = weight.dims[0];
  const int64_t k = weight.dims[1];
  const int64_t blocks = scale.dims[1];
  for (int64_t n = 0; n < rows; ++n) {
    const e4m3* w = weight.as<const e4m3>() + n * k;
    double sum = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      double dot = 0;
      for (int64_t i = b * 128; i < std::min(k, (b + 1) * 128); ++i)
        dot += static_cast<double>(to_float(x[i])) * static_cast<double>(to_float(w[i]));
      sum += dot * static_cast<double>(x_scale[b]) * static_cast<double>(scale.as<const float>()[n / 128 * blocks + b]);
    }
    z.push_back(static_cast<double>(to_float(to_bf16(sum))));
  }
}

void norm(double* v, const bf16* w, int64_t count, double eps) {
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += v[i] * v[i];
  const double rms = std::sqrt(squares / static_cast<double>(count) + eps);
  for (int64_t i = 0; i < count; ++i)
    v[i] = static_cast<double>(to_float(to_bf16(v[i] / rms * static_cast<double>(to_float(w[i])))));
}

// The quantisation rule is defined in fp32: scale = max(amax, 1e-4) / 448, code = e4m3(v / scale).
float quantize(const double* v, int64_t count, bool pow2, uint8_t* codes) {
  float amax = 1e-4F;
  for (int64_t i = 0; i < count; ++i) amax = std::max(amax, static_cast<float>(std::fabs(v[i])));
  float scale = amax / 448.0F;
  if (pow2) {
    int exponent = 0;
    const float fraction = std::frexp(scale, &exponent);  // scale = fraction * 2^exponent, 0.5 <= fraction < 1
    scale = std::ldexp(1.0F, fraction > 0.5F ? exponent : exponent - 1);
  }
  for (int64_t i = 0; i < count; ++i) codes[i] = to_e4m3(static_cast<float>(v[i]) / scale).bits;
  return scale;
}

}  // namespace

Status qkv_a_reference(const ReferenceContext& c) {
  const HostTensor& x = c.inputs[0];
  const int64_t n_q = c.inputs[2].dims[0];
  const int64_t n_kv = c.inputs[4].dims[0];
  const int64_t rope = c.inputs[9].dims[1];
  const int64_t latent = n_kv - rope;
  const int64_t q_groups = c.outputs[1].dims[1];
  const int64_t latent_groups = (latent + 127) / 128;
  const int64_t record_bytes = latent + 4 * latent_groups + 2 * rope;
  const double eps = c.op.attrs.get_double("eps", 1e-5);
  const bool pow2 = c.op.attrs.get_bool("pow2_scale", false);
  const bool mla_pow2 = c.op.attrs.get_bool("mla_pow2_scale", true);

  for (int64_t m = 0; m < x.dims[0]; ++m) {
    std::vector<double> z;
    const e4m3* x_row = x.as<const e4m3>() + m * x.dims[1];
    const float* x_scale = c.inputs[1].as<const float>() + m * c.inputs[1].dims[1];
    project(x_row, x_scale, c.inputs[2], c.inputs[3], z);
    project(x_row, x_scale, c.inputs[4], c.inputs[5], z);

    norm(z.data(), c.inputs[6].as<const bf16>(), n_q, eps);
    for (int64_t g = 0; g < q_groups; ++g)
      c.outputs[1].as<float>()[m * q_groups + g] =
          quantize(&z[static_cast<size_t>(g * 128)], std::min<int64_t>(128, n_q - g * 128), pow2,
                   c.outputs[0].as<uint8_t>() + m * n_q + g * 128);

    double* kv = z.data() + n_q;
    norm(kv, c.inputs[7].as<const bf16>(), latent, eps);
    const float* table = c.inputs[9].as<const float>() + int64_t{c.inputs[8].as<const int32_t>()[m]} * rope;
    for (int64_t i = 0; i < rope / 2; ++i) {
      const double a = kv[latent + 2 * i];
      const double b = kv[latent + 2 * i + 1];
      const double cosine = static_cast<double>(table[i]);
      const double sine = static_cast<double>(table[rope / 2 + i]);
      kv[latent + 2 * i] = a * cosine - b * sine;
      kv[latent + 2 * i + 1] = a * sine + b * cosine;
    }
    bf16* kv_out = c.outputs[2].as<bf16>() + m * n_kv;
    for (int64_t i = 0; i < n_kv; ++i) kv_out[i] = to_bf16(kv[i]);

    uint8_t* record = c.inputs[11].as<uint8_t>() + int64_t{c.inputs[10].as<const int32_t>()[m]} * record_bytes;
    for (int64_t g = 0; g < latent_groups; ++g) {
      const float scale = quantize(kv + g * 128, std::min<int64_t>(128, latent - g * 128), mla_pow2, record + g * 128);
      std::memcpy(record + latent + 4 * g, &scale, 4);
    }
    std::memcpy(record + latent + 4 * latent_groups, kv_out + latent, static_cast<size_t>(2 * rope));
  }
  return {};
}

}  // namespace megartp::ops
