// Body of absorb_tile, included once per instruction set by absorb_cpu_baseline.cc and absorb_cpu_v3.cc, which name the function.
// Everything else stands in an unnamed namespace and no inline function of another header is called: the linker keeps one copy of
// such a function, and the v3 copy must never end up in the baseline path.
#pragma once

#include <cstring>

#include "ops/common/absorb_cpu.h"

namespace megartp::ops {
namespace {

using Vec8 = float __attribute__((vector_size(32), may_alias));
using Words8 = uint32_t __attribute__((vector_size(32)));
using Bytes8 = uint8_t __attribute__((vector_size(8)));

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

inline Vec8& vec8(float* p) { return *reinterpret_cast<Vec8*>(p); }

// out[n] = bf16(w[n] * scale) as fp32, for n in [0, count); zeros up to kColumns. Eight at a time, without branches. A subnormal code
// gets an implicit one (2^-6) by exponent 1, which the subtraction takes away again.
inline void dequantise_row(const e4m3* w, int64_t count, float scale, float* out) {
  uint8_t bytes[kColumns] = {};
  std::memcpy(bytes, w, static_cast<size_t>(count));
  for (int64_t n = 0; n < kColumns; n += 8) {
    Bytes8 packed;
    std::memcpy(&packed, bytes + n, sizeof packed);
    const Words8 code = __builtin_convertvector(packed, Words8);
    const Words8 magnitude = code & 0x7fU;
    const Words8 is_subnormal = reinterpret_cast<Words8>(magnitude < 8U);
    const Words8 is_nan = reinterpret_cast<Words8>(magnitude == 0x7fU);
    const Words8 shifted = (magnitude << 20) + (120U << 23) + (is_subnormal & (1U << 23));
    const Vec8 value = reinterpret_cast<Vec8>(shifted) - reinterpret_cast<Vec8>(is_subnormal & (121U << 23));
    const Words8 signed_bits = reinterpret_cast<Words8>(value) | (code & 0x80U) << 24 | (is_nan & 0x7fc00000U);
    const Words8 u = reinterpret_cast<Words8>(reinterpret_cast<Vec8>(signed_bits) * scale);
    const Words8 rounded = (u + 0x7fffU + ((u >> 16) & 1U)) & 0xffff0000U;
    const Words8 product_is_nan = reinterpret_cast<Words8>((u & 0x7fffffffU) > 0x7f800000U);
    vec8(out + n) = reinterpret_cast<Vec8>((product_is_nan & 0x7fff0000U) | (~product_is_nan & rounded));
  }
}

// acc[rows][16 columns] += q[rows][d] * w[d][16 columns] for ascending d.
template <int64_t kRows>
void multiply_block(Scratch& s, int64_t row, int64_t column, int64_t chunk) {
  Vec8 acc[kRows][2];
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r) {
    acc[r][0] = vec8(&s.acc[row + r][column]);
    acc[r][1] = vec8(&s.acc[row + r][column + 8]);
  }
  for (int64_t d = 0; d < chunk; ++d) {
    const Vec8 w0 = vec8(&s.w[d][column]);
    const Vec8 w1 = vec8(&s.w[d][column + 8]);
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
      const float q = s.q[row + r][d];
      acc[r][0] += w0 * q;
      acc[r][1] += w1 * q;
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r) {
    vec8(&s.acc[row + r][column]) = acc[r][0];
    vec8(&s.acc[row + r][column + 8]) = acc[r][1];
  }
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
