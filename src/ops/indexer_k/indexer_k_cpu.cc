// indexer_k on the CPU: a GEMM tile, the finalizer of an M tile, and both fused.
#include <cstring>

#include "base/bfloat16.h"
#include "ops/common/hadamard.h"
#include "ops/common/norm.h"
#include "ops/common/paged_cache.h"
#include "ops/common/quant.h"
#include "ops/common/rope.h"
#include "ops/indexer_k/indexer_k.h"
#include "ops/indexer_k/indexer_k_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

void layer_norm_inplace(float* x, int64_t n, const bf16* gain, const bf16* bias, float eps) {
  const float mean = row_sum(x, n) / static_cast<float>(n);
  const float factor = rms_scale(sum_of_squared_deviations(x, n, mean), n, eps);
  for (int64_t i = 0; i < n; ++i) x[i] = (x[i] - mean) * factor * to_float(gain[i]) + to_float(bias[i]);
}

void finalize_row(const CpuTile& t, const IndexerKSpec& s, int64_t m_total, int64_t row) {
  const int64_t dim = s.gemm.segment_rows[0];
  const int64_t position = t.operand<const int32_t>(kIndexerKPositions)[row];
  const int64_t slot = t.operand<const int32_t>(kIndexerKSlotMapping)[row];
  // Bindings are checked before a run; a row that slipped through is dropped rather than written outside the cache.
  if (position < 0 || position >= s.num_positions || slot < 0 || slot >= s.num_pages * kPageTokens) return;
  auto* x = reinterpret_cast<float*>(t.scratch.data());
  sum_partials(t.operand<const float>(kIndexerKPartial) + row * dim, m_total * dim, s.gemm.splits, dim, x);
  for (int64_t i = 0; i < dim; ++i) x[i] = round_bf16(x[i]);
  layer_norm_inplace(x, dim, t.operand<const bf16>(kIndexerKNormW), t.operand<const bf16>(kIndexerKNormB), s.eps);
  rope_inplace(x, s.rope, t.operand<const float>(kIndexerKCosSin) + position * s.rope, s.interleave != 0);
  if (s.hadamard != 0) hadamard_inplace(x, dim);
  for (int64_t i = 0; i < dim; ++i) x[i] = round_bf16(x[i]);
  std::byte* page = t.operand<std::byte>(kIndexerKCache) + slot / kPageTokens * index_page_bytes(dim);
  const int64_t offset = slot % kPageTokens;
  const float scale = quantize_group(x, dim, s.pow2_scale != 0, reinterpret_cast<e4m3*>(page + offset * dim));
  std::memcpy(page + kPageTokens * dim + offset * 4, &scale, sizeof scale);
}

void finalize(const CpuTile& t, const IndexerKSpec& s, const IndexerKFinalizePayload& p) {
  for (int64_t i = 0; i < p.m_count; ++i) finalize_row(t, s, p.m_total, p.m_begin + i);
}

}  // namespace

void indexer_k_run_tile(const CpuTile& t) {
  const auto s = decode_spec<IndexerKSpec>(t.spec);
  if (t.opcode == kOpcode_indexer_k_finalize) {
    finalize(t, s, {t.payload[0], t.payload[1], t.payload[2]});
    return;
  }
  const Fp8GemmPayload p = decode_fp8_gemm_payload(t.payload);
  run_fp8_gemm_tile(s.gemm, p, t, indexer_k_gemm_slots());
  if (t.opcode == kOpcode_indexer_k_fused && (*t.join)()) finalize(t, s, {p.m_begin, p.m_count, p.m_total});
}

}  // namespace megartp::ops
