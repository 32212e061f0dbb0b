// What is made of a plan before it has addresses.
#include "backends/cuda_mega/mega_image.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/common/gemm_tiling.h"
#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"
#include "support/mega_plans.h"

namespace megartp::cuda_mega {
namespace {

using test::fast_config;
using test::layer_plan;
using testing::HasSubstr;

uint32_t row_named(const KernelPlan& plan, std::string_view name) {
  for (uint32_t r = 0; r < plan.operand_rows.size(); ++r)
    if (plan.operand_rows[r].name == name) return r;
  ADD_FAILURE() << "no row " << name;
  return 0;
}

TEST(MegaImage, RecordsCarryTotalsAndPages) {
  const KernelPlan plan = layer_plan(16, 700, 5);
  const auto image = make_mega_image(plan);
  ASSERT_TRUE(image) << image.error().to_string();
  ASSERT_EQ(image->records.size(), plan.instructions.size());
  std::map<std::string_view, uint32_t> most_pages;
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const abi::MegaRecord& r = image->records[i];
    EXPECT_EQ(std::memcmp(&r.instruction, &plan.instructions[i], sizeof(r.instruction)), 0);
    const uint32_t waits = abi::num_waits(r.instruction);
    for (uint32_t w = 0; w < abi::kMaxWaits; ++w)
      EXPECT_EQ(r.wait_total[w], w < waits ? plan.events[r.instruction.waits[w].event].total : 0);
    for (const uint32_t word : r.reserved) EXPECT_EQ(word, 0U);
    uint32_t& most = most_pages[opcode_name(r.instruction.opcode)];
    most = std::max(most, r.num_pages);
  }
  // hidden 512 is four K blocks in two splits of two, which share a page; x takes 4 KiB of another.
  EXPECT_EQ(most_pages["qkv_a.gemm"], 2U);
  EXPECT_EQ(most_pages["indexer_q.gemm"], 2U);  // K = 256: a split a block
  EXPECT_EQ(most_pages["main_q"], 2U);
  EXPECT_EQ(most_pages["qkv_a.finalize"], 1U);  // q or kv of two splits
  EXPECT_EQ(most_pages["add_rmsnorm_quant"], 3U);
  EXPECT_EQ(most_pages["q_absorb"], 4U);
  EXPECT_EQ(most_pages["noop"], 0U);
  EXPECT_EQ(most_pages["indexer_score"], 2U);  // 128 keys
}

// The sizes of a test on the device: the most keys that a tile can have, of which the next tile's q fits the ring, too.
TEST(MegaImage, LongTilesOfTheScoreTakeFivePages) {
  for (const int64_t heads : {8, 32, 64}) {
    SCOPED_TRACE(heads);
    glm52::Config config = fast_config();
    config.index_n_heads = heads;
    const auto plan = build_mega_plan(glm52::attention_pre_graph(config, {}, 6),
                                      glm52::decode_shapes(128, heads == 8 ? 32768 : 8192, 2).value());
    ASSERT_TRUE(plan) << plan.error().to_string();
    const auto image = make_mega_image(*plan);
    ASSERT_TRUE(image) << image.error().to_string();
    uint32_t most = 0;
    for (const abi::MegaRecord& r : image->records)
      if (opcode_name(r.instruction.opcode) == "indexer_score") most = std::max(most, r.num_pages);
    EXPECT_EQ(most, 5U);
  }
}

// As many barriers for the releases of a page as its worker fills it times, up to what there is room for.
TEST(MegaImage, PageUsesAreThoseOfTheLongestQueue) {
  for (const int64_t m : {1, 16, 256}) {
    SCOPED_TRACE(m);
    const auto plan = build_mega_plan(glm52::attention_pre_graph(fast_config(), {}, 6),
                                      glm52::decode_shapes(m, 8192, m == 1 ? 1 : 2).value());
    ASSERT_TRUE(plan) << plan.error().to_string();
    const auto image = make_mega_image(*plan);
    ASSERT_TRUE(image) << image.error().to_string();
    uint32_t most = 0;
    for (uint32_t w = 0; w < plan->num_workers; ++w) {
      uint32_t pages = 0;
      for (uint32_t i = 0; i < plan->queue_depth; ++i)
        pages += image->records[size_t{w} * plan->queue_depth + i].num_pages;
      most = std::max(most, (pages + abi::kMegaPages - 1) / abi::kMegaPages);
    }
    EXPECT_EQ(image->page_uses, std::min(most, abi::kMegaPageUses));
    EXPECT_LT(m == 1 ? most : 0, abi::kMegaPageUses);  // there is something to be saved
  }
}

// Code that families share finds its operands by what the record says.
TEST(MegaImage, RecordsSayWhereSharedCodeFindsItsOperands) {
  const KernelPlan plan = layer_plan(4, 100, 3);
  const auto image = make_mega_image(plan);
  ASSERT_TRUE(image) << image.error().to_string();
  std::map<std::string_view, std::set<uint32_t>> slots;
  for (const abi::MegaRecord& r : image->records) slots[opcode_name(r.instruction.opcode)].insert(r.slots);
  // x scale, weight and its scale, partials; qkv_a has two weights.
  EXPECT_THAT(slots["qkv_a.gemm"], testing::ElementsAre(0x0c030201U, 0x0c050401U));
  EXPECT_THAT(slots["indexer_q.gemm"], testing::SizeIs(1));
  EXPECT_THAT(slots["main_q"], testing::ElementsAre(0U));
}

TEST(MegaImage, TilesForCpusAreRefused) {
  const OpGraph graph = glm52::attention_pre_graph(fast_config(), {}, 6);
  LowerOptions lowering;
  lowering.finalizer = FinalizerMode::kTasks;
  const KernelPlan plan =
      pack(lower(graph, glm52::decode_shapes(4, 100, 1).value(), lowering).value(), find_target("cpu").value(), {{}, 3})
          .value();
  const auto image = make_mega_image(plan);
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(image.error().message, HasSubstr("tiles of up to 64 K blocks"));
  EXPECT_THAT(image.error().message, HasSubstr("64 weight rows, not 0 .. 128"));
}

TEST(MegaImage, OperandsMapsAndPackedWeights) {
  const KernelPlan plan = layer_plan(20, 700, 5);
  const auto image = make_mega_image(plan);
  ASSERT_TRUE(image) << image.error().to_string();
  const uint32_t gemm = row_named(plan, "B0.gemm");
  const uint32_t b1 = row_named(plan, "B1.gemm");
  for (const MegaOperand& o : image->operands) {
    EXPECT_EQ(o.tensor, plan.operand_rows[o.row].tensors[o.slot]);
    const bool is_packed = o.layout == WeightLayout::kTiles64x128;
    if (is_packed) {
      EXPECT_EQ(plan.tensors[o.tensor].storage, Storage::kWeight);
    }
    if (o.row == gemm) {
      EXPECT_EQ(is_packed, o.slot == 2 || o.slot == 4) << o.slot;
    }
  }
  // Both projections read x by one map: boxes of 32 rows.
  const uint8_t map = image->row_maps[gemm][0];
  ASSERT_LT(map, image->maps.size());
  EXPECT_EQ(image->row_maps[b1][0], map);
  EXPECT_EQ(image->row_maps[gemm][1], abi::kMegaNoMap);
  EXPECT_EQ(image->maps[map].spec.box[0], 128U);
  EXPECT_EQ(image->maps[map].spec.box[1], 32U);
  EXPECT_EQ(image->maps[map].spec.dims[0], 512U);
  EXPECT_EQ(image->maps[map].spec.dims[1], 20U);
  const uint32_t score = row_named(plan, "E1");
  EXPECT_NE(image->row_maps[score][0], abi::kMegaNoMap);
  EXPECT_NE(image->row_maps[score][1], abi::kMegaNoMap);
  // kv_b goes to q_absorb as it is in the checkpoint, q_b packed.
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    if (image->tensors[t].is_packed) {
      EXPECT_FALSE(image->tensors[t].is_used_plain) << plan.tensors[t].name;
    }
  }
}

