// The tile GEMMs: every build of the kernels gives the bits of a scalar loop in the documented order.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "ops/common/gemm_cpu.h"
#include "ops/common/gemm_cpu_kernels.h"

namespace megartp::ops {
namespace {

struct Scratch {
  alignas(64) std::byte bytes[kGemmScratchBytes];
};
std::unique_ptr<Scratch> make_scratch() {
  auto s = std::make_unique<Scratch>();
  std::memset(s->bytes, 0xff, sizeof(s->bytes));
  return s;
}

struct Shape {
  int64_t m, n_total, n_begin, n_count, k, k_begin, k_end;
};

// Adds the 8 lanes of one K block as gemm_cpu.h says.
template <class T>
float block_dot(const T* a, const T* w, int64_t count) {
  float lane[8] = {};
  for (int64_t i = 0; i < count; ++i) {
    const float product = to_float(a[i]) * to_float(w[i]);
    lane[i % 8] = lane[i % 8] + product;
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

std::vector<e4m3> random_e4m3(size_t count, std::mt19937& rng) {
  std::vector<e4m3> v(count);
  for (e4m3& x : v) {
    do x.bits = static_cast<uint8_t>(rng());
    while (is_nan(x));  // all magnitudes, subnormals and zeros included
  }
  return v;
}
std::vector<float> random_scales(size_t count, std::mt19937& rng) {
  std::uniform_real_distribution<float> d(0.001F, 0.02F);
  std::vector<float> v(count);
  for (float& x : v) x = d(rng);
  return v;
}

constexpr float kUntouched = -12345.0F;

void check_fp8(const Shape& s, uint32_t seed) {
  std::mt19937 rng(seed);
  const int64_t kb = (s.k + 127) / 128;
  const auto a = random_e4m3(static_cast<size_t>(s.m * s.k), rng);
  const auto w = random_e4m3(static_cast<size_t>(s.n_total * s.k), rng);
  const auto as = random_scales(static_cast<size_t>(s.m * kb), rng);
  const auto ws = random_scales(static_cast<size_t>((s.n_total + 127) / 128 * kb), rng);
  const int64_t ld_out = s.n_count + 3;
  std::vector<float> want(static_cast<size_t>(s.m * ld_out), kUntouched);
  for (int64_t m = 0; m < s.m; ++m)
    for (int64_t n = 0; n < s.n_count; ++n) {
      float sum = 0.0F;
      for (int64_t k = s.k_begin; k < s.k_end; k += 128) {
        const float block =
            block_dot(&a[static_cast<size_t>(m * s.k + k)], &w[static_cast<size_t>((s.n_begin + n) * s.k + k)],
                      std::min<int64_t>(128, s.k_end - k));
        const float scale =
            as[static_cast<size_t>(m * kb + k / 128)] * ws[static_cast<size_t>((s.n_begin + n) / 128 * kb + k / 128)];
        sum = sum + block * scale;
      }
      want[static_cast<size_t>(m * ld_out + n)] = sum;
    }
  const auto scratch = make_scratch();
  for (const GemmKernels* kernels : usable_gemm_kernels()) {
    std::vector<float> got(want.size(), kUntouched);
    Fp8GemmArgs g;
    g.a = a.data(), g.lda = s.k, g.a_scale = as.data(), g.ld_a_scale = kb;
    g.w = w.data(), g.ldw = s.k, g.w_scale = ws.data(), g.ld_w_scale = kb;
    g.m_count = s.m, g.n_begin = s.n_begin, g.n_count = s.n_count, g.k_begin = s.k_begin, g.k_end = s.k_end;
    g.out = got.data(), g.ld_out = ld_out;
    kernels->gemm_fp8(g, scratch->bytes);
    ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
        << kernels->name << " m=" << s.m << " n=" << s.n_begin << "+" << s.n_count << " k=" << s.k_begin << ".."
        << s.k_end;
  }
}

TEST(GemmCpu, Fp8MatchesScalarOrderBitForBit) {
  const Shape shapes[] = {
      {16, 128, 0, 128, 512, 128, 512},
      {1, 1, 0, 1, 1, 0, 1},
      {3, 5, 1, 4, 7, 0, 7},
      {4, 2, 0, 2, 128, 0, 128},
      {5, 257, 120, 137, 300, 0, 300},
      {17, 130, 3, 127, 260, 256, 260},
      {64, 128, 0, 128, 129, 0, 129},
      {70, 300, 128, 172, 200, 0, 200},
      {2, 64, 0, 64, 1536, 0, 1536},
  };
  uint32_t seed = 1;
  for (const Shape& s : shapes) check_fp8(s, seed++);
}

TEST(GemmCpu, Fp8MatchesScalarOrderOnRandomShapes) {
  std::mt19937 rng(7);
  const auto pick = [&](int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(rng() % static_cast<uint64_t>(hi - lo + 1));
  };
  for (int i = 0; i < 60; ++i) {
    Shape s{};
    s.m = pick(1, 20);
    s.n_total = pick(1, 200);
    s.n_begin = pick(0, s.n_total - 1);
    s.n_count = pick(1, s.n_total - s.n_begin);
    s.k = pick(1, 400);
    s.k_begin = pick(0, (s.k - 1) / 128) * 128;
    s.k_end = pick(s.k_begin + 1, s.k);
    check_fp8(s, static_cast<uint32_t>(100 + i));
  }
}

TEST(GemmCpu, Bf16MatchesScalarOrderBitForBit) {
  const int64_t shapes[][3] = {{16, 128, 192}, {1, 1, 1}, {7, 33, 131}, {65, 129, 64}, {3, 2, 300}};
  const auto scratch = make_scratch();
  std::mt19937 rng(3);
  for (const auto& [m_count, n_count, k] : shapes) {
    std::normal_distribution<float> d;
    std::vector<bf16> a(static_cast<size_t>(m_count * k));
    std::vector<bf16> w(static_cast<size_t>(n_count * k));
    for (bf16& x : a) x = to_bf16(d(rng));
    for (bf16& x : w) x = to_bf16(d(rng) * 1e-3F);
    a[0] = bf16{1};  // subnormal: its products are not exact
    std::vector<float> want(static_cast<size_t>(m_count * n_count));
    for (int64_t m = 0; m < m_count; ++m)
      for (int64_t n = 0; n < n_count; ++n) {
        float sum = 0.0F;
        for (int64_t b = 0; b < k; b += 128)
          sum = sum + block_dot(&a[static_cast<size_t>(m * k + b)], &w[static_cast<size_t>(n * k + b)],
                                std::min<int64_t>(128, k - b));
        want[static_cast<size_t>(m * n_count + n)] = sum;
      }
    for (const GemmKernels* kernels : usable_gemm_kernels()) {
      std::vector<float> got(want.size(), kUntouched);
      const Bf16GemmArgs g{a.data(), k, w.data(), k, m_count, n_count, k, got.data(), n_count};
      kernels->gemm_bf16(g, scratch->bytes);
      ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
          << kernels->name << " m=" << m_count;
    }
  }
}

TEST(GemmCpu, DecodesEveryCode) {
  std::vector<e4m3> codes(256);
  for (size_t i = 0; i < 256; ++i) codes[i].bits = static_cast<uint8_t>(i);
  std::vector<bf16> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<uint16_t>(i);
  for (const GemmKernels* kernels : usable_gemm_kernels()) {
    std::vector<float> out(256);
    kernels->decode_e4m3(codes.data(), 256, out.data());
    for (size_t i = 0; i < 256; ++i) {
      if (is_nan(codes[i])) {
        EXPECT_TRUE(std::isnan(out[i])) << i;
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(to_float(codes[i])))
            << kernels->name << " " << i;
      }
    }
    std::vector<float> wide(halves.size());
    kernels->decode_bf16(halves.data(), static_cast<int64_t>(halves.size()), wide.data());
    for (size_t i = 0; i < halves.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(to_float(halves[i]))) << kernels->name;
  }
}

TEST(GemmCpu, DecodeWritesExactlyCount) {
  std::vector<e4m3> codes(64, e4m3{0x38});
  for (const GemmKernels* kernels : usable_gemm_kernels()) {
    for (int64_t count = 0; count <= 40; ++count) {
      std::vector<float> out(64, kUntouched);
      kernels->decode_e4m3(codes.data(), count, out.data());
      for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], i < count ? 1.0F : kUntouched) << count;
    }
  }
}

TEST(GemmCpu, NanCodeReachesOutput) {
  const auto scratch = make_scratch();
  std::vector<e4m3> a(16, e4m3{0x38});
  std::vector<e4m3> w(16, e4m3{0x38});
  w[9].bits = 0xff;
  const float one = 1.0F;
  for (const GemmKernels* kernels : usable_gemm_kernels()) {
    float out = 0.0F;
    Fp8GemmArgs g;
    g.a = a.data(), g.lda = 16, g.a_scale = &one, g.ld_a_scale = 1, g.w = w.data(), g.ldw = 16, g.w_scale = &one,
    g.ld_w_scale = 1;
    g.m_count = 1, g.n_count = 1, g.k_end = 16, g.out = &out, g.ld_out = 1;
    kernels->gemm_fp8(g, scratch->bytes);
    EXPECT_TRUE(std::isnan(out)) << kernels->name;
  }
}

}  // namespace
}  // namespace megartp::ops
