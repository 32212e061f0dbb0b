// What the GEMM ops of the persistent kernel have in common: x comes by a tensor map, weights packed; a tile takes
// pages for its x blocks and one for every two K blocks of weights (64 x 128 bytes each).
#pragma once

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "abi/mega.h"
#include "ops/common/fp8_gemm_stage.h"
#include "ops/mega_op.h"

namespace megartp::ops {

// Of a tile of `k_blocks` K blocks where x has m rows in all.
inline uint32_t mega_gemm_pages(int64_t m, int64_t k_blocks) {
  return static_cast<uint32_t>(ceil_div(k_blocks * block_m(m) * kBlockK, int64_t{abi::kMegaPageBytes}) +
                               ceil_div(k_blocks * kGpuBlockN * kBlockK, int64_t{abi::kMegaPageBytes}));
}
inline uint32_t mega_gemm_pages(const Fp8GemmSpec& spec, const Fp8GemmPayload& p) {
  const Range k = split_range(spec.k, spec.splits, p.split);
  return mega_gemm_pages(p.m_total, ceil_div(k.size(), kBlockK));
}

// The device code that split-K families share.
inline constexpr std::string_view kSplitGemmHeader = "ops/common/device/fp8_gemm_mega.cuh";
inline constexpr std::string_view kSplitGemmType = "SplitGemmMega";
// MegaRecord::slots.
inline uint32_t split_gemm_slots(const Fp8GemmSlots& slots, const Fp8GemmSpec& spec, const Fp8GemmPayload& p) {
  const Fp8GemmSlots::Weight& w = slots.segments[p.n_begin < spec.segment_rows[0] ? 0 : 1];
  return slots.a_scale << (8 * kSplitGemmXScale) | w.weight << (8 * kSplitGemmWeight) |
         w.scale << (8 * kSplitGemmWeightScale) | slots.partial << (8 * kSplitGemmPartial);
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

// x is the tensor map's operand; k_blocks are those of a tile at most, m its rows of x, n those of its weight.
inline Status check_mega_gemm(std::span<const int64_t> x_dims, int64_t k_blocks, const Range& m, const Range& n) {
  constexpr int64_t kRowUnit = 16;
  const int64_t rows = block_m(x_dims[0]);  // a box of the tensor map
  MEGARTP_TRY(mega_dims_fit(m.begin % rows == 0 && m.size() == std::min(rows, x_dims[0] - m.begin),
                            fmt::format("whole M tiles, not rows {} .. {} of {}", m.begin, m.end, x_dims[0])));
  return mega_dims_fit(
      x_dims[1] % kRowUnit == 0 && k_blocks <= abi::kMegaWeightScales && k_blocks * rows <= abi::kMegaScales &&
          n.begin % kGpuBlockN == 0 && n.size() <= kGpuBlockN,
      fmt::format(
          "rows of x of a multiple of 16 bytes and tiles of up to 64 K blocks, 1024 over the rows of an M tile, "
          "and of {} weight rows, not {} .. {}",
          kGpuBlockN, n.begin, n.end));
}
inline Status check_mega_gemm(std::span<const int64_t> x_dims, const Fp8GemmSpec& spec, const Fp8GemmPayload& p) {
  const int64_t first = p.n_begin < spec.segment_rows[0] ? 0 : spec.segment_rows[0];
  return check_mega_gemm(x_dims, ceil_div<int64_t>(ceil_div<int64_t>(spec.k, kBlockK), spec.splits),
                         {p.m_begin, p.m_begin + int64_t{p.m_count}},
                         {p.n_begin - first, p.n_begin + int64_t{p.n_count} - first});
}

// The GEMM op of a split-K family. Spec has the GEMM's as `gemm`; kSlots() tells where its operands stand.
template <class Spec, Fp8GemmSlots (*kSlots)()>
struct SplitGemmMegaOp {
  static Fp8GemmSpec spec(const InstructionCheck& c) { return decode_spec<Spec>(c.spec).gemm; }
  static Fp8GemmPayload payload(const InstructionCheck& c) { return decode_fp8_gemm_payload(c.instruction.payload); }

  static uint32_t num_pages(const InstructionCheck& c) { return mega_gemm_pages(spec(c), payload(c)); }
  static std::vector<MegaOpMap> maps(std::span<const uint32_t>, std::span<const OperandType> operands) {
    return {mega_x_map(kSlots().a, operands)};
  }
  static Status check(const InstructionCheck& c) {
    return check_mega_gemm(c.operands[kSlots().a].dims, spec(c), payload(c));
  }
  static uint32_t shared_slots(const InstructionCheck& c) { return split_gemm_slots(kSlots(), spec(c), payload(c)); }

  static constexpr MegaOpInfo info(uint32_t opcode, std::span<const uint32_t> packed) {
    return {opcode, kSplitGemmHeader, kSplitGemmType, packed, num_pages, maps, check, shared_slots};
  }
};

}  // namespace megartp::ops
