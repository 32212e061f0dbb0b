// The descriptions of all families over many shapes: sound by themselves, and at GLM-5.2's sizes what was measured.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/kernel_checks.h"
#include "device/shape_table.h"

namespace megartp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<DeviceCase> all_cases() {
  std::vector<DeviceCase> cases = layer_cases();
  std::vector<DeviceCase> ragged = ragged_cases();
  std::move(ragged.begin(), ragged.end(), std::back_inserter(cases));
  return cases;
}

DeviceCase glm_case(int64_t m, std::string_view rest = " kv=8192 requests=2") {
  std::vector<DeviceCase> cases = layer_cases();
  const auto found = std::ranges::find(cases, "glm m=" + std::to_string(m) + std::string(rest), &DeviceCase::name);
  EXPECT_NE(found, cases.end());
  return std::move(*found);
}

DeviceCase ragged_case(std::string_view prefix) {
  std::vector<DeviceCase> cases = ragged_cases();
  const auto found = std::ranges::find_if(cases, [&](const DeviceCase& c) { return c.name.starts_with(prefix); });
  EXPECT_NE(found, cases.end()) << prefix;
  return std::move(*found);
}

TEST(DeviceFamilies, EveryOpFamilyHasOne) {
  for (const OpFamily* f : op_families()) {
    const DeviceFamily* d = find_device_family(f->kind());
    ASSERT_NE(d, nullptr) << f->kind();
    EXPECT_EQ(d->kind(), f->kind());
  }
  EXPECT_EQ(find_device_family("nonsense"), nullptr);
}

TEST(DeviceFamilies, EveryKernelOfEveryShapeIsSound) {
  for (const DeviceCase& c : all_cases()) {
    ASSERT_TRUE(c.graph.status()) << c.name << ": " << c.graph.status().error().to_string();
    for (const OpInfo& op : c.graph.ops()) {
      SCOPED_TRACE(c.name + ", op " + op.name);
      TestDeviceContext context(c.graph, c.shapes, op);
      const auto kernels = find_device_family(op.kind)->kernels(context);
      ASSERT_TRUE(kernels) << kernels.error().to_string();
      for (const DeviceKernel& k : *kernels) EXPECT_THAT(check_kernel(context, k), testing::IsEmpty());
      EXPECT_THAT(check_op_kernels(context, *kernels), testing::IsEmpty());
    }
  }
}

// Early reads are sound only of what no kernel of the layer writes.
TEST(DeviceFamilies, OnlyWeightsAndArgumentsAreReadEarly) {
  for (const DeviceCase& c : layer_cases()) {
    for (const OpInfo& op : c.graph.ops()) {
      TestDeviceContext context(c.graph, c.shapes, op);
      const auto kernels = find_device_family(op.kind)->kernels(context).value();
      for (const DeviceKernel& k : kernels) {
        for (const DeviceAccess& a : k.accesses) {
          const ConcreteTensor& t = context.tensor(k.params[a.param].tensor);
          const bool is_constant =
              t.storage == Storage::kWeight || t.storage == Storage::kRuntimeArg || t.dtype == DType::kI32;
          EXPECT_TRUE(!a.before_wait || is_constant) << c.name << ": " << k.name << " reads " << t.name << " early";
        }
      }
    }
  }
}

TEST(DeviceFamilies, GemmGridsCoverTheirOutputs) {
  for (const DeviceCase& c : all_cases()) {
    for (const OpInfo& op : c.graph.ops()) {
      const std::vector<DeviceKernel> kernels = kernels_of(c, op.name).value();
      for (const DeviceKernel& k : kernels) {
        const auto shape = shape_args(k);
        if (!shape) continue;
        SCOPED_TRACE(c.name + ", kernel " + k.name);
        const uint32_t m = word(k, "m");
        EXPECT_GE(k.grid[1] * shape->tile_m, m);
        EXPECT_LT((k.grid[1] - 1) * shape->tile_m, m);
        EXPECT_TRUE(shape->tile_m >= m || shape->tile_m >= (op.kind.starts_with("indexer_") ? 32U : 64U) ||
                    op.name == "op");
        EXPECT_LE(shape->in_flight, shape->stages);
        const auto tiles = [&](uint32_t n) { return (n + shape->tile_n - 1) / shape->tile_n; };
        if (op.kind == "qkv_a") {
          EXPECT_EQ(k.grid[0], (tiles(word(k, "n_q")) + tiles(word(k, "n_kv"))) * word(k, "splits"));
        } else if (op.kind == "main_q") {
          EXPECT_EQ(k.grid[0], tiles(word(k, "n")));
        } else {
          EXPECT_EQ(k.grid[0], k.cluster * (op.kind == "indexer_q" ? word(k, "heads") : 1));
        }
      }
    }
  }
}

