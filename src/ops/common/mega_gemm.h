// What the GEMM ops of the persistent kernel have in common: x comes by a tensor map, weights packed; a tile takes
// pages for its x blocks and one for every K block of weights (128 x 128 bytes).
#pragma once

#include <cstdint>

#include "abi/mega.h"
#include "ops/common/fp8_gemm_stage.h"
#include "ops/mega_op.h"

namespace megartp::ops {

// Of a tile of `k_blocks` K blocks where x has m rows in all.
inline uint32_t mega_gemm_pages(int64_t m, int64_t k_blocks) {
  return static_cast<uint32_t>(ceil_div(k_blocks * block_m(m) * kBlockK, int64_t{abi::kMegaPageBytes}) + k_blocks);
}
inline uint32_t mega_gemm_pages(const Fp8GemmSpec& spec, const Fp8GemmPayload& p) {
  const Range k = split_range(spec.k, spec.splits, p.split);
  return mega_gemm_pages(p.m_total, ceil_div(k.size(), kBlockK));
}

// x, E4M3 [M, K], in boxes of one K block and an M tile.
inline MegaOpMap mega_x_map(uint32_t slot, std::span<const OperandType> operands) {
  const auto dims = operands[slot].dims;
  MegaOpMap map{0, slot, {}};
  map.spec.dims = {static_cast<uint64_t>(dims[1]), static_cast<uint64_t>(dims[0])};
  map.spec.strides = {static_cast<uint64_t>(dims[1])};
  map.spec.box = {static_cast<uint32_t>(kBlockK), static_cast<uint32_t>(block_m(dims[0]))};
  return map;
}

// x is the tensor map's operand; k_blocks are those of a tile at most.
inline Status check_mega_gemm(std::span<const int64_t> x_dims, int64_t k_blocks) {
  constexpr int64_t kRowUnit = 16;
  return mega_dims_fit(
      x_dims[1] % kRowUnit == 0 && k_blocks <= abi::kMegaWeightScales &&
          k_blocks * block_m(x_dims[0]) <= abi::kMegaScales,
      "rows of x of a multiple of 16 bytes and tiles of up to 64 K blocks, 1024 over the rows of an M tile");
}
inline Status check_mega_gemm(std::span<const int64_t> x_dims, const Fp8GemmSpec& spec) {
  return check_mega_gemm(x_dims, ceil_div<int64_t>(ceil_div<int64_t>(spec.k, kBlockK), spec.splits));
}

}  // namespace megartp::ops
