// main_q in the persistent kernel: 128 columns an instruction. Arithmetic and order are those of main_q.cuh.
#pragma once

#include "ops/common/device/fp8_gemm_mega.cuh"
#include "ops/main_q/main_q_abi.h"

namespace megartp::device {

struct MainQTile {
  __device__ static MegaGemmTile tile(const MegaContext& c) {
    const auto& spec = c.spec<ops::MainQSpec>();
    const uint32_t* w = c.payload();
    // All rows: the box of the tensor map follows from them, and no tile but the last has fewer rows than its box.
    return mega_gemm_tile(c.operand<const uint8_t>(ops::kMainQWeight), c.operand<const float>(ops::kMainQWeightScale),
                          c.operand<const float>(ops::kMainQXScale), spec.k, w[2], w[3], w[0], w[1], w[0] + w[1], 1, 0);
  }
  template <int kTileM>
  __device__ __forceinline__ static void store(MegaContext& c, const MegaGemmTile& t) {
    float sums[1][kTileM / 2];
    mega_multiply<kTileM, false>(c, t, sums);
    c.wait_inputs_ready();
    const auto& spec = c.spec<ops::MainQSpec>();
    const uint32_t head_columns = spec.nope + spec.rope;
    const uint32_t n_begin = c.payload()[2];
    const uint32_t first_head = small_quotient(n_begin, head_columns);
    const bool is_odd = (lane_index() & 4U) != 0;  // of the row in the tile
    // Two neighbouring rows lie in lanes four apart; each of the two takes one token of both rows.
    for_each_mega_sum<kTileM>(t, sums, [&](uint32_t row, uint32_t token, float a, float b) {
      const float other = __shfl_xor_sync(0xffffffffU, is_odd ? a : b, 4);
      const float low = is_odd ? other : a;
      const float high = is_odd ? b : other;
      token += is_odd ? 1 : 0;
      row &= ~1U;
      if (row >= t.n_count || token >= t.m_count) return;
      const uint32_t pair = pack_bf16(low, high);
      uint32_t head = first_head;
      uint32_t column = n_begin + row - first_head * head_columns;
#pragma unroll 1
      for (; column >= head_columns; column -= head_columns) ++head;
      const uint64_t to = uint64_t{t.m_begin + token} * spec.heads + head;
      if (column < spec.nope) {
        c.operand<uint32_t>(ops::kMainQNope)[(to * spec.nope + column) / 2] = pair;
      } else {
        const uint32_t r = column - spec.nope;
        const int32_t position = c.operand<const int32_t>(ops::kMainQPositions)[t.m_begin + token];
        const float* table = c.operand<const float>(ops::kMainQCosSin) + uint64_t(position) * spec.rope;
        const float2 v = rotate(bf16_low(pair), bf16_high(pair), table[r / 2], table[spec.rope / 2 + r / 2]);
        c.operand<uint32_t>(ops::kMainQOut)[(to * (spec.kv_lora + spec.rope) + spec.kv_lora + r) / 2] =
            pack_bf16(v.x, v.y);
      }
    });
  }
};
template <uint32_t kOp>
using MainQMega = GemmMega<MainQTile, kOp>;

}  // namespace megartp::device
