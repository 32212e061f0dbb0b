// qkv_a on the CPU: a GEMM tile, one row's finalizer, and both fused.
#include <cmath>
#include <cstring>

#include "base/bfloat16.h"
#include "ops/common/paged_cache.h"
#include "ops/common/quant.h"
#include "ops/common/rope.h"
#include "ops/opcodes.gen.h"
#include "ops/qkv_a/qkv_a.h"

namespace megartp::ops {
namespace {

// Sum of squares in 8 lanes, lane = i % 8, lanes added as in gemm_cpu.h.
float sum_squares(const float* v, int64_t count) {
  float lane[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int64_t j = 0; j < 8; ++j) lane[j] += v[i + j] * v[i + j];
  for (int64_t j = 0; i + j < count; ++j) lane[j] += v[i + j] * v[i + j];
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// v = bf16(v * rstd * w), in fp32 with one rounding to bf16; v stays widened.
void rmsnorm_inplace(float* v, const bf16* w, int64_t count, float eps) {
  const float rstd = 1.0F / std::sqrt(sum_squares(v, count) / static_cast<float>(count) + eps);
  for (int64_t i = 0; i < count; ++i) v[i] = round_bf16(v[i] * rstd * to_float(w[i]));
}

// Quantises groups of 128 (the last may be shorter); scales may be unaligned.
void quantize_row(const float* v, int64_t count, bool pow2, e4m3* q, std::byte* scales) {
  for (int64_t g = 0; g * kQuantGroup < count; ++g) {
    const int64_t begin = g * kQuantGroup;
    const float s = quantize_group(v + begin, std::min(kQuantGroup, count - begin), pow2, q + begin);
    std::memcpy(scales + 4 * g, &s, sizeof(s));
  }
}

// The MLA cache record of a row: codes, scales, rotated key.
void write_record(const CpuTile& t, const QkvASpec& spec, int64_t row, const float* latent, const bf16* rotated) {
  const int64_t slot = t.operand<const int32_t>(kQkvASlotMapping)[row];
  auto* record = t.operand<std::byte>(kQkvACache) + slot * mla_record_bytes(spec.kv_lora, spec.rope);
  quantize_row(latent, spec.kv_lora, spec.mla_pow2_scale != 0, reinterpret_cast<e4m3*>(record), record + spec.kv_lora);
  const int64_t groups = (int64_t{spec.kv_lora} + kQuantGroup - 1) / kQuantGroup;
  std::memcpy(record + spec.kv_lora + 4 * groups, rotated, size_t{spec.rope} * sizeof(bf16));
}

// Columns begin .. end of the row's sums, rounded to BF16, to the start of the scratch.
float* row_sums(const CpuTile& t, const QkvASpec& spec, const QkvAFinalizePayload& p, int64_t begin, int64_t end) {
  const int64_t n = int64_t{q_lora(spec)} + spec.kv_lora + spec.rope;
  auto* z = reinterpret_cast<float*>(t.scratch.data());
  sum_partials(t.operand<const float>(kQkvAPartial) + p.row * n + begin, p.m_total * n, spec.gemm.splits, end - begin,
               z);
  for (int64_t i = 0; i < end - begin; ++i) z[i] = round_bf16(z[i]);
  return z;
}

void finalize_q(const CpuTile& t, const QkvASpec& spec, const QkvAFinalizePayload& p) {
  const int64_t n_q = q_lora(spec);
  float* z = row_sums(t, spec, p, 0, n_q);
  rmsnorm_inplace(z, t.operand<const bf16>(kQkvAQNorm), n_q, spec.eps);
  const int64_t groups = (n_q + kQuantGroup - 1) / kQuantGroup;
  quantize_row(z, n_q, spec.pow2_scale != 0, t.operand<e4m3>(kQkvAQ) + p.row * n_q,
               reinterpret_cast<std::byte*>(t.operand<float>(kQkvAQScale) + p.row * groups));
}

void finalize_kv(const CpuTile& t, const QkvASpec& spec, const QkvAFinalizePayload& p) {
  const int64_t n_q = q_lora(spec);
  const int64_t n_kv = int64_t{spec.kv_lora} + spec.rope;
  float* latent = row_sums(t, spec, p, n_q, n_q + n_kv);
  rmsnorm_inplace(latent, t.operand<const bf16>(kQkvAKvNorm), spec.kv_lora, spec.eps);
  float* key = latent + spec.kv_lora;
  const int64_t position = t.operand<const int32_t>(kQkvAPositions)[p.row];
  rope_inplace(key, spec.rope, t.operand<const float>(kQkvACosSin) + position * spec.rope, true);
  bf16* kv = t.operand<bf16>(kQkvAKv) + p.row * n_kv;
  for (int64_t i = 0; i < n_kv; ++i) kv[i] = to_bf16(latent[i]);
  write_record(t, spec, p.row, latent, kv + spec.kv_lora);
}

void finalize_row(const CpuTile& t, const QkvASpec& spec, const QkvAFinalizePayload& p) {
  if ((p.parts & kQkvAPartQ) != 0) finalize_q(t, spec, p);
  if ((p.parts & kQkvAPartKv) != 0) finalize_kv(t, spec, p);
}

}  // namespace

void run_qkv_a_tile(const CpuTile& t) {
  const auto spec = decode_spec<QkvASpec>(t.spec);
  if (t.opcode == kOpcode_qkv_a_finalize) {
    finalize_row(t, spec, {t.payload[0], t.payload[1], t.payload[2]});
    return;
  }
  const Fp8GemmPayload p = decode_fp8_gemm_payload(t.payload);
  run_fp8_gemm_tile(spec.gemm, p, t, kQkvAGemmSlots);
  if (t.opcode != kOpcode_qkv_a_fused || !(*t.join)()) return;
  for (uint32_t row = p.m_begin; row < p.m_begin + p.m_count; ++row)
    finalize_row(t, spec, {row, p.m_total, kQkvAAllParts});
}

}  // namespace megartp::ops