// No cliff between M tiles: where there are more CTAs than SMs, two of them fit one; where there are not, and tiles are
// large, one has it all.
TEST(DeviceFamilies, TwoCtasOfLargeGridsFitAnSm) {
  constexpr uint32_t kSmBytes = 233472;
  for (const DeviceCase& c : layer_cases()) {
    for (const char* op : {"B0", "D0", "D1"}) {
      const DeviceKernel gemm = kernels_of(c, op).value()[0];
      // D0 alone has tiles of 128 x 128, which are faster one at a time than two of 64 x 128 (docs/performance.md).
      const auto shape = shape_args(gemm);
      const bool is_large = shape && shape->tile_n == 128 && shape->tile_m == 128;
      const bool has_an_sm = shape && shape->tile_m >= 64 && gemm.grid[0] * gemm.grid[1] <= 132;
      const uint32_t ctas = is_large || has_an_sm ? 1 : 2;
      EXPECT_TRUE(!is_large || std::string_view(op) == "D0") << c.name << ", op " << op;
      EXPECT_TRUE(!has_an_sm || 2 * (gemm.smem_bytes + 1024) > kSmBytes) << c.name << ", op " << op;
      EXPECT_LE(ctas * (gemm.smem_bytes + 1024), kSmBytes) << c.name << ", op " << op;
      EXPECT_LE(gemm.block, 320U);
    }
  }
}

// A warpgroup for each half of a tile of 128 rows, but one for both where products are exact and tokens few; two warps
// of loaders.
TEST(DeviceFamilies, ThreadsFollowTheTile) {
  const auto threads = [](int64_t m, const char* op) { return kernels_of(glm_case(m), op).value()[0].block; };
  EXPECT_EQ(threads(16, "D0"), 320U);
  EXPECT_EQ(threads(16, "D1"), 192U);
  EXPECT_EQ(threads(16, "B0"), 192U);
  EXPECT_EQ(threads(64, "B0"), 320U);
}

// What decides a row's bits is the same for every M.
TEST(DeviceFamilies, SplitsDoNotDependOnM) {
  const DeviceCase small = glm_case(1, " kv=8192 requests=1");
  for (const int64_t m : {16, 128, 256}) {
    const DeviceCase large = glm_case(m);
    EXPECT_EQ(word(kernels_of(small, "B0").value()[0], "splits"), word(kernels_of(large, "B0").value()[0], "splits"));
    for (const char* op : {"B1", "D1"})
      EXPECT_EQ(kernels_of(small, op).value()[0].cluster, kernels_of(large, op).value()[0].cluster) << op;
    EXPECT_EQ(kernels_of(small, "A0").value()[0].entry, kernels_of(large, "A0").value()[0].entry);
    EXPECT_EQ(kernels_of(small, "B0").value()[1].entry, kernels_of(large, "B0").value()[1].entry);
  }
}

