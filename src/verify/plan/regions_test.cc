// OpFamily::regions says of an instruction what the Stage said of the tile: every family, several shapes, both
// finalizers.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "lowering/lower.h"
#include "models/glm52/glm52.h"
#include "plan/kernel_plan.h"
#include "support/layer_configs.h"
#include "verify/plan/memory_spaces.h"

namespace megartp {
namespace {

// In a slot's terms -> in the terms of the stage's tensors.
std::vector<Access> named(std::vector<Access> accesses, const Stage& stage) {
  for (Access& a : accesses) a.tensor = stage.slots.at(a.tensor);
  return accesses;
}

std::string text(const std::vector<Access>& accesses) {
  std::string out;
  for (const Access& a : accesses) {
    out += "t" + std::to_string(a.tensor) + "[";
    for (uint32_t d = 0; d < a.box.rank; ++d)
      out += std::to_string(a.box.begin[d]) + ".." + std::to_string(a.box.end[d]) + " ";
    out += "]p" + std::to_string(a.publication) + (a.scatter ? "s " : " ");
  }
  return out;
}

bool contains(const Box& outer, const Box& inner) {
  for (uint32_t d = 0; d < inner.rank; ++d)
    if (inner.begin[d] < outer.begin[d] || inner.end[d] > outer.end[d]) return false;
  return inner.rank == outer.rank;
}

// The same elements, though in fewer boxes: each of `many` lies in one of `few`, and the volumes are equal.
void expect_same_elements(const std::vector<Access>& few, const std::vector<Access>& many, const std::string& what) {
  std::vector<int64_t> volume_of(few.size(), 0);
  std::set<std::string> seen;  // several final tiles may name the same box
  for (const Access& m : many) {
    if (!seen.insert(text({m})).second) continue;
    const auto it = std::ranges::find_if(few, [&](const Access& f) {
      return f.tensor == m.tensor && f.publication == m.publication && f.scatter == m.scatter && contains(f.box, m.box);
    });
    ASSERT_NE(it, few.end()) << what << ": " << text({m}) << " is not in " << text(few);
    volume_of[static_cast<size_t>(it - few.begin())] += verify::volume(m.box);
  }
  for (size_t i = 0; i < few.size(); ++i) EXPECT_EQ(volume_of[i], verify::volume(few[i].box)) << what << text({few[i]});
}

struct Seen {
  std::set<std::string_view> opcodes;
  size_t num_fused = 0;
};

void check_stage(const TaskGraph& graph, const TaskStage& ts, Seen& seen) {
  const Stage& stage = *ts.stage;
  const OpFamily& family = *find_op_family_by_opcode(stage.opcode);
  std::vector<OperandType> operands(abi::kOperandSlots);
  for (size_t s = 0; s < stage.slots.size(); ++s)
    if (stage.slots[s] != kInvalidId)
      operands[s] = {true, graph.tensors[stage.slots[s]].dtype, graph.tensors[stage.slots[s]].dims};
  std::vector<InstructionRegions> of_group(stage.num_join_groups);
  std::vector<std::vector<Access>> left_by_group(stage.num_join_groups);
  for (uint32_t t = 0; t < stage.num_tiles; ++t) {
    TileDesc tile;
    stage.tile(t, tile);
    abi::Instruction i{};
    i.opcode = stage.opcode;
    i.counts = abi::make_counts(0, 0, tile.num_payload);
    i.join_counter = tile.join_group;
    std::ranges::copy(tile.payload, i.payload);
    const InstructionCheck check{i, stage.spec, operands};
    ASSERT_TRUE(family.check_instruction(check));
    InstructionRegions regions;
    family.regions(check, regions);
    const std::string what = stage.name + " tile " + std::to_string(t);
    EXPECT_EQ(text(named(regions.reads, stage)), text(tile.reads)) << what;
    EXPECT_EQ(text(named(regions.writes, stage)), text(tile.writes)) << what;
    if (tile.join_group == abi::kNoJoin) {
      EXPECT_TRUE(regions.final_reads.empty() && regions.final_writes.empty()) << what;
      continue;
    }
    // Any member may be the last arriver.
    InstructionRegions& first = of_group[tile.join_group];
    if (first.final_writes.empty()) {
      first = regions;
    } else {
      EXPECT_EQ(text(first.final_reads), text(regions.final_reads)) << what;
      EXPECT_EQ(text(first.final_writes), text(regions.final_writes)) << what;
    }
    auto& left = left_by_group[tile.join_group];
    left.insert(left.end(), tile.writes.begin(), tile.writes.end());
  }
  for (uint32_t g = 0; g < stage.num_join_groups; ++g) {
    std::vector<Access> reads = left_by_group[g];  // what the finalizer adds up
    std::vector<Access> writes;
    for (uint32_t f = 0; f < stage.num_final_tiles; ++f) {
      FinalDesc final_tile;
      stage.final_tile(f, final_tile);
      if (final_tile.join_group != g) continue;
      reads.insert(reads.end(), final_tile.reads.begin(), final_tile.reads.end());
      writes.insert(writes.end(), final_tile.writes.begin(), final_tile.writes.end());
    }
    for (Access& a : reads) a.publication = 0;
    const std::string what = stage.name + " group " + std::to_string(g);
    expect_same_elements(named(of_group[g].final_reads, stage), reads, what + " reads");
    expect_same_elements(named(of_group[g].final_writes, stage), writes, what + " writes");
    ++seen.num_fused;
  }
  seen.opcodes.insert(opcode_name(stage.opcode));
}

void check_graph(const OpGraph& graph, const ShapeEnv& shapes, Seen& seen) {
  for (const FinalizerMode mode : {FinalizerMode::kFused, FinalizerMode::kTasks}) {
    LowerOptions options;
    options.finalizer = mode;
    const auto tasks = lower(graph, shapes, options);
    ASSERT_TRUE(tasks) << tasks.error().to_string();
    for (const TaskStage& stage : tasks->stages)
      if (!is_relay(stage)) check_stage(*tasks, stage, seen);
  }
}

TEST(Regions, OfInstructionsAreThoseOfTheStages) {
  Seen seen;
  for (const int64_t m : {1, 5, 16, 17, 40, 130}) {
    ShapeEnv shapes;
    shapes.set("M", m);
    check_graph(test::plain_chain(), shapes, seen);
    for (const int64_t requests : {int64_t{1}, std::min<int64_t>(m, 3)}) {
      const auto batch = glm52::decode_shapes(m, 700 + m, requests);
      ASSERT_TRUE(batch);
      check_graph(glm52::attention_pre_graph(test::ragged_config(), {}, 6), *batch, seen);
    }
  }
  check_graph(glm52::attention_pre_graph({}, {}, 6), glm52::decode_shapes(33, 8192, 3).value(), seen);
  size_t num_opcodes = 0;
  for (const OpFamily* family : op_families()) num_opcodes += family->opcodes().size();
  EXPECT_EQ(seen.opcodes.size(), num_opcodes) << "a family is in neither graph";
  EXPECT_GT(seen.num_fused, 100U);
}

}  // namespace
}  // namespace megartp
