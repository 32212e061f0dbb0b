// The tile kernels' one source, compiled once per instruction set by gemm_cpu_baseline.cc and gemm_cpu_v3.cc, which
// define MEGARTP_KERNEL_TABLE and MEGARTP_KERNEL_NAME.
//
// Everything here is in an unnamed namespace and calls no inline function of another header: the linker would keep one
// copy of such a function for the whole program, possibly the one that needs AVX2.
//
// Shape of the work: K blocks of 128, outermost. For one block the activation rows are decoded to fp32 once, then each
// pair of weight rows, and 4 x 2 outputs at a time accumulate in registers, 8 lanes over k each:
//
//   scratch: activations [64][128] | sums [128][64], column m fastest | a scales [64] | weight rows [2][128]
#pragma once

#include <cstdint>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "ops/common/gemm_cpu_kernels.h"

namespace megartp::ops {
namespace {

// The attributes stand in `using` declarations of raw arrays and pointers only: vectors of 32 bytes are never passed or
// returned, which has no stable ABI without AVX.
using f32x8 = float __attribute__((vector_size(32), may_alias));
using f32x4 = float __attribute__((vector_size(16), may_alias));

constexpr int64_t kBlock = 128;
constexpr int64_t kChunkM = 64;
constexpr int64_t kChunkN = 128;
constexpr int64_t kGroupM = 4;
constexpr int64_t kGroupN = 2;

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// --- decoding
// --------------------------------------------------------------------------------------------------------------

// Decodes 16 values.
inline void decode16(const e4m3* in, float* out) {
#ifdef __AVX2__
  // A half has the same layout with a wider exponent: shifting the code into place scales the value by 2^-8 and keeps
  // subnormals. Code 0x7f would become 480, so its exponent is filled up.
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80U)));
  const __m256i all_ones = _mm256_set1_epi16(0x3f80);
  const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(half, all_ones), all_ones);
  half = _mm256_or_si256(half, _mm256_and_si256(nan, _mm256_set1_epi16(0x4000)));
  const __m256 unit = _mm256_set1_ps(256.0F);
  _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), unit));
  _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), unit));
#else
  // The code shifted into an fp32's exponent and mantissa, rebiased. A subnormal gets an implicit one (2^-6) by
  // exponent 1, which the subtraction takes away again; no fp32 subnormal occurs, so flush-to-zero modes do not matter.
  for (int64_t i = 0; i < 16; ++i) {
    const uint32_t bits = in[i].bits;
    const uint32_t magnitude = bits & 0x7fU;
    const uint32_t is_subnormal = magnitude < 8U ? ~0U : 0U;
    const uint32_t nan = magnitude == 0x7fU ? 0x7fc00000U : 0U;
    const uint32_t shifted = (magnitude << 20) + (120U << 23) + (is_subnormal & (1U << 23));
    const float value = __builtin_bit_cast(float, shifted) - __builtin_bit_cast(float, is_subnormal & (121U << 23));
    out[i] = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, value) | (bits & 0x80U) << 24 | nan);
  }
#endif
}

inline void decode16(const bf16* in, float* out) {
  for (int64_t i = 0; i < 16; ++i) out[i] = __builtin_bit_cast(float, uint32_t{in[i].bits} << 16);
}

// Decodes `count` values and fills up with zeros to a multiple of 16.
template <class T>
inline void decode_padded(const T* in, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) decode16(in + i, out + i);
  if (i == count) return;
  T rest[16] = {};
  __builtin_memcpy(rest, in + i, static_cast<size_t>(count - i) * sizeof(T));
  decode16(rest, out + i);
}

template <class T>
void decode_exactly(const T* in, int64_t count, float* out) {
  const int64_t whole = count / 16 * 16;
  decode_padded(in, whole, out);
  if (whole == count) return;
  float rest[16];
  decode_padded(in + whole, count - whole, rest);
  __builtin_memcpy(out + whole, rest, static_cast<size_t>(count - whole) * sizeof(float));
}

// --- one K block
// -----------------------------------------------------------------------------------------------------------

