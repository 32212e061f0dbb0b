// main_q: one tile on the CPU.
#include "base/bfloat16.h"
#include "base/math.h"
#include "ops/common/gemm_cpu.h"
#include "ops/common/gemm_cpu_kernels.h"
#include "ops/common/gemm_tiling.h"
#include "ops/main_q/main_q.h"

namespace megartp::ops {
namespace {

constexpr int64_t kMaxBlockM = 64;
// The GEMM's own scratch comes first, then the tile's fp32 result.
static_assert(kGemmScratchBytes % 64 == 0 && kGemmScratchBytes + kMaxBlockM * kBlockN * int64_t{sizeof(float)} <=
                                                 static_cast<int64_t>(kCpuScratchBytes));

// Rounds columns [n_begin, n_begin + n_count) of one row to bf16 and stores them by head; `out` rows are [heads,
// kv_lora + rope].
void store_row(const MainQSpec& s, const float* z, int64_t n_begin, int64_t n_count, const float* cos_sin, bf16* q_nope,
               bf16* q_out) {
  const int64_t head_cols = int64_t{s.nope} + s.rope;
  const int64_t out_cols = int64_t{s.kv_lora} + s.rope;
  for (int64_t i = 0; i < n_count; i += 2) {  // pairs: everything is even
    const int64_t head = (n_begin + i) / head_cols;
    const int64_t column = (n_begin + i) % head_cols;
    const bf16 a = to_bf16(z[i]);
    const bf16 b = to_bf16(z[i + 1]);
    if (column < s.nope) {
      bf16* out = q_nope + head * s.nope + column;
      out[0] = a;
      out[1] = b;
      continue;
    }
    const int64_t r = column - s.nope;
    const float c = cos_sin[r / 2];
    const float d = cos_sin[s.rope / 2 + r / 2];
    bf16* out = q_out + head * out_cols + s.kv_lora + r;
    out[0] = to_bf16(to_float(a) * c - to_float(b) * d);
    out[1] = to_bf16(to_float(a) * d + to_float(b) * c);
  }
}

}  // namespace

void run_main_q_tile(const CpuTile& t) {
  const auto s = decode_spec<MainQSpec>(t.spec);
  const MainQPayload p{t.payload[0], t.payload[1], t.payload[2], t.payload[3]};
  const int64_t k_blocks = ceil_div<int64_t>(s.k, kBlockK);
  auto* z = reinterpret_cast<float*>(t.scratch.data() + kGemmScratchBytes);
  Fp8GemmArgs g;
  g.a = t.operand<const e4m3>(kMainQX) + int64_t{p.m_begin} * s.k;
  g.lda = s.k;
  g.a_scale = t.operand<const float>(kMainQXScale) + int64_t{p.m_begin} * k_blocks;
  g.ld_a_scale = k_blocks;
  g.w = t.operand<const e4m3>(kMainQWeight);
  g.ldw = s.k;
  g.w_scale = t.operand<const float>(kMainQWeightScale);
  g.ld_w_scale = k_blocks;
  g.m_count = p.m_count;
  g.n_begin = p.n_begin;
  g.n_count = p.n_count;
  g.k_begin = 0;
  g.k_end = s.k;
  g.out = z;
  g.ld_out = kBlockN;
  fp8_gemm_tile(g, t.scratch.first(static_cast<size_t>(kGemmScratchBytes)));
  for (int64_t i = 0; i < p.m_count; ++i) {
    const int64_t row = p.m_begin + i;
    const int64_t position = t.operand<const int32_t>(kMainQPositions)[row];
    store_row(s, z + i * kBlockN, p.n_begin, p.n_count, t.operand<const float>(kMainQCosSin) + position * s.rope,
              t.operand<bf16>(kMainQNope) + row * s.heads * s.nope,
              t.operand<bf16>(kMainQOut) + row * s.heads * (int64_t{s.kv_lora} + s.rope));
  }
}

}  // namespace megartp::ops
