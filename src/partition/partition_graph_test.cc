#include "partition/partition_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partition/grid_stage.h"

namespace megartp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Map = std::array<int64_t, 3>;

PartitionOp writer(std::string name, Map grid, Map map, std::string tensor = "t") {
  return {std::move(name), grid, {}, {{std::move(tensor), map}}};
}

// The box that each task writes of its op's first output.
std::vector<std::string> written_boxes(const Stage& stage) {
  std::vector<std::string> boxes;
  TileDesc tile;
  for (uint32_t t = 0; t < stage.num_tiles; ++t) {
    tile.clear();
    stage.tile(t, tile);
    std::string text;
    for (const Access& a : tile.writes)
      for (uint32_t d = 0; d < a.box.rank; ++d)
        text += (d == 0 ? "" : " ") + std::to_string(a.box.begin[d]) + ":" + std::to_string(a.box.end[d]);
    boxes.push_back(text);
  }
  return boxes;
}

std::vector<std::string> boxes_of(Map grid, Map map, const std::vector<int64_t>& extents) {
  return written_boxes(GridStage("S", grid, {}, {make_grid_split(0, grid, map, extents)}));
}

TEST(GridStage, TaskNumbersRunOverZThenYThenX) {
  EXPECT_THAT(boxes_of({2, 1, 2}, {0, -1, 1}, {4, 6}), ElementsAre("0:2 0:3", "0:2 3:6", "2:4 0:3", "2:4 3:6"));
  EXPECT_THAT(boxes_of({2, 2, 1}, {1, 0, -1}, {2, 2}), ElementsAre("0:1 0:1", "1:2 0:1", "0:1 1:2", "1:2 1:2"));
}

TEST(GridStage, AnAxisThatSplitsNothingSeesAll) {
  EXPECT_THAT(boxes_of({1, 2, 1}, {0, -1, -1}, {3}), ElementsAre("0:3", "0:3"));
}

TEST(GridStage, AxesOnOneDimSplitItIntoTheirProduct) {
  EXPECT_THAT(boxes_of({2, 3, 1}, {0, 0, -1}, {6}), ElementsAre("0:1", "1:2", "2:3", "3:4", "4:5", "5:6"));
  EXPECT_THAT(boxes_of({2, 2, 2}, {0, 1, 0}, {4, 2}),
              ElementsAre("0:1 0:1", "1:2 0:1", "0:1 1:2", "1:2 1:2", "2:3 0:1", "3:4 0:1", "2:3 1:2", "3:4 1:2"));
}

TEST(GridStage, RaggedTailsAndTasksBeyondTheExtent) {
  EXPECT_THAT(boxes_of({4, 1, 1}, {0, -1, -1}, {10}), ElementsAre("0:3", "3:6", "6:9", "9:10"));
  EXPECT_THAT(boxes_of({5, 1, 1}, {0, -1, -1}, {3}), ElementsAre("0:1", "1:2", "2:3", "", ""));
  // Blocks of 2 cover 9 elements with 5 of 8 tasks.
  EXPECT_THAT(boxes_of({8, 1, 1}, {0, -1, -1}, {9}), ElementsAre("0:2", "2:4", "4:6", "6:8", "8:9", "", "", ""));
}

TEST(GridStage, WorksAtTheLargestExtents) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(boxes_of({2, 1, 1}, {0, -1, -1}, {kMax}), ElementsAre("0:1073741824", "1073741824:2147483647"));
}

TEST(PartitionGraph, ExtentsAreTheLeastThatAllPartCountsDivide) {
  PartitionGraph g;
  g.ops.push_back(writer("A", {4, 3, 1}, {0, 2, -1}));
  g.ops.push_back({"B", {6, 1, 1}, {{"t", {0, -1, -1}}, {"alone", {-1, -1, -1}}}, {}});
  const auto tasks = lower_partition_graph(g);
  ASSERT_TRUE(tasks) << tasks.error().to_string();
  ASSERT_EQ(tasks->tensors.size(), 2U);
  EXPECT_THAT(tasks->tensors[0].dims, ElementsAre(12, 1, 3));
  EXPECT_THAT(tasks->tensors[1].dims, ElementsAre(1));
  EXPECT_EQ(tasks->tasks.size(), 18U);
  EXPECT_EQ(tasks->stages[0].stage->opcode, kOpcodeAbstract);
}