// Stages and chunks are tuned by measurement; what is not tuned stands here.
TEST(DeviceFamilies, GlmAtSixteenRows) {
  const DeviceCase c = glm_case(16);
  const auto one = [&](std::string_view op, size_t i = 0) { return kernels_of(c, op).value().at(i); };
  const auto is_gemm = [&](const DeviceKernel& k, std::string_view function, uint32_t tile_n, uint32_t grid) {
    const auto shape = shape_args(k);
    EXPECT_TRUE(shape && shape->tile_n == tile_n && shape->tile_m == 16 && shape->is_tiled) << k.entry;
    EXPECT_TRUE(k.entry.starts_with("megartp::device::" + std::string(function) + "<")) << k.entry;
    EXPECT_EQ(k.grid[0], grid) << k.entry;
    EXPECT_EQ(k.grid[1], 1U) << k.entry;
  };
  EXPECT_EQ(one("A0").entry, "megartp::device::rmsnorm_quant<768, 1, $WAIT>");
  EXPECT_EQ(one("A0").grid[0], 16U);
  EXPECT_EQ(one("C0").entry, "megartp::device::head_gate<128, $WAIT>");
  EXPECT_EQ(one("C0").grid[0], 48U);
  is_gemm(one("B0"), "qkv_a_gemm", 64, 41 * word(one("B0"), "splits"));
  EXPECT_THAT(one("B0", 1).entry, HasSubstr("qkv_a_finalize<256, "));
  is_gemm(one("B1"), "indexer_k", 128, 8);
  is_gemm(one("D1"), "indexer_q", 128, 128);
  is_gemm(one("D0"), "main_q", 128, 128);
  EXPECT_EQ(one("D2").entry, "megartp::device::q_absorb<3, false, $WAIT>");
  EXPECT_EQ(one("D2").grid[0], 256U);
  const DeviceKernel e1 = one("E1");
  EXPECT_EQ(e1.entry, "megartp::device::indexer_score<32, true, $WAIT>");
  EXPECT_EQ(e1.grid[0], 4 * word(e1, "chunks"));  // blocks of 4 tokens
  EXPECT_EQ(word(e1, "columns"), 8192U);
  EXPECT_GE(64 * word(e1, "pages_per_cta") * word(e1, "chunks"), 8192U);
  EXPECT_EQ(word(e1, "inline_blocks[1]"), 4U << 8 | 4U << 16);
  EXPECT_EQ(word(e1, "inline_blocks[2]"), 1U | 4U << 8 | 8U << 16);
  uint64_t weight_bytes = 0;
  for (const OpInfo& op : c.graph.ops()) {
    const std::vector<DeviceKernel> kernels = kernels_of(c, op.name).value();
    for (const DeviceKernel& k : kernels) weight_bytes += k.weight_bytes;
  }
  EXPECT_NEAR(static_cast<double>(weight_bytes), 66.0e6, 3.0e6);  // of the layer's 68.1 MB
}

TEST(DeviceFamilies, WeightsKeepTheirLayoutWhereTheyAreNotBoundOnce) {
  const DeviceCase tiled = ragged_case("qkv_a m=16 hidden=512 q_lora=256 kv_lora=512 rope=64");
  DeviceCase plain = ragged_case("qkv_a m=16 hidden=512 q_lora=256 kv_lora=512 rope=64 plain");
  const auto layouts = [](const DeviceCase& c) {
    int tiles = 0, maps = 0;
    const DeviceKernel gemm = kernels_of(c, "op").value()[0];
    for (const DeviceAccess& a : gemm.accesses) {
      const DeviceParam& p = gemm.params[a.param];
      tiles += p.layout == WeightLayout::kTiles64x128 ? 1 : 0;
      maps += p.kind == DeviceParam::Kind::kTensorMap ? 1 : 0;
    }
    return std::pair(tiles, maps);
  };
  EXPECT_EQ(layouts(tiled), std::pair(2, 1));
  EXPECT_EQ(layouts(plain), std::pair(0, 3));
}

TEST(DeviceFamilies, SplitWishesAreRoundedToWhatTheKernelsDo) {
  EXPECT_EQ(word(kernels_of(ragged_case("qkv_a m=1 "), "op").value()[0], "splits"), 1U);  // one K block
  EXPECT_EQ(kernels_of(ragged_case("indexer_k m=16 "), "op").value()[0].cluster, 1U);
  EXPECT_EQ(kernels_of(ragged_case("indexer_k m=130 "), "op").value()[0].cluster, 2U);  // of 3
  EXPECT_EQ(kernels_of(ragged_case("indexer_q m=5 "), "op").value()[0].cluster, 2U);    // of 3
}