// sums[j][i] = dot product over `depth` (a multiple of 16) of activation row i and weight row j, in the order of
// gemm_cpu.h. kExact: products are exact, so that a fused multiply-add gives the same bits as separate steps.
template <bool kExact>
inline void dot_group(const float* a, const float* w, int64_t depth, f32x4* sums) {
  f32x8 lanes[kGroupN][kGroupM] = {};
  for (int64_t k = 0; k < depth; k += 8) {
    f32x8 wv[kGroupN];
#pragma GCC unroll 2
    for (int64_t j = 0; j < kGroupN; ++j) wv[j] = *reinterpret_cast<const f32x8*>(w + j * kBlock + k);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kGroupM; ++i) {
      const f32x8 av = *reinterpret_cast<const f32x8*>(a + i * kBlock + k);
#pragma GCC unroll 2
      for (int64_t j = 0; j < kGroupN; ++j) {
#ifdef __FMA__
        if constexpr (kExact) {
          lanes[j][i] = _mm256_fmadd_ps(av, wv[j], lanes[j][i]);
          continue;
        }
#endif
        lanes[j][i] += av * wv[j];
      }
    }
  }
#pragma GCC unroll 2
  for (int64_t j = 0; j < kGroupN; ++j) {
    f32x4 half[kGroupM];  // lanes 0+4, 1+5, 2+6, 3+7
#pragma GCC unroll 4
    for (int64_t i = 0; i < kGroupM; ++i)
      half[i] = __builtin_shufflevector(lanes[j][i], lanes[j][i], 0, 1, 2, 3) +
                __builtin_shufflevector(lanes[j][i], lanes[j][i], 4, 5, 6, 7);
    const f32x4 lo =
        __builtin_shufflevector(half[0], half[1], 0, 1, 4, 5) + __builtin_shufflevector(half[0], half[1], 2, 3, 6, 7);
    const f32x4 hi =
        __builtin_shufflevector(half[2], half[3], 0, 1, 4, 5) + __builtin_shufflevector(half[2], half[3], 2, 3, 6, 7);
    sums[j] = __builtin_shufflevector(lo, hi, 0, 2, 4, 6) + __builtin_shufflevector(lo, hi, 1, 3, 5, 7);
  }
}

// --- a chunk of at most 64 x 128 outputs
// -----------------------------------------------------------------------------------

struct Scratch {
  float* a;
  float* sums;
  float* a_scale;
  float* w;
  explicit Scratch(std::byte* base) {
    auto* f = reinterpret_cast<float*>(base);
    a = f;
    sums = a + kChunkM * kBlock;
    a_scale = sums + kChunkN * kChunkM;
    w = a_scale + kChunkM;
    static_assert((kChunkM * kBlock + kChunkN * kChunkM + kChunkM + kGroupN * kBlock) * 4 <= kGemmScratchBytes);
  }
};

struct Chunk {
  int64_t m_count, n_count, k_begin, k_end;
  int64_t lda, ldw, ld_out;
  float* out;
  // FP8 only.
  const float* a_scale;
  int64_t ld_a_scale;
  const float* w_scale;
  int64_t ld_w_scale;
  int64_t n_first;  // weight row of the chunk's first output, for the scale rows
};

// Adds one group of block sums to the chunk's running sums: plain for BF16; with scales for FP8, where the two scales
// are multiplied first (fp32, one rounding): sum += block * (a_scale * w_scale).
template <bool kScaled>
inline void accumulate(const f32x4& block, const float* a_scale, float w_scale, float* sum) {
  auto& s = *reinterpret_cast<f32x4*>(sum);
  if constexpr (kScaled) {
    const f32x4 scale = *reinterpret_cast<const f32x4*>(a_scale) * w_scale;
    s += block * scale;
  } else {
    s += block;
  }
}

