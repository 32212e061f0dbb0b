// indexer_q on the CPU: a GEMM tile, the finalizer of one head of an M tile, and both fused.
#include "base/bfloat16.h"
#include "ops/common/hadamard.h"
#include "ops/common/quant.h"
#include "ops/common/rope.h"
#include "ops/indexer_q/indexer_q.h"
#include "ops/indexer_q/indexer_q_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

void finalize_row(const CpuTile& t, const IndexerQSpec& s, const IndexerQFinalizePayload& p, int64_t row) {
  const int64_t dim = s.head_dim;
  const int64_t width = int64_t{s.heads} * dim;
  const int64_t at = row * s.heads + p.head;
  const int64_t position = t.operand<const int32_t>(kIndexerQPositions)[row];
  // Bindings are checked before a run; a row that slipped through is left out rather than read outside the table.
  if (position < 0 || position >= s.num_positions) return;
  auto* x = reinterpret_cast<float*>(t.scratch.data());
  const float* partial = t.operand<const float>(kIndexerQPartial) + row * width + p.head * dim;
  sum_partials(partial, p.m_total * width, s.gemm.splits, dim, x);
  for (int64_t i = 0; i < dim; ++i) x[i] = round_bf16(x[i]);
  rope_inplace(x, s.rope, t.operand<const float>(kIndexerQCosSin) + position * s.rope, s.interleave != 0);
  if (s.hadamard != 0) hadamard_inplace(x, dim);
  for (int64_t i = 0; i < dim; ++i) x[i] = round_bf16(x[i]);
  const float scale = quantize_group(x, dim, s.pow2_scale != 0, t.operand<e4m3>(kIndexerQQ) + at * dim);
  float gate = 0;
  sum_partials(t.operand<const float>(kIndexerQGatePartials) + at, int64_t{p.m_total} * s.heads, s.gate_splits, 1,
               &gate);
  t.operand<float>(kIndexerQScale)[at] = scale;
  t.operand<float>(kIndexerQGate)[at] = gate;
  t.operand<float>(kIndexerQWeights)[at] = gate * scale * s.score_scale;
}

void finalize(const CpuTile& t, const IndexerQSpec& s, const IndexerQFinalizePayload& p) {
  for (int64_t i = 0; i < p.m_count; ++i) finalize_row(t, s, p, p.m_begin + i);
}

}  // namespace

void indexer_q_run_tile(const CpuTile& t) {
  const auto s = decode_spec<IndexerQSpec>(t.spec);
  if (t.opcode == kOpcode_indexer_q_finalize) {
    finalize(t, s, {t.payload[0], t.payload[1], t.payload[2], t.payload[3]});
    return;
  }
  const Fp8GemmPayload p = decode_fp8_gemm_payload(t.payload);
  run_fp8_gemm_tile(s.gemm, p, t, indexer_q_gemm_slots());
  if (t.opcode == kOpcode_indexer_q_fused && (*t.join)())
    finalize(t, s, {p.m_begin, p.m_count, p.n_begin / s.head_dim, p.m_total});
}

}  // namespace megartp::ops