// The generic kernels stand in where alignment, widths or shared memory say so, and nowhere else.
TEST(DeviceFamilies, DimsChooseTheKernel) {
  const auto first_entry = [](std::string_view prefix) {
    return kernels_of(ragged_case(prefix), "op").value()[0].entry;
  };
  for (const char* name : {"qkv_a m=3 ",
                           "qkv_a m=5 ",
                           "qkv_a m=17 ",
                           "qkv_a m=70 ",
                           "qkv_a m=4 ",
                           "indexer_k m=16 ",  // no splits
                           "indexer_k m=3 ",
                           "indexer_k m=7 ",
                           "indexer_k m=2 ",
                           "indexer_q m=1 ",
                           "indexer_q m=17 ",
                           "indexer_q m=2 q_lora=304 heads=2 dim=200",
                           "indexer_q m=2 q_lora=304 heads=2 dim=128",
                           "main_q m=5 k=300",
                           "main_q m=9 k=2097152",
                           "add_rmsnorm_quant m=1 cols=1",
                           "add_rmsnorm_quant m=1 cols=20000",
                           "head_gate m=1 ",
                           "head_gate m=3 hidden=132",
                           "head_gate m=3 hidden=128",
                           "q_absorb m=1 ",
                           "q_absorb m=3 ",
                           "q_absorb m=65 ",
                           "indexer_score heads=5",
                           "indexer_score heads=32 dim=64"})
    EXPECT_THAT(first_entry(name), HasSubstr("_generic<")) << name;
  for (const char* name : {"qkv_a m=16 ", "qkv_a m=1 ", "qkv_a m=33 ", "indexer_k m=130 ", "indexer_q m=16 ",
                           "indexer_q m=5 ", "main_q m=16 ", "main_q m=300 ", "main_q m=5 k=304", "main_q m=9 k=32768",
                           "add_rmsnorm_quant m=3 ", "add_rmsnorm_quant m=2 ", "head_gate m=17 ", "q_absorb m=5 ",
                           "q_absorb m=33 ", "indexer_score heads=32 dim=128", "indexer_score heads=64"})
    EXPECT_THAT(first_entry(name), Not(HasSubstr("_generic<"))) << name;
}

TEST(DeviceFamilies, TokenBlocksOfTheScore) {
  const DeviceCase c = ragged_case("indexer_score heads=128");  // 20 rows, one token a block
  TestDeviceContext context(c.graph, c.shapes, c.graph.ops()[0]);
  const DeviceKernel k = find_device_family("indexer_score")->kernels(context).value()[0];
  ASSERT_EQ(context.constant().size(), 40U);
  EXPECT_EQ(context.constant()[2 * 19], 1U << 16);
  EXPECT_EQ(context.constant()[2 * 19 + 1], 19U);
  const DeviceKernel many = kernels_of(glm_case(256, " kv=131072 requests=32"), "E1").value()[0];
  EXPECT_EQ(many.grid[0], 64 * word(many, "chunks"));  // blocks of 4 tokens
  EXPECT_GE(64 * word(many, "pages_per_cta") * word(many, "chunks"), 131072U);
  EXPECT_LT(64 * word(many, "pages_per_cta") * (word(many, "chunks") - 1), 131072U);
  DeviceCase wrong = ragged_case("indexer_score heads=32 dim=128");
  wrong.shapes.requests[0].num_rows = 2;
  const auto refused = kernels_of(wrong, "op");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().to_string(),
              AllOf(HasSubstr("'op'"), HasSubstr("3 requests"), HasSubstr("[9, 32, 128]")));
}

TEST(DeviceFamilies, SmallSharedMemoryTakesSmallerTiles) {
  const DeviceCase c = glm_case(128);
  DeviceTarget target;
  target.smem_per_cta = 60 * 1024;
  const auto shape = shape_args(kernels_of(c, "D0", target).value()[0]);
  ASSERT_TRUE(shape);
  EXPECT_LT(shape->tile_m, 128U);
  target.smem_per_cta = 16 * 1024;
  EXPECT_THAT(kernels_of(c, "D0", target).value()[0].entry, HasSubstr("fp8_gemm_generic"));
}

}  // namespace
}  // namespace megartp::test
