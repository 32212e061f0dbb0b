#include "partition/partition_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace megartp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr std::string_view kGood = R"({"partition_graph": 1,
 "tensors": {"t": {"shape": [10, 3]}, "u": {}},
 "ops": [{"name": "P", "grid": [4, 2, 1], "outputs": [{"tensor": "t", "map": [0, -1, -1]}]},
         {"name": "C", "grid": [3, 1, 1], "inputs": [{"tensor": "t", "map": [0, 1, -1]}], "outputs": []}]})";

TEST(PartitionJson, ReadsAGraph) {
  const auto g = partition_graph_from_json(kGood);
  ASSERT_TRUE(g) << g.error().to_string();
  ASSERT_EQ(g->tensors.size(), 2U);
  EXPECT_EQ(g->tensors[0].name, "t");
  EXPECT_EQ(g->tensors[0].shape, (std::vector<int64_t>{10, 3}));
  EXPECT_FALSE(g->tensors[1].shape);
  ASSERT_EQ(g->ops.size(), 2U);
  EXPECT_EQ(g->ops[0].name, "P");
  EXPECT_EQ(g->ops[0].grid, (std::array<int64_t, 3>{4, 2, 1}));
  EXPECT_TRUE(g->ops[0].inputs.empty());
  ASSERT_EQ(g->ops[0].outputs.size(), 1U);
  EXPECT_EQ(g->ops[0].outputs[0].map, (std::array<int64_t, 3>{0, -1, -1}));
  EXPECT_EQ(g->ops[1].inputs[0].tensor, "t");
  EXPECT_EQ(to_json(*partition_graph_from_json(to_json(*g))), to_json(*g));
}

// The good text with one piece replaced.
std::string error_of(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto g = partition_graph_from_json(text);
  if (g) return "no error";
  EXPECT_EQ(g.error().code, ErrorCode::kParse);
  return g.error().to_string();
}

TEST(PartitionJson, ErrorsNameThePlace) {
  EXPECT_THAT(error_of("\"partition_graph\": 1", "\"partition_graph\": 2"), HasSubstr("expected 1"));
  EXPECT_THAT(error_of("\"partition_graph\": 1", "\"partition_graph\": \"1\""), HasSubstr("expected 1"));
  EXPECT_THAT(error_of("\"partition_graph\": 1,", ""), HasSubstr("'partition_graph' is missing"));
  EXPECT_THAT(error_of("\"ops\": [", "\"operations\": ["), HasSubstr("'operations'"));
  EXPECT_THAT(error_of("\"name\": \"C\", ", ""), AllOf(HasSubstr("'name' is missing"), HasSubstr("ops[1]")));
  EXPECT_THAT(error_of("\"name\": \"C\"", "\"name\": 3"), HasSubstr("ops[1].name"));
  EXPECT_THAT(error_of("\"name\": \"C\"", "\"name\": \"P\""), HasSubstr("two ops are named 'P'"));
  EXPECT_THAT(error_of("\"grid\": [4, 2, 1]", "\"grid\": [4, 2]"),
              AllOf(HasSubstr("op 'P'"), HasSubstr("ops[0].grid")));
  EXPECT_THAT(error_of("\"grid\": [4, 2, 1]", "\"grid\": [4, 2.5, 1]"), HasSubstr("op 'P'"));
  EXPECT_THAT(error_of("\"grid\": [4, 2, 1]", "\"grid\": [4, 18446744073709551615, 1]"), HasSubstr("op 'P'"));
  EXPECT_THAT(error_of("\"grid\": [4, 2, 1]", "\"grid\": [4, -2, 1]"), HasSubstr("op 'P'"));
  EXPECT_THAT(error_of("\"map\": [0, 1, -1]", "\"map\": [0, 1]"),
              AllOf(HasSubstr("op 'C', tensor 't'"), HasSubstr("ops[1].inputs[0].map")));
  EXPECT_THAT(error_of("\"map\": [0, 1, -1]", "\"map\": [0, 2, -1]"),
              AllOf(HasSubstr("op 'C' reads tensor 't'"), HasSubstr("axis y dim 2"), HasSubstr("[10, 3]")));
  EXPECT_THAT(error_of("\"map\": [0, 1, -1]", "\"map\": 0"), HasSubstr("ops[1].inputs[0].map"));
  EXPECT_THAT(error_of("\"tensor\": \"t\", \"map\": [0, 1", "\"map\": [0, 1"), HasSubstr("'tensor' is missing"));
  EXPECT_THAT(error_of("\"shape\": [10, 3]", "\"shape\": []"), HasSubstr("tensor 't'"));
  EXPECT_THAT(error_of("\"shape\": [10, 3]", "\"shape\": [10, \"M\"]"), HasSubstr("tensor 't'"));
  EXPECT_THAT(error_of("\"shape\": [10, 3]", "\"dtype\": \"BF16\""),
              AllOf(HasSubstr("'dtype'"), HasSubstr("tensors.'t'")));
  EXPECT_THAT(error_of("\"u\": {}", "\"u\": 3"), HasSubstr("tensors.'u'"));
  EXPECT_THAT(error_of("\"u\": {}", "\"t\": {}"), HasSubstr("repeated key 't'"));
  EXPECT_THAT(error_of("\"outputs\": []", "\"outputs\": {}"), HasSubstr("ops[1].outputs"));
  EXPECT_THAT(error_of("\"outputs\": []", "\"outputs\": [[]]"), HasSubstr("ops[1].outputs[0]"));
  EXPECT_THAT(error_of("\"outputs\": []", "\"outputs\": ]"), HasSubstr("line 4"));
}