template <bool kScaled, class T>
void run_chunk(const T* a, const T* w, const Chunk& c, const Scratch& s) {
  const int64_t m_padded = padded(c.m_count, kGroupM);
  __builtin_memset(s.sums, 0, static_cast<size_t>(kChunkM * c.n_count) * sizeof(float));
  __builtin_memset(s.a_scale, 0, static_cast<size_t>(kChunkM) * sizeof(float));
  for (int64_t k = c.k_begin; k < c.k_end; k += kBlock) {
    const int64_t depth = smaller(kBlock, c.k_end - k);
    const int64_t depth_padded = padded(depth, 16);
    const int64_t next = smaller(kBlock, c.k_end - k - depth);
    for (int64_t m = 0; m < c.m_count; ++m) {
      decode_padded(a + m * c.lda + k, depth, s.a + m * kBlock);
      if constexpr (kScaled) s.a_scale[m] = c.a_scale[m * c.ld_a_scale + k / kBlock];
    }
    for (int64_t m = c.m_count; m < m_padded; ++m) __builtin_memset(s.a + m * kBlock, 0, kBlock * sizeof(float));
    for (int64_t n = 0; n < c.n_count; n += kGroupN) {
      const int64_t pair = smaller(kGroupN, c.n_count - n);
      float w_scale[kGroupN] = {};
      for (int64_t j = 0; j < pair; ++j) {
        const T* row = w + (n + j) * c.ldw + k;
        decode_padded(row, depth, s.w + j * kBlock);
        // Rows lie far apart, so the hardware does not see the stream: ask for this row's next block while the others
        // compute.
        const auto* ahead = reinterpret_cast<const char*>(row + depth);
        for (int64_t b = 0; b < next * static_cast<int64_t>(sizeof(T)); b += 64) __builtin_prefetch(ahead + b);
        if constexpr (kScaled) w_scale[j] = c.w_scale[(c.n_first + n + j) / kBlock * c.ld_w_scale + k / kBlock];
      }
      for (int64_t m = 0; m < m_padded; m += kGroupM) {
        f32x4 block[kGroupN];
        dot_group<kScaled>(s.a + m * kBlock, s.w, depth_padded, block);
        for (int64_t j = 0; j < pair; ++j)
          accumulate<kScaled>(block[j], s.a_scale + m, w_scale[j], s.sums + (n + j) * kChunkM + m);
      }
    }
  }
  for (int64_t m = 0; m < c.m_count; ++m)
    for (int64_t n = 0; n < c.n_count; ++n) c.out[m * c.ld_out + n] = s.sums[n * kChunkM + m];
}

// --- entry points
// ----------------------------------------------------------------------------------------------------------

[[maybe_unused]] void fp8_gemm(const Fp8GemmArgs& g, std::byte* scratch) {
  const Scratch s(scratch);
  for (int64_t m = 0; m < g.m_count; m += kChunkM) {
    for (int64_t n = 0; n < g.n_count; n += kChunkN) {
      const Chunk c{smaller(kChunkM, g.m_count - m),
                    smaller(kChunkN, g.n_count - n),
                    g.k_begin,
                    g.k_end,
                    g.lda,
                    g.ldw,
                    g.ld_out,
                    g.out + m * g.ld_out + n,
                    g.a_scale + m * g.ld_a_scale,
                    g.ld_a_scale,
                    g.w_scale,
                    g.ld_w_scale,
                    g.n_begin + n};
      run_chunk<true>(g.a + m * g.lda, g.w + (g.n_begin + n) * g.ldw, c, s);
    }
  }
}

[[maybe_unused]] void bf16_gemm(const Bf16GemmArgs& g, std::byte* scratch) {
  const Scratch s(scratch);
  for (int64_t m = 0; m < g.m_count; m += kChunkM) {
    for (int64_t n = 0; n < g.n_count; n += kChunkN) {
      const Chunk c{smaller(kChunkM, g.m_count - m),
                    smaller(kChunkN, g.n_count - n),
                    0,
                    g.k_count,
                    g.lda,
                    g.ldw,
                    g.ld_out,
                    g.out + m * g.ld_out + n,
                    nullptr,
                    0,
                    nullptr,
                    0,
                    0};
      run_chunk<false>(g.a + m * g.lda, g.w + n * g.ldw, c, s);
    }
  }
}

}  // namespace

const GemmKernels MEGARTP_KERNEL_TABLE{MEGARTP_KERNEL_NAME, fp8_gemm, bf16_gemm, decode_exactly<e4m3>,
                                       decode_exactly<bf16>};

}  // namespace megartp::ops
