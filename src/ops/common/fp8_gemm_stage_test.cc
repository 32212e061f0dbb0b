// The shared split-K GEMM stage: tiles cover the partials once, stay inside one weight, and sum to the whole product.
#include "ops/common/fp8_gemm_stage.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/float8.h"
#include "base/math.h"

namespace megartp::ops {
namespace {

constexpr TensorId kA = 0, kAScale = 1, kPartial = 2;
enum Slot : uint32_t { kSlotA, kSlotAScale, kSlotW0, kSlotS0, kSlotW1, kSlotS1, kSlotPartial };
constexpr Fp8GemmSlots kSlots{kSlotA, kSlotAScale, {{{kSlotW0, kSlotS0}, {kSlotW1, kSlotS1}}}, kSlotPartial};

struct Problem {
  int64_t m;
  Fp8GemmSpec spec;
  int64_t block_n = kBlockN;
};

std::vector<Problem> problems() {
  return {{16, {6144, 4, {2048, 576}}},
          {1, {64, 1, {8, 0}}},
          {5, {300, 3, {130, 20}}},
          {33, {257, 2, {64, 0}}, 64},
          {70, {129, 2, {96, 96}}, 48}};
}

TEST(Fp8GemmStage, CountsOfTheGlmQkvProjection) {
  const Fp8GemmTiles tiles({kA, kAScale, kPartial}, {6144, 4, {2048, 576}}, 16);
  EXPECT_EQ(tiles.num_n_tiles(), 21U);
  EXPECT_EQ(tiles.num_tiles(), 84U);
  EXPECT_EQ(tiles.num_m_tiles(), 1U);
}

TEST(Fp8GemmStage, TilesCoverThePartialsOnceAndNeverStraddleSegments) {
  for (const Problem& p : problems()) {
    const Fp8GemmTiles tiles({kA, kAScale, kPartial}, p.spec, p.m, p.block_n);
    const int64_t n_total = total_n(p.spec);
    std::vector<int> written(static_cast<size_t>(p.spec.splits * p.m * n_total));
    std::vector<int> k_used(static_cast<size_t>(p.m * p.spec.k));
    for (uint32_t i = 0; i < tiles.num_tiles(); ++i) {
      TileDesc t;
      tiles.tile(i, t);
      ASSERT_EQ(t.num_payload, kFp8GemmPayloadWords);
      const Fp8GemmPayload payload = decode_fp8_gemm_payload(t.payload.data());
      const Box& box = t.writes.at(0).box;
      ASSERT_EQ(t.writes.size(), 1U);
      const int64_t edge = p.spec.segment_rows[0];
      EXPECT_TRUE(box.end[2] <= edge || box.begin[2] >= edge);
      for (int64_t m = box.begin[1]; m < box.end[1]; ++m)
        for (int64_t n = box.begin[2]; n < box.end[2]; ++n)
          ++written[static_cast<size_t>((box.begin[0] * p.m + m) * n_total + n)];
      if (payload.n_begin == 0) {
        const Box& a = t.reads.at(0).box;
        for (int64_t m = a.begin[0]; m < a.end[0]; ++m)
          for (int64_t k = a.begin[1]; k < a.end[1]; ++k) ++k_used[static_cast<size_t>(m * p.spec.k + k)];
      }
      EXPECT_GT(t.weight_bytes, 0U);
      EXPECT_GT(t.flops, 0U);
    }
    for (const int w : written) ASSERT_EQ(w, 1);
    for (const int k : k_used) ASSERT_EQ(k, 1);
  }
}

struct Data {
  std::vector<e4m3> a, w0, w1;
  std::vector<float> as, s0, s1, partial;
  explicit Data(const Problem& p) {
    std::mt19937 rng(5);
    const size_t kb = ceil_div<size_t>(p.spec.k, 128);
    const auto codes = [&](size_t n) {
      std::vector<e4m3> v(n);
      for (e4m3& x : v) x.bits = static_cast<uint8_t>(rng() & 0xb7U);
      return v;
    };
    const auto scales = [&](size_t n) {
      std::vector<float> v(n);
      for (float& x : v) x = 0.001F + 0.01F * static_cast<float>(rng() % 100);
      return v;
    };
    const auto m = static_cast<size_t>(p.m);
    a = codes(m * p.spec.k);
    as = scales(m * kb);
    w0 = codes(size_t{p.spec.segment_rows[0]} * p.spec.k);
    w1 = codes(size_t{p.spec.segment_rows[1]} * p.spec.k);
    s0 = scales(ceil_div<size_t>(p.spec.segment_rows[0], 128) * kb);
    s1 = scales(ceil_div<size_t>(p.spec.segment_rows[1], 128) * kb);
    partial.assign(p.spec.splits * m * total_n(p.spec), std::nanf(""));
  }
};

double exact(const Problem& p, const Data& d, int64_t m, int64_t n, double& magnitude) {
  const bool second = n >= p.spec.segment_rows[0];
  const int64_t row = second ? n - p.spec.segment_rows[0] : n;
  const int64_t kb = ceil_div<int64_t>(p.spec.k, 128);
  double sum = 0;
  magnitude = 0;
  for (int64_t k = 0; k < p.spec.k; ++k) {
    const e4m3 w = (second ? d.w1 : d.w0)[static_cast<size_t>(row * p.spec.k + k)];
    const float s = (second ? d.s1 : d.s0)[static_cast<size_t>(row / 128 * kb + k / 128)];
    const double v = static_cast<double>(to_float(d.a[static_cast<size_t>(m * p.spec.k + k)])) *
                     static_cast<double>(d.as[static_cast<size_t>(m * kb + k / 128)]) *
                     static_cast<double>(to_float(w)) * static_cast<double>(s);
    sum += v;
    magnitude += std::fabs(v);
  }
  return sum;
}

TEST(Fp8GemmStage, PartialsSumToTheProduct) {
  const auto scratch = std::make_unique<std::byte[]>(kCpuScratchBytes + 64);
  auto* base = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.get()) + 63) & ~uintptr_t{63});
  for (const Problem& p : problems()) {
    if (p.spec.k > 1000) continue;
    Data d(p);
    void* row[abi::kOperandSlots] = {d.a.data(),  d.as.data(), d.w0.data(),     d.s0.data(),
                                     d.w1.data(), d.s1.data(), d.partial.data()};
    const Fp8GemmTiles tiles({kA, kAScale, kPartial}, p.spec, p.m, p.block_n);
    for (uint32_t i = 0; i < tiles.num_tiles(); ++i) {
      TileDesc t;
      tiles.tile(i, t);
      CpuTile cpu;
      cpu.operands = row;
      cpu.scratch = std::span(base, kCpuScratchBytes);
      run_fp8_gemm_tile(p.spec, decode_fp8_gemm_payload(t.payload.data()), cpu, kSlots);
    }
    const int64_t n_total = total_n(p.spec);
    std::vector<float> sums(static_cast<size_t>(n_total));
    for (int64_t m = 0; m < p.m; ++m) {
      sum_partials(d.partial.data() + m * n_total, p.m * n_total, p.spec.splits, n_total, sums.data());
      for (int64_t n = 0; n < n_total; ++n) {
        double magnitude = 0;
        const double want = exact(p, d, m, n, magnitude);
        // 16 lane steps, 3 tree steps, the scales and the block sums: fewer than 32 roundings of at most 2^-24 each.
        ASSERT_NEAR(static_cast<double>(sums[static_cast<size_t>(n)]), want, 32 * 0x1p-24 * magnitude) << m << "," << n;
      }
    }
  }
}