std::string error_of(const PartitionGraph& g, ErrorCode code = ErrorCode::kInvalidArgument) {
  const auto tasks = lower_partition_graph(g);
  if (tasks) return "no error";
  EXPECT_EQ(tasks.error().code, code) << tasks.error().to_string();
  EXPECT_EQ(check_partition_graph(g).error().message, tasks.error().message);
  return tasks.error().to_string();
}

TEST(PartitionGraph, ErrorsNameOpTensorAndAxis) {
  EXPECT_THAT(error_of({}), HasSubstr("no ops"));
  EXPECT_THAT(error_of({{{"t", {{4}}}}, {writer("A", {4, 1, 1}, {-1, 1, -1})}}),
              AllOf(HasSubstr("op 'A' writes tensor 't'"), HasSubstr("axis y dim 1"), HasSubstr("shape [4]")));
  EXPECT_THAT(error_of({{}, {writer("A", {4, 1, 1}, {-1, -1, 4})}}),
              AllOf(HasSubstr("op 'A' writes tensor 't'"), HasSubstr("axis z dim 4")));
  EXPECT_THAT(error_of({{}, {{"A", {4, 1, 1}, {{"t", {-2, -1, -1}}}, {}}}}),
              AllOf(HasSubstr("op 'A' reads tensor 't'"), HasSubstr("axis x dim -2")));
  EXPECT_THAT(error_of({{}, {writer("A", {4, 0, 1}, {0, -1, -1})}}),
              AllOf(HasSubstr("op 'A'"), HasSubstr("0 along y")));
  EXPECT_THAT(error_of({{}, {writer("A", {4, 1, kMaxGridAxis + 1}, {0, -1, -1})}}), HasSubstr("1048577 along z"));
  EXPECT_THAT(error_of({{}, {writer("A", {1, 1, 1}, {0, -1, -1}), writer("A", {1, 1, 1}, {0, -1, -1})}}),
              HasSubstr("two ops are named 'A'"));
  EXPECT_THAT(error_of({{}, {writer("", {1, 1, 1}, {0, -1, -1})}}), HasSubstr("is empty"));
  EXPECT_THAT(error_of({{}, {writer("A", {1, 1, 1}, {0, -1, -1}, "")}}),
              AllOf(HasSubstr("op 'A'"), HasSubstr("is empty")));
  EXPECT_THAT(error_of({{}, {{"A", {4, 1, 1}, {}, {{"t", {0, -1, -1}}, {"t", {1, -1, -1}}}}}}),
              HasSubstr("op 'A' lists tensor 't' twice among its outputs"));
}

TEST(PartitionGraph, ErrorsOfTensors) {
  const std::vector<PartitionOp> ops{writer("A", {1, 1, 1}, {-1, -1, -1})};
  EXPECT_THAT(error_of({{{"t", {{4, 0}}}}, ops}), AllOf(HasSubstr("tensor 't'"), HasSubstr("[4, 0]")));
  EXPECT_THAT(error_of({{{"t", {{int64_t{1} << 31}}}}, ops}), HasSubstr("2147483648"));
  EXPECT_THAT(error_of({{{"t", {{1, 1, 1, 1, 1}}}}, ops}), HasSubstr("1 to 4 dims"));
  EXPECT_THAT(error_of({{{"t", std::vector<int64_t>{}}}, ops}), HasSubstr("1 to 4 dims"));
  EXPECT_THAT(error_of({{{"t", {{1 << 30, 1 << 30, 1 << 30}}}}, ops}), HasSubstr("too large"));
  EXPECT_THAT(error_of({{{"t", {{1}}}, {"t", {{1}}}}, ops}), HasSubstr("tensor 't' is listed twice"));
  EXPECT_THAT(error_of({{}, {writer("A", {65536, 1, 1}, {0, -1, -1}), writer("B", {65535, 1, 1}, {0, -1, -1})}}),
              AllOf(HasSubstr("op 'B' writes tensor 't'"), HasSubstr("dim 0"), HasSubstr("2^31 - 1")));
}

