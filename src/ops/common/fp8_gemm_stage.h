// The GEMM half of split-K families: block-scaled FP8 GEMM tiles that leave fp32 partials for a finalizer.
//
// A family puts Fp8GemmSpec into its spec, asks Fp8GemmTiles for every tile's payload, regions and cost, runs a tile
// with run_fp8_gemm_tile and checks one with check_fp8_gemm. Its finalizer adds the partials of a row with
// sum_partials.
//
//   N: | segment 0 (weight 0) | segment 1 (weight 1) |      tiles of block_n, cut at segment ends
//   partial F32 [splits, M, N]: tile (m, n, s) writes box [s, m rows, n columns]
//
// Tile order: M tiles outermost, then N tiles, then K splits. The sum's order depends on K and splits alone, so block_m
// and block_n may change without changing a bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/common/fp8_gemm_abi.h"
#include "ops/common/gemm_tiling.h"
#include "ops/op_family.h"

namespace megartp::ops {

Fp8GemmPayload decode_fp8_gemm_payload(const uint32_t* words);

// Where the tile's tensors stand in the operand row.
struct Fp8GemmSlots {
  struct Weight {
    uint32_t weight;  // F8 [rows, K]
    uint32_t scale;   // F32 [ceil(rows/128), ceil(K/128)]
  };
  uint32_t a = 0;        // F8 [M, K]
  uint32_t a_scale = 0;  // F32 [M, ceil(K/128)]
  std::array<Weight, kMaxGemmSegments> segments{};
  uint32_t partial = 0;  // F32 [splits, M, N]
};

// What a tile touches besides its weights; for a Stage tensors, for OpFamily::regions operand slots.
struct Fp8GemmTensors {
  TensorId a = kInvalidId;
  TensorId a_scale = kInvalidId;
  TensorId partial = kInvalidId;
};
inline Fp8GemmTensors slot_ids(const Fp8GemmSlots& slots) { return {slots.a, slots.a_scale, slots.partial}; }
// Activation rows and scales of the K slice; the partial box (publication 0).
void add_fp8_gemm_regions(const Fp8GemmTensors& tensors, const Fp8GemmSpec& spec, const Fp8GemmPayload& payload,
                          std::vector<Access>& reads, std::vector<Access>& writes);

// Enumerates the tiles.
class Fp8GemmTiles {
 public:
  using Tensors = Fp8GemmTensors;
  // m rows; segments as in `spec`.
  Fp8GemmTiles(const Tensors& tensors, const Fp8GemmSpec& spec, int64_t m, int64_t block_n = kBlockN);

  struct Coordinates {
    uint32_t m_tile = 0;
    uint32_t n_tile = 0;
    uint32_t split = 0;
  };
  Coordinates coordinates(uint32_t tile_idx) const;
  // Payload, reads (activation rows and scales of the K slice; weights are constant and not listed), the partial box as
  // write (publication 0), and costs, as far as `out` wants them. join_group stays as it is.
  void tile(uint32_t tile_idx, TileDesc& out) const;

  uint32_t num_tiles() const { return num_m_tiles_ * num_n_tiles() * spec_.splits; }
  uint32_t num_m_tiles() const { return num_m_tiles_; }
  uint32_t num_n_tiles() const { return static_cast<uint32_t>(n_tiles_.size()); }
  Range m_range(uint32_t m_tile) const { return block_range(m_, block_m(m_), m_tile); }
  Range n_range(uint32_t n_tile) const { return n_tiles_[n_tile]; }

 private:
  Tensors tensors_;
  Fp8GemmSpec spec_;
  int64_t m_;
  uint32_t num_m_tiles_;
  std::vector<Range> n_tiles_;
};

// Runs one tile: partial[split, m rows, n columns] = block-scaled product over the split's K slice (order of
// gemm_cpu.h).
void run_fp8_gemm_tile(const Fp8GemmSpec& spec, const Fp8GemmPayload& payload, const CpuTile& tile,
                       const Fp8GemmSlots& slots);

// Errors unless the spec is sound, the payload's ranges lie inside and the operands have the right dtypes and dims.
// `kind` names the family in the message.
Status check_fp8_gemm(std::string_view kind, const Fp8GemmSpec& spec, const InstructionCheck& check,
                      const Fp8GemmSlots& slots);

// out[i] = partial[0][i] + partial[1][i] + ..., splits ascending; `partial` points at the first value, splits are
// `split_stride` values apart.
void sum_partials(const float* partial, int64_t split_stride, int64_t splits, int64_t count, float* out);

std::string describe_fp8_gemm_payload(std::span<const uint32_t> payload);  // "m 0..16, n 128..256, k-split 2"
std::string describe_fp8_gemm_spec(const Fp8GemmSpec& spec);               // "N=2048+576 K=6144 splits=4"

}  // namespace megartp::ops
