// Body of absorb_tile, included once per instruction set by absorb_cpu_baseline.cc and absorb_cpu_v3.cc, which name the function.
// Everything else stands in an unnamed namespace and no inline function of another header is called: the linker keeps one copy of
// such a function, and the v3 copy must never end up in the baseline path.
#pragma once

#include <cstring>

#include "ops/common/absorb_cpu.h"

namespace megartp::ops {
namespace {

using Vec8 = float __attribute__((vector_size(32)));

constexpr int64_t kChunk = 64;  // rows of the weight dequantised at a time: 64 x 128 fp32 = 32 KiB, an L1 cache
constexpr int64_t kColumns = kAbsorbMaxColumns;
constexpr int64_t kColumnStep = 16;  // two vectors
constexpr int64_t kRowStep = 4;      // x two vectors: 8 accumulators, enough to hide the latency of an add

// Scratch: the dequantised chunk, the accumulators, the decoded activations [d][m] of the chunk.
struct alignas(64) Scratch {
  float w[kChunk][kColumns];
  float acc[kAbsorbMaxRows][kColumns];
  float q[kAbsorbMaxRows][kChunk];
};
static_assert(sizeof(Scratch) <= kAbsorbScratchBytes);

inline float as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t as_bits(float x) { return __builtin_bit_cast(uint32_t, x); }

// The fp32 bits of x rounded to BF16 (as to_bf16 does it).
inline uint32_t round_bits(float x) {
  const uint32_t u = as_bits(x);
  const uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) & 0xffff0000U;
  return (u & 0x7fffffffU) > 0x7f800000U ? 0x7fff0000U : rounded;
}

// bf16(value * scale) as fp32 bits, branch-free so that the loop over it becomes vector code.
inline uint32_t dequantise(uint8_t byte, float scale) {
  const uint32_t magnitude = byte & 0x7fU;
  const uint32_t sign = static_cast<uint32_t>(byte & 0x80U) << 24;
  const uint32_t tiny = as_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9F);
  const uint32_t normal = (magnitude << 20) + (120U << 23);
  uint32_t bits = magnitude < 8U ? tiny : normal;
  bits = magnitude == 0x7fU ? 0x7fc00000U : bits;
  return round_bits(as_float(bits | sign) * scale);
}

inline void dequantise_row(const e4m3* w, int64_t count, float scale, float* out) {
  uint8_t bytes[kColumns] = {};
  std::memcpy(bytes, w, static_cast<size_t>(count));
  uint32_t words[kColumns];
  for (int64_t n = 0; n < kColumns; ++n) words[n] = dequantise(bytes[n], scale);
  std::memcpy(out, words, sizeof words);
}

// acc[rows][16 columns] += q[rows][d] * w[d][16 columns] for ascending d.
template <int64_t kRows>
void multiply_block(Scratch& s, int64_t row, int64_t column, int64_t chunk) {
  Vec8 acc[kRows][2];
  for (int64_t r = 0; r < kRows; ++r) std::memcpy(acc[r], &s.acc[row + r][column], sizeof acc[r]);
  for (int64_t d = 0; d < chunk; ++d) {
    Vec8 w[2];
    std::memcpy(w, &s.w[d][column], sizeof w);
    for (int64_t r = 0; r < kRows; ++r) {
      const float q = s.q[row + r][d];
      acc[r][0] += w[0] * q;
      acc[r][1] += w[1] * q;
    }
  }
  for (int64_t r = 0; r < kRows; ++r) std::memcpy(&s.acc[row + r][column], acc[r], sizeof acc[r]);
}

void multiply_chunk(Scratch& s, int64_t m_count, int64_t n_count, int64_t chunk) {
  for (int64_t column = 0; column < n_count; column += kColumnStep) {
    int64_t row = 0;
    for (; row + kRowStep <= m_count; row += kRowStep) multiply_block<kRowStep>(s, row, column, chunk);
    for (; row < m_count; ++row) multiply_block<1>(s, row, column, chunk);
  }
}

}  // namespace

void MEGARTP_ABSORB_TILE(const AbsorbArgs& a, std::byte* scratch);

void MEGARTP_ABSORB_TILE(const AbsorbArgs& a, std::byte* scratch) {
  auto& s = *reinterpret_cast<Scratch*>(scratch);
  for (int64_t m = 0; m < a.m_count; ++m) std::memset(s.acc[m], 0, sizeof s.acc[m]);
  for (int64_t d_begin = 0; d_begin < a.d_count; d_begin += kChunk) {
    const int64_t chunk = a.d_count - d_begin < kChunk ? a.d_count - d_begin : kChunk;
    for (int64_t d = 0; d < chunk; ++d) {
      const float scale = a.w_scale[(a.w_row + d_begin + d) / 128 * a.ld_w_scale];
      dequantise_row(a.w + (d_begin + d) * a.ldw, a.n_count, scale, s.w[d]);
    }
    for (int64_t m = 0; m < a.m_count; ++m)
      for (int64_t d = 0; d < chunk; ++d) s.q[m][d] = as_float(uint32_t{a.q[m * a.ldq + d_begin + d].bits} << 16);
    multiply_chunk(s, a.m_count, a.n_count, chunk);
  }
  for (int64_t m = 0; m < a.m_count; ++m)
    for (int64_t n = 0; n < a.n_count; ++n) a.out[m * a.ld_out + n].bits = static_cast<uint16_t>(round_bits(s.acc[m][n]) >> 16);
}

}  // namespace megartp::ops