TEST(PartitionJson, ResultNamesOpsAndLeavesNothingOut) {
  const PartitionGraph g = *partition_graph_from_json(R"({"partition_graph": 1, "ops": [
    {"name": "P", "grid": [8, 1, 1], "outputs": [{"tensor": "t", "map": [0, -1, -1]}]},
    {"name": "C", "grid": [4, 1, 1], "inputs": [{"tensor": "t", "map": [0, -1, -1]}],
                                     "outputs": [{"tensor": "t", "map": [0, -1, -1]}]}]})");
  const auto tasks = lower_partition_graph(g, {.mode = EventMode::kExact});
  ASSERT_TRUE(tasks) << tasks.error().to_string();
  EXPECT_EQ(Json::parse(partition_result_json(g, *tasks)), Json::parse(R"({
    "mode": "exact", "tasks": 12, "relay_tasks": 0, "events": 4, "roots": 8, "end_triggers": 4,
    "edges": [{"producer": "P", "consumer": "C", "tensor": "t", "hazards": ["raw", "waw"], "policy": "tile_cover",
               "events": [{"triggers": 2, "consumers": 1, "count": 4}]}],
    "implied_edges": [], "warnings": []})"));
}

TEST(PartitionJson, ResultListsImpliedEdgesApart) {
  const PartitionGraph g = *partition_graph_from_json(R"({"partition_graph": 1, "ops": [
    {"name": "U", "grid": [8, 1, 1], "outputs": [{"tensor": "u", "map": [0, -1, -1]}]},
    {"name": "W", "grid": [8, 1, 1], "inputs": [{"tensor": "u", "map": [0, -1, -1]}],
                                     "outputs": [{"tensor": "w", "map": [0, -1, -1]}]},
    {"name": "V", "grid": [8, 1, 1], "inputs": [{"tensor": "u", "map": [0, -1, -1]}, {"tensor": "w", "map": [0, -1, -1]}]}]})");
  const auto tasks = lower_partition_graph(g, {.mode = EventMode::kGcd});
  ASSERT_TRUE(tasks) << tasks.error().to_string();
  const Json result = Json::parse(partition_result_json(g, *tasks));
  EXPECT_EQ(result["mode"], "gcd");
  EXPECT_EQ(result["edges"].size(), 2U);
  EXPECT_EQ(result["implied_edges"],
            Json::parse(R"([{"producer": "U", "consumer": "V", "tensor": "u", "hazards": ["raw"]}])"));
}

}  // namespace
}  // namespace megartp