TEST(MegaImage, OpsWithoutDeviceCodeAreNamed) {
  const OpGraph graph = glm52::attention_pre_graph(fast_config(), {}, 6);
  const ShapeEnv shapes = glm52::decode_shapes(4, 100, 1).value();
  const KernelPlan fused = pack(lower(graph, shapes).value(), find_target("h200").value(), {{}, 3}).value();
  const auto image = make_mega_image(fused);
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(image.error().message, HasSubstr("'qkv_a.fused', 'indexer_k.fused', 'indexer_q.fused'"));
}

TEST(MegaImage, DimsThatADeviceOpCannotDoAreNamed) {
  glm52::Config config = fast_config();
  config.index_n_heads = 3;
  const OpGraph graph = glm52::attention_pre_graph(config, {}, 6);
  const auto plan = build_mega_plan(graph, glm52::decode_shapes(4, 100, 1).value());
  ASSERT_TRUE(plan);
  const auto image = make_mega_image(*plan);
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(image.error().message, HasSubstr("'E1' (indexer_score)"));
  EXPECT_THAT(image.error().message, HasSubstr("not 3 heads of 128"));
}

TEST(MegaImage, LimitsOfTheParameters) {
  KernelPlan plan = layer_plan(4, 100, 3);
  const auto refused = [](const KernelPlan& p) {
    const auto image = make_mega_image(p);
    EXPECT_FALSE(image);
    return image ? Error() : image.error();
  };
  KernelPlan rows = plan;
  rows.operand_rows.resize(33, plan.operand_rows[0]);
  EXPECT_THAT(refused(rows).message, HasSubstr("33 operand rows, the kernel's parameters hold 32"));
  KernelPlan specs = plan;
  specs.specs.resize(40, plan.specs[0]);
  EXPECT_THAT(refused(specs).message, HasSubstr("40 specs"));
  KernelPlan words = plan;
  words.specs[0].words.resize(17);
  EXPECT_EQ(refused(words).code, ErrorCode::kOutOfResources);
  EXPECT_THAT(refused(words).message, HasSubstr("17 words in a spec of "));
}