TEST(PartitionGraph, CapacitiesAreOutOfResources) {
  EXPECT_THAT(error_of({{}, {writer("A", {1 << 20, 1 << 11, 1}, {0, -1, -1})}}, ErrorCode::kOutOfResources),
              AllOf(HasSubstr("op 'A'"), HasSubstr("more than 2^31 - 1 tasks")));
  EXPECT_THAT(
      error_of({{}, {writer("A", {1 << 20, 1 << 10, 1}, {0, -1, -1}), writer("B", {1 << 20, 1 << 10, 1}, {0, -1, -1})}},
               ErrorCode::kOutOfResources),
      AllOf(HasSubstr("op 'B'"), HasSubstr("up to here")));
  PartitionOp wide{"W", {1, 1, 1}, {}, {}};
  for (uint32_t i = 0; i <= abi::kOperandSlots; ++i) wide.inputs.push_back({"t" + std::to_string(i), {-1, -1, -1}});
  EXPECT_THAT(error_of({{}, {wide}}, ErrorCode::kOutOfResources), AllOf(HasSubstr("op 'W'"), HasSubstr("17 tensors")));
  wide.inputs.pop_back();
  wide.inputs.push_back({"t0", {0, -1, -1}});  // the same tensor again takes no slot
  EXPECT_TRUE(lower_partition_graph({{}, {wide}}));
}

TEST(PartitionGraph, WarnsOfWorkThatIsDoneSeveralTimes) {
  EXPECT_THAT(partition_warnings({{}, {writer("P", {4, 8, 1}, {0, -1, -1})}}),
              ElementsAre(AllOf(HasSubstr("op 'P': 8 tasks write each region of tensor 't'"), HasSubstr("axis y"))));
  EXPECT_THAT(partition_warnings({{}, {writer("P", {4, 2, 3}, {0, -1, -1})}}),
              ElementsAre(AllOf(HasSubstr("6 tasks"), HasSubstr("axis y and z"))));
  EXPECT_THAT(partition_warnings({{}, {writer("P", {4, 1, 1}, {0, -1, -1})}}), IsEmpty());
}

TEST(PartitionGraph, WarnsOfSurplusTasks) {
  EXPECT_THAT(partition_warnings({{{"t", {{9}}}}, {writer("P", {8, 1, 1}, {0, -1, -1})}}),
              ElementsAre(HasSubstr("op 'P': 3 of the 8 parts of dim 0 of tensor 't' (extent 9, blocks of 2)")));
  EXPECT_THAT(partition_warnings({{{"t", {{10}}}}, {writer("P", {4, 1, 1}, {0, -1, -1})}}), IsEmpty());
}

TEST(PartitionGraph, WarnsOfAnOpThatReadsWhatItsOtherTasksWrite) {
  const auto in_place = [](Map read) {
    return PartitionGraph{{}, {{"A", {4, 1, 1}, {{"t", read}}, {{"t", {0, -1, -1}}}}}};
  };
  EXPECT_THAT(partition_warnings(in_place({-1, -1, -1})), ElementsAre(HasSubstr("tasks of one op are not ordered")));
  EXPECT_THAT(partition_warnings(in_place({0, -1, -1})), IsEmpty());
  EXPECT_THAT(partition_warnings(in_place({0, 1, -1})), IsEmpty()) << "an axis of size 1 splits nothing";
}

}  // namespace
}  // namespace megartp