TEST(Fp8GemmStage, SumsSplitsInAscendingOrder) {
  const float partial[] = {1e8F, 1.0F, -1e8F, 2.0F, 1.0F, 4.0F};  // [3][2]
  float out[2];
  sum_partials(partial, 2, 3, 2, out);
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[1], 7.0F);
}

TEST(Fp8GemmStage, RefusesWhatWouldLeaveTheOperands) {
  const Problem p{5, {300, 3, {130, 20}}};
  const Fp8GemmTiles tiles({kA, kAScale, kPartial}, p.spec, p.m, p.block_n);
  TileDesc t;
  tiles.tile(tiles.num_tiles() - 1, t);
  abi::Instruction good{};
  good.counts = abi::make_counts(0, 0, t.num_payload);
  std::memcpy(good.payload, t.payload.data(), sizeof(good.payload));
  const int64_t dims[][3] = {{5, 300}, {5, 3}, {130, 300}, {2, 3}, {20, 300}, {1, 3}, {3, 5, 150}};
  const DType dtypes[] = {DType::kF8E4M3, DType::kF32, DType::kF8E4M3, DType::kF32,
                          DType::kF8E4M3, DType::kF32, DType::kF32};
  std::vector<OperandType> operands(abi::kOperandSlots);
  for (size_t i = 0; i < 7; ++i) operands[i] = {true, dtypes[i], std::span(dims[i], i == 6 ? 3U : 2U)};
  const auto check = [&](const abi::Instruction& i, const Fp8GemmSpec& spec) {
    return check_fp8_gemm("test", spec, InstructionCheck{i, {}, operands}, kSlots).has_value();
  };
  ASSERT_TRUE(check(good, p.spec));
  for (uint32_t w = 0; w < kFp8GemmPayloadWords; ++w) {
    for (const uint32_t value : {good.payload[w] + 1, 0xffffffffU, 0x7fffffffU}) {
      abi::Instruction bad = good;
      bad.payload[w] = value;
      EXPECT_FALSE(check(bad, p.spec)) << "payload word " << w << " = " << value;
    }
  }
  abi::Instruction no_rows = good;
  no_rows.payload[1] = 0;
  EXPECT_FALSE(check(no_rows, p.spec));
  abi::Instruction few_words = good;
  few_words.counts = abi::make_counts(0, 0, 5);
  EXPECT_FALSE(check(few_words, p.spec));
  for (const Fp8GemmSpec& spec :
       {Fp8GemmSpec{0, 3, {130, 20}}, Fp8GemmSpec{300, 0, {130, 20}}, Fp8GemmSpec{300, 4, {130, 20}},
        Fp8GemmSpec{300, 3, {0, 150}}, Fp8GemmSpec{301, 3, {130, 20}}, Fp8GemmSpec{300, 2, {130, 20}},
        Fp8GemmSpec{300, 3, {0xffffffffU, 20}}, Fp8GemmSpec{0xffffffffU, 3, {130, 20}}})
    EXPECT_FALSE(check(good, spec)) << describe_fp8_gemm_spec(spec);
  for (size_t slot = 0; slot < 7; ++slot) {
    auto saved = operands[slot];
    operands[slot].present = false;
    EXPECT_FALSE(check(good, p.spec)) << slot;
    operands[slot] = saved;
  }
}

TEST(Fp8GemmStage, Describes) {
  const uint32_t payload[] = {0, 16, 128, 128, 2, 16};
  EXPECT_EQ(describe_fp8_gemm_payload(payload), "m 0..16, n 128..256, k-split 2");
  EXPECT_EQ(describe_fp8_gemm_spec({6144, 4, {2048, 576}}), "N=2048+576 K=6144 splits=4");
}

}  // namespace
}  // namespace megartp::ops