TEST(MegaPlan, DecidesBitsAsLaunchPlansDo) {
  const OpGraph graph = glm52::attention_pre_graph(glm52::Config{}, {}, 6);
  const ShapeEnv shapes = glm52::decode_shapes(16, 8192, 2).value();
  const auto splits = [&](uint32_t num_sms, uint32_t workers) {
    MegaPlanOptions options;
    options.num_sms = num_sms;
    options.num_workers = workers;
    const KernelPlan plan = build_mega_plan(graph, shapes, options).value();
    const auto& tensors = plan.tensors;
    const auto partial = std::ranges::find(tensors, "B0.partial", &PlanTensor::name);
    EXPECT_NE(partial, tensors.end());
    return partial->dims[0];
  };
  EXPECT_EQ(build_mega_plan(graph, shapes).value().num_workers, 264U) << "two an SM";
  EXPECT_EQ(splits(0, 0), 6);
  EXPECT_EQ(splits(132, 20), 6) << "however many workers there are";
  EXPECT_EQ(splits(64, 0), 3);
  EXPECT_EQ(ops::gemm_splits(0, 0, 21, 6144), 4) << "no GPU";
  EXPECT_EQ(ops::gemm_splits(5, 132, 21, 6144), 5);
  EXPECT_EQ(ops::gemm_splits(0, 132, 1, 6144), 8);
  EXPECT_EQ(ops::gemm_splits(0, 132, 1, 512), 2) << "two blocks at least";
}

}  // namespace
}  // namespace megartp::cuda_mega
